// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	crowdSize   = 3000
	quietEvery  = 3 * time.Second // from one pod of the quiet namespace to the next
	quietTarget = 1.5             // times a pod made meanwhile in as large a crowd without Liqo
	crowdTarget = 1.75
	crowdSettle = 2 * time.Minute // what is put off while pods start is done by then: events of success
	steadyTime  = 60 * time.Second
	warmPods    = 100
	warmSettle  = 60 * time.Second // processes give memory back after half a minute of calm
	steadyLimit = 2.0              // percent of a core, all our processes of both clusters
)

// crowding holds the seconds that a crowd and the pods of a quiet namespace took in one round.
type crowding struct {
	all, p50, gone float64
	quiet          []float64
}

// measureCrowd makes 3000 pods in one namespace, and looks at what that means for the pods of another and, once, for our
// processes when all of them run.
func measureCrowd(ctx context.Context, b *bed) error {
	if err := b.ensureNamespaces(ctx); err != nil {
		return err
	}
	var native, ours []crowding
	for round := range rounds {
		alone, err := b.crowdAndQuiet(ctx, b.direct(), b.quietDirect(), func() error { return nil })
		if err != nil {
			return fmt.Errorf("round %d without Liqo: %w", round+1, err)
		}
		steady := func() error { return nil }
		if round == 0 {
			before, err := b.warm(ctx)
			if err != nil {
				return err
			}
			steady = func() error { return b.reportSteady(ctx, before) }
		}
		one, err := b.crowdAndQuiet(ctx, []place{b.offloaded()}, b.quiet(), steady)
		if err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		native, ours = append(native, alone), append(ours, one)
	}
	compare := func(what string, value func(crowding) float64) figure {
		of := func(rounds []crowding) (all []float64) {
			for _, one := range rounds {
				all = append(all, value(one))
			}
			return all
		}
		return figure{Group: "crowd", Name: what, Unit: "s"}.of(of(ours), of(native))
	}
	title := func(what string) string { return fmt.Sprintf("%d pods, %s", crowdSize, what) }
	b.report.add(compare(title("all Running"), func(c crowding) float64 { return c.all }).atMost(crowdTarget))
	b.report.add(compare(title("p50 of each"), func(c crowding) float64 { return c.p50 }))
	quiet := compare("a pod of another namespace meanwhile, p50", func(c crowding) float64 { return median(c.quiet) }).atMost(quietTarget)
	for i := range ours {
		quiet.Note += fmt.Sprintf("; %.2f, without Liqo %.2f", ours[i].quiet, native[i].quiet)
	}
	b.report.add(quiet)
	b.report.add(compare(title("all gone"), func(c crowding) float64 { return c.gone }))
	return nil
}

// warm runs some pods and takes them away, so that what is needed once, like the buffers of a tunnel or the code
// that is read, counts by itself and not as the pods'. It returns what the processes are then.
func (b *bed) warm(ctx context.Context) (map[string][]process, error) {
	cold, err := b.look(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := b.offloaded().run(ctx, pods, podNames("warm", warmPods)); err != nil {
		return nil, err
	}
	if err := b.clear(ctx, b.offloaded(), pods); err != nil {
		return nil, err
	}
	if err := pause(ctx, warmSettle); err != nil {
		return nil, err
	}
	warm, err := b.look(ctx)
	if err != nil {
		return nil, err
	}
	b.report.add(figure{Group: "crowd", Name: fmt.Sprintf("memory more when %d pods have come and gone", warmPods), Value: b.more(cold, warm), Unit: "MB"})
	return warm, nil
}

// more is by how much the memory of all our processes has grown, in MB.
func (b *bed) more(before, after map[string][]process) (size float64) {
	for _, c := range b.clusters() {
		size += sum(after[c.name]).rss - sum(before[c.name]).rss
	}
	return size
}

// growth tells where it has, process by process.
func (b *bed) growth(before, after map[string][]process) string {
	var out []string
	for _, c := range b.clusters() {
		for _, now := range after[c.name] {
			for _, then := range before[c.name] {
				if by := now.rss - then.rss; now.pid == then.pid && by >= 1 {
					out = append(out, fmt.Sprintf("%s %s %.0f MB", c.name, now.role, by))
				}
			}
		}
	}
	return strings.Join(out, ", ")
}

// crowdAndQuiet runs the crowd, in each of some places, and pods in a quiet one, one after the other, until the crowd
// runs. It calls look, and removes all. It returns the crowd that took longest and the quiet pods that were made while it
// grew.
func (b *bed) crowdAndQuiet(ctx context.Context, crowds []place, quiet place, look func() error) (crowding, error) {
	bursts, errs := make([]burst, len(crowds)), make([]error, len(crowds)+1)
	growing, grown := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for i, p := range crowds {
		wg.Go(func() { bursts[i], errs[i] = p.run(ctx, pods, podNames("crowd", crowdSize)) })
	}
	go func() { wg.Wait(); grown() }()
	var c crowding
	for pause(growing, quietEvery) == nil {
		one, err := quiet.run(ctx, pods, podNames(fmt.Sprintf("quiet%d", len(c.quiet)), 1))
		if err != nil {
			errs[len(crowds)] = err
			break
		}
		c.quiet = append(c.quiet, one.each[0]/1000)
	}
	wg.Wait()
	grown()
	if len(c.quiet) == 0 && errors.Join(errs...) == nil {
		errs[len(crowds)] = errors.New("the crowd ran before a quiet pod was made")
	}
	if err := errors.Join(errs...); err != nil {
		return c, err
	}
	longest := slices.MaxFunc(bursts, func(a, b burst) int { return cmp.Compare(a.all, b.all) })
	c.all, c.p50 = longest.all/1000, quantile(longest.each, 0.5)/1000
	if err := look(); err != nil {
		return c, err
	}
	began := time.Now()
	errs = make([]error, len(crowds))
	for i, p := range crowds {
		wg.Go(func() { errs[i] = b.clear(ctx, p, pods) })
	}
	wg.Wait()
	c.gone = time.Since(began).Seconds()
	return c, errors.Join(append(errs, b.clear(ctx, quiet, pods))...)
}

// reportSteady is about the crowd when nothing happens to it any more.
func (b *bed) reportSteady(ctx context.Context, before map[string][]process) error {
	began, after, err := b.lookTwice(ctx, crowdSettle, steadyTime)
	if err != nil {
		return err
	}
	var cpu float64
	for _, c := range b.clusters() {
		cpu += sum(since(began[c.name], after[c.name])).cpu
	}
	b.report.add(figure{Group: "crowd", Name: fmt.Sprintf("%d pods, CPU of all our processes when nothing happens", crowdSize),
		Value: 100 * cpu / steadyTime.Seconds(), Unit: "% of a core"}.below(steadyLimit))
	b.report.add(figure{Group: "crowd", Name: fmt.Sprintf("%d pods, memory more than before, per 1000", crowdSize), Value: b.more(before, after) * 1000 / crowdSize, Unit: "MB",
		Note: b.growth(before, after)}.below(sizeTarget))
	return nil
}
