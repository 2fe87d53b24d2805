// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/remote"
)

// TestItEndsWhileCachesFill: the role ends when it is told to, also while the API server hangs and no
// cache is filled.
func TestItEndsWhileCachesFill(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(asked) })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first()
		select {
		case <-release:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		if r.FormValue("watch") != "" {
			w.WriteHeader(http.StatusUnprocessableEntity) // it lists instead
			return
		}
		_, _ = io.WriteString(w, `{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}`)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) }) // the manager, which goes on, ends
	mgr, err := manager.New(&rest.Config{Host: server.URL}, manager.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return remote.StaticMapper(scheme.New()), nil
		},
	})
	if err == nil {
		_, err = mgr.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runManager(ctx, mgr) }()
	select {
	case <-asked:
	case <-time.After(patience.Limit):
		t.Fatal(patience.GaveUp("a request of the role", "none"))
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience.Limit):
		t.Fatal(patience.GaveUp("the end of a role whose caches are not filled", "none"))
	}
}
