// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

const (
	stepTarget  = 250.0                  // ms, 99th percentile of each step
	rate        = 100 * time.Millisecond // 10 pods each second
	ratePods    = 200                    // for 20 s
	alonePods   = 20
	aloneTarget = 100.0 // ms
	creators    = 16    // clients that create at the same time
)

// pod is what is written and read of one.
type pod struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name   string            `json:"name,omitempty"`
		UID    string            `json:"uid,omitempty"`
		Labels map[string]string `json:"labels,omitempty"`
	} `json:"metadata"`
	Spec struct {
		NodeName      string            `json:"nodeName,omitempty"`
		NodeSelector  map[string]string `json:"nodeSelector,omitempty"`
		Tokens        *bool             `json:"automountServiceAccountToken,omitempty"`
		RestartPolicy string            `json:"restartPolicy,omitempty"`
		Containers    []container       `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase,omitempty"`
		PodIP string `json:"podIP,omitempty"`
	} `json:"status"`
}

type container struct {
	Name   string `json:"name"`
	Image  string `json:"image"`
	Policy string `json:"imagePullPolicy"`
}

func newPod(name, image string) pod {
	p := pod{APIVersion: "v1", Kind: "Pod"}
	p.Metadata.Name = name
	p.Spec.Containers = []container{{"main", image, "Never"}}
	return p
}

func podsPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/pods" }

// place is where pods of one kind are created.
type place struct {
	cluster   cluster
	namespace string
	// remote is the namespace at the provider; "" unless the place is offloaded.
	remote   string
	selector map[string]string
}

func (b *bed) offloaded() place { return place{b.rome, "bench", "bench-rome", nil} }

// quiet is a second offloaded namespace, of somebody who makes few pods.
func (b *bed) quiet() place { return place{b.rome, "bench-quiet", "bench-quiet-rome", nil} }

// direct pods go to fake nodes of their own cluster, from a namespace that is not
// offloaded.
func (b *bed) direct() []place {
	selector := map[string]string{"type": fakeLabel}
	return []place{{b.rome, "bench-direct", "", selector}, {b.milan, "bench-direct", "", selector}}
}

// quietDirect is a second namespace of rome that is not offloaded.
func (b *bed) quietDirect() place {
	return place{b.rome, "bench-quiet-direct", "", map[string]string{"type": fakeLabel}}
}

// ensureNamespaces makes all kinds of namespaces ready for pods.
func (b *bed) ensureNamespaces(ctx context.Context) error {
	if err := b.ensureFakes(ctx); err != nil {
		return err
	}
	if err := b.ensureDirect(ctx); err != nil {
		return err
	}
	for _, p := range []place{b.offloaded(), b.quiet()} {
		if err := p.ensure(ctx); err != nil {
			return err
		}
		if _, err := b.liqoctl(ctx, b.rome, "offload", "namespace", p.namespace, "--pod-offloading-strategy", "Remote"); err != nil {
			return err
		}
	}
	return nil
}

// ensureDirect makes the namespaces that are not offloaded.
func (b *bed) ensureDirect(ctx context.Context) error {
	for _, p := range append(b.direct(), b.quietDirect()) {
		if err := p.ensure(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ensure makes the namespace and waits for its service account, without which pods are refused.
func (p place) ensure(ctx context.Context) error {
	namespace := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]string{"name": p.namespace}}
	if err := p.cluster.api.ensure(ctx, "/api/v1/namespaces", namespace); err != nil {
		return err
	}
	return eventually(ctx, "service account of "+p.namespace, patience, func() (bool, error) {
		err := p.cluster.api.get(ctx, "/api/v1/namespaces/"+p.namespace+"/serviceaccounts/default", nil)
		return err == nil, err
	})
}

// moments are when things were first seen to have happened, by pod.
type moments struct {
	mu   sync.Mutex
	at   map[string]time.Time
	left int           // pods that are still missing
	all  chan struct{} // closed when none is
}

func newMoments(n int) *moments {
	return &moments{at: map[string]time.Time{}, left: n, all: make(chan struct{})}
}

func (m *moments) saw(name string) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.at[name]; known {
		return
	}
	m.at[name] = now
	if m.left--; m.left == 0 {
		close(m.all)
	}
}

// wait returns when everything has been seen.
func (m *moments) wait(ctx context.Context, what string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%s: not within %s", what, patience))
	defer cancel()
	select {
	case <-m.all:
		return nil
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		return fmt.Errorf("%w; %d are missing", context.Cause(ctx), m.left)
	}
}

