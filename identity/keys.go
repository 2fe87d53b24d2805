// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/ctl"
)

const (
	// rsaBits is the size of RSA keys, for TLS stacks without Ed25519.
	rsaBits = 2048
	// keyRetry is how long to wait before trying again to create the key pair.
	keyRetry = 5 * time.Second
)

// keyPair creates Secret authentication-keys at start if it does not exist, and never replaces it.
// Former versions used that key for all peers. New peerings have keys of their own, but users know
// the Secret's name. It uses create instead of apply, because of two concurrent applies the second
// would replace the key.
type keyPair struct{ Options }

// Register adds the creation to the manager; only the leader does it.
func (k keyPair) Register(mgr manager.Manager) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		ctx = log.IntoContext(ctx, mgr.GetLogger())
		err := wait.PollUntilContextCancel(ctx, keyRetry, true, func(ctx context.Context) (bool, error) {
			if err := k.ensure(ctx, mgr.GetAPIReader(), mgr.GetClient()); err != nil {
				log.FromContext(ctx).Error(err, "cluster key pair")
				return false, nil
			}
			return true, nil
		})
		if ctx.Err() != nil {
			return nil
		}
		return err
	}))
}

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create

func (k keyPair) ensure(ctx context.Context, r client.Reader, w client.Writer) error {
	name := client.ObjectKey{Namespace: k.LiqoNamespace, Name: api.AuthenticationKeysSecret}
	if found, err := ctl.Optional(ctx, r, name, &corev1.Secret{}); found != nil || err != nil {
		return err
	}
	key, err := k.newKey()
	if err != nil {
		return err
	}
	secret, err := plan.KeySecret(name, key)
	if err != nil {
		return err
	}
	secret.Labels = map[string]string{api.LabelManaged: api.True}
	if err := w.Create(ctx, secret, client.FieldOwner("liqo/keys")); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create secret %s: %w", name, err)
	}
	log.FromContext(ctx).Info("created the cluster's key pair", "secret", name)
	return nil
}

func (k keyPair) newKey() (crypto.Signer, error) {
	if k.TLSCompatibility {
		return rsa.GenerateKey(rand.Reader, rsaBits)
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return key, err
}

// peerKeys creates a key pair for each tenant namespace. A peering user can read the kubeconfigs in
// the tenant namespace of its cluster, so no other peer may trust the key in them.
func (o Options) peerKeys() ctl.Registrar {
	return ctl.Controller[*corev1.Namespace, plan.PeerKeysInput]{
		Name: "peer-keys", Quiet: true, Owns: []client.Object{&corev1.Secret{}},
		Only: func(root *corev1.Namespace) bool { return root.Labels[api.LabelTenantNamespace] == api.True },
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Namespace) (in plan.PeerKeysInput, err error) {
			name := client.ObjectKey{Namespace: o.LiqoNamespace, Name: api.PeerKeysSecretName(root.Name)}
			in = plan.PeerKeysInput{Root: root, Name: name}
			// Read live: with a stale cache, a key that is in use would be replaced.
			if in.Keys, err = ctl.Optional(ctx, r.Live, name, &corev1.Secret{}); err != nil || in.Keys != nil {
				return in, err
			}
			in.NewKey, err = keyPair{o}.newKey()
			return in, err
		},
		Plan: plan.PeerKeys,
	}
}

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch;delete

// keys reads the private keys that may be used in a tenant namespace. It reads Secrets without Liqo's
// labels, such as those made by users, from the API server, because the cache drops their data.
func (o Options) keys(ctx context.Context, r ctl.Reader, tenantNamespace string) (plan.Keys, error) {
	var keys plan.Keys
	for name, into := range map[string]*[]byte{
		api.PeerKeysSecretName(tenantNamespace): &keys.Own, api.AuthenticationKeysSecret: &keys.Shared,
	} {
		key := client.ObjectKey{Namespace: o.LiqoNamespace, Name: name}
		for _, from := range []client.Reader{r, r.Live} {
			secret, err := ctl.Optional(ctx, from, key, &corev1.Secret{})
			if err != nil {
				return keys, err
			}
			if secret != nil && len(secret.Data) > 0 {
				*into = secret.Data[api.PrivateKeyField]
				break
			}
		}
	}
	return keys, nil
}
