// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/identity"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/reflection/translate"
)

// liqo runs the controllers of identities until the story ends.
func (s *session) liqo(t *testing.T, name string) {
	t.Helper()
	mgr, err := manager.New(s.clusters[name].Config, manager.Options{
		Scheme: scheme.New(), Logger: klog.New(log.NullLogSink{}), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctl.Queues(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, controller := range identity.Controllers(identity.Options{
		ClusterID: name, LiqoNamespace: api.Namespace, APIServerAddress: "https://203.0.113.7:6443", CA: s.clusters[name].Config.CAData,
		DefaultResourceSliceClassEnabled: true, DefaultLimitsEnforcement: offv1beta1.NoLimitsEnforcement,
		DefaultNodeResources: corev1.ResourceList{"cpu": resource.MustParse("4")},
	}) {
		if err := controller.Register(mgr); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error)
	go func() { ended <- mgr.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("controllers of %s: %v", name, err)
		}
	})
}

// carry does once what the replication of rome does: it copies a slice to milan, with the rights of
// rome, and copies the status back once it is complete and its resources have the wanted status.
func (s *session) carry(t *testing.T, name, wanted string) string {
	t.Helper()
	typed := func(cluster, user string) client.Client {
		config := s.clusters[cluster].Config
		if user != "" {
			config = s.clusters[cluster].ConfigFor(user, "liqo.io", "system:authenticated")
		}
		c, err := client.New(config, client.Options{Scheme: scheme.New()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	rome, milan, asRome := typed("rome", ""), typed("milan", ""), typed("milan", "rome")
	slice := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: name}}
	waitUntil(t, name+" is filled in", func(ctx context.Context) (bool, error) {
		err := rome.Get(ctx, client.ObjectKeyFromObject(slice), slice)
		return len(slice.Spec.CSR) > 0, err
	})
	view := translate.View{Consumer: "rome", Provider: "milan", Namespaces: map[string]string{slice.Namespace: "liqo-tenant-rome"}}
	copied := translate.ResourceSlice(slice, nil, view)
	if err := asRome.Create(t.Context(), copied); err != nil && !apierrors.IsAlreadyExists(err) {
		return " " + err.Error() + "\n"
	}
	waitUntil(t, name+" is "+wanted, func(ctx context.Context) (bool, error) {
		err := milan.Get(ctx, client.ObjectKeyFromObject(copied), copied)
		resources, ready := answer(copied, authv1beta1.ResourceSliceResources), answer(copied, "Ready")
		signed := answer(copied, authv1beta1.ResourceSliceAuthentication).Status == authv1beta1.ResourceSliceAccepted
		whole := ready.Status == "True" || ready.Message == resources.Message // there is a reason for each step on the way
		return signed && whole && string(resources.Status) == wanted, err
	})
	pulled, err := translate.ResourceSliceStatus(slice, copied, view)
	if err != nil {
		t.Fatal(err)
	}
	if err := rome.Status().Patch(t.Context(), pulled, client.MergeFrom(slice)); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, c := range copied.Status.Conditions {
		out = append(out, fmt.Sprintf(" %s %s: %s\n", c.Type, c.Status, c.Message))
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

func answer(slice *authv1beta1.ResourceSlice, question authv1beta1.ResourceSliceConditionType) authv1beta1.ResourceSliceCondition {
	for _, c := range slice.Status.Conditions {
		if c.Type == question {
			return c
		}
	}
	return authv1beta1.ResourceSliceCondition{}
}

// waitUntil waits until the claim holds.
func waitUntil(t *testing.T, claim string, holds func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, holds); err != nil {
		t.Fatalf("waited until %s: %v", claim, err)
	}
}
