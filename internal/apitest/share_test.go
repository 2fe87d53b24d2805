// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/liqo-go/liqo/internal/patience"
)

// TestProcessesShareServers: the next process gets the server of the last one in its first state,
// also when the last one was killed. A server that was stopped is not handed on.
func TestProcessesShareServers(t *testing.T) {
	t.Setenv(shareVariable, "") // the sharing process itself starts servers
	socket := filepath.Join(t.TempDir(), "share")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go serve(listener)
	next := func() (*Server, *kubernetes.Clientset) {
		t.Helper()
		s, err := borrow(t.Context(), socket)
		if err != nil {
			t.Fatal(err)
		}
		c, err := kubernetes.NewForConfig(s.Config)
		if err != nil {
			t.Fatal(err)
		}
		return s, c
	}
	mark := func(c *kubernetes.Clientset) {
		t.Helper()
		tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}
		if _, err := c.CoreV1().Namespaces().Create(t.Context(), tenant, metav1.CreateOptions{}); err != nil {
			t.Fatalf("the server is not in its first state: %v", err)
		}
	}

	s, c := next()
	first := s.Config.Host
	mark(c)
	if text := s.logged(0); !strings.Contains(text, "Serving securely") {
		t.Errorf("the log of a shared server is %q", text)
	}
	if err := give(s); err != nil {
		t.Fatal(err)
	}
	s, c = next()
	if s.Config.Host != first {
		t.Error("the server was not handed on")
	}
	mark(c)
	// A process that is killed closes what it had open.
	if err := s.lease.Close(); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, patience.Limit, true, func(context.Context) (bool, error) {
		idle.Lock()
		defer idle.Unlock()
		return slices.ContainsFunc(idle.servers, func(s *Server) bool { return s.Config.Host == first }), nil
	})
	if err != nil {
		t.Fatal(patience.GaveUp("the return of the server of a process that was killed", err))
	}
	s, c = next()
	if s.Config.Host != first {
		t.Error("the server of a process that was killed was not handed on")
	}
	mark(c)
	s.Stop()
	if _, err := c.Discovery().ServerVersion(); err == nil {
		t.Error("a stopped server answers")
	}
	if s, _ = next(); s.Config.Host == first {
		t.Error("a stopped server was handed on")
	}
	if err := give(s); err != nil {
		t.Error(err)
	}
}