// between are the milliseconds from one moment of each pod to the other, sorted.
func between(from, to *moments) []float64 {
	var all []float64
	for name, began := range from.at {
		all = append(all, float64(to.at[name].Sub(began).Microseconds())/1000)
	}
	slices.Sort(all)
	return all
}

// quantile is the nearest rank: p99 of 100 values is the 99th.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

func podNames(prefix string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return names
}

// create creates objects as fast as the API server takes them.
func (p place) create(ctx context.Context, l load, names []string, created *moments) error {
	queue := make(chan string, len(names))
	for _, n := range names {
		queue <- n
	}
	close(queue)
	failed := make(chan error, creators)
	for range creators {
		go func() {
			var err error
			for name := range queue {
				created.saw(name)
				err = errors.Join(err, p.createOne(ctx, l, name))
			}
			failed <- err
		}()
	}
	var all error
	for range creators {
		all = errors.Join(all, <-failed)
	}
	return all
}

func (p place) createOne(ctx context.Context, l load, name string) error {
	object := newPod(name, "testbed.local/pause:1")
	object.Spec.NodeSelector = p.selector
	return p.cluster.api.create(ctx, l.path(p.namespace), l.object(object))
}

// measureRate creates pods at a pace that no queue builds up, and looks at both steps
// that are Liqo's own.
func measureRate(ctx context.Context, b *bed) error {
	if err := b.ensureNamespaces(ctx); err != nil {
		return err
	}
	bound, home := newMoments(ratePods), newMoments(ratePods)
	exists, there := newMoments(ratePods), newMoments(ratePods)
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	watches := make(chan error, 2)
	go func() {
		watches <- watch(watching, b.rome.api, podsPath("bench"), func(p pod) { seen(p, bound, p.Spec.NodeName != "", home) })
	}()
	go func() {
		watches <- watch(watching, b.milan.api, podsPath("bench-rome"), func(p pod) { seen(p, exists, true, there) })
	}()
	if err := b.offloaded().createSteadily(ctx, podNames("rate", ratePods)); err != nil {
		return err
	}
	for _, m := range []*moments{bound, exists, there, home} {
		if err := m.wait(ctx, "pods created at a steady rate run"); err != nil {
			return err
		}
	}
	cancel()
	if err := errors.Join(<-watches, <-watches); err != nil {
		return err
	}
	b.reportStep("bound at home → exists at the provider", between(bound, exists))
	b.reportStep("Running at the provider → Running at home", between(there, home))
	return errors.Join(b.clear(ctx, b.offloaded(), pods), b.measureAlone(ctx))
}

// measureAlone makes one pod after the other, at home for next door and at the provider itself in turn.
func (b *bed) measureAlone(ctx context.Context) error {
	var offloaded, direct []float64
	for _, name := range podNames("alone", alonePods) {
		for _, each := range []struct {
			place place
			took  *[]float64
		}{{b.offloaded(), &offloaded}, {b.direct()[1], &direct}} {
			one, err := each.place.run(ctx, pods, []string{name})
			if err != nil {
				return err
			}
			*each.took = append(*each.took, one.each[0])
		}
	}
	there := median(direct)
	b.report.add(figure{Group: "rate", Name: "a pod alone, Running at home later than one made at the provider, p50", Value: median(offloaded) - there, Unit: "ms",
		Note: fmt.Sprintf("%.1f ms offloaded, %.1f ms at the provider", median(offloaded), there)}.below(aloneTarget))
	return errors.Join(b.clear(ctx, b.offloaded(), pods), b.clear(ctx, b.direct()[1], pods))
}

func seen(p pod, first *moments, happened bool, running *moments) {
	if happened {
		first.saw(p.Metadata.Name)
	}
	if p.Status.Phase == "Running" {
		running.saw(p.Metadata.Name)
	}
}

func (p place) createSteadily(ctx context.Context, names []string) error {
	tick := time.NewTicker(rate)
	defer tick.Stop()
	for _, name := range names {
		if err := p.createOne(ctx, pods, name); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (b *bed) reportStep(name string, sorted []float64) {
	b.report.add(figure{Group: "rate", Name: name + ", p50", Value: quantile(sorted, 0.5), Unit: "ms"})
	b.report.add(figure{Group: "rate", Name: name + ", p99", Value: quantile(sorted, 0.99), Unit: "ms",
		Note: fmt.Sprintf("max %.1f", sorted[len(sorted)-1])}.below(stepTarget))
}
