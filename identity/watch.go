// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/ctl"
)

// when maps only the objects that match.
func when(match func(client.Object) bool, next ctl.MapFunc) ctl.MapFunc {
	return func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
		if !match(obj) {
			return nil
		}
		return next(ctx, r, obj)
	}
}

// labelled maps only the objects that have the label.
func labelled(label string, next ctl.MapFunc) ctl.MapFunc {
	has := func(obj client.Object) bool {
		_, ok := obj.GetLabels()[label]
		return ok
	}
	return when(has, next)
}

// ifControlPlane maps only the nodes that may run the API server.
func ifControlPlane(next ctl.MapFunc) ctl.MapFunc {
	return when(func(node client.Object) bool { return plan.ControlPlaneNode(node) }, next)
}

// ifClientCAs maps only the ConfigMap with the API server's client CAs.
func ifClientCAs(next ctl.MapFunc) ctl.MapFunc {
	return when(func(obj client.Object) bool {
		return obj.GetNamespace() == plan.ClientCAsNamespace && obj.GetName() == plan.ClientCAsConfigMap
	}, next)
}

// inside maps a Namespace to the roots in it, or to those that the options leave.
func inside(prototype client.ObjectList, opts ...client.ListOption) ctl.MapFunc {
	return func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
		return ctl.Roots(ctx, r, prototype, append([]client.ListOption{client.InNamespace(obj.GetName())}, opts...)...)
	}
}

// keyed maps a Secret with a key pair to the roots that may use it.
func (o Options) keyed(prototype client.ObjectList, opts ...client.ListOption) ctl.MapFunc {
	return func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
		switch namespace, isPeerKey := strings.CutPrefix(obj.GetName(), api.PeerKeysSecretName("")); {
		case obj.GetNamespace() != o.LiqoNamespace:
			return nil
		case isPeerKey:
			return ctl.Roots(ctx, r, prototype, append(opts, client.InNamespace(namespace))...)
		case obj.GetName() == api.AuthenticationKeysSecret:
			return ctl.Roots(ctx, r, prototype, opts...)
		}
		return nil
	}
}

// rivals reports whether two Tenants are for the same namespace or peer.
func rivals(changed client.Object, other *authv1beta1.Tenant) bool {
	t := changed.(*authv1beta1.Tenant)
	return t.UID != other.UID && (t.Namespace == other.Namespace || t.Spec.ClusterID == other.Spec.ClusterID)
}

// bound reports whether a binding names a Tenant's peer, or is in the Tenant's namespace.
func bound(binding client.Object, t *authv1beta1.Tenant) bool {
	var subjects []rbacv1.Subject
	switch b := binding.(type) {
	case *rbacv1.RoleBinding:
		subjects = b.Subjects
	case *rbacv1.ClusterRoleBinding:
		subjects = b.Subjects
	}
	return t.Namespace == binding.GetNamespace() || slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind != rbacv1.ServiceAccountKind && s.Name == t.Spec.ClusterID
	})
}
