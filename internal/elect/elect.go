// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package elect lets one of several processes work at a time: the holder of a Lease.
package elect

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lease is what processes compete for.
type Lease struct {
	Client          coordinationclient.LeasesGetter
	Namespace, Name string
	// Holder is who competes: a process that starts again under the same name goes on at once,
	// so two that run beside each other must not have the same.
	Holder string
	Times
}

// Times of a lease. Zero values are those of the original's virtual kubelets: 15, 10 and 5 s.
type Times struct {
	// Duration is how long a holder's word holds, Renewal how long it tries to give it again
	// before it stops working, and Retry the time between two attempts.
	Duration, Renewal, Retry time.Duration
}

// Serve waits for the lease and works while it is held; work ends when its context does. Serve
// returns when the work has ended, the lease was lost or ctx ended, and gives the lease back,
// after the work, so that a successor neither waits nor works beside it. The error is the work's,
// or tells of times that contradict each other.
func (l Lease) Serve(ctx context.Context, work func(context.Context) error) error {
	held, giveBack := context.WithCancel(context.WithoutCancel(ctx))
	defer giveBack()
	began := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name},
			Client:     l.Client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.Holder},
		},
		LeaseDuration:   cmp.Or(l.Duration, 15*time.Second),
		RenewDeadline:   cmp.Or(l.Renewal, 10*time.Second),
		RetryPeriod:     cmp.Or(l.Retry, 5*time.Second),
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(tenure context.Context) { began <- tenure },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("make elector of lease %s/%s: %w", l.Namespace, l.Name, err)
	}
	ended := make(chan struct{})
	go func() {
		elector.Run(held)
		close(ended)
	}()
	select {
	case tenure := <-began:
		tenure, stop := context.WithCancel(tenure)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		err = work(tenure)
	case <-ctx.Done():
	case <-ended:
	}
	giveBack()
	<-ended
	return err
}
