// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"helm.sh/helm/v3/pkg/chart"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldManager is the field manager of the CustomResourceDefinitions.
const fieldManager = "liqoctl"

// applyCRDs applies the CustomResourceDefinitions of a chart and waits until the API server serves them.
func (c *cluster) applyCRDs(ctx context.Context, of *chart.Chart) error {
	crds, err := chartCRDs(of)
	if err != nil {
		return err
	}
	return onEach(crds, func(crd *apiextensionsv1.CustomResourceDefinition) error { return c.applyCRD(ctx, crd) })
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
	live := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metaOf("", crd.Name)}
	return c.await(ctx, live, func() bool { return apihelpers.IsCRDConditionTrue(live, apiextensionsv1.Established) })
}
