// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/gateway/plan"
)

func replica(t *testing.T, cfg *rest.Config, name string, times plan.LeaseTimes) *election {
	t.Helper()
	client, err := daemon.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &election{client: client.Coordination, Options: plan.Options{
		Name: "peer", Namespace: "tenant", UID: "of-peer", PodName: name, Server: true, Lease: times,
	}}
}

var gatewayOwner = []metav1.OwnerReference{{APIVersion: "networking.liqo.io/v1beta1", Kind: "GatewayServer", Name: "peer", UID: "of-peer"}}

// TestOneReplicaHasItsTurn: the second waits while the first renews, follows when it lets go, and after the lease's
// duration when it falls silent.
func TestOneReplicaHasItsTurn(t *testing.T) {
	t.Parallel()
	takeTurns(t)
}

// TestTimedOneReplicaHasItsTurn: the second follows at once when the first lets go, and no earlier than the lease
// allows when that falls silent.
func TestTimedOneReplicaHasItsTurn(t *testing.T) {
	released, silent := takeTurns(t)
	if released > 30*time.Second {
		t.Errorf("b learnt after %v that the lease is free", released)
	}
	if silent < turnLasts {
		t.Errorf("a took the lease after %v, before it was over", silent)
	}
}

// turnLasts is the duration of a lease that nobody renews. Leases have whole seconds.
const turnLasts = time.Second

// takeTurns passes a lease from one replica to another and back. It returns how long the second waited for the
// release, and the first for the lease of the second, which was silent.
func takeTurns(t *testing.T) (released, silent time.Duration) {
	t.Helper()
	cfg := apitest.Start(t).Config
	if _, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	times := plan.LeaseTimes{Duration: turnLasts, RenewDeadline: patience.Limit, RetryPeriod: 10 * time.Second}
	a, b := replica(t, cfg, "a", times), replica(t, cfg, "b", times)
	b.Lease.Duration = 2 * patience.Limit // so that it does not follow because of the time
	holds := func(e *election, want string) {
		t.Helper()
		if got, err := e.attempt(t.Context()); err != nil || got != want {
			t.Fatalf("%s sees holder %q, %v; want %q", e.PodName, got, err, want)
		}
	}
	holds(a, "a")
	holds(b, "a")
	holds(a, "a")

	go func() {
		if err := a.release(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	freed := time.Now()
	limited, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	b.await(limited)
	released = time.Since(freed)
	holds(b, "b")
	holds(a, "b")

	seen := a.since
	if a.free(seen.Add(turnLasts-1)) || !a.free(seen.Add(turnLasts)) {
		t.Errorf("the lease of b, which is silent, is not free %v after it was seen, or before", turnLasts)
	}
	space.Eventually(t, "a to follow b, which is silent", func() error {
		if got, err := a.attempt(t.Context()); err != nil || got != "a" {
			return fmt.Errorf("holder %q, %v", got, err)
		}
		return nil
	})
	silent = time.Since(seen)
	holds(b, "a")
	if n := *b.last.Spec.LeaseTransitions; n != 2 {
		t.Errorf("%d transitions, want 2", n)
	}
	if diff := cmp.Diff(gatewayOwner, b.last.OwnerReferences); diff != "" {
		t.Errorf("the lease does not go with its gateway (-want +got):\n%s", diff)
	}
	want := map[string]string{"networking.liqo.io/gateway-name": "peer", "networking.liqo.io/component": "gateway"}
	if diff := cmp.Diff(want, b.last.Labels); diff != "" || b.last.Name != "gw-peer" {
		t.Errorf("the controller does not find the lease %s (-want +got):\n%s", b.last.Name, diff)
	}
	return released, silent
}

// TestTheTurnStaysWithoutAnAPIServer: traffic goes on while the API server is away.
func TestTheTurnStaysWithoutAnAPIServer(t *testing.T) {
	t.Parallel()
	times := plan.LeaseTimes{Duration: time.Millisecond, RenewDeadline: 10 * time.Millisecond, RetryPeriod: time.Millisecond}
	e := replica(t, &rest.Config{Host: "https://127.0.0.1:1"}, "a", times)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := e.run(ctx, ctx, func(l plan.Leader) { t.Errorf("the turn changed: %+v", l) }); err != nil {
		t.Error(err)
	}
	now := time.Now()
	in := plan.Sight{
		Options: plan.Options{Name: "peer", Namespace: "tenant", PodName: "a", Lease: times}, Leader: plan.Leader{Active: true, Renewed: now}, Own: netip.MustParseAddr("10.0.0.1"),
		Objects: plan.Objects{Complete: true},
	}
	in.LeaderElection, in.Ping.Interval = true, time.Second
	if d := plan.Gateway(in, plan.State{}, now); !d.State.Holds || !plan.Gateway(in, d.State, now.Add(time.Hour)).State.Holds {
		t.Error("a leader that nobody follows has not the tunnel")
	}
}

// TestOnlyThePodWithTheTunnelSpeaks: of two pods of one gateway, as while its Deployment rolls, the other is silent.
func TestOnlyThePodWithTheTunnelSpeaks(t *testing.T) {
	t.Parallel()
	client, err := daemon.Connect(&rest.Config{Host: "https://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(plan.Options{Name: "peer", Namespace: "tenant", PodName: "a"}, client)
	for _, leads := range []bool{false, true} {
		if g.publish(plan.State{Holds: leads}, false); g.rules.Silent() == leads {
			t.Errorf("a pod that has the tunnel: %t; silent %t", leads, g.rules.Silent())
		}
	}
}
