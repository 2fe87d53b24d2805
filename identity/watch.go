// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/ctl"
)

// labelled passes on only objects that carry the label.
func labelled(label string, next ctl.MapFunc) ctl.MapFunc {
	return func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
		if _, ok := obj.GetLabels()[label]; !ok {
			return nil
		}
		return next(ctx, r, obj)
	}
}

// ifControlPlane passes on only nodes that may run the API server.
func ifControlPlane(next ctl.MapFunc) ctl.MapFunc {
	return func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
		if !plan.ControlPlaneNode(obj) {
			return nil
		}
		return next(ctx, r, obj)
	}
}

// ifClientCAs passes on only the ConfigMap with the API server's client CAs.
func ifClientCAs(next ctl.MapFunc) ctl.MapFunc {
	return func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
		if obj.GetNamespace() != plan.ClientCAsNamespace || obj.GetName() != plan.ClientCAsConfigMap {
			return nil
		}
		return next(ctx, r, obj)
	}
}

// inside maps a Namespace to the roots in it.
func inside(prototype client.ObjectList) ctl.MapFunc {
	return func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
		return roots(ctx, r, prototype, client.InNamespace(obj.GetName()))
	}
}

// keyed maps a Secret with a key pair to the roots that may use it.
func (o Options) keyed(prototype client.ObjectList, opts ...client.ListOption) ctl.MapFunc {
	return func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
		switch namespace, isPeerKey := strings.CutPrefix(obj.GetName(), api.PeerKeysSecretName("")); {
		case obj.GetNamespace() != o.LiqoNamespace:
			return nil
		case isPeerKey:
			return roots(ctx, r, prototype, append(opts, client.InNamespace(namespace))...)
		case obj.GetName() == api.AuthenticationKeysSecret:
			return roots(ctx, r, prototype, opts...)
		}
		return nil
	}
}

// rivals maps a Tenant to those for the same namespace or peer.
func rivals(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
	changed := obj.(*authv1beta1.Tenant)
	return tenantsWhere(ctx, r, func(t *authv1beta1.Tenant) bool {
		return t.UID != changed.UID && (t.Namespace == changed.Namespace || t.Spec.ClusterID == changed.Spec.ClusterID)
	})
}

// boundTenants maps a binding to the Tenants it names.
func boundTenants(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
	var subjects []rbacv1.Subject
	switch b := obj.(type) {
	case *rbacv1.RoleBinding:
		subjects = b.Subjects
	case *rbacv1.ClusterRoleBinding:
		subjects = b.Subjects
	}
	names := map[string]bool{}
	for _, s := range subjects {
		if s.Kind != rbacv1.ServiceAccountKind && !strings.HasPrefix(s.Name, "system:") {
			names[s.Name] = true
		}
	}
	if len(names) == 0 && obj.GetNamespace() == "" {
		return nil
	}
	return tenantsWhere(ctx, r, func(t *authv1beta1.Tenant) bool {
		return names[t.Spec.ClusterID] || t.Namespace == obj.GetNamespace()
	})
}

func tenantsWhere(ctx context.Context, r client.Reader, match func(*authv1beta1.Tenant) bool) []reconcile.Request {
	var tenants authv1beta1.TenantList
	if err := r.List(ctx, &tenants); err != nil {
		log.FromContext(ctx).Error(err, "list tenants")
		return nil
	}
	var requests []reconcile.Request
	for i := range tenants.Items {
		if t := &tenants.Items[i]; match(t) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(t)})
		}
	}
	return requests
}

// roots lists the roots that match.
func roots(ctx context.Context, r client.Reader, prototype client.ObjectList,
	opts ...client.ListOption) []reconcile.Request {
	list := prototype.DeepCopyObject().(client.ObjectList)
	if err := r.List(ctx, list, opts...); err != nil {
		log.FromContext(ctx).Error(err, "list roots")
		return nil
	}
	var requests []reconcile.Request
	err := meta.EachListItem(list, func(item runtime.Object) error {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(item.(client.Object))})
		return nil
	})
	if err != nil {
		log.FromContext(ctx).Error(err, "walk roots")
	}
	return requests
}
