// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kinds is the role that runs once, before a release is upgraded. It applies the
// CustomResourceDefinitions of this version, because Helm installs those of a chart once and never
// changes them. It deletes none.
package kinds

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/liqo-go/liqo/deploy"
	"github.com/liqo-go/liqo/internal/await"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch;create;patch

const (
	// timeout bounds the whole; Helm's own time-out is usually 5 minutes.
	timeout = 2 * time.Minute
	// manager is the field manager. liqoctl uses the same one, because both apply the same definitions.
	manager = "liqoctl"
)

// Command is the role "kinds". It has no configuration.
func Command() *cobra.Command {
	return &cobra.Command{
		Use: "kinds", Short: "Apply the kinds of this version of Liqo, before it is upgraded", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rest, err := config.GetConfig()
			if err != nil {
				return fmt.Errorf("load the kubeconfig: %w", err)
			}
			known := runtime.NewScheme()
			if err := apiextensionsv1.AddToScheme(known); err != nil {
				return fmt.Errorf("register the kind of definitions: %w", err)
			}
			c, err := client.NewWithWatch(rest, client.Options{Scheme: known})
			if err != nil {
				return fmt.Errorf("make a client: %w", err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return run(ctx, c, cmd.OutOrStdout())
		},
	}
}

// run applies all definitions, then waits until the API server serves them.
func run(ctx context.Context, c client.WithWatch, out io.Writer) error {
	crds, err := deploy.CRDs()
	if err != nil {
		return err
	}
	pending := map[string]bool{}
	for _, crd := range crds {
		if err := apply(ctx, c, crd); err != nil {
			return err
		}
		pending[crd.Name] = true
	}
	err = await.Until(ctx, c, &apiextensionsv1.CustomResourceDefinitionList{}, func(have await.Objects) bool {
		for _, object := range have {
			crd := object.(*apiextensionsv1.CustomResourceDefinition)
			if apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
				delete(pending, crd.Name)
			}
		}
		return len(pending) == 0
	})
	if err != nil {
		return fmt.Errorf("wait until %d of %d kinds are served: %w", len(pending), len(crds), err)
	}
	fmt.Fprintf(out, "%d kinds applied\n", len(crds))
	return nil
}

func apply(ctx context.Context, c client.Client, crd *apiextensionsv1.CustomResourceDefinition) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return fmt.Errorf("convert kind %s: %w", crd.Name, err)
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	object := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})
	if err := c.Apply(ctx, object, client.FieldOwner(manager), client.ForceOwnership); err != nil {
		return fmt.Errorf("apply kind %s: %w", crd.Name, err)
	}
	return nil
}
