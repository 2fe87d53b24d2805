// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
)

// authOptions holds the flags of an authentication.
type authOptions struct {
	inBand   bool
	proxyURL string
	// isSet reports whether the user set a flag: what no flag names stays unchanged.
	isSet func(flag string) bool
}

// removesProxy reports that the API server is no longer to be reached through a proxy.
func (o authOptions) removesProxy() bool {
	return !o.inBand && o.proxyURL == "" && (o.isSet("in-band") || o.isSet("proxy-url"))
}

func (e *env) authenticateCommand() *cobra.Command {
	var o authOptions
	cmd := &cobra.Command{Use: "authenticate", Aliases: []string{"auth"},
		Short: "Let the local cluster use the remote one's API",
		Example: "  liqoctl authenticate --remote-kubeconfig milan.yaml\n" +
			"  liqoctl authenticate --remote-kubeconfig milan.yaml --in-band"}
	p := addPairFlags(cmd, 2*time.Minute)
	addAuthFlags(cmd, &o)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return e.onPair(cmd, p, func(s *script, consumer, provider *cluster) error {
			a := &authentication{authOptions: o, consumer: consumer, provider: provider}
			return s.run(a.steps()...)
		})
	}
	return cmd
}

func addAuthFlags(cmd *cobra.Command, o *authOptions) {
	o.isSet = cmd.Flags().Changed
	cmd.Flags().BoolVar(&o.inBand, "in-band", false, "Reach the provider's API server through the tunnel")
	cmd.Flags().StringVar(&o.proxyURL, "proxy-url", "", "Proxy to reach the provider's API server")
}

// authentication is the handshake: the provider's nonce, the consumer's signature, the Tenant with
// the signature, and the Identity with the credentials from the Tenant's status.
type authentication struct {
	authOptions
	consumer, provider *cluster
	// after lists the steps that must be done first.
	after []string

	// The fields below are set by the steps.
	challenge, signature []byte
	tenant               *authv1beta1.Tenant
	identity             *authv1beta1.Identity
}

func (a *authentication) steps() []step {
	from, to := &a.consumer, &a.provider
	ensureTenant := func(c *cluster) func(context.Context) error {
		return func(ctx context.Context) error { return c.ensureTenant(ctx, c.other.id) }
	}
	awaitField := func(c *cluster, name, field string, into *[]byte) func(context.Context) error {
		return func(ctx context.Context) (err error) {
			*into, err = c.awaitField(ctx, c.tenant, name, field)
			return err
		}
	}
	return []step{
		{name: "consumer namespace", after: a.after, at: from, do: ensureTenant(a.consumer),
			doing: "Ensuring tenant namespace", done: "Tenant namespace correctly ensured"},
		{name: "provider namespace", after: a.after, at: to, do: ensureTenant(a.provider),
			doing: "Ensuring tenant namespace", done: "Tenant namespace correctly ensured"},
		{name: "nonce", after: []string{"provider namespace"}, at: to,
			doing: "Creating nonce", done: "Nonce secret ensured",
			do: func(ctx context.Context) error {
				return a.provider.apply(ctx, nonce(a.provider.tenant, a.consumer.id))
			}},
		{name: "challenge", after: []string{"nonce"}, at: to,
			do:    awaitField(a.provider, api.NonceSecret, api.NonceField, &a.challenge),
			doing: "Waiting for nonce to be generated", done: "Nonce generated successfully"},
		{after: []string{"challenge"}, at: to, doing: "Retrieving nonce", done: "Nonce retrieved"},
		{name: "signed nonce", after: []string{"challenge", "consumer namespace"}, at: from,
			doing: "Ensuring signed nonce secret", done: "Signed nonce secret ensured",
			do: func(ctx context.Context) error {
				return a.consumer.requestSignature(ctx, a.provider.id, a.challenge)
			}},
		{name: "signature", after: []string{"signed nonce"}, at: from,
			do:    awaitField(a.consumer, api.SignedNonceSecret, api.SignedNonceField, &a.signature),
			doing: "Waiting for nonce to be signed", done: "Nonce is signed"},
		{after: []string{"signature"}, at: from, doing: "Retrieving signed nonce", done: "Signed nonce retrieved"},
		{name: "tenant", after: []string{"signature"}, at: from, do: a.makeTenant,
			doing: "Generating tenant", done: "Tenant correctly generated"},
		{name: "tenant applied", after: []string{"tenant"}, at: to, do: a.applyTenant,
			doing: "Applying tenant on provider cluster", done: "Tenant correctly applied on provider cluster"},
		{name: "tenant answered", after: []string{"tenant applied"}, at: to,
			doing: "Waiting for tenant status to be filled", done: "Tenant status is filled",
			do: func(ctx context.Context) error {
				return a.provider.await(ctx, a.tenant, func() bool { return hasCredentials(a.tenant) })
			}},
		{name: "identity", after: []string{"tenant answered"}, at: to, do: a.makeIdentity,
			doing: "Generating identity", done: "Identity correctly generated"},
		{name: "identity applied", after: []string{"identity"}, at: from,
			doing: "Applying identity on consumer cluster", done: "Identity correctly applied on consumer cluster",
			do: func(ctx context.Context) error {
				return a.applyProxied(ctx, a.consumer, a.identity, "spec", "authParams", "proxyURL")
			}},
		{name: "identity in use", after: []string{"identity applied"}, at: from,
			doing: "Waiting for identity status to be filled", done: "Identity status is filled",
			do: func(ctx context.Context) error {
				return a.consumer.await(ctx, a.identity, func() bool { return hasKubeconfig(a.identity) })
			}},
	}
}

