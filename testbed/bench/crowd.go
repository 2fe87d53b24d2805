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
	quietEvery  = 5 * time.Second // from one pod of the quiet namespace to the next
	quietPods   = 10
	crowdSettle = 2 * time.Minute // what is put off while pods start is done by then: events of success
	steadyTime  = 60 * time.Second
	warmPods    = 100
	warmSettle  = 60 * time.Second // processes give memory back after half a minute of calm
	steadyLimit = 2.0              // percent of a core, all our processes of both clusters
)

// measureCrowd makes 3000 pods in one namespace, and looks at what that means for the pods of
// another and for our processes when all of them run.
func measureCrowd(ctx context.Context, b *bed) error {
	if err := b.ensureNamespaces(ctx); err != nil {
		return err
	}
	alone, quietAlone, err := b.crowdAndQuiet(ctx, b.direct(), b.direct()[0], "alone")
	for _, place := range b.direct() {
		err = errors.Join(err, b.clear(ctx, place))
	}
	if err != nil {
		return err
	}
	before, err := b.warm(ctx)
	if err != nil {
		return err
	}
	many, quiet, err := b.crowdAndQuiet(ctx, []place{b.offloaded()}, b.quiet(), "quiet")
	if err != nil {
		return err
	}
	b.report.add(figure{Group: "crowd", Name: fmt.Sprintf("%d pods, all Running", crowdSize), Value: many.all / 1000, Unit: "s"}.beside(alone.all / 1000))
	b.report.add(figure{Group: "crowd", Name: fmt.Sprintf("%d pods, p50 of each", crowdSize), Value: quantile(many.each, 0.5) / 1000, Unit: "s"}.beside(quantile(alone.each, 0.5) / 1000))
	b.report.add(figure{Group: "crowd", Name: "a pod of another namespace meanwhile, p50", Value: median(quiet), Unit: "s",
		Note: fmt.Sprintf("max %.2f s, without Liqo max %.2f s", slices.Max(quiet), slices.Max(quietAlone))}.beside(median(quietAlone)).atMost(burstTarget))
	if err := b.reportSteady(ctx, before); err != nil {
		return err
	}
	began := time.Now()
	if err := errors.Join(b.clear(ctx, b.offloaded()), b.clear(ctx, b.quiet())); err != nil {
		return err
	}
	b.report.add(figure{Group: "crowd", Name: fmt.Sprintf("%d pods, all gone", crowdSize), Value: time.Since(began).Seconds(), Unit: "s"})
	return nil
}

// warm runs some pods and takes them away, so that what is needed once, like the buffers of a tunnel or the code
// that is read, counts by itself and not as the pods'. It returns what the processes are then.
func (b *bed) warm(ctx context.Context) (map[string][]process, error) {
	cold, err := b.look(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := b.offloaded().run(ctx, podNames("warm", warmPods)); err != nil {
		return nil, err
	}
	if err := b.clear(ctx, b.offloaded()); err != nil {
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

// crowdAndQuiet runs the crowd, in each of some places, and meanwhile pods in a quiet one, one after the other: it
// returns the crowd that took longest and the seconds each quiet pod took.
func (b *bed) crowdAndQuiet(ctx context.Context, crowds []place, quiet place, prefix string) (burst, []float64, error) {
	bursts, errs := make([]burst, len(crowds)), make([]error, len(crowds)+1)
	var wg sync.WaitGroup
	for i, p := range crowds {
		wg.Go(func() { bursts[i], errs[i] = p.run(ctx, podNames("crowd", crowdSize)) })
	}
	var took []float64
	for i := range quietPods {
		if errs[len(crowds)] = pause(ctx, quietEvery); errs[len(crowds)] != nil {
			break
		}
		var one burst
		if one, errs[len(crowds)] = quiet.run(ctx, podNames(fmt.Sprintf("%s%d", prefix, i), 1)); errs[len(crowds)] != nil {
			break
		}
		took = append(took, one.each[0]/1000)
	}
	wg.Wait()
	return slices.MaxFunc(bursts, func(a, b burst) int { return cmp.Compare(a.all, b.all) }), took, errors.Join(errs...)
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
