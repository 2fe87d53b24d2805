// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package defaults makes the objects that an installation has by default: its Networks, the
// templates of gateways and the options of virtual kubelets. The chart renders them into a
// ConfigMap, which is mounted into the controller. Package plan decides what is made of them.
package defaults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/deploy/defaults/plan"
	"github.com/liqo-go/liqo/internal/ctl"
)

// These rights are for the namespace of Liqo, where no peer has such objects. Reading them, and Networks, which all
// tenant namespaces have, are rights of other controllers.

// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayservertemplates,namespace=liqo,verbs=create;patch;delete
// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayclienttemplates,namespace=liqo,verbs=create;patch;delete
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=vkoptionstemplates,namespace=liqo,verbs=create;patch;delete

// Options configures the controller.
type Options struct {
	// Dir is the directory with a YAML file for each default; empty disables the controller.
	Dir string
	// LiqoNamespace is the namespace of the installation, its Deployment and its defaults.
	LiqoNamespace string
}

// Controllers returns the controller that makes the defaults. Its root is the Deployment of the
// controllers, which says whether Liqo is being uninstalled.
func Controllers(o Options) []ctl.Registrar {
	if o.Dir == "" {
		return nil
	}
	root := types.NamespacedName{Namespace: o.LiqoNamespace, Name: api.ControllerManagerName}
	changes := func(before, after *appsv1.Deployment) bool { return uninstalling(before) != uninstalling(after) }
	row := ctl.Controller[*appsv1.Deployment, plan.Input]{
		Name: plan.Controller, Quiet: true,
		Only:    func(d *appsv1.Deployment) bool { return client.ObjectKeyFromObject(d) == root },
		Watches: []ctl.Watch{{Kind: &appsv1.Deployment{}, Relevant: ctl.Differs(changes)}},
		Gather:  o.gather,
		Plan:    plan.Defaults,
	}
	for _, kind := range plan.Kinds() {
		// What users change stays, so changes do not matter.
		row.Watches = append(row.Watches, ctl.Watch{Kind: kind.Object, Relevant: ctl.Comings,
			Map: func(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
				if obj.GetNamespace() != o.LiqoNamespace {
					return nil
				}
				return []reconcile.Request{{NamespacedName: root}}
			}})
	}
	return []ctl.Registrar{row}
}

func uninstalling(d *appsv1.Deployment) bool {
	return d.Annotations[api.AnnotationUninstalling] == api.True
}

// gather reads the files of defaults and the live objects of their kinds.
func (o Options) gather(ctx context.Context, r ctl.Reader, root *appsv1.Deployment) (plan.Input, error) {
	var in plan.Input
	kinds := scheme.New()
	// Read live: a stale cache may not show yet that Liqo is being uninstalled.
	self, err := ctl.Optional(ctx, r.Live, client.ObjectKeyFromObject(root), &appsv1.Deployment{})
	if err != nil {
		return in, fmt.Errorf("look for an uninstall: %w", err)
	}
	in.Uninstalling = self == nil || uninstalling(self)
	if in.Defaults, err = read(o.Dir); err != nil {
		return in, err
	}
	for _, kind := range plan.Kinds() {
		list := kind.List
		if err := r.List(ctx, list, client.InNamespace(o.LiqoNamespace)); err != nil {
			return in, fmt.Errorf("list %T: %w", list, err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return in, fmt.Errorf("list %T: %w", list, err)
		}
		for _, item := range items {
			object, err := untyped(item, kinds)
			if err != nil {
				return in, err
			}
			in.Live = append(in.Live, object)
		}
	}
	return in, nil
}

// untyped returns an object without its Go type, but with its kind, which typed objects lack.
func untyped(item runtime.Object, kinds *runtime.Scheme) (*unstructured.Unstructured, error) {
	kind, err := apiutil.GVKForObject(item, kinds)
	if err != nil {
		return nil, fmt.Errorf("find kind of %T: %w", item, err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(item)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", item, err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetGroupVersionKind(kind)
	return object, nil
}

// read returns the defaults in the files of a directory, in the order of their names. Hidden files
// are skipped: Kubernetes keeps the versions of a mounted ConfigMap in such. Without any it fails,
// because all objects would be deleted.
func read(dir string) ([]*unstructured.Unstructured, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("find the defaults: %w", err)
	}
	var all []*unstructured.Unstructured
	for _, file := range files {
		name := filepath.Join(dir, file.Name())
		if strings.HasPrefix(file.Name(), ".") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read a default: %w", err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, object); err != nil {
			return nil, fmt.Errorf("parse default %s: %w", filepath.Base(name), err)
		}
		all = append(all, object)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no defaults are in %s: every installation has Networks", dir)
	}
	return all, nil
}
