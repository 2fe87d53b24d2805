// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	tokensTarget    = 1.65 // times the pair of direct bursts, of 100 pods and more that mount a token
	tokenlessTarget = 1.5
	jobsTarget      = 1.75
	goneTarget      = 60.0 // pods that go each second, of 1000, with the default limits of the garbage collector
	askedTarget     = 9.0  // requests to each API server per pod of such a burst, until Running
	sizeTarget      = 30.0 // MB per 1000 pods, in all our processes
	rounds          = 3
	profiled        = 1000 // pods of the burst that -profile looks at
)

// load is what a burst is made of.
type load struct {
	name   string // of figures, in the plural
	target float64
	path   func(namespace string) string
	// object wraps a pod.
	object func(pod) any
}

var (
	pods      = load{"pods", tokensTarget, podsPath, func(p pod) any { return p }}
	tokenless = load{"pods without tokens", tokenlessTarget, podsPath, func(p pod) any {
		p.Spec.Tokens = new(false)
		return p
	}}
	jobs = load{"Jobs", jobsTarget, jobsPath, func(p pod) any {
		name := p.Metadata.Name
		p.Metadata.Name, p.Spec.RestartPolicy = "", "Never"
		return map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]string{"name": name},
			"spec": map[string]any{"template": p}}
	}}
)

func jobsPath(namespace string) string { return "/apis/batch/v1/namespaces/" + namespace + "/jobs" }

// nameOf is the name of what was created for a pod.
func nameOf(p pod) string {
	if job := p.Metadata.Labels["batch.kubernetes.io/job-name"]; job != "" {
		return job
	}
	return p.Metadata.Name
}

// burst is how one burst went in one place, in milliseconds.
type burst struct {
	all      float64   // first creation to the last one Running
	each     []float64 // creation to Running of each pod, sorted
	deletion float64
}

