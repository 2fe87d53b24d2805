// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/elect"
	"github.com/liqo-go/liqo/reflection/translate"
)

// shared runs the engine of the objects that all virtual nodes of a provider share. One of the
// nodes reflects them:
//
//	virtual nodes   reflects
//	one             this one, without a lease, so that an idle process sends no requests
//	several         the holder of the lease
//
// The holder's name is that of the virtual node, so that a restarted process continues immediately.
type shared struct {
	make   func() (*Engine, error)
	leases coordinationclient.CoordinationV1Interface
	names  *foreign // reported by the engine
	Options

	mu     sync.Mutex
	view   *translate.View // the newest
	first  chan struct{}   // closed when view is set
	alone  bool
	end    context.CancelFunc // ends the term under way; nil = none
	engine *Engine            // running; nil = not this process's term
	ctx    context.Context    // of the engine
}

// see sets a new view. When the number of virtual nodes changes between one and several, the term
// ends, and the next one starts with or without the lease.
func (s *shared) see(_ context.Context, view translate.View) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	alone := s.NoLease || len(view.ProviderNodes) <= 1
	changed := s.view != nil && alone != s.alone
	if s.view == nil {
		defer close(s.first)
	}
	s.view, s.alone = &view, alone
	switch {
	case changed && s.end != nil:
		s.end()
	case s.engine != nil:
		return s.engine.SetView(s.ctx, view)
	}
	return nil
}

// run serves term after term until ctx ends.
func (s *shared) run(ctx context.Context) error {
	select {
	case <-s.first:
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		term, end := context.WithCancel(ctx)
		s.mu.Lock()
		s.end = end
		serve := s.compete
		if s.alone {
			serve = s.reflect
		}
		s.mu.Unlock()
		err := serve(term)
		end()
		if err != nil {
			return err
		}
	}
	return nil
}

// origin returns the home object of an object of the provider during a term of this process; nil
// otherwise.
func (s *shared) origin(ctx context.Context, kind string, key types.NamespacedName) (*corev1.ObjectReference, error) {
	s.mu.Lock()
	e := s.engine
	s.mu.Unlock()
	if e == nil {
		return nil, nil
	}
	return e.origin(ctx, kind, key)
}

// enqueueAll enqueues all home objects during a term of this process.
func (s *shared) enqueueAll(ctx context.Context) {
	s.mu.Lock()
	e := s.engine
	s.mu.Unlock()
	if e != nil {
		e.enqueueAll(ctx)
	}
}

// reflect runs an engine until ctx ends.
func (s *shared) reflect(ctx context.Context) error {
	e, err := s.make()
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	s.mu.Lock()
	s.engine, s.ctx = e, ctx
	err = e.SetView(ctx, *s.view)
	s.mu.Unlock()
	if err == nil {
		err = <-ended
	}
	s.mu.Lock()
	s.engine = nil
	s.mu.Unlock()
	return err
}

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update

// compete waits for the lease and reflects while it holds the lease. It returns when the lease is
// lost or ctx ends.
func (s *shared) compete(ctx context.Context) error {
	s.names.clear()
	lease := elect.Lease{
		Client: s.leases, Namespace: s.TenantNamespace, Name: api.VirtualKubeletLeaderLease, Holder: s.Node,
		Times: s.Lease,
	}
	return lease.Serve(ctx, s.reflect)
}
