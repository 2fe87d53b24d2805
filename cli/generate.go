// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

func (e *env) generateCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "generate", Short: "Print an object to be applied in the other cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	e.generateConfiguration(cmd)
	e.generatePublicKey(cmd)
	e.generateTenant(cmd)
	e.generateIdentity(cmd)
	return cmd
}

const usageFormat = "Format: json or yaml"

func (e *env) generateConfiguration(parent *cobra.Command) {
	cmd, o := e.noun(parent, "configuration", "Print the address ranges of this cluster for a peer", "config", "configurations")
	o.outputFlag(cmd, "yaml", usageFormat)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, stop := e.newScript(cmd.Context(), o.timeout)
		defer stop()
		c, err := o.cluster(s.ctx)
		if err != nil {
			return err
		}
		own, err := c.readRanges(s.ctx)
		if err != nil {
			return err
		}
		namespace := o.namespace
		if namespace == metav1.NamespaceDefault {
			namespace = ""
		}
		return e.print(o.output, configuration(namespace, c.id, c.id, own))
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
		s, stop := e.newScript(cmd.Context(), o.timeout)
		defer stop()
		c, err := o.cluster(s.ctx)
		if err != nil {
			return err
		}
		secret, err := c.gatewaySecret(s.ctx, kind.value, name)
		if err != nil {
			return err
		}
		key, err := c.gatewayKey(s.ctx, secret)
		if err != nil {
			return err
		}
		return e.print(o.output, publicKey("", c.id, c.id, key))
	}
}

// gatewaySecret waits for the gateway's keys and returns the name of their Secret; it sets the
// cluster's tenant namespace to that of the gateway.
func (c *cluster) gatewaySecret(ctx context.Context, kind, name string) (string, error) {
	at := metav1.ObjectMeta{Namespace: c.tenant, Name: name}
	server, dialer := &netv1beta1.GatewayServer{ObjectMeta: at}, &netv1beta1.GatewayClient{ObjectMeta: at}
	var gateway client.Object = server
	secret := func() *corev1.ObjectReference { return server.Status.SecretRef }
	if kind == "client" {
		gateway, secret = dialer, func() *corev1.ObjectReference { return dialer.Status.SecretRef }
	}
	if c.tenant == "" {
		if err := c.locate(ctx, gateway); err != nil {
			return "", err
		}
	}
	c.tenant = gateway.GetNamespace()
	if err := c.await(ctx, gateway, func() bool { return secret() != nil }); err != nil {
		return "", err
	}
	return secret().Name, nil
}

// locate finds the only object of that kind and name in any namespace and sets its namespace.
func (c *cluster) locate(ctx context.Context, object client.Object) error {
	list, err := listFor(object, c.Scheme())
	if err != nil {
		return err
	}
	if err := c.List(ctx, list, client.MatchingFields{"metadata.name": object.GetName()}); err != nil {
		return c.describe("find", object, err)
	}
	switch meta.LenList(list) {
	case 0:
		return fmt.Errorf("%s not found", c.nameOf(object))
	case 1:
		return meta.EachListItem(list, func(o runtime.Object) error {
			object.SetNamespace(o.(client.Object).GetNamespace())
			return nil
		})
	}
	return fmt.Errorf("%s exists in several namespaces; choose one with --namespace", c.nameOf(object))
}

func (e *env) generateTenant(parent *cobra.Command) {
	cmd, o := e.noun(parent, "tenant", "Sign the provider's nonce and print the Tenant for the provider", "tenants")
	var remoteNamespace, challenge, proxyURL string
	o.needPeer(cmd, "Cluster ID of the provider")
	o.outputFlag(cmd, "yaml", usageFormat)
	cmd.Flags().StringVar(&remoteNamespace, "remote-tenant-namespace", "", "Tenant namespace at the provider")
	cmd.Flags().StringVar(&challenge, "nonce", "", "The nonce to sign (default: the one already stored)")
	cmd.Flags().StringVar(&proxyURL, "proxy-url", "", "Proxy to reach the provider's API server")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, stop := e.newScript(cmd.Context(), o.timeout)
		defer stop()
		c, err := e.here(s.ctx, o.liqoNamespace)
		if err != nil {
			return err
		}
		c.tenant = o.namespace
		if err := c.ensureTenant(s.ctx, string(o.peer)); err != nil {
			return err
		}
		if challenge != "" {
			err = c.askSignature(s.ctx, string(o.peer), []byte(challenge))
		} else if stored := signedNonce(c.tenant, string(o.peer), nil); c.Get(s.ctx, client.ObjectKeyFromObject(stored), stored) != nil {
			err = fmt.Errorf("there is no nonce to sign; give the one '%s get nonce' prints at the provider with --nonce", e.name)
		}
		if err != nil {
			return err
		}
		signature, err := c.awaitField(s.ctx, c.tenant, api.SignedNonceSecret, api.SignedNonceField)
		if err != nil {
			return err
		}
		object, err := c.tenantFor(s.ctx, remoteNamespace, signature, proxyURL)
		if err != nil {
			return err
		}
		return e.print(o.output, object)
	}
}

func (e *env) generateIdentity(parent *cobra.Command) {
	cmd, o := e.noun(parent, "identity", "Print the Identity for a consumer", "identities")
	var remoteNamespace string
	o.needPeer(cmd, "Cluster ID of the consumer")
	o.outputFlag(cmd, "yaml", usageFormat)
	cmd.Flags().StringVar(&remoteNamespace, "remote-tenant-namespace", "", "Tenant namespace at the consumer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		c, err := o.cluster(ctx)
		if err != nil {
			return err
		}
		tenants := &authv1beta1.TenantList{}
		if err := c.listOf(ctx, c.tenant, string(o.peer), tenants); err != nil {
			return err
		}
		if len(tenants.Items) == 0 {
			return fmt.Errorf("no tenant for %q; apply the one '%s generate tenant' prints at the consumer", string(o.peer), e.name)
		}
		from := tenants.Items[0]
		if from.Status.AuthParams == nil || from.Status.TenantNamespace == "" {
			return fmt.Errorf("tenant %s does not have the required status fields", from.Name)
		}
		return e.print(o.output, identity(remoteNamespace, c.id, from.Status.TenantNamespace, from.Status.AuthParams))
	}
}
