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
			err := p.cluster.api.get(ctx, podsPath(p.namespace), &list)
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
	b.bare = map[string]float64{}
	for _, each := range bursts() {
		var took []float64
		for round := range rounds {
			one, err := b.runAndClear(ctx, b.direct(), each.load, podNames(fmt.Sprintf("bare%d-%d", each.n, round), each.n),
				func() error { return nil })
			if err != nil {
				return fmt.Errorf("%d %s without Liqo: %w", each.n, each.name, err)
			}
			took = append(took, one.all/1000)
		}
		b.bare[each.title(each.n)] = median(took)
	}
	return nil
}

func (l load) title(n int) string { return fmt.Sprintf("%d %s", n, l.name) }

// costs are what all processes use and what the API servers were asked, by cluster.
type costs struct {
	used  map[string][]process
	asked map[string]float64
	cpu   usage
}

func (b *bed) costs(ctx context.Context) (c costs, err error) {
	c.asked = map[string]float64{}
	for _, cluster := range b.clusters() {
		if c.asked[cluster.name], err = b.requests(ctx, cluster); err != nil {
			return c, err
		}
	}
	if c.used, err = b.look(ctx); err != nil {
		return c, err
	}
	c.cpu, err = b.usage()
	return c, err
}

func (b *bed) measureBursts(ctx context.Context, l load, n int) error {
	var direct, offloaded []burst
	var native []usage
	var before, running costs
	for round := range rounds {
		names := podNames(fmt.Sprintf("b%d-%d", n, round), n)
		began, err := b.usage()
		if err != nil {
			return err
		}
		pair, err := b.runAndClear(ctx, b.direct(), l, names, func() error {
			now, err := b.usage()
			native = append(native, now.since(began))
			return err
		})
		if err != nil {
			return err
		}
		if before, err = b.costs(ctx); err != nil {
			return err
		}
		profiles := func() error { return nil }
		if b.profile != "" && n == profiled && round == rounds-1 {
			profiles = b.profiles(ctx, l.name)
		}
		one, err := b.runAndClear(ctx, []place{b.offloaded()}, l, names, func() (err error) {
			running, err = b.costs(ctx)
			return err
		})
		if err = errors.Join(err, profiles()); err != nil {
			return err
		}
		direct, offloaded = append(direct, pair), append(offloaded, one)
	}
	b.reportBursts(l, n, direct, offloaded)
	b.reportCosts(l, n, before, running, native[len(native)-1])
	return nil
}

// reportCosts is about the last burst, until all its pods ran.
func (b *bed) reportCosts(l load, n int, before, running costs, native usage) {
	var size, cpu float64
	for _, c := range b.clusters() {
		used := since(before.used[c.name], running.used[c.name])
		size += sum(running.used[c.name]).rss - sum(before.used[c.name]).rss
		cpu += sum(used).cpu
		asked := figure{Group: "burst", Name: fmt.Sprintf("%s, requests per pod to the API server of %s", l.title(n), c.name),
			Value: (running.asked[c.name] - before.asked[c.name]) / float64(n)}
		if n >= 100 && l.name != jobs.name {
			asked = asked.below(askedTarget)
		}
		b.report.add(asked)
		if n == 1000 {
			b.reportProcesses("burst", c.name, "the burst of "+l.title(n), used)
		}
	}
	b.report.add(figure{Group: "burst", Name: l.title(n) + ", CPU of all our processes", Value: cpu, Unit: "s"})
	b.reportUsage(l.title(n), n, running.cpu.since(before.cpu), native)
	if n == 1000 {
		b.report.add(figure{Group: "burst", Name: l.title(n) + ", memory more than before in all our processes", Value: size, Unit: "MB"}.below(sizeTarget))
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
	name := func(what string) string { return l.title(n) + ", " + what }
	all := func(one burst) float64 { return one.all }
	ours, native := of(offloaded, all), of(direct, all)
	var each []string
	for i := range ours {
		each = append(each, fmt.Sprintf("%.2f/%.2f", ours[i], native[i]))
	}
	note := fmt.Sprintf("rounds %s; %.2f to %.2f", strings.Join(each, " "), slices.Min(ours), slices.Max(ours))
	if bare, known := b.bare[l.title(n)]; known {
		note += fmt.Sprintf("; without Liqo installed %.2f", bare)
	}
	whole := figure{Group: "burst", Name: name("all Running"), Value: median(ours), Unit: "s", Note: note}.beside(median(native))
	if n >= 100 {
		whole = whole.atMost(l.target)
	}
	b.report.add(whole)
	for _, q := range []float64{0.5, 0.99} {
		at := func(one burst) float64 { return quantile(one.each, q) }
		b.report.add(figure{Group: "burst", Name: name(fmt.Sprintf("p%g of each", 100*q)), Value: median(of(offloaded, at)), Unit: "s"}.beside(median(of(direct, at))))
	}
	deletion := func(one burst) float64 { return one.deletion }
	gone := figure{Group: "burst", Name: name("all gone"), Value: median(of(offloaded, deletion)), Unit: "s"}.beside(median(of(direct, deletion)))
	if b.defaultLimits && n == 1000 {
		gone = gone.below(float64(n) / goneTarget)
	}
	b.report.add(gone)
}
