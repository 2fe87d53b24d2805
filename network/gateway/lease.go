// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/api"
)

// LeaseTimes are those of the election between the replicas of a gateway.
type LeaseTimes struct{ Duration, RenewDeadline, RetryPeriod time.Duration }

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=tenant,verbs=get;create;update

// takeTurns elects one of several replicas. A replica gives up its turn only when it sees another
// holder of the lease, never because it cannot reach the API server: traffic goes on then.
func (g *gateway) takeTurns(ctx context.Context) error {
	clients, err := kubernetes.NewForConfig(g.GetConfig())
	if err != nil {
		return fmt.Errorf("make client for leases: %w", err)
	}
	config := leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: g.Namespace, Name: api.GatewayResourceName(g.Name)},
			Client:     clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: g.PodName},
		},
		LeaseDuration: g.Lease.Duration, RenewDeadline: g.Lease.RenewDeadline, RetryPeriod: g.Lease.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { g.take(ctx, true) },
			OnStoppedLeading: func() {},
			OnNewLeader: func(holder string) {
				if holder != g.PodName {
					g.take(ctx, false)
				}
			},
		},
	}
	elector, err := leaderelection.NewLeaderElector(config)
	if err != nil {
		return fmt.Errorf("set up election: %w", err)
	}
	for ctx.Err() == nil {
		elector.Run(ctx) // returns when the lease could not be renewed in time
	}
	return nil
}

// take begins or ends the turn of this replica.
func (g *gateway) take(ctx context.Context, active bool) {
	if g.active.Swap(active) == active {
		return
	}
	log.FromContext(ctx).Info("The active replica of the gateway changed", "active", active)
	select {
	case g.turn <- struct{}{}:
	default: // not looked at yet; whoever does sees the last state
	}
	if g.Daemon != nil {
		g.Look()
	}
}
