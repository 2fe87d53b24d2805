// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	networkingv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/story"
	"github.com/liqo-go/liqo/offloading/plan"
)

// runtimeClass is the class an administrator chose to send pods to virtual nodes.
const runtimeClass = "elsewhere"

// now is what every clock shows in every story.
var now = time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)

// TestStories plans for the first document of each story and compares everything that is
// planned. This cluster is "milan" when it consumes; "rome" provides.
func TestStories(t *testing.T) {
	story.Each(t, "testdata/*.txtar", func(t *testing.T, s *story.Story) {
		s.Expect(t, "plan.yaml", tell(t, story.Objects(t, s.Files[0].Data)))
	})
}

// tell plans for the first object, with the others as observed ones.
func tell(t *testing.T, objects []client.Object) string {
	t.Helper()
	rest := objects[1:]
	switch root := objects[0].(type) {
	case *corev1.Namespace:
		if root.Labels[api.LabelTenantNamespace] == "" {
			return show(t, root, plan.SchedulingLabel(plan.SchedulingLabelInput{Namespace: root, Offloading: story.First[*offloadingv1beta1.NamespaceOffloading](rest)}))
		}
		return show(t, root, plan.NamespaceMap(namespaceMapInput(root, rest)))
	case *offloadingv1beta1.NamespaceOffloading:
		ending := endingNamespaces(rest)
		held, ends := ending[root.Namespace]
		return show(t, root, plan.NamespaceOffloading(plan.NamespaceOffloadingInput{
			Ends: ends, Held: held, ClusterID: "milan", Root: root, Maps: story.Values[*offloadingv1beta1.NamespaceMap](rest),
			VirtualNodes: story.Values[*offloadingv1beta1.VirtualNode](rest), Nodes: nodesByName(rest), Pods: story.Values[*corev1.Pod](rest),
			Dead: dead(rest), RuntimeClass: runtimeClass, Now: now,
		}))
	case *offloadingv1beta1.VirtualNode:
		return show(t, root, plan.VirtualNode(virtualNodeInput(root, rest)))
	case *offloadingv1beta1.NamespaceMap:
		return show(t, root, plan.RemoteNamespaces(remoteNamespacesInput(root, rest)))
	case *offloadingv1beta1.ShadowPod:
		return show(t, root, plan.ShadowPod(shadowPodInput(root, rest)))
	case *offloadingv1beta1.ShadowEndpointSlice:
		return show(t, root, plan.ShadowEndpointSlice(shadowEndpointSliceInput(root, rest)))
	case *corev1.Pod:
		travels := story.First[*corev1.PersistentVolumeClaim](rest) != nil || plan.ChoosesVirtualNodes(&root.Spec, story.Values[*corev1.Node](rest))
		return pod(t, root, story.First[*offloadingv1beta1.NamespaceOffloading](rest), travels)
	case *corev1.Node:
		return node(t, root, rest)
	}
	t.Fatalf("no plan for %T", objects[0])
	return ""
}

func namespaceMapInput(root *corev1.Namespace, rest []client.Object) plan.NamespaceMapInput {
	in := plan.NamespaceMapInput{
		ClusterID: "milan", Namespace: *root, Nodes: nodesByName(rest),
		Current:      story.First[*offloadingv1beta1.NamespaceMap](rest),
		VirtualNodes: story.Values[*offloadingv1beta1.VirtualNode](rest), Offloadings: story.Values[*offloadingv1beta1.NamespaceOffloading](rest),
		HoldVolumes: map[string]bool{}, Ending: endingNamespaces(rest),
	}
	for _, claim := range story.Values[*corev1.PersistentVolumeClaim](rest) {
		in.HoldVolumes[claim.Namespace] = true
	}
	return in
}

// endingNamespaces returns the namespaces that are being deleted, with what holds each.
func endingNamespaces(rest []client.Object) map[string][]string {
	ending := map[string][]string{}
	for _, namespace := range story.Values[*corev1.Namespace](rest) {
		if namespace.DeletionTimestamp != nil {
			pods := slices.DeleteFunc(story.Values[*corev1.Pod](rest), func(p corev1.Pod) bool { return p.Namespace != namespace.Name })
			claims := slices.DeleteFunc(story.Values[*corev1.PersistentVolumeClaim](rest), func(c corev1.PersistentVolumeClaim) bool { return c.Namespace != namespace.Name })
			ending[namespace.Name] = plan.Held(&namespace, pods, claims)
		}
	}
	return ending
}

func nodesByName(rest []client.Object) map[string]corev1.Node {
	nodes := map[string]corev1.Node{}
	for _, n := range story.Values[*corev1.Node](rest) {
		nodes[n.Name] = n
	}
	return nodes
}

