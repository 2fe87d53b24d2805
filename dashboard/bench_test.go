// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/view"
)

// large returns a cluster with peers and offloaded pods, a tenth of which wait.
func large(b *testing.B, peers, pods int) *view.Snapshot {
	b.Helper()
	s, err := Demo()
	if err != nil {
		b.Fatal(err)
	}
	milan, tunnel, node := s.ForeignClusters.Items[0], s.Connections.Items[0], s.VirtualNodes.Items[0]
	for i := range peers {
		id := fmt.Sprintf("peer-%d", i)
		f, c, v := milan.DeepCopy(), tunnel.DeepCopy(), node.DeepCopy()
		f.Name, f.Spec.ClusterID, c.Name, v.Name, v.Spec.ClusterID = id, id, id, id, id
		for _, labels := range []map[string]string{f.Labels, c.Labels, v.Labels} {
			labels["liqo.io/remote-cluster-id"] = id
		}
		s.Add(f)
		s.Add(c)
		s.Add(v)
		s.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id, Labels: map[string]string{
			"liqo.io/remote-cluster-id": id, "liqo.io/type": "virtual-node"}}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	}
	for i := range pods {
		pod := s.Pods.Items[1].DeepCopy()
		pod.Name, pod.Spec.NodeName = fmt.Sprintf("pod-%d", i), fmt.Sprintf("peer-%d", i%peers)
		if i%10 == 0 {
			pod.Spec.NodeName, pod.Status = "", corev1.PodStatus{Phase: corev1.PodPending,
				Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}}
		}
		event := s.Events.Items[0].DeepCopy()
		event.InvolvedObject.Name = pod.Name
		s.Add(pod)
		s.Add(event)
	}
	return s
}

// BenchmarkPages draws the pages of a cluster with 100 peers and 1000 offloaded pods.
func BenchmarkPages(b *testing.B) {
	s := large(b, 100, 1000)
	for _, path := range []string{"/", "/peers/peer-7", "/workloads", "/events"} {
		b.Run(path, func(b *testing.B) {
			for b.Loop() {
				what, _ := find(s, path)
				if text, err := draw("page", what); err != nil || len(text) < 3_000 {
					b.Fatal(len(text), err)
				}
			}
		})
	}
}