// makeTenant builds the Tenant.
func (a *authentication) makeTenant(ctx context.Context) (err error) {
	if err := a.findProxy(ctx); err != nil {
		return err
	}
	a.tenant, err = a.consumer.tenantFor(ctx, a.provider.tenant, a.signature, a.proxyURL)
	return err
}

func (a *authentication) applyTenant(ctx context.Context) error {
	if err := a.keepAdmission(ctx); err != nil {
		return err
	}
	return a.applyProxied(ctx, a.provider, a.tenant, "spec", "proxyURL")
}

// makeIdentity builds the Identity from the status of the Tenant.
func (a *authentication) makeIdentity(context.Context) error {
	params := a.tenant.Status.AuthParams.DeepCopy()
	switch { // the status may still have the former proxy
	case a.proxyURL != "":
		params.ProxyURL = a.proxyURL
	case a.removesProxy():
		params.ProxyURL = ""
	}
	a.identity = identity(a.consumer.tenant, a.provider.id, a.provider.tenant, params)
	if a.proxyURL != "" || a.removesProxy() {
		a.identity.Annotations = map[string]string{api.AnnotationInBand: fmt.Sprint(a.inBand && !a.isSet("proxy-url"))}
	}
	return nil
}

// hasCredentials reports whether a Tenant has credentials for its current key.
func hasCredentials(t *authv1beta1.Tenant) bool {
	return t.Status.AuthParams != nil && plan.HeldFor(t.Status.AuthParams.SignedCRT, t.Spec.CSR) != nil
}

// hasKubeconfig reports whether an Identity's kubeconfig holds its current credentials, even if
// they expire soon.
func hasKubeconfig(i *authv1beta1.Identity) bool {
	ready := meta.FindStatusCondition(i.Status.Conditions, "Ready")
	return i.Status.KubeconfigSecretRef != nil && (ready == nil ||
		(ready.Status == metav1.ConditionTrue || ready.Reason == plan.ReasonCertificateNotRenewed) &&
			ready.ObservedGeneration >= i.Generation)
}

// keepAdmission reuses the signing request and signature of a Tenant that was admitted with the
// same key. A nonce is valid for one admission only, so without this every run would issue a
// certificate.
func (a *authentication) keepAdmission(ctx context.Context) error {
	wanted, have := a.tenant, &authv1beta1.Tenant{ObjectMeta: metaOf(a.tenant.Namespace, a.tenant.Name)}
	err := a.provider.read(ctx, have)
	if err == nil && have.DeletionTimestamp == nil && have.Status.AuthParams != nil &&
		bytes.Equal(have.Spec.PublicKey, wanted.Spec.PublicKey) {
		wanted.Spec.CSR, wanted.Spec.Signature = have.Spec.CSR, have.Spec.Signature
	}
	return client.IgnoreNotFound(err)
}

