// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// pod is decoded, as from a watch: nothing in it is shared with another.
func pod(t testing.TB, n int) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("web-", n), Namespace: "shop", UID: types.UID(fmt.Sprint("u", n)),
			Labels: map[string]string{"app": "web", "tier": "front"}, Annotations: map[string]string{"of": fmt.Sprint(n)},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "r"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "milan",
			Containers: []corev1.Container{{
				Name: "c", Image: "web:1", Env: []corev1.EnvVar{{Name: "A", Value: "a"}, {Name: "B"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Gi")}},
			}},
			Tolerations:     []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(300))}},
			SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64(1))},
		},
	}
	data, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	out := &corev1.Pod{}
	if err := out.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestObjectsShareWhatIsEqual: no value changes, and equal parts of two objects are the same memory.
func TestObjectsShareWhatIsEqual(t *testing.T) {
	var p Pool
	a, b := pod(t, 1), pod(t, 2)
	p.Object(a)
	p.Object(b)
	if !equality.Semantic.DeepEqual(a, pod(t, 1)) || !equality.Semantic.DeepEqual(b, pod(t, 2)) {
		t.Error("a value has changed")
	}
	b.Labels["app"] = "other" // seen through the other, which no reader of a cache may do
	if a.Labels["app"] != "other" || a.Annotations["of"] == b.Annotations["of"] {
		t.Error("equal labels are not shared, or different annotations are")
	}
	for what, same := range map[string]bool{
		"node names":       unsafe.StringData(a.Spec.NodeName) == unsafe.StringData(b.Spec.NodeName),
		"containers":       &a.Spec.Containers[0] == &b.Spec.Containers[0],
		"tolerations":      &a.Spec.Tolerations[0] == &b.Spec.Tolerations[0],
		"owners":           &a.OwnerReferences[0] == &b.OwnerReferences[0],
		"security context": a.Spec.SecurityContext == b.Spec.SecurityContext,
	} {
		if !same {
			t.Errorf("%s are not shared", what)
		}
	}
}

// TestDifferentPartsStayApart: what differs in anything is not shared, and what was shared is what it was.
func TestDifferentPartsStayApart(t *testing.T) {
	var p Pool
	for n := range 3 * most {
		one := pod(t, n)
		c := &one.Spec.Containers[0]
		c.Env[0].Value, c.Env[1].Name = fmt.Sprint("a", n%5), fmt.Sprint(n)
		c.Resources.Requests["cpu"] = resource.MustParse(fmt.Sprint(n%3, "m"))
		one.Labels["n"] = fmt.Sprint(n % 7)
		one.Spec.Tolerations[0].TolerationSeconds = new(int64(n % 11))
		want := one.DeepCopy()
		p.Object(one)
		if !equality.Semantic.DeepEqual(one, want) {
			t.Fatalf("pod %d has changed", n)
		}
	}
	if len(p.texts) > most || len(p.maps) > most || len(p.parts) > most || len(p.lists) > most {
		t.Errorf("remembered: %d texts, %d maps, %d parts, %d lists", len(p.texts), len(p.maps), len(p.parts), len(p.lists))
	}
}

// BenchmarkPods tells what sharing costs and saves for each pod.
func BenchmarkPods(b *testing.B) {
	for _, shares := range []bool{false, true} {
		b.Run(fmt.Sprintf("sharing=%t", shares), func(b *testing.B) {
			var p Pool
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			all := make([]*corev1.Pod, 0, b.N)
			for n := range b.N {
				one := pod(b, n)
				if shares {
					p.Object(one)
				}
				all = append(all, one)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(b.N), "B/pod")
			runtime.KeepAlive(all)
		})
	}
}
