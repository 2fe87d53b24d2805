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
)

// LeaseTimes are those of the election between the replicas of a gateway.
type LeaseTimes struct {
	// Duration after which a holder that no longer renews may be followed.
	Duration time.Duration
	// RenewDeadline bounds one attempt.
	RenewDeadline time.Duration
	// RetryPeriod is between two attempts of the holder, or after one that failed.
	RetryPeriod time.Duration
}

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=tenant,verbs=get;watch;create;update

// election is what one replica knows of the lease.
type election struct {
	client    rest.Interface
	namespace string
	// gateway is its name; the lease bears it.
	gateway string
	// identity is the replica's.
	identity string
	// owners are the lease's: it goes with the gateway.
	owners []metav1.OwnerReference
	times  LeaseTimes

	// last is the lease as last seen, the zero value when it is not known; since is when it became
	// so, by our clock: those of other nodes may be wrong.
	last  coordinationv1.Lease
	since time.Time
}

func (e *election) name() string { return api.GatewayResourceName(e.gateway) }

// takeTurns elects one of several replicas. A replica gives up its turn only when it sees another
// holder of the lease, never because it cannot reach the API server: traffic goes on then, unless the
// peer says that another has the tunnel (keepFenced). One that is told to end lets go of the lease, so
// that nobody has to wait for it, and keeps its turn until another has it.
func (g *gateway) takeTurns(ctx, told context.Context) error {
	e := &election{
		client: g.client.Coordination, namespace: g.Namespace, gateway: g.Name, identity: g.PodName, times: g.Lease,
		owners: g.connection().OwnerReferences,
	}
	for failing := false; told.Err() == nil; e.await(told) {
		holder, err := e.attempt(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The lease could not be renewed or read; the turn stays where it is")
		}
		if failing = err != nil; !failing {
			g.renewed.Store(new(time.Now()))
			if holder == g.PodName {
				g.pinger.turn.Store(e.turn())
				if g.fenced.Swap(false) {
					g.Look()
				}
			}
			g.take(ctx, holder == g.PodName)
		}
	}
	if !g.active.Load() {
		return nil
	}
	if e.holds() {
		if err := e.release(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The other replicas wait until the lease is over")
		}
	}
	if e.awaitSuccessor(ctx) {
		g.active.Store(false)
	}
	return nil
}

// attempt takes or renews the lease unless it is another's, and returns the holder. After a failure
// the lease is read anew, and a silent holder gets its time anew: it may be as cut off as we are.
func (e *election) attempt(ctx context.Context) (holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.times.RenewDeadline)
	defer cancel()
	defer func() {
		if err != nil {
			e.last = coordinationv1.Lease{}
		}
	}()
	if e.holds() {
		if err := e.write(ctx, time.Now()); !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return e.identity, err
		}
	}
	if err := e.read(ctx); err != nil {
		return "", err
	}
	if now := time.Now(); e.free(now) {
		return e.identity, e.write(ctx, now)
	}
	return *e.last.Spec.HolderIdentity, nil
}

// read gets the lease; there may be none.
func (e *election) read(ctx context.Context) error {
	var lease coordinationv1.Lease
	err := e.request(e.client.Get()).Name(e.name()).Do(ctx).Into(&lease)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get lease %s/%s: %w", e.namespace, e.name(), err)
	}
	e.see(lease, time.Now())
	return nil
}

// write makes us the holder, unless the lease changed since we saw it.
func (e *election) write(ctx context.Context, now time.Time) error {
	lease := e.last.DeepCopy()
	lease.Namespace, lease.Name = e.namespace, e.name()
	// The controller watches leases with these labels and marks the holder.
	lease.Labels = map[string]string{api.LabelGatewayName: e.gateway, api.LabelNetworkingComponent: api.GatewayComponent}
	lease.OwnerReferences = e.owners
	e.hold(&lease.Spec, now)
	request := e.request(e.client.Post())
	if lease.ResourceVersion != "" {
		request = e.request(e.client.Put()).Name(e.name())
	}
	if err := request.Body(lease).Do(ctx).Into(lease); err != nil {
		return fmt.Errorf("write lease %s/%s: %w", e.namespace, e.name(), err)
	}
	e.see(*lease, now)
	return nil
}

