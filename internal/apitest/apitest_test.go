// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/liqo-go/liqo/internal/apitest"
)

// Two servers live side by side, know nothing of each other, and grant only what is bound.
func TestStart(t *testing.T) {
	a, b := apitest.Start(t), apitest.Start(t)
	if a.Config.Host == b.Config.Host {
		t.Fatalf("two servers at %s", a.Config.Host)
	}
	for _, s := range []*apitest.Server{a, b} {
		if err := listSecrets(t, s.Config); err != nil {
			t.Errorf("list secrets as system:masters: %v", err)
		}
		if err := listSecrets(t, s.ConfigFor("somebody")); !apierrors.IsForbidden(err) {
			t.Errorf("list secrets as somebody: got %v, want forbidden", err)
		}
	}
}

func listSecrets(t *testing.T, config *rest.Config) error {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	return err
}
