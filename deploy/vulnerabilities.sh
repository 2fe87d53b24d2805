#!/bin/bash
# Fails if shipped code calls something that Go's vulnerability database knows, or if a report excused below is gone.
# The tools have fixed versions. Their data are the newest, because a scan with old data finds nothing new.
# usage: deploy/vulnerabilities.sh [version of golang.org/x/vulndb]
set -euo pipefail
cd "$(dirname "$0")/.."
data=golang.org/x/vulndb@${1:-latest}
indexer=golang.org/x/vulndb/cmd/indexdb@v0.0.0-20261105234957-e22db6528018
scanner=golang.org/x/vuln/cmd/govulncheck@v1.9.0

# Helm 3.20 imports containerd's client, which has none of these faults: they are in its CRI server and image store.
# It imports openpgp to verify signatures of charts, which liqoctl does not do. Helm 3.21 imports neither, and requires
# Kubernetes 0.36.
excused='GO-2026-5064 GO-2026-5338 GO-2026-5622 GO-2026-5932 GO-2026-6597 GO-2026-6791'

export GOWORK=off GOBIN=$PWD/bin
go install "$indexer"
go install "$scanner"
go mod download "$data"
rm -rf bin/vulndb
bin/indexdb -vulns "$(go list -m -f '{{.Dir}}' "$data")/data/osv" -out bin/vulndb
for module in . deploy/release; do
	echo "module $module:"
	bin/govulncheck -C "$module" -db "file://$PWD/bin/vulndb" ./... || [ $? = 3 ] || exit 1 # 3: something was found
done | tee bin/vulnerabilities.txt

found=$(sed -n 's/^Vulnerability #[0-9]*: //p' bin/vulnerabilities.txt | sort -u)
new=$(comm -23 <(echo "$found") <(tr ' ' '\n' <<<"$excused"))
gone=$(comm -13 <(echo "$found") <(tr ' ' '\n' <<<"$excused"))
[ -z "$new" ] || echo "shipped code calls what is vulnerable; update Go or the module: ${new//$'\n'/ }" >&2
[ -z "$gone" ] || echo "no longer reported; remove from $0: ${gone//$'\n'/ }" >&2
[ -z "$new$gone" ]
