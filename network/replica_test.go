// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// TestTheHolderOfTheLeaseIsMarked: of several pods of a gateway the holder of the lease is marked.
// A former holder that stopped renewing loses the mark; one that is terminating keeps it. Renewals
// cause no reconcile.
func TestTheHolderOfTheLeaseIsMarked(t *testing.T) {
	t.Parallel()
	r := replicas{startControllers(t, "rome"), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "gw-peer", Labels: map[string]string{"networking.liqo.io/gateway-name": "peer", "networking.liqo.io/component": "gateway"},
	}}}
	for _, name := range []string{"a", "b", "c"} {
		r.start(t, name)
	}
	must(t, r.Create(t.Context(), r.lease))

	r.hold(t, "a")
	r.expect(t, "a")
	t.Log("a falls silent")
	r.hold(t, "b")
	r.expect(t, "b")

	t.Log("b is told to end")
	must(t, r.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}}))
	r.hold(t, "")
	r.hold(t, "c")
	r.expect(t, "b", "c")

	before, versions := reconciles(t, "gateway-replica"), r.versions(t)
	const renewals = 100
	for range renewals {
		r.hold(t, "c")
	}
	if got := r.versions(t); got != versions {
		t.Errorf("renewals changed pods: %s became %s", versions, got)
	}
	r.hold(t, "a") // what comes after the renewals tells that they were seen
	r.expect(t, "a", "b")
	if n := reconciles(t, "gateway-replica") - before; n >= renewals/2 {
		t.Errorf("%d renewals and a move led to %v reconciles", renewals, n)
	}
}

// replicas are pods of one gateway and their lease.
type replicas struct {
	cluster
	lease *coordinationv1.Lease
}

// start creates a pod that runs on a node; otherwise it would be gone as soon as it is deleted.
func (r replicas) start(t *testing.T, name string) {
	t.Helper()
	must(t, r.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"networking.liqo.io/gateway-name": "peer"}},
		Spec: corev1.PodSpec{
			NodeName:   "rome-1",
			Containers: []corev1.Container{{Name: "gateway", Image: "none", Args: []string{"gateway", "--leader-election=true"}}},
		},
	}))
}

// hold writes the lease as its holder does, or without a holder when it is released.
func (r replicas) hold(t *testing.T, holder string) {
	t.Helper()
	r.lease.Spec.HolderIdentity, r.lease.Spec.RenewTime = &holder, &metav1.MicroTime{Time: time.Now()}
	must(t, r.Update(t.Context(), r.lease))
}

// expect waits until these pods are marked and no others.
func (r replicas) expect(t *testing.T, want ...string) {
	t.Helper()
	began := time.Now()
	eventually(t, "the active pod", func() error {
		var marked []string
		for _, p := range r.pods(t) {
			if p.Labels["networking.liqo.io/active"] == "true" {
				marked = append(marked, p.Name)
			}
		}
		return equal(want, marked)
	})
	t.Logf("%v marked after %v at most", want, time.Since(began))
}

func (r replicas) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	must(t, r.List(t.Context(), &pods, client.InNamespace("default")))
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods.Items
}

func (r replicas) versions(t *testing.T) (out string) {
	t.Helper()
	for _, p := range r.pods(t) {
		out += fmt.Sprintf(" %s:%s", p.Name, p.ResourceVersion)
	}
	return out
}

// reconciles returns how often a controller reconciled, in all tests of the process.
func reconciles(t *testing.T, controller string) (n float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == controller {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}
