// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// defaultDomain is the DNS domain of a cluster if nothing else is known of it.
	defaultDomain = "cluster.local"
	// mostFullName is the number of characters of a full host name that a kernel takes, and mostOverride
	// that to which kubelets cut hostnameOverride (pkg/kubelet/kubelet_pods.go of Kubernetes 1.37).
	mostFullName, mostOverride = 64, validation.DNS1123LabelMaxLength
)

// homeNamespace returns the namespace of home in a name of home's DNS: that of a Service, of a pod behind a
// headless one, or the search domain of a namespace. at is its label among those of the name; -1 = the name is
// not of home's DNS.
func (v View) homeNamespace(name string) (labels []string, at int) {
	labels = strings.Split(strings.TrimSuffix(name, "."), ".")
	domain := append([]string{"svc"}, strings.Split(cmp.Or(v.APIServer.ClusterDomain, defaultDomain), ".")...)
	at = len(labels) - len(domain) - 1
	if at < 0 || !slices.Equal(labels[at+1:], domain) {
		return labels, -1
	}
	return labels, at
}

// dnsName returns the name at the provider of a name of home's DNS in an offloaded namespace. Any other name, and
// one that would be longer than DNS allows, stays. The provider is taken to have the same DNS domain.
func (v View) dnsName(name string) string {
	out := v.translatedName(name)
	if len(strings.TrimSuffix(out, ".")) > validation.DNS1123SubdomainMaxLength {
		return name
	}
	return out
}

func (v View) translatedName(name string) string {
	labels, at := v.homeNamespace(name)
	if at < 0 || v.Namespaces[labels[at]] == "" {
		return name
	}
	labels[at] = v.Namespaces[labels[at]]
	return strings.Join(labels, ".") + name[len(strings.TrimSuffix(name, ".")):]
}

// checkName returns an error if a name of home's DNS has no translation: it is in a namespace that is not
// offloaded to the provider, or its translation is too long. The consumer's remote namespaces may be named, too.
func (v View) checkName(field, name string) error {
	labels, at := v.homeNamespace(name)
	if at < 0 {
		return nil
	}
	const limit = validation.DNS1123SubdomainMaxLength
	namespace := labels[at]
	remote := slices.Contains(slices.Collect(maps.Values(v.Namespaces)), namespace)
	switch length := len(strings.TrimSuffix(v.translatedName(name), ".")); {
	case v.Namespaces[namespace] == "" && !remote && !v.Unanswered[namespace]:
		return fmt.Errorf("%s %q is in namespace %q, which is not offloaded to %s, and may name a Service of that "+
			"cluster there; offload that namespace, too", field, name, namespace, v.Provider)
	case length > limit:
		return fmt.Errorf("%s %q would have %d characters with the name of the remote namespace, and %d are "+
			"allowed; choose a shorter name for the remote namespace", field, name, length, limit)
	}
	return nil
}

// nameHost lets a pod that has its full name as host name keep that of home if the one at the provider is longer
// than a kernel takes, because of the namespace. Its name in DNS is not affected. Kubernetes has hostnameOverride
// from 1.35 on.
func (v View) nameHost(out *corev1.PodSpec, home *corev1.Pod) {
	if out.SetHostnameAsFQDN == nil || !*out.SetHostnameAsFQDN || out.Subdomain == "" {
		return
	}
	host := cmp.Or(out.Hostname, home.Name)
	host = strings.Trim(host[:min(len(host), validation.DNS1123LabelMaxLength)], "-.")
	full := func(namespace string) string {
		return strings.Join([]string{host, out.Subdomain, namespace, "svc",
			cmp.Or(v.APIServer.ClusterDomain, defaultDomain)}, ".")
	}
	there, here := full(v.Namespaces[home.Namespace]), full(home.Namespace)
	if len(there) > mostFullName && len(here) <= mostOverride {
		out.HostnameOverride, out.SetHostnameAsFQDN = new(here), nil
	}
}
