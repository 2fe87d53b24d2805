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
	return func(s *script, c *cluster) error { return s.printField(c, api.NonceSecret, api.NonceField) }
}

func getKubeconfig(o *single) work {
	o.completes(o.env.namesOf(&authv1beta1.Identity{}))
	o.needPeer("Cluster ID of the provider")
	return func(s *script, c *cluster) error {
		return s.printField(c, api.KubeconfigSecretName(o.name), api.KubeconfigField)
	}
}

// printField writes the value of a key of a Secret to standard output, unescaped.
func (s *script) printField(c *cluster, name, field string) error {
	secret := &corev1.Secret{ObjectMeta: metaOf(c.tenant, name)}
	if err := c.read(s.ctx, secret); err != nil {
		return err
	}
	if len(secret.Data[field]) == 0 {
		return fmt.Errorf("%s has no key %s yet", c.nameOf(secret), field)
	}
	_, err := s.env.Out.Write(secret.Data[field])
	return err
}