// run creates the objects of one burst and watches their pods until all are Running.
func (p place) run(ctx context.Context, l load, names []string) (burst, error) {
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
			name, phase := nameOf(seen), seen.Status.Phase
			if ours[name] && (phase == "Running" || phase == "Succeeded") {
				running.saw(name)
			}
		})
	}()
	began := time.Now()
	if err := p.create(ctx, l, names, created); err != nil {
		return burst{}, err
	}
	if err := running.wait(ctx, fmt.Sprintf("%d %s of %s run in %s", len(names), l.name, p.namespace, p.cluster.name)); err != nil {
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

// clear deletes all objects of the place, a few at a time, because an API server deletes a whole collection one by
// one. It waits until their pods and the remote pods no longer exist.
func (b *bed) clear(ctx context.Context, p place, l load) error {
	path := l.path(p.namespace)
	var all struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := p.cluster.api.get(ctx, path, &all); err != nil {
		return err
	}
	err := inParallel(len(all.Items), func(i int) error {
		// Jobs would leave their pods.
		return p.cluster.api.remove(ctx, path+"/"+all.Items[i].Metadata.Name+"?propagationPolicy=Background")
	})
	if err != nil {
		return err
	}
	places := []place{p}
	if p.remote != "" {
		places = append(places, place{b.milan, p.remote, "", nil})
	}
	for _, p := range places {
		err := eventually(ctx, "pods of "+p.namespace+" are gone in "+p.cluster.name, patience, func() (bool, error) {
			var list struct{ Items []struct{} }
			err := p.cluster.api.get(ctx, podsPath(p.namespace)+"?limit=1", &list) // all of them would cost CPU that is measured
			return len(list.Items) == 0, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// runAndClear runs bursts in places at the same time and removes their pods, after a look at what runs.
func (b *bed) runAndClear(ctx context.Context, places []place, l load, names []string, look func() error) (burst, error) {
	bursts, errs := make([]burst, len(places)), make([]error, len(places))
	var wg sync.WaitGroup
	for i, p := range places {
		wg.Go(func() { bursts[i], errs[i] = p.run(ctx, l, names) })
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
		wg.Go(func() { errs[i] = b.clear(ctx, p, l) })
	}
	wg.Wait()
	all.deletion = float64(time.Since(began).Milliseconds())
	return all, errors.Join(errs...)
}

// bursts are the bursts that are measured. Bursts of 10 say what a few pods take.
func bursts() []struct {
	load
	n int
} {
	return []struct {
		load
		n int
	}{{pods, 10}, {pods, 100}, {tokenless, 100}, {jobs, 100}, {pods, 1000}, {tokenless, 1000}}
}

// measureBurst takes turns: a pair of direct bursts, one in each cluster, then an
// offloaded one, whose work is the same in number of pods that come to run.
func measureBurst(ctx context.Context, b *bed) error {
	if err := b.ensureNamespaces(ctx); err != nil {
		return err
	}
	for _, each := range bursts() {
		if err := b.measureBursts(ctx, each.load, each.n); err != nil {
			return fmt.Errorf("%d %s: %w", each.n, each.name, err)
		}
	}
	return nil
}

// measureBare makes direct bursts before Liqo is installed, and removes the fake nodes, which run none of Liqo's pods.
func (b *bed) measureBare(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, b.removeFakes(ctx)) }()
	if err := errors.Join(b.ensureFakes(ctx), b.ensureDirect(ctx)); err != nil {
		return err
	}
	b.bare = map[string][]float64{}
	for _, each := range bursts() {
		for round := range rounds {
			one, err := b.runAndClear(ctx, b.direct(), each.load, podNames(fmt.Sprintf("bare%d-%d", each.n, round), each.n),
				func() error { return nil })
			if err != nil {
				return fmt.Errorf("%d %s without Liqo: %w", each.n, each.name, err)
			}
			b.bare[each.title(each.n)] = append(b.bare[each.title(each.n)], one.all/1000)
		}
	}
	return nil
}

func (l load) title(n int) string { return fmt.Sprintf("%d %s", n, l.name) }

// look holds, by cluster, our processes and the number of requests that its API server has had, at one time.
type look struct {
	ours  map[string][]process
	asked map[string]float64
}

func (b *bed) lookAtAll(ctx context.Context) (l look, err error) {
	l.asked = map[string]float64{}
	for _, cluster := range b.clusters() {
		if l.asked[cluster.name], err = b.requests(ctx, cluster); err != nil {
			return l, err
		}
	}
	l.ours, err = b.look(ctx)
	return l, err
}

// cost holds what was used from the beginning of a burst until costOf looked again.
type cost struct {
	all   usage
	ours  map[string][]process // with the CPU since the beginning
	size  float64              // MB more than before in all our processes
	asked map[string]float64
}

// costOf runs a burst in some places. Once all pods run it calls until, and returns what was used up to then, without
// what the bench itself takes to find that out.
func (b *bed) costOf(ctx context.Context, places []place, l load, names []string, until func() error) (burst, cost, error) {
	before, err := b.lookAtAll(ctx)
	if err != nil {
		return burst{}, cost{}, err
	}
	began, err := b.usage()
	if err != nil {
		return burst{}, cost{}, err
	}
	c := cost{ours: map[string][]process{}, asked: map[string]float64{}}
	one, err := b.runAndClear(ctx, places, l, names, func() error {
		if err := until(); err != nil {
			return err
		}
		now, err := b.usage()
		if err != nil {
			return err
		}
		c.all = now.since(began)
		after, err := b.lookAtAll(ctx)
		for _, in := range b.clusters() {
			c.ours[in.name] = since(before.ours[in.name], after.ours[in.name])
			c.asked[in.name] = after.asked[in.name] - before.asked[in.name]
		}
		c.size = b.more(before.ours, after.ours)
		return err
	})
	return one, c, err
}

func (b *bed) measureBursts(ctx context.Context, l load, n int) error {
	var direct, offloaded []burst
	var native, ours []cost
	now := func() error { return nil }
	for round := range rounds {
		names := podNames(fmt.Sprintf("b%d-%d", n, round), n)
		pair, alone, err := b.costOf(ctx, b.direct(), l, names, now)
		if err != nil {
			return err
		}
		one, with, err := b.costOf(ctx, []place{b.offloaded()}, l, names, now)
		if err != nil {
			return err
		}
		direct, offloaded, native, ours = append(direct, pair), append(offloaded, one), append(native, alone), append(ours, with)
	}
	b.reportBursts(l, n, direct, offloaded)
	b.reportCosts(l, n, "", ours, native)
	if n != profiled || l.name != pods.name {
		return nil
	}
	if err := b.measureSettled(ctx, l, n); err != nil || b.profile == "" {
		return err
	}
	profiles := b.profiles(ctx, l.name)
	_, err := b.runAndClear(ctx, []place{b.offloaded()}, l, podNames("profiled", n), now)
	return errors.Join(err, profiles())
}

// burstSettle is the time after a burst in which Liqo does what it puts off while pods start: the phase of a ShadowPod is
// written half a minute after its pod runs.
const burstSettle = 90 * time.Second

// measureSettled measures one more burst, until Liqo has done what it puts off.
func (b *bed) measureSettled(ctx context.Context, l load, n int) error {
	names := podNames("settled", n)
	settle := func() error { return pause(ctx, burstSettle) }
	_, native, err := b.costOf(ctx, b.direct(), l, names, settle)
	if err != nil {
		return err
	}
	_, ours, err := b.costOf(ctx, []place{b.offloaded()}, l, names, settle)
	if err == nil {
		b.reportCosts(l, n, fmt.Sprintf(" until %s after all run", burstSettle), []cost{ours}, []cost{native})
	}
	return err
}

// reportCosts compares what bursts took until all pods ran, or, if until is not empty, up to the time that it names.
func (b *bed) reportCosts(l load, n int, until string, ours, native []cost) {
	title := l.title(n) + until
	of := func(costs []cost, value func(cost) float64) (all []float64) {
		for _, c := range costs {
			all = append(all, value(c))
		}
		return all
	}
	own := func(c cost) (cpu float64) {
		for _, processes := range c.ours {
			cpu += sum(processes).cpu
		}
		return cpu
	}
	for _, c := range b.clusters() {
		each := func(from cost) float64 { return from.asked[c.name] / float64(n) }
		asked := figure{Group: "burst", Name: fmt.Sprintf("%s, requests per pod to the API server of %s", title, c.name)}.of(of(ours, each), of(native, each))
		if n >= 100 && l.name != jobs.name && until == "" {
			asked = asked.below(askedTarget)
		}
		b.report.add(asked)
		if n == 1000 && until == "" {
			b.reportProcesses("burst", c.name, "the last burst of "+title, ours[len(ours)-1].ours[c.name])
		}
	}
	b.report.add(figure{Group: "burst", Name: title + ", CPU of all our processes", Unit: "s"}.of(of(ours, own), of(native, own)))
	names := usage{}
	for _, c := range ours {
		for name := range c.all {
			names[name] = 0
		}
	}
	for _, name := range sortedKeys(names) {
		each := func(c cost) float64 { return c.all[name] * 1000 / float64(n) }
		if median(of(ours, each)) >= leastUsed && n >= 100 && name != idle {
			b.report.add(figure{Group: "cpu", Name: title + ", " + name + ", per pod", Unit: "ms"}.of(of(ours, each), of(native, each)))
		}
	}
	all := func(c cost) float64 { return c.all.busy() * 1000 / float64(n) }
	f := figure{Group: "cpu", Name: title + ", all processes, per pod", Unit: "ms"}.of(of(ours, all), of(native, all))
	rest := func(c cost) float64 { return c.all[idle] }
	f.Note += fmt.Sprintf("; idle %s s of all cores, without Liqo %s s", span(of(ours, rest)), span(of(native, rest)))
	b.report.add(f)
	if n == 1000 && until == "" {
		size := of(ours, func(c cost) float64 { return c.size })
		b.report.add(figure{Group: "burst", Name: title + ", memory more than before in all our processes", Value: median(size), Unit: "MB", Note: span(size)}.below(sizeTarget))
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

func (b *bed) reportBursts(l load, n int, direct, offloaded []burst) {
	of := func(bursts []burst, value func(burst) float64) (all []float64) {
		for _, one := range bursts {
			all = append(all, value(one)/1000)
		}
		return all
	}
	compare := func(what string, value func(burst) float64) figure {
		return figure{Group: "burst", Name: l.title(n) + ", " + what, Unit: "s"}.of(of(offloaded, value), of(direct, value))
	}
	whole := compare("all Running", func(one burst) float64 { return one.all })
	if bare := b.bare[l.title(n)]; bare != nil {
		whole.Note += fmt.Sprintf("; without Liqo installed %.2f, %s", median(bare), span(bare))
	}
	if n >= 100 {
		whole = whole.atMost(l.target)
	}
	b.report.add(whole)
	for _, q := range []float64{0.5, 0.99} {
		b.report.add(compare(fmt.Sprintf("p%g of each", 100*q), func(one burst) float64 { return quantile(one.each, q) }))
	}
	gone := compare("all gone", func(one burst) float64 { return one.deletion })
	if b.defaultLimits && n == 1000 {
		gone = gone.below(float64(n) / goneTarget)
	}
	b.report.add(gone)
}
