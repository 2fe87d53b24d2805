// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
)

// TestHeartbeatsAreIgnored: status updates of kubelets do not reconcile a node; changes that its
// InternalNode depends on do.
func TestHeartbeatsAreIgnored(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change string
		make   func(n *corev1.Node)
		heeded bool
	}{
		{"a heartbeat", func(n *corev1.Node) {
			n.ResourceVersion = "2"
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
		}, false},
		{"an image more", func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{Names: []string{"echo"}}} }, false},
		{"its range of pods", func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.0.1.0/24"} }, true},
		{"becoming virtual", func(n *corev1.Node) { n.Labels = map[string]string{api.LabelType: api.TypeVirtualNode} }, true},
		{"its end", func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
		{"another one of its name", func(n *corev1.Node) { n.UID = "b" }, true},
	} {
		before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "a", ResourceVersion: "1"}}
		after := before.DeepCopy()
		c.make(after)
		if got := otherNode(before, after); got != c.heeded {
			t.Errorf("%s: heeded is %t", c.change, got)
		}
	}
}
