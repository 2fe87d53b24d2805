// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

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
		ready := !slices.ContainsFunc(in.Tenants, isIncomplete)
		conditions = append(conditions, presence(corev1beta1.AuthTenantStatusCondition, ready,
			text{"TenantReady", "the consumer is admitted"},
			text{"TenantNotReady", "the Tenant is not complete; look at its conditions"}))
	}
	control := slices.DeleteFunc(slices.Clone(in.Identities), func(i authv1beta1.Identity) bool {
		return i.Spec.Type != authv1beta1.IdentityControlPlane
	})
	if len(control) > 0 {
		ready := !slices.ContainsFunc(control, hasNoKubeconfig)
		conditions = append(conditions, presence(corev1beta1.AuthIdentityControlPlaneCondition, ready,
			text{"IdentityReady", "the kubeconfig for the provider is there"},
			text{"IdentityNotReady", "the Identity has no kubeconfig; look at its conditions"}))
	}
	return conditions
}

func isIncomplete(t authv1beta1.Tenant) bool {
	return t.Status.TenantNamespace == "" ||
		t.Spec.AuthzPolicy != authv1beta1.AuthzTolerateNoHandshake && t.Status.AuthParams == nil
}

func hasNoKubeconfig(i authv1beta1.Identity) bool {
	return i.Status.KubeconfigSecretRef == nil || i.Status.KubeconfigSecretRef.Name == ""
}

// apiServer returns the URLs of the peer's API server and of the proxy before it, from the first
// kubeconfig that has a server; empty = none.
func (in Input) apiServer() (server, proxy string) {
	for _, secret := range in.Secrets {
		if server, proxy = currentServer(secret.Data[api.KubeconfigField]); server != "" {
			break
		}
	}
	return server, proxy
}

// currentServer returns the server and proxy of a kubeconfig's current context; empty = none.
func currentServer(kubeconfig []byte) (server, proxy string) {
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
			}
		}
	}
	if yaml.Unmarshal(kubeconfig, &config) != nil {
		return "", ""
	}
	for _, context := range config.Contexts {
		for _, c := range config.Clusters {
			current := context.Name == config.CurrentContext && c.Name == context.Context.Cluster
			if current && c.Cluster.Server != "" {
				return c.Cluster.Server, c.Cluster.Proxy
			}
		}
	}
	return "", ""
}
