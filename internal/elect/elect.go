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

// Lease describes the lease that processes compete for.
type Lease struct {
	Client          coordinationclient.LeasesGetter
	Namespace, Name string
	// Holder identifies the process. A restarted process of the same name continues immediately, so
	// concurrent processes need different names.
	Holder string
	Times
}

// Times configures a lease. Zero values stand for those of the original's virtual kubelets: 15, 10
// and 5 s.
type Times struct {
	// Duration is how long a lease is valid without a renewal. Renewal is how long the holder
	// retries a renewal before it stops work. Retry is the time between two attempts.
	Duration, Renewal, Retry time.Duration
}

// Serve waits for the lease and calls work while it holds the lease; the context of work ends with
// the lease. Serve returns when work has ended, the lease is lost or ctx ends. It releases the
// lease after work has ended, so that a successor neither waits nor works concurrently. The error
// is that of work, or reports contradictory Times.
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
