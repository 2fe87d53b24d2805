// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	burstTarget = 1.5                    // times the pair of direct bursts, of 100 pods and more
	askedTarget = 9.0                    // requests to each API server per pod of such a burst, until Running
	sizeTarget  = 30.0                   // MB per 1000 pods, in all our processes
	stepTarget  = 250.0                  // ms, 99th percentile of each step
	rate        = 100 * time.Millisecond // 10 pods each second
	ratePods    = 200                    // for 20 s
	alonePods   = 20
	aloneTarget = 100.0 // ms
	rounds      = 3
	creators    = 16 // clients that create at the same time
)

// pod is what is written and read of one.
type pod struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
		UID  string `json:"uid,omitempty"`
	} `json:"metadata"`
	Spec struct {
		NodeName     string            `json:"nodeName,omitempty"`
		NodeSelector map[string]string `json:"nodeSelector,omitempty"`
		Containers   []container       `json:"containers"`
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
	selector  map[string]string
}

func (b *bed) offloaded() place { return place{b.rome, "bench", nil} }

// quiet is a second offloaded namespace, of somebody who makes few pods.
func (b *bed) quiet() place { return place{b.rome, "bench-quiet", nil} }

// direct pods go to fake nodes of their own cluster, from a namespace that is not
// offloaded.
func (b *bed) direct() []place {
	selector := map[string]string{"type": fakeLabel}
	return []place{{b.rome, "bench-direct", selector}, {b.milan, "bench-direct", selector}}
}

