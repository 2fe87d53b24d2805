// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"

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
	// Uninstalling takes the IPs away.
	Uninstalling bool
}

// APIServerIP plans the IPs by which peers reach this cluster's API server and its proxy.
func APIServerIP(in APIServerInput) ctl.Plan {
	name := map[string]string{
		metav1.NamespaceDefault + "/kubernetes": api.IPAPIServer,
		in.LiqoNamespace + "/" + api.ProxyName:  api.IPAPIServerProxy,
	}[in.Root.Namespace+"/"+in.Root.Name]
	addr, err := netip.ParseAddr(in.Root.Spec.ClusterIP)
	if in.Root.DeletionTimestamp != nil || in.Uninstalling || name == "" || err != nil {
		return ctl.Plan{}
	}
	return ctl.Plan{Objects: []client.Object{&ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: in.LiqoNamespace,
			Labels:      map[string]string{api.LabelIPType: name},
			Annotations: map[string]string{api.AnnotationPreinstalled: api.True},
		},
		Spec: ipamv1alpha1.IPSpec{IP: addr.String()},
	}}}
}
