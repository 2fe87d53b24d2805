// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/liqo-go/liqo/api"
)

// Global holds labels and annotations of all objects that the controllers of a manager create or
// apply. An object's own come before them. The zero value adds none.
type Global struct{ Labels, Annotations map[string]string }

// Marked returns mgr with a client that adds global labels and annotations. Patches, updates and
// objects that are replicated to peers, with their labels, do not get them.
func Marked(mgr manager.Manager, global Global) manager.Manager {
	return withClient{mgr, marker{mgr.GetClient(), global}}
}

type marker struct {
	client.Client
	global Global
}

func (m marker) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	m.global.mark(obj)
	return m.Client.Create(ctx, obj, opts...)
}

func (m marker) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if o, ok := obj.(metav1.Object); ok {
		m.global.mark(o)
	}
	return m.Client.Apply(ctx, obj, opts...)
}

// mark adds labels and annotations that the object does not have. Reviews have no name, and the API
// server refuses them with metadata.
func (g Global) mark(obj metav1.Object) {
	if obj.GetName() == "" || obj.GetLabels()[api.LabelReplication] == api.True {
		return
	}
	obj.SetLabels(completed(g.Labels, obj.GetLabels()))
	obj.SetAnnotations(completed(g.Annotations, obj.GetAnnotations()))
}

// completed returns own with the keys of global that it does not have.
func completed(global, own map[string]string) map[string]string {
	if len(global) == 0 {
		return own
	}
	all := maps.Clone(global)
	maps.Copy(all, own)
	return all
}
