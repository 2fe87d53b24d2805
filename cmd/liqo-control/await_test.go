// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/liqo-go/liqo/internal/patience"
)

// TestRolesWaitForTheAPIServer starts a role while the API server is unavailable, then not ready,
// then ready. Meanwhile the health checks respond and report the reason, and afterwards their
// address is free.
func TestRolesWaitForTheAPIServer(t *testing.T) {
	t.Parallel()
	api, health := free(t), free(t)
	done := make(chan error, 1)
	go func() { done <- await(t.Context(), &rest.Config{Host: "http://" + api}, health) }()
	says := func(path string, code int, words string) {
		t.Helper()
		var got string
		err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience.Limit, true, func(context.Context) (bool, error) {
			answer, err := http.Get("http://" + health + path)
			if err != nil {
				got = err.Error()
				return false, nil
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			got = answer.Status + " " + string(text)
			return answer.StatusCode == code && strings.Contains(string(text), words), err
		})
		if err != nil {
			t.Fatal(patience.GaveUp(fmt.Sprintf("%d %s from %s", code, words, path), got))
		}
	}
	says("/healthz", http.StatusOK, "ok")
	says("/readyz", http.StatusServiceUnavailable, "connection refused")
	starting := make(chan bool)
	server := &http.Server{Addr: api, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-starting:
		default:
			http.Error(w, "not yet", http.StatusInternalServerError)
		}
	})}
	t.Cleanup(func() { server.Close() })
	go server.ListenAndServe()
	says("/readyz", http.StatusServiceUnavailable, "not yet")
	close(starting)
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience.Limit):
		t.Fatal(patience.GaveUp("the end of the wait for the API server", "none"))
	}
	l, err := net.Listen("tcp", health)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// TestRolesStopWaiting ends the wait when the process is to end, and when the API server keeps
// returning errors.
func TestRolesStopWaiting(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := await(ctx, &rest.Config{Host: "http://" + free(t)}, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })}
	t.Cleanup(func() { server.Close() })
	go server.Serve(l)
	if err := await(t.Context(), &rest.Config{Host: "http://" + l.Addr().String()}, ""); err != nil {
		t.Error(err)
	}
}

// free is an address of this machine nobody listens at.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
