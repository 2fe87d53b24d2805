// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/url"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// endpoint holds the URLs of an API server and of the proxy before it, empty if there is none. The
// two belong together, because the proxy resolves the API server's host.
type endpoint struct{ server, proxy string }

func endpointOf(p *authv1beta1.AuthParams) endpoint { return endpoint{p.APIServer, p.ProxyURL} }

// String returns the endpoint as users read and approve it.
func (e endpoint) String() string {
	if e.proxy == "" {
		return e.server
	}
	return e.server + " via " + e.proxy
}

// sameHosts reports whether two endpoints have the same hosts and ports, of API server and proxy.
func (e endpoint) sameHosts(other endpoint) bool {
	return host(e.server) == host(other.server) && host(e.proxy) == host(other.proxy)
}

// host returns the host and port of a URL, or the text itself if it is not a URL.
func host(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return address
	}
	return u.Host
}

// inSecret reads endpoint and CA (PEM) of the kubeconfig in a Secret; ok is false if there is none.
func inSecret(s *corev1.Secret) (at endpoint, ca []byte, ok bool) {
	var config struct {
		CurrentContext string `json:"current-context"`
		Contexts       []struct {
			Name    string
			Context struct{ Cluster string }
		}
		Clusters []struct {
			Name    string
			Cluster struct {
				Server string
				Proxy  string `json:"proxy-url"`
				CA     []byte `json:"certificate-authority-data"`
			}
		}
	}
	if s == nil || yaml.Unmarshal(s.Data[api.KubeconfigField], &config) != nil {
		return endpoint{}, nil, false
	}
	for _, context := range config.Contexts {
		for _, c := range config.Clusters {
			if context.Name == config.CurrentContext && c.Name == context.Context.Cluster {
				return endpoint{c.Cluster.Server, c.Cluster.Proxy}, c.Cluster.CA, true
			}
		}
	}
	return endpoint{}, nil, false
}

// approves reports whether this cluster may connect to an endpoint that the provider names. It may
// if the control plane's Identity or its kubeconfig made by hand uses it, or a user approved it.
func (in IdentityInput) approves(named endpoint) bool {
	for _, identity := range []*authv1beta1.Identity{in.Root, in.ControlPlane} {
		if identity == nil {
			continue
		}
		own := identity.Spec.Type == authv1beta1.IdentityControlPlane && identity.Spec.AuthParams != nil
		if own && named.sameHosts(endpointOf(identity.Spec.AuthParams)) ||
			identity.Annotations[api.AnnotationApprovedAPIServer] == named.String() {
			return true
		}
	}
	for i := range in.ControlPlaneSecrets {
		if at, _, ok := inSecret(&in.ControlPlaneSecrets[i]); ok && in.ControlPlane == nil && named.sameHosts(at) {
			return true
		}
	}
	return false
}

// leading returns p with the endpoint for the kubeconfig: that of p if it is approved or already in
// use, else the one in use. It returns nil if there is none. The verdict reports an endpoint that
// is not approved.
func (in IdentityInput) leading(p *authv1beta1.AuthParams) (*authv1beta1.AuthParams, desired.Verdict) {
	present, ca, ok := inSecret(in.Kubeconfig)
	switch {
	case in.approves(endpointOf(p)), ok && present.sameHosts(endpoint{p.APIServer, in.proxy(p.ProxyURL)}):
		return p, desired.Verdict{}
	case !ok:
		return nil, in.unapproved(p)
	}
	out := p.DeepCopy()
	out.APIServer, out.ProxyURL, out.CA = present.server, present.proxy, ca
	return out, in.unapproved(p)
}

// printable matches endpoints that messages may show in a command, because users paste it into a
// shell.
var printable = regexp.MustCompile(`^[A-Za-z0-9.:/_\[\] -]{1,500}$`)

// unapproved returns how a user can approve an endpoint that the provider names.
func (in IdentityInput) unapproved(given *authv1beta1.AuthParams) desired.Verdict {
	named, name := endpointOf(given).String(), in.Root.Name
	if in.ControlPlane != nil {
		name = in.ControlPlane.Name
	}
	if !printable.MatchString(named) {
		return desired.Wait(ReasonAddressNotApproved,
			"the provider names %.100q as the address of its API server, which is none; ask its administrator",
			named).Verdict
	}
	return desired.Wait(ReasonAddressNotApproved,
		"the provider names another API server, %s, which is not called before it is approved here; run 'liqoctl "+
			"authenticate' again "+
			"or 'kubectl annotate identity -n %s %s --overwrite %s=\"%s\"'", named, in.Root.Namespace, name,
		api.AnnotationApprovedAPIServer, named).Verdict
}
