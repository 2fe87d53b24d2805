#!/bin/bash
# Guess: for controller-gen a field with the JSON tag "omitzero" is optional, as one with "omitempty" is.
# Behaviour: it is required. The API server refuses what Go writes, because Go leaves the zero value out.
# Version: controller-gen v0.20.1. Who uses omitzero, as Go 1.24 and later advise for structs, adds +optional.
set -euo pipefail
tool=sigs.k8s.io/controller-tools/cmd/controller-gen@v0.20.1
export GOTOOLCHAIN=go1.26.8 GOWORK=off CGO_ENABLED=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export GOMODCACHE=$folder/modules GOFLAGS='-modcacherw -trimpath' # so a package that is gone is missed
mkdir "$folder/run" && cd "$folder/run"

cat > go.mod <<-'END'
	module example.com/zero
	go 1.26
	require k8s.io/apimachinery v0.35.4
END
mkdir v1
cat > v1/types.go <<-'END'
	// +groupName=example.com
	// +versionName=v1
	package v1

	import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	type Spec struct {
		Empty string `json:"empty,omitempty"`
		Zero  string `json:"zero,omitzero"`
	}

	// +kubebuilder:object:root=true
	type Thing struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata,omitempty"`

		Spec Spec `json:"spec,omitempty"`
	}
END
go mod tidy
go run "$tool" crd paths=./v1 output:crd:stdout > crd.yaml

seen=$(grep -A 3 required: crd.yaml | tr -d ' ')
echo "$tool: required fields of a spec with 'empty,omitempty' and 'zero,omitzero':"
echo "$seen"
[ "$seen" = "$(printf '%s\n' required: -zero type:object type:object)" ]
