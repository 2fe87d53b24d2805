// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"testing"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
)

// TestAReplicaIsReadyWhenSomebodyLeads kills a leader, which releases nothing. The replica that is
// started then is ready no sooner than it leads. Killed and restarted in its own pod, it continues
// its own lease. One that follows a leader is ready as well.
func TestAReplicaIsReadyWhenSomebodyLeads(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t)
	c, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	home := consumer{c}
	home.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}})
	for _, name := range []string{"second", "third"} { // the first is gone like one that was deleted by force
		home.create(t, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "liqo"}}},
		})
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: api.ControllerManagerName}}
	ready := func(r *replica, of string) {
		t.Helper()
		home.until(t, r.name+" is ready when "+of+" leads", lease, func() bool {
			answer, err := http.Get("http://" + r.health + "/readyz")
			if err != nil {
				return false
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return false
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil {
				t.Fatal(err)
			}
			if holder := *lease.Spec.HolderIdentity; holder != of {
				t.Fatalf("%s is ready while %s has the lease, want %s", r.name, holder, of)
			}
			return true
		})
	}
	first := startReplica(t, server.Config, "first")
	ready(first, "first")
	first.kill(t)
	second := startReplica(t, server.Config, "second")
	ready(second, "second")
	transitions := *lease.Spec.LeaseTransitions
	second.kill(t)
	second = startReplica(t, server.Config, "second")
	ready(second, "second")
	if got := *lease.Spec.LeaseTransitions; got != transitions {
		t.Errorf("the lease changed hands %d times when its holder was restarted", got-transitions)
	}
	ready(startReplica(t, server.Config, "third"), "second")
}

// replica is a controller that runs in this process.
type replica struct {
	name, health string
	end          context.CancelFunc
	ended        chan error
}

// startReplica starts a controller that keeps its lease when it ends, as one that is killed.
func startReplica(t *testing.T, config *rest.Config, name string) *replica {
	t.Helper()
	f := controllerFlags{}
	cmd := &cobra.Command{}
	f.add(cmd)
	r := &replica{name: name, health: free(t), ended: make(chan error, 1)}
	err := cmd.ParseFlags([]string{
		"--cluster-id=rome", "--podcidr=10.10.0.0/16", "--metrics-address=0", "--health-probe-address=" + r.health,
		"--webhook-port=" + freePort(t), "--enable-leader-election",
	})
	if err != nil {
		t.Fatal(err)
	}
	f.podName = name
	o := f.manager()
	o.LeaderElectionReleaseOnCancel = false
	o.Controller.SkipNameValidation = new(true)
	mgr, err := f.assemble(rest.CopyConfig(config), o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.end = cancel
	go func() { r.ended <- mgr.Start(ctx) }()
	t.Cleanup(cancel)
	return r
}

func (r *replica) kill(t *testing.T) {
	t.Helper()
	r.end()
	if err := <-r.ended; err != nil {
		t.Fatalf("end %s: %v", r.name, err)
	}
}