func virtualNodeInput(root *offloadingv1beta1.VirtualNode, rest []client.Object) plan.VirtualNodeInput {
	in := plan.VirtualNodeInput{
		Root: root, Now: now, Last: true, Dead: dead(rest)[root.Spec.ClusterID],
		Kubelet: plan.KubeletSettings{ClusterID: "milan", LiqoNamespace: "liqo", PodCIDRs: []string{"10.10.0.0/16"}, ReflectIPs: true, Storage: true, RuntimeClass: runtimeClass},
		Options: story.First[*offloadingv1beta1.VkOptionsTemplate](rest), Node: story.First[*corev1.Node](rest),
		Deployment: story.First[*appsv1.Deployment](rest), Leases: story.Values[*coordinationv1.Lease](rest),
	}
	if other := story.First[*offloadingv1beta1.VirtualNode](rest); other != nil {
		in.Namesake = other.Namespace
	}
	for _, p := range story.Values[*corev1.Pod](rest) {
		if p.Labels[api.LabelVirtualNode] != "" {
			in.KubeletPods = append(in.KubeletPods, p)
		} else {
			in.Pods = append(in.Pods, p)
		}
	}
	return in
}

func remoteNamespacesInput(root *offloadingv1beta1.NamespaceMap, rest []client.Object) plan.RemoteNamespacesInput {
	in := plan.RemoteNamespacesInput{
		Root: root, PodSecurity: "baseline", LiqoNamespace: "liqo", StorageNamespace: "volumes", Namespaces: map[string]corev1.Namespace{},
		Names: plan.NamePatterns{Denied: []string{"openshift-*"}},
	}
	for _, tenant := range story.Values[*authv1beta1.Tenant](rest) {
		in.Tenants = append(in.Tenants, tenant.Spec.ClusterID)
	}
	for _, ns := range story.Values[*corev1.Namespace](rest) {
		in.Namespaces[ns.Name] = ns
	}
	in.Tenant = in.Namespaces[root.Namespace]
	return in
}

// shadowPodInput counts the requests of a story's other ShadowPods as used.
func shadowPodInput(root *offloadingv1beta1.ShadowPod, rest []client.Object) plan.ShadowPodInput {
	in := plan.ShadowPodInput{Root: root, Now: now, Pod: story.First[*corev1.Pod](rest), Configuration: story.First[*networkingv1beta1.Configuration](rest)}
	if quota := story.First[*offloadingv1beta1.Quota](rest); quota != nil {
		used := corev1.ResourceList{}
		for _, other := range story.Values[*offloadingv1beta1.ShadowPod](rest) {
			plan.Add(used, plan.Demand(&other.Spec.Pod))
		}
		in.Quota = &plan.QuotaInput{Quota: &quota.Spec, Used: used, Pod: root.Spec.Pod}
	}
	return in
}

func shadowEndpointSliceInput(root *offloadingv1beta1.ShadowEndpointSlice, rest []client.Object) plan.ShadowEndpointSliceInput {
	in := plan.ShadowEndpointSliceInput{Root: root, Origin: "milan", Configurations: map[string]networkingv1beta1.Configuration{}, DenyDirect: root.Name == "denied"}
	for _, c := range story.Values[*networkingv1beta1.Configuration](rest) {
		in.Configurations[c.Labels[api.LabelRemoteClusterID]] = c
	}
	for _, c := range story.Values[*networkingv1beta1.Connection](rest) {
		in.Down = in.Down || c.Status.Value != networkingv1beta1.Connected
	}
	in.Pods = map[netip.Addr]string{}
	for _, p := range story.Values[*corev1.Pod](rest) {
		in.Pods[netip.MustParseAddr(p.Status.PodIP)] = p.Spec.NodeName
	}
	return in
}

// pod returns a pod after admission, and the plan for one that admission did not see. Claims of a
// story are of a storage class of Liqo.
func pod(t *testing.T, root *corev1.Pod, offloading *offloadingv1beta1.NamespaceOffloading, travels bool) string {
	t.Helper()
	out := map[string]any{}
	if offloading != nil {
		admitted := plan.AdmitPod(root, offloading.Spec, runtimeClass, travels)
		out["admitted"] = map[string]any{"tolerations": admitted.Spec.Tolerations, "affinity": admitted.Spec.Affinity, "annotations": admitted.Annotations}
		if again := plan.AdmitPod(admitted, offloading.Spec, runtimeClass, travels); !cmp.Equal(admitted, again) {
			t.Errorf("admitting twice changes the pod: %s", cmp.Diff(admitted, again))
		}
	}
	p := plan.EarlierPod(plan.EarlierPodInput{Root: root, Offloading: offloading, RuntimeClass: runtimeClass, ClaimsAllow: travels, Now: now})
	out["had it come before"] = treatment(p)
	if p.RequeueAfter > 0 {
		out["after"] = p.RequeueAfter.String()
	}
	return text(t, out)
}

