// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// installCRDs creates the CRDs of deploy/crds and waits until all are served.
func installCRDs(ctx context.Context, config *rest.Config) error {
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	crds, err := readCRDs()
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if _, err := client.CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create CRD %s: %w", crd.Name, err)
		}
	}
	for _, crd := range crds {
		if err := waitEstablished(ctx, client, crd.Name); err != nil {
			return fmt.Errorf("wait for CRD %s: %w", crd.Name, err)
		}
	}
	served, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := waitDiscovered(ctx, served, crd); err != nil {
			return fmt.Errorf("wait for CRD %s in the discovery: %w", crd.Name, err)
		}
	}
	return nil
}

// waitDiscovered: clients look a kind up in the discovery, which follows the CRD a moment later.
func waitDiscovered(ctx context.Context, served discovery.DiscoveryInterface, crd *apiextensionsv1.CustomResourceDefinition) error {
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		for _, version := range crd.Spec.Versions {
			list, err := served.ServerResourcesForGroupVersion(crd.Spec.Group + "/" + version.Name)
			if err != nil || !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == crd.Spec.Names.Plural }) {
				return false, nil // a group that is not there yet is an error, too
			}
		}
		return true, nil
	})
}

func readCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(root, "deploy", "crds", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(b, crd); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// waitEstablished ends early when the API server finds the schema wrong.
func waitEstablished(ctx context.Context, client *apiextensions.ApiextensionsV1Client, name string) error {
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		crd, err := client.CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		established := false
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.NonStructuralSchema && c.Status == apiextensionsv1.ConditionTrue {
				return false, fmt.Errorf("schema: %s", c.Message)
			}
			if c.Type == apiextensionsv1.Established {
				established = c.Status == apiextensionsv1.ConditionTrue
			}
		}
		return established, nil
	})
}
