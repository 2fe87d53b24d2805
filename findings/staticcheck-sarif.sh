#!/bin/bash
# Guess: staticcheck's exit code says whether it found something, whatever the format of its output.
# Behaviour: 1 for text, stylish, json and null, but 0 for sarif. A step of CI that uploads SARIF never fails by itself.
# Version: staticcheck v0.8.2 (2026.2). A second run in another format, or a look into "results", decides.
set -euo pipefail
tool=honnef.co/go/tools/cmd/staticcheck@v0.8.2
export GOTOOLCHAIN=go1.26.8 GOWORK=off CGO_ENABLED=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export GOMODCACHE=$folder/modules GOFLAGS='-modcacherw -trimpath' # so a package that is gone is missed
mkdir "$folder/run" && cd "$folder/run"

GOBIN=$PWD go install "$tool"
cat > go.mod <<-'END'
	module example.com/unused
	go 1.26
END
cat > unused.go <<-'END'
	package unused

	func f() {}
END
seen=
for format in text stylish json null sarif; do
	code=0
	./staticcheck -f $format . > $format.txt || code=$?
	seen+="$format $code, "
done
echo "$tool: exit codes for a function that is not used: $seen"
cat text.txt
grep -q U1000 sarif.txt # it is reported
[ "$seen" = 'text 1, stylish 1, json 1, null 1, sarif 0, ' ]
