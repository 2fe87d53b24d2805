// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	"github.com/liqo-go/liqo/internal/ctl"
)

// APIServerInput is what decides whether a Service is one that peers reach by an IP.
type APIServerInput struct {
	Root *corev1.Service
	// LiqoNamespace is where the IPs and the proxy's Service are.
	LiqoNamespace string
	// Providers are the clusters at which this one has virtual nodes.
	Providers []string
	// InBand are the consumers that reach this cluster's API server by its proxy.
	InBand []string
	// Uninstalling takes the IPs away.
	Uninstalling bool
}

// APIServerIP plans the IPs by which peers reach this cluster's API server and its proxy, each for
// those who need it: the API server for the pods this cluster runs at its providers, the proxy for
// consumers in band.
func APIServerIP(in APIServerInput) ctl.Plan {
	name := map[string]string{
		metav1.NamespaceDefault + "/kubernetes": api.IPAPIServer,
		in.LiqoNamespace + "/" + api.ProxyName:  api.IPAPIServerProxy,
	}[in.Root.Namespace+"/"+in.Root.Name]
	peers := in.InBand
	if name == api.IPAPIServer {
		peers = in.Providers
	}
	peers = slices.Compact(slices.Sorted(slices.Values(peers)))
	addr, err := netip.ParseAddr(in.Root.Spec.ClusterIP)
	if in.Root.DeletionTimestamp != nil || in.Uninstalling || name == "" || err != nil {
		return ctl.Plan{}
	}
	return ctl.Plan{Objects: []client.Object{&ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: in.LiqoNamespace,
			Labels:      map[string]string{api.LabelIPType: name},
			Annotations: map[string]string{api.AnnotationPreinstalled: api.True, api.AnnotationPeers: strings.Join(peers, ",")},
		},
		Spec: ipamv1alpha1.IPSpec{IP: addr.String()},
	}}}
}