// treatment sums up the plan for a pod that admission did not see.
func treatment(p desired.Plan) string {
	switch {
	case p.State == desired.Blocked:
		return "Tell"
	case len(story.Deleted(p)) > 0:
		return "Replace"
	case len(p.Actions) > 0:
		return "Tolerate"
	case p.RequeueAfter > 0:
		return "Later"
	}
	return "Leave"
}

// node returns the Node of a virtual node with root as Node, which does not exist yet if it has no
// UID. With pods it also returns the plan for those without room.
func node(t *testing.T, root *corev1.Node, rest []client.Object) string {
	t.Helper()
	if pods := story.Values[*corev1.Pod](rest); len(pods) > 0 {
		p := plan.Unplaced(plan.UnplacedInput{Root: root, Pods: pods, Replacing: plan.Replacing{"CloneSet.apps.kruise.io"}, Now: now})
		out := map[string]any{"taints": root.Spec.Taints, "after": p.RequeueAfter.String()}
		for _, a := range p.Actions {
			if tainted, ok := a.Object.(*corev1.Node); ok {
				out["taints"] = tainted.Spec.Taints
			} else {
				out["replaced"] = append(list(out["replaced"]), a.Object.GetName())
			}
		}
		return text(t, out)
	}
	in := plan.NodeInput{
		VirtualNode: story.First[*offloadingv1beta1.VirtualNode](rest), Peer: story.First[*corev1beta1.ForeignCluster](rest), CheckNetwork: true,
		Address: "10.10.1.7", Port: 10250, Version: "v1.35.4", Now: now,
	}
	if root.UID == "" {
		return text(t, map[string]any{"made with": plan.NewNode(in.VirtualNode).Labels, "node": content(t, plan.Node(in))})
	}
	in.Node = root
	return text(t, map[string]any{"node": content(t, plan.Node(in))})
}

// show returns a plan as text.
func show(t *testing.T, root client.Object, p desired.Plan) string {
	t.Helper()
	out := map[string]any{"state": []string{"Ready", "Waiting", "Blocked"}[p.State]}
	if p.Reason != "" {
		out["verdict"] = p.Reason + ": " + p.Message
	}
	if p.Degraded.State != desired.Ready {
		out["lacks"] = p.Degraded.Reason + ": " + p.Degraded.Message
	}
	if p.RequeueAfter > 0 {
		out["after"] = p.RequeueAfter.String()
	}
	for _, obj := range p.Objects {
		out["objects"] = append(list(out["objects"]), content(t, obj))
	}
	for _, obj := range p.Preserve {
		out["keep"] = append(list(out["keep"]), named(obj))
	}
	for _, a := range p.Actions {
		var patch client.Patch
		switch a.Verb {
		case desired.Update:
			out["parts"] = append(list(out["parts"]), map[string]any{a.Subresource: content(t, a.Object)["spec"]})
			continue
		case desired.Merge:
			patch = client.MergeFrom(a.Before.(client.Object))
		case desired.Strategic:
			patch = client.StrategicMergeFrom(a.Before)
		default:
			continue
		}
		data, err := patch.Data(a.Object)
		if err != nil {
			t.Fatal(err)
		}
		out["parts"] = append(list(out["parts"]), map[string]any{"patch": string(data)})
	}
	for _, obj := range story.Deleted(p) {
		out["delete"] = append(list(out["delete"]), named(obj))
	}
	if p.Status != nil {
		out["status"] = content(t, p.Status)["status"]
	}
	if p.Fill != nil {
		patch, err := client.MergeFrom(root).Data(p.Fill)
		if err != nil {
			t.Fatal(err)
		}
		var fill map[string]any
		if err := yaml.Unmarshal(patch, &fill); err != nil {
			t.Fatal(err)
		}
		out["fill"] = fill
	}
	return text(t, out)
}

func named(obj client.Object) string {
	return strings.TrimPrefix(fmt.Sprintf("%T %s/%s", obj, obj.GetNamespace(), obj.GetName()), "*")
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// content returns an object without empty fields.
func content(t *testing.T, obj client.Object) map[string]any {
	t.Helper()
	gvk, err := apiutil.GVKForObject(obj, scheme.New())
	if err != nil {
		t.Fatal(err)
	}
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	u["kind"] = gvk.Kind
	dropEmpty(u)
	return u
}

func dropEmpty(m map[string]any) {
	for k, v := range m {
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			if dropEmpty(v); len(v) == 0 {
				delete(m, k)
			}
		case []any:
			for _, item := range v {
				if item, ok := item.(map[string]any); ok {
					dropEmpty(item)
				}
			}
		}
	}
}

func dead(objects []client.Object) map[string]bool {
	out := map[string]bool{}
	for _, fc := range story.Values[*corev1beta1.ForeignCluster](objects) {
		out[fc.Spec.ClusterID] = fc.Annotations[api.AnnotationPermanentlyUnreachable] == api.True
	}
	return out
}
