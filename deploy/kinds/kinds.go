// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kinds applies the CustomResourceDefinitions of a version of Liqo, and is the role that does
// so once before a release is upgraded, because Helm installs those of a chart once and never changes
// them. It deletes none.
package kinds

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	semver "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/liqo-go/liqo/api"
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
	cmd.Flags().StringVar(&version, "version", "", "version of the chart; kinds of a newer one stay")
	return cmd
}

// run applies all definitions, except those that a newer version left behind: they serve this one, too.
// The label of a definition says which version it is of; Helm installs the first ones without it, and
// the installed version counts.
func run(ctx context.Context, c client.WithWatch, namespace, version string, out io.Writer) error {
	crds, err := deploy.CRDs()
	if err != nil {
		return err
	}
	installed, err := installedVersion(ctx, c, namespace)
	if err != nil {
		return err
	}
	live := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := c.List(ctx, live); err != nil {
		return fmt.Errorf("list kinds: %w", err)
	}
	of := map[string]string{}
	for i := range live.Items {
		of[live.Items[i].Name] = cmp.Or(live.Items[i].Labels[api.LabelAppVersion], installed)
	}
	applied := 0
	for _, crd := range crds {
		if older(version, of[crd.Name]) {
			fmt.Fprintf(out, "kind %s stays as version %s made it\n", crd.Name, of[crd.Name])
			continue
		}
		if err := Apply(ctx, c, crd, version); err != nil {
			return err
		}
		applied++
	}
	if err := Await(ctx, c, crds); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d kinds applied\n", applied)
	return nil
}

// older reports whether a version is older than another. It is false if one of them is none.
func older(version, other string) bool {
	a, err := semver.ParseSemantic(version)
	b, wrong := semver.ParseSemantic(other)
	return err == nil && wrong == nil && a.LessThan(b)
}

// Apply applies the definition of a version; empty = not known.
func Apply(ctx context.Context, c client.Client, crd *apiextensionsv1.CustomResourceDefinition, version string) error {
	if version != "" {
		crd.Labels = labels.Merge(crd.Labels, labels.Set{api.LabelAppVersion: version})
	}
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
