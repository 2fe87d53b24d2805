// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/story"
)

// TestObjects runs the stories of testdata/objects: root.yaml is the root of a controller,
// world.yaml holds all other objects, plan.yaml the expected plan.
func TestObjects(t *testing.T) {
	story.Each(t, "testdata/objects/*.txtar", func(t *testing.T, s *story.Story) {
		root, world := section(t, s, "root.yaml")[0], section(t, s, "world.yaml")
		got := printed(t, planned(t, root, world))
		if again := printed(t, planned(t, root, world)); again != got {
			t.Errorf("the second plan differs: %s", cmp.Diff(got, again))
		}
		keepsWhatItGranted(t, root, world)
		s.Expect(t, "plan.yaml", got)
	})
}

// keepsWhatItGranted drops one input after the other: no complete plan may lack an object it had.
func keepsWhatItGranted(t *testing.T, root client.Object, world []client.Object) {
	t.Helper()
	whole := planned(t, root, world)
	for i := range world {
		less := planned(t, root, slices.Delete(slices.Clone(world), i, i+1))
		if less.State != desired.Ready {
			continue
		}
		for _, obj := range whole.Objects {
			if !slices.ContainsFunc(less.Objects, func(o desired.Object) bool { return sameKey(o, obj) }) {
				t.Errorf("without %T %s the complete plan lacks %T %s", world[i], world[i].GetName(), obj, obj.GetName())
			}
		}
	}
}

// planned passes a story's objects to the controller of the root's kind.
func planned(t *testing.T, root client.Object, world []client.Object) desired.Plan {
	t.Helper()
	all := append([]client.Object{root}, world...)
	networks, ips := of[ipamv1alpha1.Network](all), of[ipamv1alpha1.IP](all)
	gateways := GatewayInput{
		Servers: of[netv1beta1.GatewayServer](all), Clients: of[netv1beta1.GatewayClient](all),
		Configurations: of[netv1beta1.Configuration](all), PublicKeys: of[netv1beta1.PublicKey](all), Networks: networks,
		Overlay: Overlay{Fabrics: of[netv1beta1.InternalFabric](all), Nodes: of[netv1beta1.InternalNode](all)}, LiqoNamespace: "liqo",
	}
	wg := WgGatewayInput{
		Pods: of[corev1.Pod](all), Image: "liqo:test", Now: now, NewKey: bytes.Repeat([]byte{0x40}, 32),
	}
	uninstalling := slices.ContainsFunc(of[appsv1.Deployment](all), func(d appsv1.Deployment) bool { return d.Annotations[api.AnnotationUninstalling] == api.True })
	switch root := root.(type) {
	case *ipamv1alpha1.Network:
		in := NetworkInput{Root: root, Networks: networks, Pools: pools()}
		for _, n := range of[corev1.Node](all) {
			for _, a := range n.Status.Addresses {
				if addr, err := netip.ParseAddr(a.Address); err == nil { // not a name
					in.Local = append(in.Local, netip.PrefixFrom(addr, addr.BitLen()))
				}
			}
		}
		for _, n := range gateways.Overlay.Nodes {
			for _, text := range n.Status.LocalAddresses {
				in.Local = append(in.Local, netip.MustParsePrefix(text))
			}
		}
		return Network(in)
	case *ipamv1alpha1.IP:
		return IP(IPInput{Root: root, IPs: ips, Networks: networks, LiqoNamespace: "liqo"})
	case *netv1beta1.Configuration:
		in := ConfigurationInput{Root: root, Configurations: gateways.Configurations, Networks: networks, LiqoNamespace: "liqo", UsersLocal: UserOwns(root, "local"), Now: now}
		in.UnknownSource = find(ips, root.Namespace, api.UnknownSourceIPName(root.Name))
		return Configuration(in)
	case *netv1beta1.GatewayServer:
		gateways.Template, gateways.Rendered = untyped(t, all, ServerTemplate(root, "liqo"), root, root.Status.ServerRef)
		return GatewayServer(GatewayServerInput{root, gateways})
	case *netv1beta1.GatewayClient:
		gateways.Template, gateways.Rendered = untyped(t, all, ClientTemplate(root, "liqo"), root, root.Status.ClientRef)
		return GatewayClient(GatewayClientInput{root, gateways})
	case *netv1beta1.WgGatewayServer:
		wg.Keys = find(of[corev1.Secret](all), root.Namespace, KeySecretName(root.Name, root.Spec.SecretRef))
		return WgGatewayServer(WgServerInput{
			Root: root, WgGatewayInput: wg, Nodes: of[corev1.Node](all),
			Service: find(of[corev1.Service](all), root.Namespace, api.GatewayServiceName(root.Name)),
		})
	case *netv1beta1.WgGatewayClient:
		wg.Keys = find(of[corev1.Secret](all), root.Namespace, KeySecretName(root.Name, root.Spec.SecretRef))
		return WgGatewayClient(WgClientInput{Root: root, WgGatewayInput: wg})
	case *corev1.Node:
		return InternalNode(NodeInput{Root: root, Networks: networks, Overlay: gateways.Overlay, Pods: of[corev1.Pod](all), LiqoNamespace: "liqo", ProtectedNamespaces: []string{"kube-system"}, Uninstalling: uninstalling})
	case *corev1.Pod:
		return PodIP(PodIPInput{LiqoNamespace: "liqo", Provider: root.Spec.NodeName, Root: root, IP: find(ips, root.Namespace, root.Name), Configurations: gateways.Configurations})
	case *netv1beta1.Connection:
		return Connection(ConnectionInput{Root: root, Pods: of[corev1.Pod](all), Now: now})
	case *netv1beta1.InternalNode:
		return NodeAddress(NodeAddressInput{Root: root, Node: find(of[corev1.Node](all), "", root.Name)})
	case *corev1.Service:
		in := APIServerInput{
			Root: root, Now: now, ProxyIP: find(ips, "liqo", api.IPAPIServerProxy),
			LiqoNamespace: "liqo", Uninstalling: uninstalling, Providers: []string{"turin", "milan", "turin"},
			ThroughEndpoints: root.Annotations["test"] == "through-endpoints", Endpoints: of[discoveryv1.EndpointSlice](all),
		}
		for _, t := range of[authv1beta1.Tenant](all) {
			in.InBand = append(in.InBand, string(t.Spec.ClusterID))
		}
		return APIServerIP(in)
	}
	t.Fatalf("no controller has a root of type %T", root)
	return desired.Plan{}
}

