// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/deploy/defaults/plan"
	"github.com/liqo-go/liqo/internal/desired"
)

// awaitDefaults waits until the controller has made the objects of the installation: the next
// command may need them.
func (c *cluster) awaitDefaults(ctx context.Context) error {
	defaults := &corev1.ConfigMap{ObjectMeta: metaOf(c.namespace, api.DefaultsConfigMap)}
	err := c.read(ctx, defaults)
	if err != nil {
		return client.IgnoreNotFound(err) // an older chart has none
	}
	return onEach(slices.Sorted(maps.Keys(defaults.Data)), func(name string) error {
		object, err := c.defaultOf(name, defaults.Data[name])
		if err != nil {
			return err
		}
		return c.await(ctx, object, func() bool { return true })
	})
}

// defaultOf returns an empty object of the kind and name of a default.
func (c *cluster) defaultOf(name, text string) (client.Object, error) {
	parsed := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &parsed.Object); err != nil {
		return nil, fmt.Errorf("parse %s of ConfigMap %s/%s: %w", name, c.namespace, api.DefaultsConfigMap, err)
	}
	made, err := c.Scheme().New(parsed.GroupVersionKind())
	if err != nil {
		return nil, fmt.Errorf("find kind of %s: %w", name, err)
	}
	object := made.(client.Object)
	object.SetNamespace(parsed.GetNamespace())
	object.SetName(parsed.GetName())
	return object, nil
}

// removeDefaults deletes what the controller of an undone installation made. A controller that still
// ends makes none again, because its Deployment is gone.
func (c *cluster) removeDefaults(ctx context.Context) error {
	made := client.MatchingLabels{desired.LabelController: plan.Controller}
	for _, kind := range plan.Kinds() {
		found, err := c.all(ctx, kind.List, made, client.InNamespace(c.namespace))
		if err != nil {
			return err
		}
		for _, object := range found {
			if _, err := c.remove(ctx, object); err != nil {
				return err
			}
			free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			if err := client.IgnoreNotFound(c.Patch(ctx, object, free)); err != nil {
				return c.describe("update", object, err)
			}
		}
	}
	return nil
}
