// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/story"
)

// FuzzPlans puts values at two places of what peers announce or users request, in the world of any
// story. The plan has objects of its own namespace only and no grant of another object, and is the
// same each time.
func FuzzPlans(f *testing.F) {
	values := []string{"", "0.0.0.0/0", "10.0.0.0/9", "10.80.0.0/16", "::/0", "fd00::/48", "10.70.0.0", "10.80.128.0", "-1", "true", "{}", "[]", "null", "liqo", "kube-system", `{"liqo.io/remote-cluster-id": "turin"}`,
		`{"ipam.liqo.io/network-not-remapped": "true", "ipam.liqo.io/network-shared": "true"}`, `["10.20.0.0/16", "10.20.0.0/17", ""]`, `{"cidr": "10.70.0.0/16"}`}
	files, err := filepath.Glob("testdata/objects/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no stories: %v", err)
	}
	stories, worlds := make([]story.Story, len(files)), map[int][]client.Object{}
	for i, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		stories[i].Archive = *archive
		f.Add(i, i, 0, "", 0, "")
		f.Add(i, i, i, values[i%len(values)], 2*i, values[i/2%len(values)])
	}
	decoder := serializer.NewCodecFactory(scheme.New()).UniversalDeserializer()
	f.Fuzz(func(t *testing.T, of, in, place int, value string, place2 int, value2 string) {
		of, in = int(uint(of)%uint(len(stories))), int(uint(in)%uint(len(stories)))
		var tree any
		if err := yaml.Unmarshal(stories[of].Part("root.yaml"), &tree); err != nil {
			t.Fatal(err)
		}
		put(tree, place, value)
		put(tree, place2, value2)
		root, ok := announced(decoder, tree)
		if !ok {
			return
		}
		if worlds[in] == nil {
			worlds[in] = section(t, &stories[in], "world.yaml")
		}
		world, before := worlds[in], root.DeepCopyObject()
		p := planned(t, root, world)
		if again := planned(t, root, world); !reflect.DeepEqual(again, p) {
			t.Fatalf("the second plan differs:\n%s\n%s", printed(t, p), printed(t, again))
		}
		if !reflect.DeepEqual(root, before) {
			t.Fatalf("what is looked at changes: %+v", root)
		}
		if p.State != desired.Ready && p.Message == "" {
			t.Fatalf("no word on why: %+v", p.Verdict)
		}
		for _, obj := range p.Objects {
			checkPlace(t, root, obj)
		}
		switch root := root.(type) {
		case *ipamv1alpha1.Network:
			checkNetwork(t, root, p, world)
		case *ipamv1alpha1.IP:
			checkIP(t, root, p, world)
		case *netv1beta1.Configuration:
			checkAsked(t, root, p)
		default:
			checkOverlay(t, root, p, world)
		}
	})
}

// put sets a value at a place of a tree, as JSON if it parses; 0 = nowhere.
func put(tree any, place int, value string) {
	var v any
	if json.Unmarshal([]byte(value), &v) != nil {
		v = value
	}
	if list := places(tree); place > 0 {
		list[place%len(list)](v)
	}
}

// places returns a setter for each place of a tree.
func places(tree any) []func(any) {
	var out []func(any)
	switch tree := tree.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(tree)) {
			out = append(append(out, func(v any) { tree[key] = v }), places(tree[key])...)
		}
	case []any:
		for i := range tree {
			out = append(append(out, func(v any) { tree[i] = v }), places(tree[i])...)
		}
	}
	return out
}

// announced returns an object of one of the kinds that peers, or users for them, write; false if it
// is of another kind.
func announced(decoder runtime.Decoder, tree any) (client.Object, bool) {
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, false
	}
	obj, _, err := decoder.Decode(text, nil, nil)
	if err != nil {
		return nil, false
	}
	switch obj := obj.(type) {
	case *ipamv1alpha1.Network, *ipamv1alpha1.IP, *netv1beta1.Configuration, *netv1beta1.GatewayServer, *netv1beta1.GatewayClient, *netv1beta1.WgGatewayServer, *netv1beta1.WgGatewayClient:
		root := obj.(client.Object)
		named := len(validation.IsDNS1123Label(root.GetName())) == 0 && len(validation.IsDNS1123Label(root.GetNamespace())) == 0
		return root, named // as the API server has them
	}
	return nil, false
}

// checkPlace: objects are in the namespace of their root; those without a namespace grant rights to
// it alone.
func checkPlace(t *testing.T, root, obj client.Object) {
	t.Helper()
	own := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: root.GetNamespace(), Name: root.GetName()}}
	switch o := obj.(type) {
	case *rbacv1.ClusterRoleBinding:
		if o.Namespace != "" || !reflect.DeepEqual(o.Subjects, own) || o.RoleRef.Name != api.ClusterRoleGateway {
			t.Fatalf("%+v of %s for %v", o.RoleRef, o.Name, o.Subjects)
		}
		return
	case *rbacv1.RoleBinding:
		if !reflect.DeepEqual(o.Subjects, own) || o.RoleRef.Name != ClusterRoleGatewayNamespaced {
			t.Fatalf("%+v of %s for %v", o.RoleRef, o.Name, o.Subjects)
		}
	case *unstructured.Unstructured:
		if !OfGateways(o.GetAPIVersion(), o.GetKind()) {
			t.Fatalf("a %s of %s", o.GetKind(), o.GetAPIVersion())
		}
	}
	if obj.GetNamespace() != root.GetNamespace() || len(validation.IsDNS1123Subdomain(obj.GetName())) > 0 {
		t.Fatalf("%T %s/%s of %T %s/%s", obj, obj.GetNamespace(), obj.GetName(), root, root.GetNamespace(), root.GetName())
	}
}

