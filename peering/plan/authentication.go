// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
)

// authentication returns the conditions about Tenant and Identity; nil if neither exists.
func (in Input) authentication() []corev1beta1.Condition {
	if len(in.Tenants)+len(in.Identities) == 0 {
		return nil
	}
	conditions := []corev1beta1.Condition{}
	if len(in.Tenants) > 0 {
		conditions = append(conditions, presence(corev1beta1.AuthTenantStatusCondition, all(in.Tenants, tenantReady),
			words{"TenantReady", "the consumer is admitted"},
			words{"TenantNotReady", "the Tenant is not complete; look at its conditions"}))
	}
	control := controlPlane(in.Identities)
	if len(control) > 0 {
		conditions = append(conditions, presence(corev1beta1.AuthIdentityControlPlaneCondition,
			all(control, identityReady),
			words{"IdentityReady", "the kubeconfig for the provider is there"},
			words{"IdentityNotReady", "the Identity has no kubeconfig; look at its conditions"}))
	}
	return conditions
}

func all[T any](items []T, ready func(T) bool) bool {
	for _, item := range items {
		if !ready(item) {
			return false
		}
	}
	return true
}

func tenantReady(t authv1beta1.Tenant) bool {
	return t.Status.TenantNamespace != "" &&
		(t.Spec.AuthzPolicy == authv1beta1.AuthzTolerateNoHandshake || t.Status.AuthParams != nil)
}

func identityReady(i authv1beta1.Identity) bool {
	return i.Status.KubeconfigSecretRef != nil && i.Status.KubeconfigSecretRef.Name != ""
}

func controlPlane(identities []authv1beta1.Identity) []authv1beta1.Identity {
	var out []authv1beta1.Identity
	for _, identity := range identities {
		if identity.Spec.Type == authv1beta1.IdentityControlPlane {
			out = append(out, identity)
		}
	}
	return out
}

// server is where a kubeconfig leads.
type server struct{ url, proxy string }

// kubeconfig is the part of a kubeconfig that says where it leads.
type kubeconfig struct {
	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
		} `json:"context"`
	} `json:"contexts"`
	Clusters []struct {
		Name    string `json:"name"`
		Cluster struct {
			Server   string `json:"server"`
			ProxyURL string `json:"proxy-url"`
		} `json:"cluster"`
	} `json:"clusters"`
}

// apiServer is where the control plane's kubeconfig leads; false when there is none.
func (in Input) apiServer() (server, bool) {
	for _, secret := range in.Secrets {
		if s, ok := leadsTo(secret.Data[api.KubeconfigField]); ok {
			return s, true
		}
	}
	return server{}, false
}

// leadsTo reads the server of a kubeconfig's current context.
func leadsTo(data []byte) (server, bool) {
	var config kubeconfig
	if err := yaml.Unmarshal(data, &config); err != nil {
		return server{}, false
	}
	for _, context := range config.Contexts {
		if context.Name != config.CurrentContext {
			continue
		}
		for _, cluster := range config.Clusters {
			if cluster.Name == context.Context.Cluster && cluster.Cluster.Server != "" {
				return server{cluster.Cluster.Server, cluster.Cluster.ProxyURL}, true
			}
		}
	}
	return server{}, false
}
