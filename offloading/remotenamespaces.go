// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=resourcequotas;limitranges,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps/status,verbs=patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants,verbs=get;list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-virtual-kubelet-remote,verbs=bind

// remoteNamespaces creates and deletes, as provider, the namespaces that consumers request in their
// NamespaceMaps.
func remoteNamespaces(o Options) ctl.Registrar {
	all := &offloadingv1beta1.NamespaceMapList{}
	return ctl.Controller[*offloadingv1beta1.NamespaceMap, plan.RemoteNamespacesInput]{
		Name:      "remotenamespaces",
		Finalizer: api.FinalizerNamespaceMap,
		Only:      replicated,
		Owns:      []client.Object{&rbacv1.RoleBinding{}, &corev1.ResourceQuota{}, &corev1.LimitRange{}},
		Creates:   []client.Object{&corev1.Namespace{}},
		Watches: []ctl.Watch{
			{Kind: &corev1.Namespace{}, Map: ctl.Where(all, dependsOn)},
			{Kind: &authv1beta1.Tenant{}, Map: ctl.All(all), Relevant: ctl.Comings},
		},
		Gather: func(ctx context.Context, r ctl.Reader,
			root *offloadingv1beta1.NamespaceMap) (plan.RemoteNamespacesInput, error) {
			in := plan.RemoteNamespacesInput{
				Root: root, LiqoNamespace: o.Kubelet.LiqoNamespace, StorageNamespace: o.StorageNamespace,
				Names:       o.Namespaces,
				PodSecurity: o.PodSecurity, Bounds: o.NamespaceBounds, Namespaces: map[string]corev1.Namespace{},
			}
			var list corev1.NamespaceList
			if err := r.List(ctx, &list); err != nil {
				return in, fmt.Errorf("list namespaces: %w", err)
			}
			for _, ns := range list.Items {
				in.Namespaces[ns.Name] = ns
			}
			in.Tenant = in.Namespaces[root.Namespace]
			var tenants authv1beta1.TenantList
			if err := r.List(ctx, &tenants); err != nil {
				return in, fmt.Errorf("list tenants: %w", err)
			}
			for _, tenant := range tenants.Items {
				in.Tenants = append(in.Tenants, tenant.Spec.ClusterID)
			}
			return in, nil
		},
		Plan: plan.RemoteNamespaces,
	}
}

// replicated reports whether a NamespaceMap was replicated here by a consumer.
func replicated(root *offloadingv1beta1.NamespaceMap) bool {
	return root.Labels[api.LabelReplicated] == api.True
}

// dependsOn reports whether a consumer's NamespaceMap is in the namespace, requests it, or is the
// one that it was created for.
func dependsOn(namespace client.Object, root *offloadingv1beta1.NamespaceMap) bool {
	name, maker := namespace.GetName(), namespace.GetAnnotations()[api.AnnotationManagedByNamespaceMap]
	isMaker := maker == api.ManagedByNamespaceMap(root.Namespace, root.Name)
	remote := slices.Collect(maps.Values(root.Spec.DesiredMapping))
	return replicated(root) && (isMaker || root.Namespace == name || slices.Contains(remote, name))
}
