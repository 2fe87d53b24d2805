// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
)

func getNonce(o *single) work {
	o.needPeer("Cluster ID of the consumer")
	o.secretFlag()
	return func(s *script, c *cluster) error { return o.printField(s, c, api.NonceSecret, api.NonceField) }
}

func getKubeconfig(o *single) work {
	o.completes(o.env.namesOf(&authv1beta1.Identity{}))
	o.needPeer("Cluster ID of the provider")
	o.secretFlag()
	return func(s *script, c *cluster) error {
		return o.printField(s, c, api.KubeconfigSecretName(o.name), api.KubeconfigField)
	}
}

// secretFlag adds the flag that prints the whole Secret.
func (o *single) secretFlag() {
	o.outputFlag("Print the Secret with it instead of its value", "", "json", "yaml", "name")
}

// printField writes the value of a key of a Secret to standard output, unescaped; with the output
// flag, the Secret.
func (o *single) printField(s *script, c *cluster, name, field string) error {
	secret := &corev1.Secret{ObjectMeta: metaOf(c.tenant, name)}
	if err := c.read(s.ctx, secret); err != nil {
		return err
	}
	if len(secret.Data[field]) == 0 {
		return fmt.Errorf("%s has no key %s yet", c.nameOf(secret), field)
	}
	if o.output != "" {
		return s.env.printStored(o.output, secret)
	}
	_, err := s.env.Out.Write(secret.Data[field])
	return err
}
