// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/reflection/translate"
)

// Times of the lease between the virtual nodes of one provider; those of the original.
const (
	leaseDuration = 15 * time.Second
	leaseRenewal  = 10 * time.Second
	leaseRetry    = 5 * time.Second
)

// shared runs the engine of what all virtual nodes of a provider have in common. One of them
// does the work:
//
//	virtual nodes   who reflects
//	one             this one, without a lease: at rest it asks the API server nothing
//	several         the holder of the lease
//
// The holder's name is that of the virtual node, so that a process that starts again goes on at
// once.
type shared struct {
	make   func() (*Engine, error)
	leases coordinationclient.CoordinationV1Interface
	Options

	mu     sync.Mutex
	view   *translate.View // the newest
	first  chan struct{}   // closed when there is one
	alone  bool
	end    context.CancelFunc // ends the term under way; nil = none
	engine *Engine            // at work; nil = not our term
	ctx    context.Context    // of the engine
}

// see takes over a view. When the number of virtual nodes passes between one and several, the
// term ends and another way of deciding begins.
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
		return s.engine.See(s.ctx, view)
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
	err = e.See(ctx, *s.view)
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

// compete waits for the lease and reflects while it is held. It returns when the lease was lost
// or ctx ends; the lease is given back then, so that another does not wait for it to run out.
func (s *shared) compete(ctx context.Context) error {
	var t turn
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: s.TenantNamespace, Name: api.VirtualKubeletLeaderLease},
			Client:     s.leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: s.Node},
		},
		LeaseDuration:   leaseDuration,
		RenewDeadline:   leaseRenewal,
		RetryPeriod:     leaseRetry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { t.take(func() error { return s.reflect(ctx) }) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("make elector of %s: %w", api.VirtualKubeletLeaderLease, err)
	}
	elector.Run(ctx)
	return t.over()
}

// turn is one tenure. The elector calls back from a goroutine it does not wait for, perhaps
// after it has returned.
type turn struct {
	mu      sync.Mutex
	ended   bool
	working sync.WaitGroup
	err     error
}

// take does the work of the turn, unless it is over.
func (t *turn) take(work func() error) {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return
	}
	t.working.Add(1)
	t.mu.Unlock()
	t.err = work()
	t.working.Done()
}

// over ends the turn, waits for its work and gives its error.
func (t *turn) over() error {
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.working.Wait()
	return t.err
}
