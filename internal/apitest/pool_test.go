// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/liqo-go/liqo/internal/patience"
)

// TestServersAreHandedOn: the next test gets the server of the last one as if it were new. What the
// last one made is gone, what it deleted or changed is back, and rights it granted grant nothing.
func TestServersAreHandedOn(t *testing.T) {
	t.Setenv(shareVariable, "")
	const somebody = "somebody"
	var first *Server
	for _, turn := range []string{"first", "second"} {
		t.Run(turn, func(t *testing.T) {
			c := startAgain(t, &first)
			ctx := t.Context()
			allowed := func() bool {
				review, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: somebody, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "secrets"},
				}}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return review.Status.Allowed
			}
			if allowed() {
				t.Error("somebody has rights at the start")
			}
			namespaces := c.CoreV1().Namespaces()
			if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}, metav1.CreateOptions{}); err != nil {
				t.Errorf("a namespace that the last test had made: %v", err)
			}
			if err := namespaces.Delete(ctx, "tenant", metav1.DeleteOptions{}); err != nil { // nobody empties it: it stays
				t.Error(err)
			}
			view, err := c.RbacV1().ClusterRoles().Get(ctx, "view", metav1.GetOptions{})
			if err != nil {
				t.Fatalf("a role that the last test had deleted: %v", err)
			}
			if err := c.RbacV1().ClusterRoles().Delete(ctx, "view", metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(view.UID))}); err != nil {
				t.Error(err)
			}
			system, err := namespaces.Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
			if err != nil || system.Labels["changed"] != "" {
				t.Errorf("namespace %s: %v, labels %v", metav1.NamespaceSystem, err, system.Labels)
			}
			system.Labels["changed"] = "yes"
			if _, err := namespaces.Update(ctx, system, metav1.UpdateOptions{}); err != nil {
				t.Error(err)
			}
			if _, err := c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: somebody},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: somebody}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			}, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
			if err := wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) { return allowed(), nil }); err != nil {
				t.Errorf("the granted right does not act: %v", err)
			}
			if _, err := c.CoreV1().Secrets("tenant").Get(ctx, "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("a Secret that does not exist: %v", err)
			}
		})
	}
}

// startAgain starts a server, which is the first one after the first time, and returns its client.
func startAgain(t *testing.T, first **Server) *kubernetes.Clientset {
	t.Helper()
	s := Start(t)
	if *first != nil && s != *first {
		t.Fatal("the server was not handed on")
	}
	*first = s
	c, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestFormerAdmissionIsGone: policies and webhooks of the last test refuse nothing in the next one.
func TestFormerAdmissionIsGone(t *testing.T) {
	t.Setenv(shareVariable, "")
	var first *Server
	for _, turn := range []string{"first", "second", "third"} {
		t.Run(turn, func(t *testing.T) {
			c := startAgain(t, &first)
			for _, name := range []string{"former-policy", "former-validating", "former-mutating"} {
				object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
				if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
					t.Errorf("at the start of a test: %v", err)
				}
			}
			if err := settleAdmission(t.Context(), c, "former"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestServersThatAreNotHandedOn: a server that is stopped, or whose APIs were changed, serves no
// other test.
func TestServersThatAreNotHandedOn(t *testing.T) {
	t.Setenv(shareVariable, "")
	var used []*Server
	for name, spoil := range map[string]func(*testing.T, *Server, *kubernetes.Clientset){
		"stopped": func(_ *testing.T, s *Server, _ *kubernetes.Clientset) { s.Stop() },
		"APIs": func(t *testing.T, s *Server, _ *kubernetes.Clientset) {
			crds, err := apiextensions.NewForConfig(s.Config)
			if err != nil {
				t.Fatal(err)
			}
			if err := crds.CustomResourceDefinitions().Delete(t.Context(), "foreignclusters.core.liqo.io", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := Start(t)
			if slices.Contains(used, s) {
				t.Error("a spoilt server was handed on")
			}
			used = append(used, s)
			c, err := kubernetes.NewForConfig(s.Config)
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, s, c)
		})
	}
}
