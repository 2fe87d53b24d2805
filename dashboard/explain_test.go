// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestExplain: the page says what 'liqoctl why' says of the first pods that are not ready, and what to type.
func TestExplain(t *testing.T) {
	s := recorded(t)
	s.Command = "kubectl liqo"
	has(t, page(t, s, "/workloads"), "more than node milan has<br><code>kubectl liqo create resourceslice milan -n liqo-tenant-milan "+
		"--remote-cluster-id milan --resource nvidia.com/gpu=4<",
		"quota usage exceeded: used 1900m, requested 500m, limit 2<br><code>kubectl liqo info peer turin</code>",
		"2, of which 1 not ready", "!only the status is shown")

	all, refused := s.Pods.Items, s.Pods.Items[1].DeepCopy()
	refused.Name, refused.Spec.NodeName, refused.Status = "refused", "milan", corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: "False", Message: "peering cpu quota usage exceeded - free 1 / requested 2"}}}
	refused.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	s.Add(refused) // others use 3 of 4
	has(t, page(t, s, "/workloads"), "--remote-cluster-id milan --cpu 5<")
	s.Pods.Items = all

	broken := s.Pods.Items[1].DeepCopy()
	broken.Name, broken.Status = "broken", corev1.PodStatus{Phase: corev1.PodPending,
		ContainerStatuses: []corev1.ContainerStatus{{Name: "front", Image: "shop:none", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}}}}
	broken.Spec.NodeName = "milan"
	s.Add(broken)
	has(t, page(t, s, "/workloads"), "at milan: a node of milan cannot get image &#34;shop:none&#34;",
		"<code>kubectl -n shop-rome describe pod broken # at milan</code>")

	for i := range mostExplained {
		pod := broken.DeepCopy()
		pod.Name = fmt.Sprint("broken-", i)
		s.Add(pod)
	}
	text := page(t, s, "/workloads")
	has(t, text, "Of 3 further pods only the status is shown")
	if n := strings.Count(text, "cannot get image"); n != mostExplained+1 {
		t.Errorf("%d pods say what keeps them", n)
	}
}

// TestNodeAtProvider: events that a provider's kubelet has sent name the node of the pod there. Those of another cluster,
// and about a former pod of the name, do not.
func TestNodeAtProvider(t *testing.T) {
	s := recorded(t)
	there := `milan</a></td><td class="name">milan</td><td class="name">milan-2</td>`
	has(t, page(t, s, "/workloads"), there)
	e := &s.Events.Items[slices.IndexFunc(s.Events.Items, func(e corev1.Event) bool { return e.Source.Host != "" })]
	later := e.DeepCopy()
	later.Source.Host, later.LastTimestamp.Time = "milan-3", e.LastTimestamp.Add(time.Minute)
	s.Add(later)
	has(t, page(t, s, "/workloads"), `<td class="name">milan-3</td>`)
	s.Events.Items = s.Events.Items[:len(s.Events.Items)-1]
	for _, change := range []func(*corev1.Event){
		func(e *corev1.Event) { e.Labels["offloading.liqo.io/origin"] = "naples" },
		func(e *corev1.Event) { e.Labels = nil },
		func(e *corev1.Event) { e.InvolvedObject.UID = "former" },
		func(e *corev1.Event) { e.Source.Component = "scheduler" },
	} {
		was := e.DeepCopy()
		change(e)
		has(t, page(t, s, "/workloads"), "!"+there, "!milan-2", `milan</a></td><td class="name">milan</td><td class="name">not known</td>`)
		*e = *was
	}
}
