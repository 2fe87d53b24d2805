// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	"github.com/liqo-go/liqo/internal/desired"
)

// APIServerInput holds the input of APIServerIP.
type APIServerInput struct {
	Root *corev1.Service
	// LiqoNamespace is the namespace of the IPs and of the proxy's Service.
	LiqoNamespace string
	// Providers are the clusters at which this one has virtual nodes.
	Providers []string
	// InBand are the consumers that reach this cluster's API server through its proxy.
	InBand []string
	// ProxyIP is the IP of the proxy; nil before there is one.
	ProxyIP *ipamv1alpha1.IP
	// Now decides how long former consumers reach the proxy.
	Now time.Time
	// ThroughEndpoints reports whether peers reach the API server at its endpoints, not by its
	// Service.
	ThroughEndpoints bool
	// Endpoints are the EndpointSlices of the API server.
	Endpoints []discoveryv1.EndpointSlice
	// Uninstalling deletes the IPs.
	Uninstalling bool
}

// APIServerIP plans the IPs by which peers reach this cluster's API server and its proxy. The API
// server serves the pods this cluster runs at its providers. The proxy serves consumers in band,
// for proxyGrace after their Tenant is gone too.
func APIServerIP(in APIServerInput) desired.Plan {
	name := map[string]string{
		metav1.NamespaceDefault + "/kubernetes": api.IPAPIServer,
		in.LiqoNamespace + "/" + api.ProxyName:  api.IPAPIServerProxy,
	}[in.Root.Namespace+"/"+in.Root.Name]
	addr, err := netip.ParseAddr(in.Root.Spec.ClusterIP)
	switch {
	case in.Root.DeletionTimestamp != nil || in.Uninstalling || name == "":
		return desired.Plan{}
	case name == api.IPAPIServer && in.ThroughEndpoints:
		return in.endpoints()
	case err != nil:
		return desired.Plan{}
	case name == api.IPAPIServer:
		return desired.Plan{Objects: []desired.Object{ipFor(name, api.IPTypeAPIServer, addr, in.LiqoNamespace,
			in.Providers)}}
	}
	return in.proxy(name, addr)
}

// annotationFormerPeers on the proxy's IP records when the Tenant of a consumer in band was
// deleted: cluster IDs and Unix times.
const annotationFormerPeers = "ipam.liqo.io/former-peers"

// proxyGrace is how long a consumer in band reaches the proxy after its Tenant is gone. It has no
// rights by then, but only the API server can report that, perhaps over a new connection. The
// consumer keeps its own objects until then. A client takes up to 30 s to notice a broken
// connection, and up to 30 s more until it retries.
const proxyGrace = 5 * time.Minute

// proxy plans the IP of the proxy.
func (in APIServerInput) proxy(name string, addr netip.Addr) desired.Plan {
	var p desired.Plan
	peers, former := slices.Clone(in.InBand), labels.Set{}
	if in.ProxyIP != nil {
		before, _ := labels.ConvertSelectorToLabelsMap(in.ProxyIP.Annotations[annotationFormerPeers])
		for _, peer := range strings.Split(in.ProxyIP.Annotations[api.AnnotationPeers], ",") {
			if peer == "" || slices.Contains(in.InBand, peer) {
				continue
			}
			since, err := strconv.ParseInt(before[peer], 10, 64)
			if err != nil {
				since = in.Now.Unix()
			}
			if left := time.Unix(since, 0).Add(proxyGrace).Sub(in.Now); left > 0 {
				peers, former[peer] = append(peers, peer), strconv.FormatInt(since, 10)
				p.RequeueAfter = cmp.Or(min(p.RequeueAfter, left), left)
			}
		}
	}
	ip := ipFor(name, api.IPTypeAPIServerProxy, addr, in.LiqoNamespace, peers)
	if len(former) > 0 {
		ip.Annotations[annotationFormerPeers] = former.String()
	}
	p.Objects = []desired.Object{ip}
	return p
}

func ipFor(name, kind string, addr netip.Addr, namespace string, peers []string) *ipamv1alpha1.IP {
	peers = slices.Compact(slices.Sorted(slices.Values(peers)))
	return &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace,
			Labels: map[string]string{api.LabelIPType: kind},
			Annotations: map[string]string{api.AnnotationPreinstalled: api.True,
				api.AnnotationPeers: strings.Join(peers, ",")},
		},
		Spec: ipamv1alpha1.IPSpec{IP: addr.String()},
	}
}

// endpoints plans an IP for each endpoint of the API server. A single API server that restarts has
// no endpoint for a moment. Its IPs are kept, because running pods know no other address.
func (in APIServerInput) endpoints() desired.Plan {
	found := map[string]desired.Object{}
	for _, slice := range in.Endpoints {
		for _, e := range slice.Endpoints {
			for _, text := range e.Addresses {
				if addr, err := netip.ParseAddr(text); err == nil {
					ip := in.endpoint(addr, slice)
					found[ip.Name] = ip
				}
			}
		}
	}
	if len(found) == 0 {
		return desired.Wait("EndpointsMissing",
			"the API server has no endpoint; see the EndpointSlices of Service default/kubernetes")
	}
	var plan desired.Plan
	for _, name := range slices.Sorted(maps.Keys(found)) {
		plan.Objects = append(plan.Objects, found[name])
	}
	return plan
}

// endpoint returns the IP of an endpoint. It is masqueraded, because the host of an API server has
// no route to peers.
func (in APIServerInput) endpoint(addr netip.Addr, slice discoveryv1.EndpointSlice) *ipamv1alpha1.IP {
	// Written in full, an address does not end with a colon, nor the name with a dash.
	name := slice.Name + "-" + strings.NewReplacer(".", "-", ":", "-").Replace(addr.StringExpanded())
	ip := ipFor(name, api.IPTypeAPIServer, addr, in.LiqoNamespace, in.Providers)
	ip.Labels[api.LabelEndpointSlice] = slice.Name
	ip.Spec.Masquerade = true
	if len(slice.Ports) > 0 && slice.Ports[0].Port != nil {
		ip.Annotations[api.AnnotationPort] = strconv.Itoa(int(*slice.Ports[0].Port))
	}
	return ip
}
