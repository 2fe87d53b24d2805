// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// TestLostNodes shows three things. Pods on the node of an unavailable provider are labelled until
// it is back. Pods of consumers that terminate on a lost node are deleted, and others are not. A
// virtual node with the name of a real node leaves that node alone when it is deleted.
func TestLostNodes(t *testing.T) {
	t.Parallel()
	k := start(t)
	real, virtual := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "rome", Labels: map[string]string{api.LabelType: api.TypeVirtualNode},
	}}
	k.create(t, namespace("demo", nil), namespace("tenant-rome", map[string]string{api.LabelTenantNamespace: api.True}), real, virtual)
	k.ready(t, real, corev1.ConditionTrue)
	k.ready(t, virtual, corev1.ConditionTrue)
	on := func(node, name string, labels map[string]string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "demo", Labels: labels}, Spec: container("1")}
		pod.Spec.NodeName = node
		k.create(t, pod)
		return pod
	}
	home := on("rome", "home", map[string]string{api.LabelShadowPod: api.True})
	theirs := on("n1", "theirs", map[string]string{api.LabelManaged: api.True, api.LabelManagedBy: api.ManagedByShadowPod})
	others := on("n1", "others", map[string]string{api.LabelManaged: api.True})
	stays := on("n1", "stays", nil)

	k.isMarked(t, home, false)
	k.ready(t, virtual, corev1.ConditionUnknown)
	k.isMarked(t, home, true)
	late := on("rome", "late", map[string]string{api.LabelShadowPod: api.True})
	k.isMarked(t, late, true)
	k.ready(t, virtual, corev1.ConditionTrue)
	k.isMarked(t, home, false)
	k.isMarked(t, late, false)

	for _, pod := range []*corev1.Pod{theirs, others} {
		if err := k.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	k.ready(t, real, corev1.ConditionUnknown)
	k.until(t, "end of the consumer's pod", k.gone(theirs))
	k.exists(t, others)

	k.leavesTheRealNode(t, real, stays)
}

// leavesTheRealNode creates a virtual node with a real node's name, and deletes it.
func (k cluster) leavesTheRealNode(t *testing.T, node *corev1.Node, pod *corev1.Pod) {
	t.Helper()
	options := &offloadingv1beta1.VkOptionsTemplate{ObjectMeta: metav1.ObjectMeta{Name: api.VkOptionsTemplateName, Namespace: "liqo"}}
	options.Spec.ContainerImage = "liqo:v1"
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Namespace: "tenant-rome"}}
	vn.Spec.ClusterID = "rome"
	k.create(t, options, vn)
	k.until(t, "reason", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(vn), vn)
		if err == nil && (len(vn.Status.Conditions) == 0 || vn.Status.Conditions[0].Reason != "NodeExists") {
			err = fmt.Errorf("conditions %v", vn.Status.Conditions)
		}
		return err
	})
	if err := k.Delete(t.Context(), vn); err != nil {
		t.Fatal(err)
	}
	k.until(t, "end of the virtual node", k.gone(vn))
	k.exists(t, pod)
	if pod.DeletionTimestamp != nil {
		t.Error("a pod of the real node was evicted")
	}
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil || node.Spec.Unschedulable {
		t.Errorf("the real node: error %v, unschedulable %t", err, node.Spec.Unschedulable)
	}
}

// ready sets the condition Ready of a node.
func (k cluster) ready(t *testing.T, node *corev1.Node, status corev1.ConditionStatus) {
	t.Helper()
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		t.Fatal(err)
	}
	k.says(t, node, func() { node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}} })
}

func (k cluster) isMarked(t *testing.T, pod *corev1.Pod, marked bool) {
	t.Helper()
	k.until(t, fmt.Sprintf("pod marked: %t", marked), func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if _, is := pod.Labels[api.LabelRemoteUnavailable]; err == nil && is != marked {
			err = fmt.Errorf("labels %v", pod.Labels)
		}
		return err
	})
}

func (k cluster) exists(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Error(err)
	}
}
