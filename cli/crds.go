// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/deploy"
)

// fieldManager is the field manager of the CustomResourceDefinitions.
const fieldManager = "liqoctl"

// applyCRDs applies all CustomResourceDefinitions and waits until the API server serves them.
func (c *cluster) applyCRDs(ctx context.Context) error {
	crds, err := deploy.CRDs()
	if err != nil {
		return err
	}
	var work []func() error
	for _, crd := range crds {
		work = append(work, func() error { return c.applyCRD(ctx, crd) })
	}
	return together(work...)
}

func (c *cluster) applyCRD(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	m, err := c.env.manifest(crd)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(m), client.FieldOwner(fieldManager),
		client.ForceOwnership); err != nil {
		return fmt.Errorf("apply kind %s: %w", crd.Name, err)
	}
	live := &apiextensionsv1.CustomResourceDefinition{}
	live.Name = crd.Name
	return c.await(ctx, live, func() bool {
		for _, condition := range live.Status.Conditions {
			if condition.Type == apiextensionsv1.Established {
				return condition.Status == apiextensionsv1.ConditionTrue
			}
		}
		return false
	})
}

// addCRDs adds CustomResourceDefinition to a scheme.
func addCRDs(s *runtime.Scheme) *runtime.Scheme {
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		panic(err) // two Go types for one kind: a programming error
	}
	return s
}
