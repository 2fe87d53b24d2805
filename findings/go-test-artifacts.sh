#!/bin/bash
# Guess, and what Go's source says: 'go test -artifacts' keeps files of a test in _artifacts/<package>/<test>/<random>.
# Behaviour: in _artifacts/<random>. The name of the test is in no path, only in the output of -v or -json.
# Version: go1.26.8 on Linux. Who collects artifacts in CI keeps that output too, to know whose they are.
set -euo pipefail
export GOTOOLCHAIN=go1.26.8 GOWORK=off CGO_ENABLED=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export GOMODCACHE=$folder/modules GOFLAGS='-modcacherw -trimpath' # so a package that is gone is missed
mkdir "$folder/run" && cd "$folder/run"

cat > go.mod <<-'END'
	module example.com/artifacts
	go 1.26
END
mkdir store
cat > store/store_test.go <<-'END'
	package store

	import (
		"os"
		"path/filepath"
		"testing"
	)

	func TestStore(t *testing.T) {
		if err := os.WriteFile(filepath.Join(t.ArtifactDir(), "log"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
END
go test -count=1 -vet=off -artifacts -outputdir "$PWD" ./store
seen=$(find _artifacts -type f)
echo "$(go version): the artifact of store.TestStore is $seen"
[[ $seen =~ ^_artifacts/[0-9]+/log$ ]]
