// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package replication

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/await"
	"github.com/liqo-go/liqo/reflection"
	"github.com/liqo-go/liqo/reflection/translate"
)

// +kubebuilder:rbac:groups=authentication.liqo.io,resources=resourceslices;renews,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=resourceslices/status;renews/status,verbs=patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps/status,verbs=patch

// kinds returns the kinds that are replicated from a tenant namespace to a peer.
func (r *replicator) kinds(peer, namespace string) []reflection.Kind {
	kinds := []reflection.Kind{
		{
			Name: "NamespaceMap", Home: &offv1beta1.NamespaceMap{}, Remote: &offv1beta1.NamespaceMap{},
			Push: reflection.Typed(translate.NamespaceMap), Pull: reflection.Typed(translate.NamespaceMapStatus),
			RetainRemote: true, Ending: endOfMap,
		}, {
			Name: "ResourceSlice", Home: &authv1beta1.ResourceSlice{}, Remote: &authv1beta1.ResourceSlice{},
			Push:   reflection.Typed(translate.ResourceSlice),
			Pull:   reflection.TypedOrError(translate.ResourceSliceStatus),
			Shared: true,
		}, {
			Name: "Renew", Home: &authv1beta1.Renew{}, Remote: &authv1beta1.Renew{},
			Push: reflection.Typed(translate.Renew), Pull: reflection.TypedOrError(translate.RenewStatus),
		},
	}
	for i := range kinds {
		kinds[i].Workers = 1
		kinds[i].HomeCache = r.mgr.GetCache()
		kinds[i].Selects = func(obj client.Object) bool { return obj.GetNamespace() == namespace && goesTo(obj, peer) }
		kinds[i].RemoteSelector = labels.SelectorFromSet(labels.Set{api.LabelReplicated: api.True,
			api.LabelOriginID: r.ClusterID})
		kinds[i].Finalizer = api.FinalizerReplicated
	}
	return kinds
}

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=virtualnodes,verbs=list

// endOfMap retains a NamespaceMap at the provider while there are virtual nodes, because pods and
// volumes would be deleted with it. A map that users delete in the consumer is created again, and
// takes over the remote one.
func endOfMap(ctx context.Context, home client.Reader, obj client.Object) (reflection.Ending, error) {
	tenant := &corev1.Namespace{}
	if err := home.Get(ctx, client.ObjectKey{Name: obj.GetNamespace()}, tenant); err != nil {
		return reflection.Waits, fmt.Errorf("get namespace %s: %w", obj.GetNamespace(), err)
	}
	if tenant.DeletionTimestamp != nil {
		return reflection.Goes, nil
	}
	var nodes offv1beta1.VirtualNodeList
	if err := home.List(ctx, &nodes, client.InNamespace(tenant.Name)); err != nil {
		return reflection.Waits, fmt.Errorf("list virtual nodes in %s: %w", tenant.Name, err)
	}
	if slices.ContainsFunc(nodes.Items, func(n offv1beta1.VirtualNode) bool { return n.DeletionTimestamp == nil }) {
		return reflection.Stays, nil
	}
	return reflection.Goes, nil
}

// goesTo reports whether an object is to be replicated to a peer.
func goesTo(obj client.Object, peer string) bool {
	l := obj.GetLabels()
	return l[api.LabelReplication] == api.True && l[api.LabelRemoteID] == peer
}

// resource returns the name of a kind in the log.
func resource(kind reflection.Kind) string {
	switch kind.Home.(type) {
	case *offv1beta1.NamespaceMap:
		return offv1beta1.GroupVersion.WithResource("namespacemaps").String()
	case *authv1beta1.ResourceSlice:
		return authv1beta1.GroupVersion.WithResource("resourceslices").String()
	case *authv1beta1.Renew:
		return authv1beta1.GroupVersion.WithResource("renews").String()
	}
	return kind.Name
}

// held lists the objects in a tenant namespace that carry our finalizer for a peer. It asks the API
// server: nothing removes the finalizer of an object that a stale cache does not show.
func (r *replicator) held(ctx context.Context, peer, namespace string) ([]client.Object, error) {
	var out []client.Object
	for _, list := range []client.ObjectList{
		&offv1beta1.NamespaceMapList{}, &authv1beta1.ResourceSliceList{}, &authv1beta1.RenewList{},
	} {
		objects, err := await.List(ctx, r.mgr.GetAPIReader(), list, client.InNamespace(namespace))
		if err != nil {
			return nil, fmt.Errorf("list %T in %s: %w", list, namespace, err)
		}
		for _, obj := range objects {
			if goesTo(obj, peer) && controllerutil.ContainsFinalizer(obj, api.FinalizerReplicated) {
				out = append(out, obj)
			}
		}
	}
	return out, nil
}
