// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kinds applies the CustomResourceDefinitions of a version of Liqo, and is the role that does
// so once before a release is upgraded, because Helm installs those of a chart once and never changes
// them. It deletes none.
package kinds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/deploy"
	"github.com/liqo-go/liqo/internal/await"
)

// The right to patch is in the chart, by the names of the definitions.

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch;create
// +kubebuilder:rbac:groups=apps,resources=deployments,resourceNames=liqo-controller-manager,verbs=get

const (
	// timeout bounds the whole; Helm's own time-out is usually 5 minutes.
	timeout = 2 * time.Minute
	// manager is the field manager, whether liqoctl or the role applies the definitions.
	manager = "liqoctl"
)

// Command is the role "kinds". It is configured by POD_NAMESPACE and a flag.
func Command() *cobra.Command {
	var version string
	cmd := &cobra.Command{
		Use: "kinds", Short: "Apply the kinds of this version of Liqo, before it is upgraded", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rest, err := config.GetConfig()
			if err != nil {
				return fmt.Errorf("load the kubeconfig: %w", err)
			}
			known := scheme.New()
			if err := apiextensionsv1.AddToScheme(known); err != nil {
				return fmt.Errorf("register the kind of definitions: %w", err)
			}
			c, err := client.NewWithWatch(rest, client.Options{Scheme: known})
			if err != nil {
				return fmt.Errorf("make a client: %w", err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return run(ctx, c, os.Getenv("POD_NAMESPACE"), version, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&version, "version", "",
		"version of the chart; a newer one than the installed may drop fields")
	return cmd
}

// run applies all definitions, unless those in the cluster are newer.
func run(ctx context.Context, c client.WithWatch, namespace, version string, out io.Writer) error {
	crds, err := deploy.CRDs()
	if err != nil {
		return err
	}
	newer, err := Newer(ctx, c, namespace, version, crds)
	if err != nil {
		return err
	}
	if newer != "" {
		return errors.New(newer + "; upgrade to the version of the cluster's kinds or a newer one, or roll back")
	}
	for _, crd := range crds {
		if err := Apply(ctx, c, crd); err != nil {
			return err
		}
	}
	if err := Await(ctx, c, crds); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d kinds applied\n", len(crds))
	return nil
}

// Apply applies a definition.
func Apply(ctx context.Context, c client.Client, crd *apiextensionsv1.CustomResourceDefinition) error {
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

// Await waits until the API server serves all definitions.
func Await(ctx context.Context, c client.WithWatch, crds []*apiextensionsv1.CustomResourceDefinition) error {
	pending := map[string]bool{}
	for _, crd := range crds {
		pending[crd.Name] = true
	}
	err := await.Until(ctx, c, &apiextensionsv1.CustomResourceDefinitionList{}, func(have await.Objects) bool {
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
	return nil
}
