// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/liqo-go/liqo/deploy/kinds"
)

// applyCRDs applies the CustomResourceDefinitions of a chart, with the user's labels, and waits until
// the API server serves them.
func (c *cluster) applyCRDs(ctx context.Context, of *chart.Chart) error {
	crds, err := chartCRDs(of)
	if err != nil {
		return err
	}
	err = onEach(crds, func(crd *apiextensionsv1.CustomResourceDefinition) error {
		crd.Labels = withDefaults(crd.Labels, c.env.labels)
		crd.Annotations = withDefaults(crd.Annotations, c.env.annotations)
		return kinds.Apply(ctx, c.WithWatch, crd, of.Metadata.AppVersion)
	})
	if err != nil {
		return err
	}
	return kinds.Await(ctx, c.WithWatch, crds)
}
