// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// TestVirtualNodeStatusFollowsItsConditions: a virtual node is healthy if each of its parts runs or
// is not wanted.
func TestVirtualNodeStatusFollowsItsConditions(t *testing.T) {
	t.Parallel()
	const running, none, creating, draining = offv1beta1.VirtualNodeRunning, offv1beta1.VirtualNodeNone,
		offv1beta1.VirtualNodeCreating, offv1beta1.VirtualNodeDraining
	for _, c := range []struct {
		kubelet, node offv1beta1.VirtualNodeConditionStatus
		want          ModuleStatus
	}{
		{running, running, Healthy}, {running, none, Healthy},
		{creating, creating, Unhealthy}, {running, creating, Unhealthy}, {running, draining, Unhealthy},
		{"", "", Unhealthy}, // its controller has not reported anything yet
	} {
		v := &offv1beta1.VirtualNode{}
		if c.kubelet != "" {
			v.Status.Conditions = []offv1beta1.VirtualNodeCondition{
				{Type: offv1beta1.VirtualKubeletCondition, Status: c.kubelet},
				{Type: offv1beta1.NodeCondition, Status: c.node}}
		}
		if got := virtualNode(v).Status; got != c.want {
			t.Errorf("kubelet %q, node %q: %s, want %s", c.kubelet, c.node, got, c.want)
		}
	}
}
