// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/reflection/translate"
)

// TestClaimsWithOwners: only the controller of a claim can have an ephemeral volume, and only if it
// is a pod of Kubernetes.
func TestClaimsWithOwners(t *testing.T) {
	t.Parallel()
	for claim, c := range map[string]struct {
		version, kind string
		controller    *bool
		pod           string
	}{
		"of an ephemeral volume or a driver": {"v1", "Pod", new(true), "owner"},
		"of a driver that only owns it":      {"v1", "Pod", nil, ""},
		"of a driver that is no controller":  {"v1", "Pod", new(false), ""},
		"of an operator":                     {"postgresql.cnpg.io/v1", "Cluster", new(true), ""},
		"of an operator that only owns it":   {"kafka.strimzi.io/v1", "Kafka", new(false), ""},
		"of a StatefulSet that is deleted":   {"apps/v1", "StatefulSet", nil, ""},
		"of a custom resource called Pod":    {"machines.example.com/v1", "Pod", new(true), ""},
		"of a Job":                           {"batch/v1", "Job", new(true), ""},
	} {
		owned := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "another"},
			{APIVersion: c.version, Kind: c.kind, Name: "owner", Controller: c.controller},
		}}}
		if got := translate.OwnerPod(owned); got != c.pod {
			t.Errorf("claim %s: pod %q, want %q", claim, got, c.pod)
		}
	}
}
