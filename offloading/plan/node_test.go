// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/offloading/plan"
)

// TestDeclaredFeaturesNeedAnAPIServerThatKnowsThem: others refuse the whole status of a Node with them.
func TestDeclaredFeaturesNeedAnAPIServerThatKnowsThem(t *testing.T) {
	t.Parallel()
	vn := &offloadingv1beta1.VirtualNode{}
	vn.Spec.Node = &authv1beta1.NodeFacts{DeclaredFeatures: []string{"RestartAllContainersOnContainerExits"}}
	for version, want := range map[string]int{"v1.25.0": 0, "v1.34.4": 0, "": 0, "v1.35.4": 1, "v1.36.2+k3s1": 1, "v1.37.2-gke.1": 1} {
		if got := plan.Node(plan.NodeInput{VirtualNode: vn, Version: version}).Status.DeclaredFeatures; len(got) != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}