// await waits until it is time for another attempt: to renew, or because the holder lets go of the
// lease or falls silent.
func (e *election) await(ctx context.Context) {
	if e.last.ResourceVersion == "" || e.holds() {
		pause(ctx, e.times.RetryPeriod)
		return
	}
	watched, err := e.request(e.client.Get()).Param("watch", "true").Param("resourceVersion", e.last.ResourceVersion).
		Param("fieldSelector", "metadata.name="+e.name()).Watch(ctx)
	if err != nil {
		pause(ctx, e.times.RetryPeriod) // the next attempt says why
		return
	}
	defer watched.Stop()
	for !e.free(time.Now()) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(e.since.Add(e.times.Duration))):
		case event := <-watched.ResultChan():
			lease, ok := event.Object.(*coordinationv1.Lease)
			if !ok { // the watch ended
				pause(ctx, e.times.RetryPeriod)
				return
			}
			e.see(*lease, time.Now())
		}
	}
}

// awaitSuccessor waits until another replica holds the lease; false = the context ended before.
func (e *election) awaitSuccessor(ctx context.Context) bool {
	for ; ctx.Err() == nil; pause(ctx, moveEvery) {
		if e.read(ctx) == nil && !e.free(time.Now()) {
			return true
		}
	}
	return false
}

func (e *election) request(r *rest.Request) *rest.Request {
	return r.Namespace(e.namespace).Resource("leases")
}

// see remembers a lease and since when it is as it is.
func (e *election) see(lease coordinationv1.Lease, now time.Time) {
	if lease.UID != e.last.UID || lease.ResourceVersion != e.last.ResourceVersion {
		e.since = now
	}
	e.last = lease
}

// holds tells whether we hold the lease, as far as we know.
func (e *election) holds() bool {
	return e.last.Spec.HolderIdentity != nil && *e.last.Spec.HolderIdentity == e.identity
}

// free tells whether we may hold the lease: nobody else does, or has not renewed it for too long.
func (e *election) free(now time.Time) bool {
	holder := e.last.Spec.HolderIdentity
	return holder == nil || *holder == "" || e.holds() || now.Sub(e.since) >= e.times.Duration
}

// hold makes us the holder.
func (e *election) hold(s *coordinationv1.LeaseSpec, now time.Time) {
	if !e.holds() {
		transitions := int32(0)
		if s.LeaseTransitions != nil {
			transitions = *s.LeaseTransitions + 1
		}
		s.HolderIdentity, s.AcquireTime, s.LeaseTransitions = &e.identity, &metav1.MicroTime{Time: now}, &transitions
	}
	seconds := (e.times.Duration + time.Second - 1) / time.Second // the API takes no less than 1
	s.RenewTime, s.LeaseDurationSeconds = &metav1.MicroTime{Time: now}, new(int32(seconds))
}

// turn is the number of our turn, from 1: a later holder has a higher one.
func (e *election) turn() int64 {
	if n := e.last.Spec.LeaseTransitions; n != nil {
		return int64(*n) + 1
	}
	return 1
}

// release lets go of the lease, unless another has it by now.
func (e *election) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.times.RetryPeriod)
	defer cancel()
	lease := e.last
	lease.Spec.HolderIdentity = new("")
	err := e.request(e.client.Put()).Name(e.name()).Body(&lease).Do(ctx).Error()
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("let go of lease %s/%s: %w", e.namespace, e.name(), err)
	}
	return nil
}

// take begins or ends the turn of this replica.
func (g *gateway) take(ctx context.Context, active bool) {
	if g.active.Swap(active) == active {
		return
	}
	klog.FromContext(ctx).Info("The active replica of the gateway changed", "active", active)
	if g.Daemon != nil {
		g.Look()
	}
}

// keepFenced makes a client give up the tunnel when another replica has it and only the peer can say so, because this
// pod is cut off from the API server: two that dial with one key would take the tunnel from each other. A
// peer of another implementation says nothing. While the API server is away for all, no replica has a later turn.
func (g *gateway) keepFenced(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.pinger.superseded:
		}
		if last := g.renewed.Load(); g.Server || last == nil || time.Since(*last) < g.Lease.Duration || g.fenced.Swap(true) {
			continue
		}
		klog.FromContext(ctx).Info("Giving up the tunnel: the peer is connected to a later replica")
		g.Look()
	}
}
