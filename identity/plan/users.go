// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
)

// takenInterval is how long to wait before a user name that was refused is checked again: no event
// reports that a binding of somebody else is gone.
const takenInterval = time.Minute

// Users holds the user names in this cluster, and their owners. Cluster IDs, users of
// ResourceSlices and subjects that administrators chose share one space of names: two of the same
// name would share their rights.
type Users struct {
	// ClusterIDs are the IDs of this cluster and of its peers.
	ClusterIDs []string
	Tenants    []authv1beta1.Tenant
	// Slices are the ResourceSlices of all namespaces. Only those with credentials of this cluster
	// have a user.
	Slices              []authv1beta1.ResourceSlice
	RoleBindings        []rbacv1.RoleBinding
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
}

// Holder returns the object that a user name belongs to; empty = none. Bindings that Liqo created
// do not count: each is for a tenant or a slice.
func (u Users) Holder(user string) string {
	if strings.HasPrefix(user, api.PeeringUserName("")) {
		return fmt.Sprintf("a peering user (%s…)", api.PeeringUserName(""))
	}
	for i := range u.Tenants {
		if t := &u.Tenants[i]; t.Spec.ClusterID == user {
			return fmt.Sprintf("Tenant %s/%s", t.Namespace, t.Name)
		}
	}
	if slices.Contains(u.ClusterIDs, user) {
		return fmt.Sprintf("cluster %q", user)
	}
	for i := range u.Slices {
		if s := &u.Slices[i]; Replicated(s) && !NeedsUser(s) &&
			api.ResourceSliceUserName(s.Name, s.Spec.ConsumerClusterID) == user {
			return fmt.Sprintf("ResourceSlice %s/%s", s.Namespace, s.Name)
		}
	}
	return u.binding(func(s rbacv1.Subject) bool { return s.Kind == rbacv1.UserKind && s.Name == user },
		func(*rbacv1.RoleBinding) bool { return false })
}

// binding returns the first binding of others that has such a subject; empty = none.
func (u Users) binding(has func(rbacv1.Subject) bool, except func(*rbacv1.RoleBinding) bool) string {
	for i := range u.ClusterRoleBindings {
		if b := &u.ClusterRoleBindings[i]; !ours(b) && slices.ContainsFunc(b.Subjects, has) {
			return "ClusterRoleBinding " + b.Name
		}
	}
	for i := range u.RoleBindings {
		if b := &u.RoleBindings[i]; !ours(b) && !except(b) && slices.ContainsFunc(b.Subjects, has) {
			return "RoleBinding " + b.Namespace + "/" + b.Name
		}
	}
	return ""
}

// NeedsUser reports whether a slice has no credentials of this cluster yet, so that its user name
// has to be checked. A later refusal does not remove credentials.
func NeedsUser(s *authv1beta1.ResourceSlice) bool { return s.Status.AuthParams == nil }
