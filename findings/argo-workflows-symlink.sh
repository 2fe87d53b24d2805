#!/bin/bash
# Guess: a program whose releases are for Linux builds for Linux from its Go module.
# Behaviour: signal_linux.go of Argo Workflows' executor is a symbolic link to signal_darwin.go in its repository, and
# archives of modules hold regular files only. From the module the executor builds for macOS, and not for Linux.
# Version: v3.7.0, and v3.7.4. Who builds it needs the repository, or a copy of the module with the link restored.
set -euo pipefail
export GOTOOLCHAIN=go1.26.8 GOWORK=off CGO_ENABLED=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export GOMODCACHE=$folder/modules GOFLAGS='-modcacherw -trimpath -mod=mod' # so a package that is gone is missed
mkdir "$folder/run" && cd "$folder/run"

module=github.com/argoproj/argo-workflows/v3
cat > go.mod <<-END
	module example.com/executor
	go 1.26
	require $module v3.7.0
END
package=$module/workflow/executor/osspecific
GOOS=darwin go build "$package" # which needs no more modules than Linux does
code=0
GOOS=linux go build "$package" 2> linux.txt || code=$?
echo "$module v3.7.0 on $(go version): for macOS it builds; for Linux:"
cat linux.txt
ls "$(go list -m -f '{{.Dir}}' $module)/workflow/executor/osspecific"
[ $code = 1 ] && grep -q 'undefined: Setpgid' linux.txt
