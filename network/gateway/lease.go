// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/network/gateway/plan"
)

// successorEvery is the time between two readings of a lease that was released.
const successorEvery = 100 * time.Millisecond

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=tenant,verbs=get;watch;create;update

// election holds what one replica knows of the lease.
type election struct {
	plan.Options
	client rest.Interface
	// last is the lease as seen last; zero = not known. since is the time when it became so by the
	// local clock, because those of other nodes may be wrong.
	last  coordinationv1.Lease
	since time.Time
}

func (e *election) name() string { return api.GatewayResourceName(e.Name) }

// run elects one of several replicas, and tells whether it is this one. One that is told to end
// releases the lease, so that nobody has to wait for it, and stays active until another holds it.
func (e *election) run(ctx, told context.Context, tell func(plan.Leader)) error {
	var leader plan.Leader
	active := func(active bool) {
		if leader.Active = active; active {
			leader.Turn = e.turn()
		}
		tell(leader)
	}
	for failing := false; told.Err() == nil; e.await(told) {
		holder, err := e.attempt(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The lease could not be renewed or read; the turn stays where it is")
		}
		if failing = err != nil; !failing {
			leader.Renewed = time.Now()
			active(holder == e.PodName)
		}
	}
	if !leader.Active {
		return nil
	}
	if e.holds() {
		if err := e.release(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The other replicas wait until the lease is over")
		}
	}
	if e.awaitSuccessor(ctx) {
		active(false)
	}
	return nil
}

// attempt takes or renews the lease unless another replica holds it, and returns the holder. After a
// failure the lease is read again, and the time of a silent holder restarts: it may be as cut off as
// this replica.
func (e *election) attempt(ctx context.Context) (holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.Lease.RenewDeadline)
	defer cancel()
	defer func() {
		if err != nil {
			e.last = coordinationv1.Lease{}
		}
	}()
	if e.holds() {
		if err := e.write(ctx, time.Now()); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return e.PodName, err
		}
	}
	if err := e.read(ctx); err != nil {
		return "", err
	}
	if now := time.Now(); e.free(now) {
		return e.PodName, e.write(ctx, now)
	}
	return *e.last.Spec.HolderIdentity, nil
}

// read gets the lease; there may be none.
func (e *election) read(ctx context.Context) error {
	var lease coordinationv1.Lease
	err := e.request(e.client.Get()).Name(e.name()).Do(ctx).Into(&lease)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get lease %s/%s: %w", e.Namespace, e.name(), err)
	}
	e.see(lease, time.Now())
	return nil
}

// write makes this replica the holder, unless the lease changed since it was read.
func (e *election) write(ctx context.Context, now time.Time) error {
	lease := e.last.DeepCopy()
	lease.Namespace, lease.Name = e.Namespace, e.name()
	// The controller watches leases with these labels and marks the holder.
	lease.Labels = map[string]string{
		api.LabelGatewayName: e.Name, api.LabelNetworkingComponent: api.GatewayComponent,
	}
	lease.OwnerReferences = e.NewConnection().OwnerReferences
	e.hold(&lease.Spec, now)
	request := e.request(e.client.Post())
	if lease.ResourceVersion != "" {
		request = e.request(e.client.Put()).Name(e.name())
	}
	if err := request.Body(lease).Do(ctx).Into(lease); err != nil {
		return fmt.Errorf("write lease %s/%s: %w", e.Namespace, e.name(), err)
	}
	e.see(*lease, now)
	return nil
}

// await waits until the next attempt: to renew, or because the holder releases the lease or falls
// silent.
func (e *election) await(ctx context.Context) {
	if e.last.ResourceVersion == "" || e.holds() {
		pause(ctx, e.Lease.RetryPeriod)
		return
	}
	watched, err := e.request(e.client.Get()).Param("watch", "true").Param("resourceVersion", e.last.ResourceVersion).
		Param("fieldSelector", "metadata.name="+e.name()).Watch(ctx)
	if err != nil {
		pause(ctx, e.Lease.RetryPeriod) // the next attempt says why
		return
	}
	defer watched.Stop()
	for !e.free(time.Now()) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(e.since.Add(e.Lease.Duration))):
		case event := <-watched.ResultChan():
			lease, ok := event.Object.(*coordinationv1.Lease)
			if !ok { // the watch ended
				pause(ctx, e.Lease.RetryPeriod)
				return
			}
			e.see(*lease, time.Now())
		}
	}
}

// awaitSuccessor waits until another replica holds the lease; false = the context ended before.
func (e *election) awaitSuccessor(ctx context.Context) bool {
	for ; ctx.Err() == nil; pause(ctx, successorEvery) {
		if e.read(ctx) == nil && !e.free(time.Now()) {
			return true
		}
	}
	return false
}

func (e *election) request(r *rest.Request) *rest.Request {
	return r.Namespace(e.Namespace).Resource("leases")
}

// see records a lease and since when it is unchanged.
func (e *election) see(lease coordinationv1.Lease, now time.Time) {
	if lease.UID != e.last.UID || lease.ResourceVersion != e.last.ResourceVersion {
		e.since = now
	}
	e.last = lease
}

// holds reports whether this replica holds the lease, as far as it knows.
func (e *election) holds() bool {
	return e.last.Spec.HolderIdentity != nil && *e.last.Spec.HolderIdentity == e.PodName
}

// free reports whether this replica may hold the lease: no other does, or it was not renewed for
// too long.
func (e *election) free(now time.Time) bool {
	holder := e.last.Spec.HolderIdentity
	return holder == nil || *holder == "" || e.holds() || now.Sub(e.since) >= e.Lease.Duration
}

// hold makes this replica the holder in a lease.
func (e *election) hold(s *coordinationv1.LeaseSpec, now time.Time) {
	if !e.holds() {
		transitions := int32(0)
		if s.LeaseTransitions != nil {
			transitions = *s.LeaseTransitions + 1
		}
		s.HolderIdentity, s.AcquireTime, s.LeaseTransitions = &e.PodName, &metav1.MicroTime{Time: now}, &transitions
	}
	seconds := (e.Lease.Duration + time.Second - 1) / time.Second // the API takes no less than 1
	s.RenewTime, s.LeaseDurationSeconds = &metav1.MicroTime{Time: now}, new(int32(seconds))
}

// turn returns the number of the turn, from 1: a later holder has a higher one.
func (e *election) turn() int64 {
	if n := e.last.Spec.LeaseTransitions; n != nil {
		return int64(*n) + 1
	}
	return 1
}

// release releases the lease, unless another replica holds it by now.
func (e *election) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.Lease.RetryPeriod)
	defer cancel()
	lease := e.last
	lease.Spec.HolderIdentity = new("")
	err := e.request(e.client.Put()).Name(e.name()).Body(&lease).Do(ctx).Error()
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("let go of lease %s/%s: %w", e.Namespace, e.name(), err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
