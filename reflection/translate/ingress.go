// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"

	networkingv1 "k8s.io/api/networking/v1"
)

// ingressClassAnnotation is the old way to choose a class.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// Ingress pushes an Ingress: backends, rules and TLS. The class is the provider's default. The error says that a host
// cannot be translated.
func Ingress(home, remote *networkingv1.Ingress, v View) (out *networkingv1.Ingress, complaint error) {
	if !reflects(home.Annotations, v.AllowList) {
		return nil, nil
	}
	out = copyOf(remote)
	out.ObjectMeta = v.metadata(home.ObjectMeta, out.ObjectMeta, home.Name)
	delete(out.Annotations, ingressClassAnnotation)
	in := home.Spec.DeepCopy()
	out.Spec.DefaultBackend, out.Spec.Rules, out.Spec.TLS = in.DefaultBackend, in.Rules, in.TLS
	for i := range in.Rules {
		complaint = cmp.Or(complaint, v.checkName("the host of a rule", in.Rules[i].Host))
		in.Rules[i].Host = v.dnsName(in.Rules[i].Host)
	}
	for _, tls := range in.TLS {
		for i := range tls.Hosts {
			tls.Hosts[i] = v.dnsName(tls.Hosts[i])
		}
	}
	if v.IngressClass != "" {
		out.Spec.IngressClassName = new(v.IngressClass)
	}
	return out, complaint
}