// ensureNamespaces makes both kinds of namespaces ready for pods.
func (b *bed) ensureNamespaces(ctx context.Context) error {
	if err := b.ensureFakes(ctx); err != nil {
		return err
	}
	for _, p := range append(b.direct(), b.offloaded(), b.quiet()) {
		namespace := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]string{"name": p.namespace}}
		if err := p.cluster.api.ensure(ctx, "/api/v1/namespaces", namespace); err != nil {
			return err
		}
		// Pods are refused before their namespace has its service account.
		err := eventually(ctx, "service account of "+p.namespace, patience, func() (bool, error) {
			err := p.cluster.api.get(ctx, "/api/v1/namespaces/"+p.namespace+"/serviceaccounts/default", nil)
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	for _, p := range []place{b.offloaded(), b.quiet()} {
		if _, err := b.liqoctl(ctx, b.rome, "offload", "namespace", p.namespace, "--pod-offloading-strategy", "Remote"); err != nil {
			return err
		}
	}
	return nil
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
	slices.Sort(values)
	return values[len(values)/2]
}

func podNames(prefix string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return names
}

// create creates pods as fast as the API server takes them.
func (p place) create(ctx context.Context, names []string, created *moments) error {
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
				err = errors.Join(err, p.createOne(ctx, name))
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

func (p place) createOne(ctx context.Context, name string) error {
	object := newPod(name, "testbed.local/pause:1")
	object.Spec.NodeSelector = p.selector
	return p.cluster.api.create(ctx, podsPath(p.namespace), object)
}

// clear deletes all pods of the place and waits until they are gone, also next door.
func (b *bed) clear(ctx context.Context, p place) error {
	if err := p.cluster.api.remove(ctx, podsPath(p.namespace)); err != nil {
		return err
	}
	places := []place{p}
	if p.cluster.name == b.rome.name && p.namespace != "bench-direct" {
		places = append(places, place{b.milan, p.namespace + "-rome", nil})
	}
	for _, p := range places {
		err := eventually(ctx, "pods of "+p.namespace+" are gone in "+p.cluster.name, patience, func() (bool, error) {
			var list struct{ Items []struct{} }
			err := p.cluster.api.get(ctx, podsPath(p.namespace), &list)
			return len(list.Items) == 0, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// burst is how one burst went in one place, in milliseconds.
type burst struct {
	all      float64   // first creation to the last one Running
	each     []float64 // creation to Running of each pod, sorted
	deletion float64
}

// run creates the pods of one burst and watches them until all are Running.
func (p place) run(ctx context.Context, names []string) (burst, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	created, running := newMoments(len(names)), newMoments(len(names))
	ours := map[string]bool{} // others may run in the namespace
	for _, name := range names {
		ours[name] = true
	}
	watched := make(chan error, 1)
	go func() {
		watched <- watch(ctx, p.cluster.api, podsPath(p.namespace), func(seen pod) {
			if seen.Status.Phase == "Running" && ours[seen.Metadata.Name] {
				running.saw(seen.Metadata.Name)
			}
		})
	}()
	began := time.Now()
	if err := p.create(ctx, names, created); err != nil {
		return burst{}, err
	}
	if err := running.wait(ctx, fmt.Sprintf("%d pods of %s run in %s", len(names), p.namespace, p.cluster.name)); err != nil {
		return burst{}, err
	}
	end := began
	for _, at := range running.at {
		if at.After(end) {
			end = at
		}
	}
	cancel()
	return burst{all: float64(end.Sub(began).Milliseconds()), each: between(created, running)}, <-watched
}

// runAndClear runs bursts in places at the same time and removes their pods, after a look at what runs.
func (b *bed) runAndClear(ctx context.Context, places []place, names []string, look func() error) (burst, error) {
	bursts, errs := make([]burst, len(places)), make([]error, len(places))
	var wg sync.WaitGroup
	for i, p := range places {
		wg.Go(func() { bursts[i], errs[i] = p.run(ctx, names) })
	}
	wg.Wait()
	if err := errors.Join(append(errs, look())...); err != nil {
		return burst{}, err
	}
	var all burst
	for _, one := range bursts {
		all.all = max(all.all, one.all)
		all.each = append(all.each, one.each...)
	}
	slices.Sort(all.each)
	began := time.Now()
	for i, p := range places {
		wg.Go(func() { errs[i] = b.clear(ctx, p) })
	}
	wg.Wait()
	all.deletion = float64(time.Since(began).Milliseconds())
	return all, errors.Join(errs...)
}

// measureBurst takes turns: a pair of direct bursts, one in each cluster, then an
// offloaded one, whose work is the same in number of pods that come to run.
func measureBurst(ctx context.Context, b *bed) error {
	if err := b.ensureNamespaces(ctx); err != nil {
		return err
	}
	for _, n := range []int{10, 100, 1000} {
		turns := rounds
		if n == 1000 {
			turns = 1
		}
		if err := b.measureBursts(ctx, n, turns); err != nil {
			return fmt.Errorf("%d pods: %w", n, err)
		}
	}
	return nil
}

// costs are what our processes use and what the API servers were asked, by cluster.
type costs struct {
	used  map[string][]process
	asked map[string]float64
}

func (b *bed) costs(ctx context.Context) (c costs, err error) {
	c.asked = map[string]float64{}
	for _, cluster := range b.clusters() {
		if c.asked[cluster.name], err = b.requests(ctx, cluster); err != nil {
			return c, err
		}
	}
	c.used, err = b.look(ctx)
	return c, err
}

func (b *bed) measureBursts(ctx context.Context, n, turns int) error {
	var direct, offloaded []burst
	var before, running costs
	for round := range turns {
		names := podNames(fmt.Sprintf("b%d-%d", n, round), n)
		pair, err := b.runAndClear(ctx, b.direct(), names, func() error { return nil })
		if err != nil {
			return err
		}
		if before, err = b.costs(ctx); err != nil {
			return err
		}
		one, err := b.runAndClear(ctx, []place{b.offloaded()}, names, func() (err error) {
			running, err = b.costs(ctx)
			return err
		})
		if err != nil {
			return err
		}
		direct, offloaded = append(direct, pair), append(offloaded, one)
	}
	b.reportBursts(n, direct, offloaded)
	b.reportCosts(n, before, running)
	return nil
}

// reportCosts is about the last burst, until all its pods ran.
func (b *bed) reportCosts(n int, before, running costs) {
	var size, cpu float64
	for _, c := range b.clusters() {
		used := since(before.used[c.name], running.used[c.name])
		size += sum(running.used[c.name]).rss - sum(before.used[c.name]).rss
		cpu += sum(used).cpu
		asked := figure{Group: "burst", Name: fmt.Sprintf("%d pods, requests per pod to the API server of %s", n, c.name),
			Value: (running.asked[c.name] - before.asked[c.name]) / float64(n)}
		if n >= 100 {
			asked = asked.below(askedTarget)
		}
		b.report.add(asked)
		if n == 1000 {
			b.reportProcesses("burst", c.name, "the burst of 1000", used)
		}
	}
	b.report.add(figure{Group: "burst", Name: fmt.Sprintf("%d pods, CPU of all our processes", n), Value: cpu, Unit: "s"})
	if n == 1000 {
		b.report.add(figure{Group: "burst", Name: "1000 pods, memory more than before in all our processes", Value: size, Unit: "MB"}.below(sizeTarget))
	}
}

// requests are all an API server has had, but for watches, which it counts when they end.
func (b *bed) requests(ctx context.Context, c cluster) (n float64, err error) {
	text, err := b.run(ctx, "kubectl", "--kubeconfig", c.kubeconfig, "get", "--raw", "/metrics")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "apiserver_request_total{") && !strings.Contains(line, `verb="WATCH"`) {
			fields := strings.Fields(line)
			n += number(fields[len(fields)-1])
		}
	}
	return n, err
}

func (b *bed) reportBursts(n int, direct, offloaded []burst) {
	of := func(bursts []burst, value func(burst) float64) float64 {
		var all []float64
		for _, one := range bursts {
			all = append(all, value(one)/1000)
		}
		return median(all)
	}
	name := func(what string) string { return fmt.Sprintf("%d pods, %s", n, what) }
	var each string
	for i := range direct {
		each += fmt.Sprintf(" %.2f/%.2f", offloaded[i].all/1000, direct[i].all/1000)
	}
	all := func(one burst) float64 { return one.all }
	whole := figure{Group: "burst", Name: name("all Running"), Value: of(offloaded, all), Unit: "s", Note: "rounds" + each}.beside(of(direct, all))
	if n >= 100 {
		whole = whole.atMost(burstTarget)
	}
	b.report.add(whole)
	for _, q := range []float64{0.5, 0.99} {
		at := func(one burst) float64 { return quantile(one.each, q) }
		b.report.add(figure{Group: "burst", Name: name(fmt.Sprintf("p%g of each", 100*q)), Value: of(offloaded, at), Unit: "s"}.beside(of(direct, at)))
	}
	deletion := func(one burst) float64 { return one.deletion }
	b.report.add(figure{Group: "burst", Name: name("all gone"), Value: of(offloaded, deletion), Unit: "s"}.beside(of(direct, deletion)))
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
	return errors.Join(b.clear(ctx, b.offloaded()), b.measureAlone(ctx))
}

// measureAlone makes one pod after the other, at home for next door and at the provider itself in turn.
func (b *bed) measureAlone(ctx context.Context) error {
	var offloaded, direct []float64
	for _, name := range podNames("alone", alonePods) {
		for _, each := range []struct {
			place place
			took  *[]float64
		}{{b.offloaded(), &offloaded}, {b.direct()[1], &direct}} {
			one, err := each.place.run(ctx, []string{name})
			if err != nil {
				return err
			}
			*each.took = append(*each.took, one.each[0])
		}
	}
	there := median(direct)
	b.report.add(figure{Group: "rate", Name: "a pod alone, Running at home later than one made at the provider, p50", Value: median(offloaded) - there, Unit: "ms",
		Note: fmt.Sprintf("%.1f ms offloaded, %.1f ms at the provider", median(offloaded), there)}.below(aloneTarget))
	return errors.Join(b.clear(ctx, b.offloaded()), b.clear(ctx, b.direct()[1]))
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
		if err := p.createOne(ctx, name); err != nil {
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
