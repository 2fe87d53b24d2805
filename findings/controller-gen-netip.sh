#!/bin/bash
# Guess: controller-gen copies a netip.Addr by assignment, because it holds no slice or map that callers can change, or
# it says that it cannot. The schema that it writes for the same field, "type: string", is right.
# Behaviour: it calls Addr.DeepCopyInto, which does not exist, and succeeds. The written file does not compile.
# Version: controller-gen v0.20.1. API types keep addresses as strings, or as a type with a DeepCopyInto of its own.
set -euo pipefail
tool=sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.1
export GOTOOLCHAIN=go1.26.8 GOWORK=off CGO_ENABLED=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat > go.mod <<-'END'
	module example.com/address
	go 1.26
END
mkdir v1
cat > v1/types.go <<-'END'
	// +kubebuilder:object:generate=true
	package v1

	import "net/netip"

	type Spec struct {
		Addr netip.Addr `json:"addr"`
	}
END
go build ./v1
go run "$tool" object paths=./v1
echo "$tool: succeeds, and then 'go build' says:"
if go build ./v1 2> build.txt; then exit 1; fi
cat build.txt
grep -qF 'in.Addr.DeepCopyInto undefined (type netip.Addr has no field or method DeepCopyInto)' build.txt
