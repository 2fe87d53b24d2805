// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
)

func (e *env) generateCommand() *cobra.Command {
	cmd := group("generate", "Print an object to be applied in the other cluster")
	e.generateConfiguration(cmd)
	e.generatePublicKey(cmd)
	e.generateTenant(cmd)
	e.generateIdentity(cmd)
	e.generatePeeringUser(cmd)
	return cmd
}

const usageFormat = "Format: json or yaml"

func (e *env) generateConfiguration(parent *cobra.Command) {
	cmd, o := e.noun(parent, "configuration", "Print the address ranges of this cluster for a peer", "config", "configurations")
	o.outputFlag(cmd, "yaml", usageFormat)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.act(cmd, func(s *script, c *cluster) error {
			s.busy(nowhere, "Retrieving network configuration")
			own, err := c.readRanges(s.ctx)
			if err != nil {
				return err
			}
			namespace := o.namespace
			if namespace == metav1.NamespaceDefault {
				namespace = ""
			}
			s.quiet()
			return e.print(o.output, configuration(namespace, c.id, c.id, own))
		})
	}
}

func (e *env) generatePublicKey(parent *cobra.Command) {
	cmd, o := e.noun(parent, "publickey", "Print the public key of a gateway for the peer", "publickeys", "publickeies")
	kind, name := choice("", "server", "client"), ""
	cmd.Flags().Var(kind, "gateway-type", "Which end of the tunnel this cluster runs")
	cmd.Flags().StringVar(&name, "gateway-name", "", "Name of the gateway")
	o.outputFlag(cmd, "yaml", usageFormat)
	require(cmd, "gateway-type", "gateway-name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.act(cmd, func(s *script, c *cluster) error {
			s.busy(nowhere, "Waiting for the keys of the gateway")
			key, err := c.keyOf(s.ctx, gatewayNamed(c.tenant, name, kind.value))
			if err != nil {
				return err
			}
			s.quiet()
			return e.print(o.output, publicKey("", c.id, c.id, key))
		})
	}
}

// gatewayNamed is a gateway of which only the name is known.
func gatewayNamed(namespace, name, kind string) client.Object {
	at := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if kind == "client" {
		return &netv1beta1.GatewayClient{ObjectMeta: at}
	}
	return &netv1beta1.GatewayServer{ObjectMeta: at}
}

// keyOf waits for the public key of a gateway, which is looked for everywhere if it has no namespace.
// Its namespace is from then on that of the network.
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
	return c.gatewayKey(ctx, secret)
}

// locate finds the only object of that kind and name in any namespace and sets its namespace.
func (c *cluster) locate(ctx context.Context, object client.Object) error {
	list, err := listFor(object, c.Scheme())
	if err != nil {
		return err
	}
	found, err := c.all(ctx, list, client.MatchingFields{nameField: object.GetName()})
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
	return fmt.Errorf("%s exists several times: %s; choose one with --namespace", c.nameOf(object), someNames(placesOf(found)))
}

func (e *env) generateTenant(parent *cobra.Command) {
	cmd, o := e.noun(parent, "tenant", "Sign the provider's nonce and print the Tenant for the provider", "tenants")
	var remoteNamespace, challenge, proxyURL string
	var noHandshake bool
	o.needPeer(cmd, "Cluster ID of the provider")
	o.outputFlag(cmd, "yaml", usageFormat)
	cmd.Flags().StringVar(&remoteNamespace, "remote-tenant-namespace", "", "Tenant namespace at the provider")
	cmd.Flags().StringVar(&challenge, "nonce", "", "The nonce to sign (default: the one already stored)")
	cmd.Flags().StringVar(&proxyURL, "proxy-url", "", "Proxy to reach the provider's API server")
	cmd.Flags().BoolVar(&noHandshake, "no-handshake", false, "Print what admits a consumer whose credentials you make yourself")
	cmd.MarkFlagsMutuallyExclusive("no-handshake", "nonce")
	o.ownTenant = true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.act(cmd, func(s *script, c *cluster) error {
			if noHandshake {
				namespace := orDefault(remoteNamespace, api.TenantNamespace(c.id))
				return e.print(o.output, admission(namespace, c.id, proxyURL)...)
			}
			if challenge != "" && !plan.IsNonce([]byte(challenge)) {
				return fmt.Errorf("--nonce is no nonce, which is the base64 text of %d bytes; give all that '%s get nonce' prints at the provider", plan.NonceSize, e.name)
			}
			signature, err := s.signature(c, string(o.peer), challenge)
			if err != nil {
				return err
			}
			object, err := c.tenantFor(s.ctx, remoteNamespace, signature, proxyURL)
			if err != nil {
				return err
			}
			return e.print(o.output, object)
		})
	}
}

// signature gets the challenge signed, or the one given earlier if it is empty.
func (s *script) signature(c *cluster, provider, challenge string) ([]byte, error) {
	if challenge == "" {
		if err := c.storedNonce(s.ctx, provider); err != nil {
			return nil, err
		}
	} else {
		if err := c.ensureTenant(s.ctx, provider); err != nil {
			return nil, err
		}
		if err := c.askSignature(s.ctx, provider, []byte(challenge)); err != nil {
			return nil, err
		}
	}
	s.busy(nowhere, "Waiting for nonce to be signed")
	defer s.quiet()
	return c.awaitField(s.ctx, c.tenant, api.SignedNonceSecret, api.SignedNonceField)
}

// storedNonce looks for a nonce of the provider that was given before, and makes nothing.
func (c *cluster) storedNonce(ctx context.Context, provider string) (err error) {
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
	return fmt.Errorf("there is no nonce of %q to sign; give the one '%s get nonce' prints there with --nonce", provider, c.env.name)
}

func (e *env) generateIdentity(parent *cobra.Command) {
	cmd, o := e.noun(parent, "identity", "Print the Identity for a consumer", "identities")
	var remoteNamespace string
	o.needPeer(cmd, "Cluster ID of the consumer")
	o.outputFlag(cmd, "yaml", usageFormat)
	cmd.Flags().StringVar(&remoteNamespace, "remote-tenant-namespace", "", "Tenant namespace at the consumer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.act(cmd, func(s *script, c *cluster) error {
			tenants := &authv1beta1.TenantList{}
			if err := c.listOf(s.ctx, c.tenant, string(o.peer), tenants); err != nil {
				return err
			}
			if len(tenants.Items) == 0 {
				return fmt.Errorf("no tenant for %q; apply the one '%s generate tenant' prints at the consumer", string(o.peer), e.name)
			}
			from := tenants.Items[0]
			if !answered(&from) || from.Status.TenantNamespace == "" {
				return hint(fmt.Errorf("tenant %s does not have the required status fields", from.Name), "%s", orDefault(saysOf(&from), "try again when it is Ready"))
			}
			return e.print(o.output, identity(remoteNamespace, c.id, from.Status.TenantNamespace, from.Status.AuthParams))
		})
	}
}
