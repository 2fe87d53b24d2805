// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
)

// asking is a client that records the field selectors of lists.
type asking struct {
	client.Client
	mu     sync.Mutex
	fields []string
}

func (a *asking) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	a.mu.Lock()
	a.fields = append(a.fields, fmt.Sprint(o.FieldSelector))
	a.mu.Unlock()
	return a.Client.List(ctx, list, opts...)
}

type askingManager struct {
	manager.Manager
	client client.Client
}

func (m askingManager) GetClient() client.Client { return m.client }

type indexing struct {
	asked  *asking
	client client.Client
}

func (i *indexing) Register(mgr manager.Manager) error {
	i.asked = &asking{Client: mgr.GetClient()}
	i.client = ctl.Indexed(askingManager{mgr, i.asked}).GetClient()
	return nil
}

// TestIndexed shows that lists of a peer's objects use an index and return the same objects as a label selector: objects
// created before the index, and objects that are updated or deleted later.
func TestIndexed(t *testing.T) {
	t.Parallel()
	var i indexing
	server := apitest.Start(t)
	admin := run(t, server, manager.Options{}, nil, &i)
	peer := func(name, id string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
			api.LabelRemoteClusterID: id, "kept": name}}}
	}
	for _, obj := range []client.Object{peer("a", "rome"), peer("b", "milan"), peer("c", "rome")} {
		if err := admin.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	names := func(opts ...client.ListOption) string {
		var list corev1.ConfigMapList
		if err := i.client.List(t.Context(), &list, opts...); err != nil {
			return err.Error()
		}
		found := map[string]bool{}
		for _, c := range list.Items {
			if c.Labels["kept"] != "" {
				found[c.Name] = true
			}
		}
		return fmt.Sprint(found)
	}
	says := func(want string, opts ...client.ListOption) {
		t.Helper()
		eventually(t, want, func() string { return names(opts...) })
	}
	of := func(id string) client.MatchingLabels { return client.MatchingLabels{api.LabelRemoteClusterID: id} }
	says("map[a:true b:true c:true]")
	says("map[a:true c:true]", of("rome"))
	says("map[b:true]", of("milan"), client.InNamespace(namespace))
	says("map[]", of("milan"), client.InNamespace(metav1.NamespaceSystem))
	says("map[c:true]", of("rome"), client.MatchingLabels{"kept": "c"})
	says("map[a:true b:true c:true]", client.HasLabels{api.LabelRemoteClusterID})
	moved := peer("a", "milan")
	if err := admin.Update(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(t.Context(), peer("b", "")); err != nil {
		t.Fatal(err)
	}
	says("map[c:true]", of("rome"))
	says("map[a:true]", of("milan"))

	i.asked.mu.Lock()
	i.asked.fields = nil
	i.asked.mu.Unlock()
	names(of("rome"))
	names(client.MatchingLabels{"kept": "c"})
	if got := fmt.Sprint(i.asked.fields); got != "[peer=rome <nil>]" {
		t.Errorf("lists were asked for by %s", got)
	}
	var untyped metav1.PartialObjectMetadataList
	untyped.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := i.client.List(t.Context(), &untyped, of("rome")); err != nil || len(untyped.Items) != 1 {
		t.Errorf("metadata of %d: %v", len(untyped.Items), err)
	}
}
