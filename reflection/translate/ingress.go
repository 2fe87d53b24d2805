// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	networkingv1 "k8s.io/api/networking/v1"
)

// ingressClassAnnotation is the old way to choose a class.
const ingressClassAnnotation = "kubernetes.io/ingress.class"

// Ingress pushes an Ingress: backends, rules and TLS. The class is the provider's default.
func Ingress(home, remote *networkingv1.Ingress, v View) *networkingv1.Ingress {
	if !reflects(home.Annotations, v.AllowList) {
		return nil
	}
	out := copyOf(remote)
	out.ObjectMeta = v.metadata(home.ObjectMeta, out.ObjectMeta, home.Name)
	delete(out.Annotations, ingressClassAnnotation)
	in := home.Spec.DeepCopy()
	out.Spec.DefaultBackend, out.Spec.Rules, out.Spec.TLS = in.DefaultBackend, in.Rules, in.TLS
	if v.IngressClass != "" {
		out.Spec.IngressClassName = new(v.IngressClass)
	}
	return out
}