// checkNetwork: a CIDR is granted once, with the requested length, and overlaps no other Network
// and no node.
func checkNetwork(t *testing.T, root *ipamv1alpha1.Network, p desired.Plan, world []client.Object) {
	t.Helper()
	if p.Status == nil {
		return
	}
	granted := netip.MustParsePrefix(p.Status.(*ipamv1alpha1.Network).Status.CIDR)
	wished := netip.MustParsePrefix(root.Spec.CIDR)
	root = root.DeepCopy()
	root.Status.CIDR = granted.String()
	if granted != granted.Masked() || granted.Bits() != wished.Bits() || planned(t, root, world).Status != nil {
		t.Fatalf("%s is granted for %s", granted, wished)
	}
	for _, n := range of[ipamv1alpha1.Network](world) {
		other, err := netip.ParsePrefix(n.Status.CIDR)
		if err == nil && !sameKey(&n, root) && granted.Overlaps(other) && !(isShared(&n) && isShared(root)) {
			t.Fatalf("%s is granted, and %s to %s/%s", granted, other, n.Namespace, n.Name)
		}
	}
	for _, n := range of[corev1.Node](world) {
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && !isNotRemapped(root) && granted.Contains(addr) {
				t.Fatalf("%s is granted, where %s is", granted, a.Address)
			}
		}
	}
	if !inPool(granted, pools()) && !(isNotRemapped(root) && isShared(root)) {
		t.Fatalf("%s is granted outside the pools", granted)
	}
}

// checkIP: an address is granted once, from the Network of the IP.
func checkIP(t *testing.T, root *ipamv1alpha1.IP, p desired.Plan, world []client.Object) {
	t.Helper()
	if fill, ok := p.Fill.(*ipamv1alpha1.IP); ok && !reflect.DeepEqual(fill.Spec, root.Spec) {
		t.Fatalf("%+v is made of %+v", fill.Spec, root.Spec)
	}
	if p.Status == nil {
		return
	}
	status := p.Status.(*ipamv1alpha1.IP).Status
	granted, cidr := netip.MustParseAddr(status.IP), netip.MustParsePrefix(status.CIDR)
	used := slices.ContainsFunc(of[ipamv1alpha1.IP](world), func(o ipamv1alpha1.IP) bool { return o.Status.IP == status.IP })
	of := slices.ContainsFunc(of[ipamv1alpha1.Network](world), func(n ipamv1alpha1.Network) bool { return n.Status.CIDR == status.CIDR })
	root = root.DeepCopy()
	root.Status = status
	if !cidr.Contains(granted) || used || !of || planned(t, root, world).Status != nil {
		t.Fatalf("%s of %s is granted, which another has: %v", granted, cidr, used)
	}
}

// checkAsked: the requested CIDRs do not overlap and leave enough space for others, and the
// announced ones are not changed.
func checkAsked(t *testing.T, root *netv1beta1.Configuration, p desired.Plan) {
	t.Helper()
	addresses := map[string]uint64{}
	var asked []netip.Prefix
	for _, obj := range p.Objects {
		n, ok := obj.(*ipamv1alpha1.Network)
		if !ok {
			continue
		}
		cidr := netip.MustParsePrefix(n.Spec.CIDR)
		if slices.ContainsFunc(asked, cidr.Overlaps) || !strings.HasPrefix(n.Name, root.Name) || n.Labels[api.LabelNetworkShared]+n.Labels[api.LabelNetworkNotRemapped] != "" {
			t.Fatalf("%s asks for %s beside %v, with %v", n.Name, cidr, asked, n.Labels)
		}
		asked = append(asked, cidr)
		if kind := n.Labels[api.LabelCIDRType]; cidr.Addr().Is4() {
			if addresses[kind] += 1 << (32 - cidr.Bits()); addresses[kind] > 1<<22 {
				t.Fatalf("a peer asks for %v", asked)
			}
		}
	}
	if fill, ok := p.Fill.(*netv1beta1.Configuration); ok && !reflect.DeepEqual(fill.Spec.Remote, root.Spec.Remote) {
		t.Fatalf("%+v is made of %+v", fill.Spec.Remote, root.Spec.Remote)
	}
}

// checkOverlay: a gateway has an overlay address that no other object has, and routes to the ranges
// of its own peer only.
func checkOverlay(t *testing.T, root client.Object, p desired.Plan, world []client.Object) {
	t.Helper()
	for _, obj := range p.Objects {
		fabric, ok := obj.(*netv1beta1.InternalFabric)
		if !ok {
			continue
		}
		address := netip.MustParseAddr(fabric.Spec.Interface.Gateway.IP)
		_, used := Overlay{Fabrics: of[netv1beta1.InternalFabric](world), Nodes: of[netv1beta1.InternalNode](world)}.inUse(FabricOf(root))
		if cidr, _ := grantedTo(of[ipamv1alpha1.Network](world), "liqo", api.NetworkInternalCIDR); !cidr.Contains(address) || slices.Contains(used, address) {
			t.Fatalf("%s of %s is given, beside %v", address, cidr, used)
		}
		for _, c := range of[netv1beta1.Configuration](world) {
			if r := c.Status.Remote; r != nil && !samePeer(&c, root) && slices.ContainsFunc(slices.Concat(r.CIDR.Pod, r.CIDR.External), func(cidr string) bool { return slices.Contains(fabric.Spec.RemoteCIDRs, cidr) }) {
				t.Fatalf("%v is led to, which is another peer's", fabric.Spec.RemoteCIDRs)
			}
		}
	}
}
