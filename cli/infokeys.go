// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
)

// keyInfo describes the private keys that this cluster uses with a peer.
type keyInfo struct {
	// SharedKey reports that this cluster authenticates with the key that former versions used for all peers.
	SharedKey bool `json:"sharedKey,omitempty"`
	// UserSecrets lists Secrets with keys or kubeconfigs that users supplied, as "namespace/name".
	// A peering user of the peer can read the ones in the tenant namespace.
	UserSecrets []string `json:"userSecrets,omitempty"`
}

// inspectKeys reports the keys used with a peer. Secrets that the user may not read are left out.
func (c *cluster) inspectKeys(ctx context.Context, peer string) (keyInfo, error) {
	shared := &corev1.Secret{ObjectMeta: metaOf(c.namespace, api.AuthenticationKeysSecret)}
	err := c.Get(ctx, client.ObjectKeyFromObject(shared), shared)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return keyInfo{}, c.describe("read", shared, err)
	}
	identities := &authv1beta1.IdentityList{}
	if err := c.listOf(ctx, everywhere, peer, identities); err != nil {
		return keyInfo{}, err
	}
	var info keyInfo
	var made []string
	for _, i := range identities.Items {
		made = append(made, i.Namespace+"/"+api.KubeconfigSecretName(i.Name))
		info.SharedKey = info.SharedKey || plan.IssuedFor(i.Spec.AuthParams, shared.Data[api.PublicKeyField])
	}
	used, err := c.secretsUsed(ctx, peer)
	info.UserSecrets = slices.DeleteFunc(used, func(name string) bool { return slices.Contains(made, name) })
	return info, err
}

// secretsUsed lists the Secrets that objects of a peer refer to, and this cluster's control-plane kubeconfigs for it.
func (c *cluster) secretsUsed(ctx context.Context, peer string) ([]string, error) {
	servers, clients, nodes := &netv1beta1.GatewayServerList{}, &netv1beta1.GatewayClientList{},
		&offv1beta1.VirtualNodeList{}
	for _, list := range []client.ObjectList{servers, clients, nodes} {
		if err := c.listOf(ctx, everywhere, peer, list); err != nil {
			return nil, err
		}
	}
	var used []string
	add := func(namespace string, ref *corev1.LocalObjectReference) {
		if ref != nil && ref.Name != "" {
			used = append(used, namespace+"/"+ref.Name)
		}
	}
	for _, s := range servers.Items {
		add(s.Namespace, s.Spec.SecretRef)
	}
	for _, g := range clients.Items {
		add(g.Namespace, g.Spec.SecretRef)
	}
	for _, v := range nodes.Items {
		add(v.Namespace, v.Spec.KubeconfigSecretRef)
	}
	kubeconfigs, err := c.all(ctx, &corev1.SecretList{}, client.MatchingLabels{
		api.LabelIdentityType: string(authv1beta1.IdentityControlPlane), api.LabelRemoteClusterID: peer,
	})
	for _, s := range kubeconfigs {
		used = append(used, s.GetNamespace()+"/"+s.GetName())
	}
	slices.Sort(used)
	if apierrors.IsForbidden(err) {
		err = nil
	}
	return slices.Compact(used), err
}
