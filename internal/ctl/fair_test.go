// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/patience"
)

// TestNoNamespaceWaitsForAnother: the only root of a namespace is next, however many of another
// wait before it.
func TestNoNamespaceWaitsForAnother(t *testing.T) {
	t.Parallel()
	const crowd = 40
	var mu sync.Mutex
	var order []string
	c := run(t, apitest.Start(t), manager.Options{}, func(rt http.RoundTripper) http.RoundTripper { return rt },
		ctl.Controller[*ipamv1alpha1.Network, *ipamv1alpha1.Network]{
			Name: "fair", Quiet: true,
			Gather: func(ctx context.Context, _ ctl.Reader, root *ipamv1alpha1.Network) (*ipamv1alpha1.Network, error) {
				mu.Lock()
				order = append(order, root.Namespace)
				first := len(order) == 1
				mu.Unlock()
				if !first {
					return root, nil
				}
				return root, wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, patience.Limit, true, func(context.Context) (bool, error) {
					return depth(t, "fair") == crowd, nil // all but this one wait
				})
			},
			Plan: func(*ipamv1alpha1.Network) desired.Plan { return desired.Plan{} },
		})
	make := func(namespace string, i int) {
		t.Helper()
		n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("n-", i)}}
		n.Spec.CIDR = "10.0.0.0/16"
		if err := c.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	for i := range crowd {
		make(namespace, i)
	}
	make(elsewhere, 0)
	eventually(t, "all were looked at", func() string {
		mu.Lock()
		defer mu.Unlock()
		if len(order) <= crowd {
			return fmt.Sprint(len(order), " were")
		}
		return "all were looked at"
	})
	if at := slices.Index(order, elsewhere); at < 0 || at > 2 {
		t.Errorf("the only one of %s was looked at as number %d of %d", elsewhere, at+1, crowd+1)
	}
}

// depth is how many keys wait in a controller's queue.
func depth(t *testing.T, controller string) (n int) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == "workqueue_depth" && l.GetName() == "name" && l.GetValue() == controller {
					n += int(m.GetGauge().GetValue())
				}
			}
		}
	}
	return n
}
