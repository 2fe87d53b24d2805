#!/bin/bash
# Writes the rules of each process from the markers beside the code that needs them. Rights of
# one namespace (markers with namespace=…) go into a file of their own.
# usage: deploy/rbac.sh 'controller-gen command'
set -euo pipefail
cd "$(dirname "$0")/.."
gen=$1
into=deploy/liqo/files/rbac
mkdir -p $into
rm -f $into/*.yaml
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
role() { # role <process> <packages>
	rm -f "$work"/*
	eval "$gen rbac:roleName=$1 paths='$2' output:rbac:dir=$work"
	awk -v cluster="$into/$1.yaml" -v local="$into/$1-namespaced.yaml" '
		function flush() { if (doc != "") printf "%s", doc > (doc ~ /kind: ClusterRole\n/ ? cluster : local); doc = "" }
		/^---$/ { flush(); next }
		{ doc = doc $0 "\n" }
		END { flush() }' "$work/role.yaml"
}
role controller '{./identity,./peering,./network,./offloading,./storage,./reflection/replication,./internal/ctl,./cmd/liqo-control}'
role defaults ./deploy/defaults
role fabric ./network/fabric
role gateway ./network/gateway
role kubelet '{./offloading/kubelet,./reflection,./internal/remote}'
role cleanup ./deploy/cleanup
role kinds ./deploy/kinds
role check ./deploy/check

# A marker inside a doc comment is silently ignored: it must stand in a block of its own.
if grep -rn -B1 -A1 --include='*.go' 'kubebuilder:rbac' cmd deploy identity internal network offloading peering reflection storage |
	grep -v 'kubebuilder:rbac' | grep -E '^[^ ]+-[0-9]+-(//|func|type)'; then
	echo 'the markers beside these lines need a blank line around them' >&2
	exit 1
fi
