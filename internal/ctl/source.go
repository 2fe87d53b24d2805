// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Source requests reconciliations for reasons other than Kubernetes' events. Its zero value is
// ready to use.
type Source struct {
	mu    sync.Mutex
	queue queue
	early []reconcile.Request // woken before the controller started
}

// Start hands the controller's queue to the source.
func (s *Source) Start(_ context.Context, q queue) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = q
	for _, r := range s.early {
		q.Add(r)
	}
	s.early = nil
	return nil
}

// Wake enqueues a root, or has it enqueued when the controller starts. It does not block.
func (s *Source) Wake(root types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := (reconcile.Request{NamespacedName: root}); s.queue != nil {
		s.queue.Add(r)
	} else {
		s.early = append(s.early, r)
	}
}