// applyProxied applies an object whose field names the proxy. Since apply merges fields, it sets an
// empty text to remove the proxy.
func (a *authentication) applyProxied(ctx context.Context, c *cluster, object client.Object, field ...string) error {
	if !a.removesProxy() {
		return c.apply(ctx, object)
	}
	want, err := c.env.manifest(object)
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedField(want.Object, "", field...); err != nil {
		return fmt.Errorf("set %v of %s: %w", field, c.nameOf(object), err)
	}
	return c.apply(ctx, want)
}

// awaitField waits for a key of a Secret to be filled.
func (c *cluster) awaitField(ctx context.Context, namespace, name, field string) ([]byte, error) {
	secret := &corev1.Secret{ObjectMeta: metaOf(namespace, name)}
	err := c.await(ctx, secret, func() bool { return len(secret.Data[field]) > 0 })
	return secret.Data[field], err
}

// requestSignature asks the controller to sign the challenge. It deletes the signature of an older
// one.
func (c *cluster) requestSignature(ctx context.Context, provider string, challenge []byte) error {
	wanted, have := signedNonce(c.tenant, provider, challenge), &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKeyFromObject(wanted), have)
	if err == nil && string(have.Data[api.NonceField]) != string(challenge) {
		if _, err := c.remove(ctx, have); err != nil {
			return err
		}
	}
	return c.apply(ctx, wanted)
}

// tenantFor builds the Tenant of this cluster from its key for the provider and its signature of
// the nonce.
func (c *cluster) tenantFor(
	ctx context.Context, namespace string, signature []byte, proxyURL string,
) (*authv1beta1.Tenant, error) {
	keys := &corev1.Secret{ObjectMeta: metaOf(c.namespace, api.PeerKeysSecretName(c.tenant))}
	if err := c.read(ctx, keys); err != nil {
		return nil, hint(err, "it is made by %s; check that it runs, in this version", api.ControllerManagerName)
	}
	key, err := plan.ParsePrivateKey(keys.Data[api.PrivateKeyField])
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", c.nameOf(keys), err)
	}
	request, err := plan.NewRequest(key, plan.ControlPlaneSubject(c.id))
	if err != nil {
		return nil, err
	}
	return tenant(namespace, authv1beta1.TenantSpec{ClusterID: c.id, PublicKey: keys.Data[api.PublicKeyField],
		CSR: request, Signature: signature, ProxyURL: proxyURL}), nil
}

// findProxy sets the proxy URL of an in-band peering: the address by which this cluster reaches the
// provider's proxy through the tunnel.
func (a *authentication) findProxy(ctx context.Context) error {
	if !a.inBand || a.proxyURL != "" {
		return nil
	}
	proxy := &ipamv1alpha1.IP{ObjectMeta: metaOf(a.provider.namespace, api.IPAPIServerProxy)}
	if err := a.provider.await(ctx, proxy, func() bool { return proxy.Status.IP != "" }); err != nil {
		return hint(err, "an in-band peering needs proxy.enabled in the provider")
	}
	configurations := &netv1beta1.ConfigurationList{}
	if err := a.consumer.listOf(ctx, everywhere, a.provider.id, configurations); err != nil {
		return err
	}
	address, ok := toLocal(configurations.Items, proxy.Status.IP)
	if !ok {
		return fmt.Errorf("the networks of %s and %s are not joined; run '%s network connect' first",
			a.consumer.id, a.provider.id, a.consumer.env.name)
	}
	a.proxyURL = "http://" + netip.AddrPortFrom(address, api.ProxyPort).String()
	return nil
}

// toLocal returns the address by which the cluster of these Configurations reaches an address of
// the peer. It returns false while none of them maps the address.
func toLocal(configurations []netv1beta1.Configuration, remote string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(remote)
	if err != nil {
		return netip.Addr{}, false
	}
	for i := range configurations {
		if local, ok := configurations[i].Mappings().ToLocal(address); ok {
			return local, true
		}
	}
	return netip.Addr{}, false
}
