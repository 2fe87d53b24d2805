// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps/status,verbs=patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-virtual-kubelet-remote,verbs=bind

// remoteNamespaces makes the namespaces consumers ask for.
func remoteNamespaces(o Options) ctl.Registrar {
	return ctl.Controller[*offloadingv1beta1.NamespaceMap, plan.RemoteNamespacesInput]{
		Name:      "remotenamespaces",
		Finalizer: api.FinalizerNamespaceMap,
		Only:      replicated,
		Owns:      []client.Object{&rbacv1.RoleBinding{}},
		Watches:   []ctl.Watch{{Kind: &corev1.Namespace{}, Map: mapsWishing}},
		Gather: func(ctx context.Context, r ctl.Reader, root *offloadingv1beta1.NamespaceMap) (plan.RemoteNamespacesInput, error) {
			in := plan.RemoteNamespacesInput{Root: root, LiqoNamespace: o.Kubelet.LiqoNamespace, PodSecurity: o.PodSecurity, Namespaces: map[string]corev1.Namespace{}}
			var list corev1.NamespaceList
			if err := r.List(ctx, &list); err != nil {
				return in, fmt.Errorf("list namespaces: %w", err)
			}
			for _, ns := range list.Items {
				in.Namespaces[ns.Name] = ns
			}
			in.Tenant = in.Namespaces[root.Namespace]
			return in, confirmAbsent(ctx, r, in)
		},
		Plan: plan.RemoteNamespaces,
	}
}

// replicated tells the copy of a consumer's map from one this cluster sends to a provider.
func replicated(root *offloadingv1beta1.NamespaceMap) bool {
	return root.Labels[api.LabelReplicated] == api.True
}

// confirmAbsent asks the API server about wished namespaces the cache does not know: one just
// made by somebody else must not be taken over.
func confirmAbsent(ctx context.Context, r ctl.Reader, in plan.RemoteNamespacesInput) error {
	for _, name := range in.Root.Spec.DesiredMapping {
		if _, known := in.Namespaces[name]; known || name == "" {
			continue
		}
		ns, err := ctl.Optional(ctx, r.Live, types.NamespacedName{Name: name}, &corev1.Namespace{})
		if err != nil {
			return err
		}
		if ns != nil {
			in.Namespaces[name] = *ns
		}
	}
	return nil
}

// mapsWishing leads from a namespace to the consumers' maps that name it, and to the map it was
// made for.
func mapsWishing(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
	var list offloadingv1beta1.NamespaceMapList
	if err := r.List(ctx, &list, client.MatchingLabels{api.LabelReplicated: api.True}); err != nil {
		return nil
	}
	maker := obj.GetAnnotations()[api.AnnotationManagedByNamespaceMap]
	var requests []reconcile.Request
	for i := range list.Items {
		m := &list.Items[i]
		concerned := maker == api.ManagedByNamespaceMap(m.Namespace, m.Name) || m.Namespace == obj.GetName()
		for _, name := range m.Spec.DesiredMapping {
			concerned = concerned || name == obj.GetName()
		}
		if concerned {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(m)})
		}
	}
	return requests
}
