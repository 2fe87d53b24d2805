// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const (
	// answerTime limits one request to the API server; askAgain is the pause between two requests.
	answerTime, askAgain = 5 * time.Second, time.Second
	// answersLeft is the maximum number of error responses in a row. A starting API server is not
	// ready, or does not know the rights of this process yet. Waiting does not help against
	// permanent errors, which are reported where they matter.
	answersLeft = 10
)

// await returns when the API server is ready. Without it, a role that starts while the API server
// is unavailable would fail, and the kubelet backs off for up to 5 minutes before it restarts the
// container. Meanwhile the process serves health checks at an address: it is alive, and not ready.
// The address may be empty or "0" for none.
func await(ctx context.Context, config *rest.Config, health string) error {
	config = rest.CopyConfig(config)
	config.Timeout = answerTime
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make client of the API server: %w", err)
	}
	var missing atomic.Value // a string
	for others := 0; ; {
		err := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if others++; !answered(err) {
			others = 0
		}
		if err == nil || others > answersLeft {
			return nil
		}
		before := missing.Swap(err.Error())
		if before == nil {
			defer serveWaiting(ctx, health, func() string { return fmt.Sprint(missing.Load()) })()
		}
		if before != err.Error() {
			klog.FromContext(ctx).Error(err, "Waiting for the API server")
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(askAgain):
		}
	}
}

// answered reports whether an error is a response of the API server.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// serveWaiting serves the health checks until stop is called.
func serveWaiting(ctx context.Context, addr string, reason func() string) (stop func()) {
	if addr == "" || addr == "0" {
		return func() {}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "waiting for the API server: "+reason(), http.StatusServiceUnavailable)
	})
	server := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: answerTime}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			klog.FromContext(ctx).Error(err, "The kubelet cannot be answered", "address", addr)
		}
	}()
	return func() {
		_ = server.Close() // ends ListenAndServe
		<-ended
	}
}
