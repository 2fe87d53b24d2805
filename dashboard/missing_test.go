// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/view"
)

// page returns the changing part of a page, with one space wherever there are spaces.
func page(t *testing.T, s *view.Snapshot, path string) string {
	t.Helper()
	what, ok := find(s, path)
	if !ok {
		t.Fatalf("no page %q", path)
	}
	text, err := fragment(what)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`\s+`).ReplaceAllString(text, " ")
}

// has checks that a page contains a text and, with "!" before it, that it does not.
func has(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if unwanted, not := strings.CutPrefix(text, "!"); strings.Contains(page, unwanted) == not {
			t.Errorf("want %q in %s", text, page)
		}
	}
}

// hide empties the lists of some kinds, as a watcher does with kinds that the user may not list.
func hide(s *view.Snapshot, kinds ...string) *view.Snapshot {
	shown := *s
	out := &shown
	out.Hidden = map[string]string{}
	for _, kind := range kinds {
		out.Hidden[kind] = "may not list"
	}
	for _, list := range out.Lists() {
		if out.Hidden[view.KindOf(list)] != "" {
			_ = meta.SetList(list, nil) // fails on no list
		}
	}
	return out
}

// TestWhatIsMissingIsNotKnown: no page says for certain what only a hidden kind tells.
func TestWhatIsMissingIsNotKnown(t *testing.T) {
	s := recorded(t)
	s.Add(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "later"},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}})
	s.Add(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "lost",
		Annotations: map[string]string{"volume.kubernetes.io/selected-node": "gone"}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}})
	for _, c := range []struct {
		path   string
		hidden []string
		want   []string
	}{
		{"/", []string{"ForeignCluster"}, []string{"peers not known", "!no problems", "!0 peers"}},
		{"/", []string{"Connection"}, []string{"<dt>Link</dt><dd>not known", "!no tunnel"}},
		{"/", []string{"Pod"}, []string{"<dt>Installation</dt><dd>not known", "pods not known", "<td>not known</td>"}},
		{"/", []string{"NamespaceOffloading"}, []string{"Not known: may not list.", "!0 namespaces"}},
		{"/", []string{"Network"}, []string{"<dt>Pods</dt><dd>not known"}},
		{"/peers/x", []string{"ForeignCluster"}, []string{"Not known: may not list.", "!No active peering"}},
		{"/peers/turin", []string{"Identity"}, []string{"not known whether there are problems", "!no problems"}},
		{"/peers/milan", []string{"Event"}, []string{"Not known: may not list.", "!No events"}},
		{"/workloads", nil, []string{`later</th><td>Pending</td><td></td>`, `lost</th><td>Bound</td><td>not known`, `data</th><td>Bound</td><td>milan`}},
		{"/workloads", []string{"VirtualNode", "Node"}, []string{`<td>not known</td><td class="name">milan</td>`, "!here</td>",
			"Bound</td><td>not known</td>", "not known: 2"}},
		{"/workloads", []string{"VirtualNode"}, []string{"here: 1, milan: 1", `<td>here</td><td class="name">rome-1</td>`,
			`milan</a></td><td class="name">milan</td><td class="name">milan-2</td>`}},
		{"/workloads", []string{"ShadowPod"}, []string{"Pods of consumers: not known: may not list", "!For turin"}},
		{"/workloads", []string{"Node"}, []string{"train-0", "0/3 nodes are available", "!more than node milan has"}},
		{"/workloads", []string{"EndpointSlice"}, []string{"10.96.12.7</td><td>not known", "!none"}},
		{"/workloads", []string{"Pod"}, []string{"Pods: not known: may not list", "pods not known",
			"report</th><td>Running</td>", "2, of which 1 not ready"}},
		{"/workloads", []string{"NamespaceOffloading"}, []string{"namespaces not known", "!0 offloaded"}},
	} {
		t.Run(strings.Join(append(c.hidden, c.path), " "), func(t *testing.T) {
			has(t, page(t, hide(s, c.hidden...), c.path), c.want...)
		})
	}
	server, c := start(t, NewSnapshots(hide(s, "ForeignCluster")))
	if got, _ := answer(t, c, server.request(t, http.MethodGet, "/peers/x")); got.StatusCode != http.StatusOK {
		t.Error(got.Status)
	}
}

// TestMapTellsOfWorkloads: the map counts and quotes what is wrong with namespaces and pods.
func TestMapTellsOfWorkloads(t *testing.T) {
	s := recorded(t)
	const counts = "0 namespaces with problems, 1 pod not ready"
	has(t, page(t, s, "/"), "4 peers, 2 problems", counts,
		"pod shop/train-0: the pod requests 4 of nvidia.com/gpu, more than node milan has; type", `href="/workloads"`)
	has(t, page(t, s, "/workloads"), "2 offloaded namespaces: "+counts)
	short := s.Pods.Items[slices.IndexFunc(s.Pods.Items, func(p corev1.Pod) bool { return p.Name == "train-0" })].DeepCopy()
	short.Name, short.Spec.Containers[0].Resources.Requests = "short", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	short.Status.Conditions[0].Message = "0/3 nodes are available: 3 Insufficient cpu."
	all := s.Pods.Items
	s.Add(short)
	has(t, page(t, s, "/"), "4 peers, 3 problems", "and pod shop/short requests 4; delete pods there, or ask for more")
	s.Pods.Items = all
	s.Offloadings.Items[0].Status.Conditions = []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionFalse, Message: "milan refuses"}}
	has(t, page(t, s, "/"), "4 peers, 3 problems", "1 namespace with problems", "namespace shop: milan refuses")
}