var now = time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)

func pools() []netip.Prefix {
	var list []netip.Prefix
	for _, p := range api.Pools() {
		list = append(list, netip.MustParsePrefix(p))
	}
	return list
}

// of returns the objects of one type.
func of[T any](all []client.Object) []T {
	var list []T
	for _, obj := range all {
		if v, ok := any(obj).(*T); ok {
			list = append(list, *v)
		}
	}
	return list
}

func find[T any, P interface {
	*T
	client.Object
}](list []T, namespace, name string) P {
	for i := range list {
		if o := P(&list[i]); o.GetNamespace() == namespace && o.GetName() == name {
			return o
		}
	}
	return nil
}

// untyped returns a template and the object rendered from it for a gateway; without a template, the
// object rendered last.
func untyped(t *testing.T, all []client.Object, ref corev1.ObjectReference, gateway client.Object, last *corev1.ObjectReference) (template, rendered *unstructured.Unstructured) {
	t.Helper()
	pick := func(kind, namespace, name string) *unstructured.Unstructured {
		for _, obj := range all {
			if obj.GetNamespace() != namespace || obj.GetName() != name {
				continue
			}
			if u := asUnstructured(t, obj); u.GetKind() == kind {
				return u
			}
		}
		return nil
	}
	template = pick(ref.Kind, ref.Namespace, ref.Name)
	if template == nil && last != nil {
		return nil, pick(last.Kind, last.Namespace, last.Name)
	}
	if template == nil {
		return nil, nil
	}
	_, kind := RenderedKind(template)
	return template, pick(kind, gateway.GetNamespace(), gateway.GetName())
}

func asUnstructured(t *testing.T, obj client.Object) *unstructured.Unstructured {
	t.Helper()
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	gvk, err := apiutil.GVKForObject(obj, scheme.New())
	if err != nil {
		t.Fatal(err)
	}
	u.SetGroupVersionKind(gvk)
	return u
}

// section reads the objects of a file. Templates and kinds of third parties stay untyped, because
// types would lose the keys with a question mark.
func section(t *testing.T, s *story.Story, name string) []client.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.New(), serializer.EnableStrict).UniversalDeserializer()
	var list []client.Object
	for _, doc := range strings.Split("\n"+string(s.Part(name)), "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, doc)
		}
		if strings.HasSuffix(u.GetKind(), "Template") || !scheme.New().Recognizes(u.GroupVersionKind()) {
			list = append(list, u)
			continue
		}
		obj, _, err := decoder.Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, doc)
		}
		list = append(list, obj.(client.Object))
	}
	return list
}

// printed returns a plan as text: the verdict, then every object after a line with its purpose.
func printed(t *testing.T, p desired.Plan) string {
	t.Helper()
	var b strings.Builder
	state := []string{"Ready", "Waiting", "Blocked"}[p.State]
	fmt.Fprintf(&b, "# %s", state)
	if p.Reason != "" {
		fmt.Fprintf(&b, " %s: %s", p.Reason, p.Message)
	}
	b.WriteString("\n")
	if p.RequeueAfter > 0 {
		fmt.Fprintf(&b, "# again after %s\n", p.RequeueAfter)
	}
	for _, obj := range story.Deleted(p) {
		fmt.Fprintf(&b, "# delete %s %s/%s\n", asUnstructured(t, obj).GetKind(), obj.GetNamespace(), obj.GetName())
	}
	for _, obj := range p.Objects {
		showObject(t, &b, "apply", obj, "metadata", "spec", "data", "subjects", "roleRef", "endpoints", "ports", "addressType")
	}
	if p.Fill != nil {
		showObject(t, &b, "fill", p.Fill, "metadata", "spec")
	}
	if p.Status != nil {
		showObject(t, &b, "status", p.Status, "status")
	}
	return b.String()
}

func showObject(t *testing.T, b *strings.Builder, verb string, obj client.Object, fields ...string) {
	t.Helper()
	u := asUnstructured(t, obj)
	out := map[string]any{}
	for _, f := range fields {
		if v, ok := u.Object[f]; ok {
			out[f] = v
		}
	}
	text, err := yaml.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(b, "--- # %s %s\n%s", verb, u.GetKind(), text)
}
