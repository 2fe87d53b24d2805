#!/bin/bash
# Fails if shipped code calls something that Go's vulnerability database knows.
# The tools have fixed versions. Their data are the newest, because a scan with old data finds nothing new.
# usage: deploy/vulnerabilities.sh [version of golang.org/x/vulndb]
set -euo pipefail
cd "$(dirname "$0")/.."
data=golang.org/x/vulndb@${1:-latest}
indexer=golang.org/x/vulndb/cmd/indexdb@v0.0.0-20261105234957-e22db6528018
scanner=golang.org/x/vuln/cmd/govulncheck@v1.9.0

export GOWORK=off GOBIN=$PWD/bin
go install "$indexer"
go install "$scanner"
go mod download "$data"
rm -rf bin/vulndb
bin/indexdb -vulns "$(go list -m -f '{{.Dir}}' "$data")/data/osv" -out bin/vulndb
red=0
for module in . deploy/release; do
	echo "module $module:"
	bin/govulncheck -C "$module" -db "file://$PWD/bin/vulndb" ./... || red=$?
done
exit $red
