// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
)

func (e *env) getCommand() *cobra.Command {
	cmd := group("get", "Print a secret of a peering")
	challenge, o := e.noun(cmd, "nonce", "Print the nonce a consumer must sign")
	o.needPeer(challenge, "Cluster ID of the consumer")
	challenge.RunE = func(cmd *cobra.Command, _ []string) error {
		return o.printField(cmd.Context(), api.NonceSecret, api.NonceField)
	}
	kubeconfig, k := e.noun(cmd, "kubeconfig IDENTITY", "Print the kubeconfig of an identity", "kc")
	kubeconfig.ValidArgsFunction = firstOnly(e.completion(e.namesOf(&authv1beta1.Identity{})))
	k.needPeer(kubeconfig, "Cluster ID of the provider")
	kubeconfig.RunE = func(cmd *cobra.Command, args []string) error {
		return k.printField(cmd.Context(), api.KubeconfigSecretName(args[0]), api.KubeconfigField)
	}
	return cmd
}

// printField writes a key of a Secret to standard output as it is.
func (o *single) printField(ctx context.Context, name, field string) error {
	c, err := o.cluster(ctx)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.tenant, Name: name}}
	if err := c.read(ctx, secret); err != nil {
		return err
	}
	if len(secret.Data[field]) == 0 {
		return fmt.Errorf("%s has no key %s yet", c.nameOf(secret), field)
	}
	_, err = o.env.Out.Write(secret.Data[field])
	return err
}
