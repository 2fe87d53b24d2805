#!/bin/bash
# Guess: stripping a program takes little from 'govulncheck -mode=binary', because Go keeps its table of functions,
# which stack traces need.
# Behaviour: of a program that calls html.Parse only, it names functions of net/http2 and net/http that were never
# linked, as "Vulnerable symbols found": all that the reports name.
# Version: govulncheck v1.9.0, go1.26.8. Who scans a release built with -ldflags=-s gets alarms that
# a scan of its source does not give.
set -euo pipefail
database=golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018
scanner=golang.org/x/vuln/cmd/govulncheck@v1.9.0
export GOTOOLCHAIN=go1.26.8 GOWORK=off CGO_ENABLED=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export GOMODCACHE=$folder/modules GOFLAGS='-modcacherw -trimpath' # so a package that is gone is missed
mkdir "$folder/run" && cd "$folder/run"

go mod download "$database"
GOBIN=$PWD go install "$scanner"
go run "${database/@//cmd/indexdb@}" -vulns "$(go list -m -f '{{.Dir}}' "$database")/data/osv" -out database
cat > go.mod <<-'END'
	module example.com/parse
	go 1.26
	require golang.org/x/net v0.58.0
END
cat > main.go <<-'END'
	package main

	import (
		"os"

		"golang.org/x/net/html"
	)

	func main() {
		if _, err := html.Parse(os.Stdin); err != nil {
			os.Exit(1)
		}
	}
END
go mod tidy
scan() {
	go build -ldflags="$1" -o program .
	./govulncheck -mode=binary -db "file://$PWD/database" program || [ $? = 3 ]
}
scan '' > whole.txt
if go tool nm program | grep x/net/http2; then exit 1; fi
scan -s > stripped.txt
echo "$scanner, reports with and without symbols, and what the latter name in x/net/http2:"
grep -c ^Vulnerability whole.txt stripped.txt
grep -o 'http2\.[^ ]*' stripped.txt | sort -u | head -3
[ "$(grep -c ^Vulnerability whole.txt)" = 1 ] && grep -q 'http2\.ClientConn\.Close' stripped.txt
