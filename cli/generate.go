// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/view"
)

func generateConfiguration(o *single) work {
	o.outputFlag("Format", "yaml", "json", "name")
	return func(s *script, c *cluster) error {
		s.busy(noCluster, "Retrieving network configuration")
		own, err := c.readRanges(s.ctx)
		if err != nil {
			return err
		}
		namespace := o.namespace
		if namespace == metav1.NamespaceDefault {
			namespace = ""
		}
		return o.print(configuration(namespace, c.id, c.id, own))
	}
}

func generatePublicKey(o *single) work {
	var kind, gateway string
	o.Flags().Var(choice(&kind, "", "server", "client"), "gateway-type", "Which end of the tunnel this cluster runs")
	o.Flags().StringVar(&gateway, "gateway-name", "", "Name of the gateway")
	o.outputFlag("Format", "yaml", "json", "name")
	require(o.Command, "gateway-type", "gateway-name")
	return func(s *script, c *cluster) error {
		s.busy(noCluster, "Waiting for the keys of the gateway")
		key, err := c.keyOf(s.ctx, gatewayNamed(c.tenant, gateway, kind))
		if err != nil {
			return err
		}
		return o.print(publicKey("", c.id, c.id, key))
	}
}

// gatewayNamed returns a gateway with this name, without contents.
func gatewayNamed(namespace, name, kind string) client.Object {
	at := metaOf(namespace, name)
	if kind == "client" {
		return &netv1beta1.GatewayClient{ObjectMeta: at}
	}
	return &netv1beta1.GatewayServer{ObjectMeta: at}
}

// keyOf waits for the public key of a gateway, which it looks up in all namespaces if none is set.
// It sets c.network to the gateway's namespace.
func (c *cluster) keyOf(ctx context.Context, gateway client.Object) ([]byte, error) {
	if gateway.GetNamespace() == "" {
		if err := c.locate(ctx, gateway); err != nil {
			return nil, err
		}
	}
	c.network = gateway.GetNamespace()
	secret, err := c.awaitKeys(ctx, gateway)
	if err != nil {
		return nil, err
	}
	return c.awaitField(ctx, c.network, secret, api.PublicKeyField)
}

// locate finds the only object of this kind and name in all namespaces and sets its namespace.
func (c *cluster) locate(ctx context.Context, object client.Object) error {
	list, err := listFor(object, c.Scheme())
	if err != nil {
		return err
	}
	found, err := c.all(ctx, list, client.MatchingFields{metav1.ObjectNameField: object.GetName()})
	if err != nil {
		return err
	}
	switch len(found) {
	case 0:
		return fmt.Errorf("%s not found", c.nameOf(object))
	case 1:
		object.SetNamespace(found[0].GetNamespace())
		return nil
	}
	return fmt.Errorf("%s exists several times: %s; choose one with --namespace", c.nameOf(object),
		someNames(textsOf(found, placeOf)))
}

func generateTenant(o *single) work {
	var remoteNamespace, challenge, proxyURL string
	var noHandshake bool
	o.needPeer("Cluster ID of the provider")
	o.outputFlag("Format", "yaml", "json", "name")
	flags := o.Flags()
	flags.StringVar(&remoteNamespace, "remote-tenant-namespace", "", "Tenant namespace at the provider")
	flags.StringVar(&challenge, "nonce", "", "The nonce to sign (default: the one already stored)")
	flags.StringVar(&proxyURL, "proxy-url", "", "Proxy to reach the provider's API server")
	flags.BoolVar(&noHandshake, "no-handshake", false,
		"Print what admits a consumer whose credentials you make yourself")
	o.MarkFlagsMutuallyExclusive("no-handshake", "nonce")
	o.ownTenant = true
	return func(s *script, c *cluster) error {
		if noHandshake {
			return o.print(admission(cmp.Or(remoteNamespace, api.TenantNamespace(c.id)), c.id, proxyURL)...)
		}
		if challenge != "" && !plan.IsNonce([]byte(challenge)) {
			return fmt.Errorf("--nonce is no nonce, which is the base64 text of %d bytes; "+
				"give all that '%s get nonce' prints at the provider", plan.NonceSize, o.env.name)
		}
		signature, err := s.signature(c, o.peer, challenge)
		if err != nil {
			return err
		}
		object, err := c.tenantFor(s.ctx, remoteNamespace, signature, proxyURL)
		if err != nil {
			return err
		}
		return o.print(object)
	}
}

// signature returns the signature of the challenge; if that is empty, of the stored one.
func (s *script) signature(c *cluster, provider, challenge string) ([]byte, error) {
	if challenge == "" {
		if err := c.requireStoredNonce(s.ctx, provider); err != nil {
			return nil, err
		}
	} else {
		if err := c.ensureTenant(s.ctx, provider); err != nil {
			return nil, err
		}
		if err := c.requestSignature(s.ctx, provider, []byte(challenge)); err != nil {
			return nil, err
		}
	}
	s.busy(noCluster, "Waiting for nonce to be signed")
	return c.awaitField(s.ctx, c.tenant, api.SignedNonceSecret, api.SignedNonceField)
}

// requireStoredNonce fails unless a nonce of the provider is stored. It creates nothing.
func (c *cluster) requireStoredNonce(ctx context.Context, provider string) (err error) {
	if c.tenant == "" {
		if c.tenant, err = c.findTenant(ctx, provider); err != nil {
			return err
		}
	}
	if c.tenant != "" {
		if err = c.read(ctx, signedNonce(c.tenant, provider, nil)); !apierrors.IsNotFound(err) {
			return err
		}
	}
	return fmt.Errorf("there is no nonce of %q to sign; give the one '%s get nonce' prints there with --nonce",
		provider, c.env.name)
}

func generateIdentity(o *single) work {
	var remoteNamespace string
	o.needPeer("Cluster ID of the consumer")
	o.outputFlag("Format", "yaml", "json", "name")
	o.Flags().StringVar(&remoteNamespace, "remote-tenant-namespace", "", "Tenant namespace at the consumer")
	return func(s *script, c *cluster) error {
		tenants := &authv1beta1.TenantList{}
		if err := c.listOf(s.ctx, c.tenant, o.peer, tenants); err != nil {
			return err
		}
		if len(tenants.Items) == 0 {
			return fmt.Errorf("no tenant for %q; apply the one '%s generate tenant' prints at the consumer", o.peer,
				o.env.name)
		}
		from := tenants.Items[0]
		if !hasCredentials(&from) || from.Status.TenantNamespace == "" {
			return hint(fmt.Errorf("tenant %s does not have the required status fields", from.Name),
				"%s", cmp.Or(view.Problem(&from), "try again when it is Ready"))
		}
		return o.print(identity(remoteNamespace, c.id, from.Status.TenantNamespace, from.Status.AuthParams))
	}
}
