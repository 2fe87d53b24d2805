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
	// RetryPeriod is between two attempts.
	RetryPeriod time.Duration
}

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=tenant,verbs=get;create;update

// election is what one replica knows of the lease.
type election struct {
	client    rest.Interface
	namespace string
	name      string
	// identity is the replica's.
	identity string
	times    LeaseTimes

	// last is the lease as last seen, since by our clock: those of other nodes may be wrong.
	last  coordinationv1.Lease
	since time.Time
}

// takeTurns elects one of several replicas. A replica gives up its turn only when it sees another
// holder of the lease, never because it cannot reach the API server: traffic goes on then. One
// that ends lets go of the lease, so that nobody has to wait for it.
func (g *gateway) takeTurns(ctx context.Context) error {
	e := &election{client: g.client.Coordination, namespace: g.Namespace, name: api.GatewayResourceName(g.Name), identity: g.PodName, times: g.Lease}
	for failing := false; ctx.Err() == nil; pause(ctx, g.Lease.RetryPeriod) {
		holder, err := e.attempt(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The lease could not be renewed or read; the turn stays where it is")
		}
		if failing = err != nil; !failing {
			g.take(ctx, holder == g.PodName)
		}
	}
	if g.active.Load() {
		if err := e.release(context.WithoutCancel(ctx)); err != nil {
			klog.FromContext(ctx).Error(err, "The other replicas wait until the lease is over")
		}
	}
	return nil
}

// attempt takes or renews the lease unless it is another's, and returns the holder.
func (e *election) attempt(ctx context.Context) (holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.times.RenewDeadline)
	defer cancel()
	var lease coordinationv1.Lease
	err = e.request(e.client.Get()).Name(e.name).Do(ctx).Into(&lease)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return "", fmt.Errorf("get lease %s/%s: %w", e.namespace, e.name, err)
	}
	now := time.Now()
	if e.see(lease, now); !e.free(now) {
		return *lease.Spec.HolderIdentity, nil
	}
	lease.Namespace, lease.Name = e.namespace, e.name
	e.hold(&lease.Spec, now)
	write := e.request(e.client.Post())
	if !missing {
		write = e.request(e.client.Put()).Name(e.name)
	}
	if err := write.Body(&lease).Do(ctx).Into(&lease); err != nil {
		return "", fmt.Errorf("write lease %s/%s: %w", e.namespace, e.name, err)
	}
	e.see(lease, now)
	return e.identity, nil
}

func (e *election) request(r *rest.Request) *rest.Request {
	return r.Namespace(e.namespace).Resource("leases")
}

// see remembers a lease and since when it is as it is.
func (e *election) see(lease coordinationv1.Lease, now time.Time) {
	if e.since.IsZero() || lease.UID != e.last.UID || lease.ResourceVersion != e.last.ResourceVersion {
		e.since = now
	}
	e.last = lease
}

// free tells whether we may hold the lease: nobody else does, or has not renewed it for too long.
func (e *election) free(now time.Time) bool {
	holder := e.last.Spec.HolderIdentity
	return holder == nil || *holder == "" || *holder == e.identity || now.Sub(e.since) >= e.times.Duration
}

// hold makes us the holder.
func (e *election) hold(s *coordinationv1.LeaseSpec, now time.Time) {
	if s.HolderIdentity == nil || *s.HolderIdentity != e.identity {
		transitions := int32(0)
		if s.LeaseTransitions != nil {
			transitions = *s.LeaseTransitions + 1
		}
		s.HolderIdentity, s.AcquireTime, s.LeaseTransitions = &e.identity, &metav1.MicroTime{Time: now}, &transitions
	}
	s.RenewTime, s.LeaseDurationSeconds = &metav1.MicroTime{Time: now}, new(int32(e.times.Duration.Seconds()))
}

// release lets go of the lease, unless another has it by now.
func (e *election) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.times.RetryPeriod)
	defer cancel()
	lease := e.last
	lease.Spec.HolderIdentity = new("")
	err := e.request(e.client.Put()).Name(e.name).Body(&lease).Do(ctx).Error()
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("let go of lease %s/%s: %w", e.namespace, e.name, err)
	}
	return nil
}

// take begins or ends the turn of this replica.
func (g *gateway) take(ctx context.Context, active bool) {
	if g.active.Swap(active) == active {
		return
	}
	klog.FromContext(ctx).Info("The active replica of the gateway changed", "active", active)
	select {
	case g.turn <- struct{}{}:
	default: // not looked at yet; whoever does sees the last state
	}
	if g.Daemon != nil {
		g.Look()
	}
}
