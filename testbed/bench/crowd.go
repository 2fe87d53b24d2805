// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	before, err := b.warm(ctx)
	if err != nil {
		return err
	}
	if err := b.crowdAndQuiet(ctx); err != nil {
		return err
	}
	if err := b.reportSteady(ctx, before); err != nil {
		return err
	}
	began := time.Now()
	if err := errors.Join(b.clear(ctx, b.offloaded()), b.clear(ctx, b.quiet()), b.clear(ctx, b.direct()[1])); err != nil {
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

// crowdAndQuiet runs the crowd and meanwhile pods in the quiet namespace, one after the other, each beside
// one made at the provider itself.
func (b *bed) crowdAndQuiet(ctx context.Context) error {
	many, failed := burst{}, make(chan error, 1)
	go func() {
		var err error
		many, err = b.offloaded().run(ctx, podNames("crowd", crowdSize))
		failed <- err
	}()
	var quiet, direct []float64
	for i := range quietPods {
		if err := pause(ctx, quietEvery); err != nil {
			return errors.Join(err, <-failed)
		}
		name := podNames(fmt.Sprintf("quiet%d", i), 1)
		alone := make(chan error, 1)
		var there burst
		go func() {
			var err error
			there, err = b.direct()[1].run(ctx, name)
			alone <- err
		}()
		one, err := b.quiet().run(ctx, name)
		if err = errors.Join(err, <-alone); err != nil {
			return errors.Join(err, <-failed)
		}
		quiet, direct = append(quiet, one.each[0]/1000), append(direct, there.each[0]/1000)
	}
	if err := <-failed; err != nil {
		return err
	}
	b.report.add(figure{Group: "crowd", Name: fmt.Sprintf("%d pods, all Running", crowdSize), Value: many.all / 1000, Unit: "s"})
	b.report.add(figure{Group: "crowd", Name: fmt.Sprintf("%d pods, p50 of each", crowdSize), Value: quantile(many.each, 0.5) / 1000, Unit: "s"})
	b.report.add(figure{Group: "crowd", Name: "a pod of another namespace meanwhile, p50", Value: median(quiet), Unit: "s",
		Note: fmt.Sprintf("max %.2f s, directly at the provider max %.2f s", slices.Max(quiet), slices.Max(direct))}.beside(median(direct)))
	return nil
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
