// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package daemon is what the roles gateway and fabric have in common: it keeps the network
// namespace of the process equal to what the role wants.
//
//	objects ─watch─▶ Role.Want ─▶ plan.State ─┐
//	kernel ─dataplane─▶ Observe ──────────────┴▶ plan.Diff ─▶ Apply, only what differs
//
// A look is taken when an object changes, when the kernel says that something of ours did, and
// now and then. One that finds no difference writes and logs nothing. Nothing is removed when the
// process ends: a restart does not touch traffic.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

const (
	// resync is between two looks when nothing happens: the time a change of our rules by
	// somebody else may last, as nft tells nobody who did not ask.
	resync = 10 * time.Second
	// retryFirst and retryLast are the shortest and longest pause after a look that failed; they
	// double in between. Our own half-made change wakes us, hence there is a pause at all.
	retryFirst, retryLast = 50 * time.Millisecond, 2 * time.Second
	// passes is how often a difference may come back before it is an error: one pass makes
	// things, another what the kernel dropped with a device that was made anew.
	passes = 3
	// echo is what the kernel has to tell of a change of ours, so that it does not lead to a look of its own.
	echo = 5 * time.Millisecond
)

// Task is something a role does beside, until the context ends.
type Task func(context.Context) error

// Role is what one role adds.
type Role struct {
	// Name is the role's: gateway or fabric.
	Name string
	// Sources are the objects it reads; a change of one leads to a look. There is no look before
	// all are complete.
	Sources []Source
	// Want reads the objects and plans. When it is not ready the kernel is left as it is.
	Want func(ctx context.Context) (want plan.State, ready bool, err error)
	// Tasks run beside; the first that fails ends the process.
	Tasks []Task
	// Contents are what users wrote for this host; nil = nothing is read of it.
	Contents *Contents
	// MetricsAddress and HealthAddress to listen on; "0" or empty = do not.
	MetricsAddress, HealthAddress string
	// Metrics to show beside the usual ones; nil = none.
	Metrics func() []Metric
}

// Daemon runs a role.
type Daemon struct {
	Role
	// looks has a message when a look is asked for, told when the kernel told of a change of what is ours.
	looks, told chan struct{}
	// awaited are looks somebody waits for; each is closed after it.
	awaited chan chan struct{}

	mu      sync.Mutex // guards plane, desired and last
	plane   *dataplane.Dataplane
	desired plan.State
	// last is what the kernel was found to be at the last look; nil = a look failed, or there was none.
	last    *plan.State
	settled atomic.Bool
	failure atomic.Pointer[Failure]
	counts  counts
}

// Failure is why the kernel is not as wanted, since a look before the last.
type Failure struct {
	Since time.Time
	Err   error
}

// Failing tells why the last look did not make the kernel as wanted; nil = it did.
func (d *Daemon) Failing() *Failure { return d.failure.Load() }

// New prepares a daemon on a data plane, which it closes at the end of Run.
func New(role Role, plane *dataplane.Dataplane) *Daemon {
	if role.Contents != nil {
		role.Sources = append(role.Sources, role.Contents.firewalls, role.Contents.routings)
	}
	d := &Daemon{Role: role, plane: plane, looks: make(chan struct{}, 1), told: make(chan struct{}, 1), awaited: make(chan chan struct{})}
	d.Look() // also when there is no object
	return d
}

// Run runs until the context ends or something fails that the process needs.
func (d *Daemon) Run(ctx context.Context) error {
	defer d.plane.Close()
	tasks := append([]Task{d.keep, d.serveHealth, d.serveMetrics, d.serveShow, d.watchKernel}, d.Tasks...)
	if d.Contents != nil {
		tasks = append(tasks, d.Contents.report)
	}
	for _, source := range d.Sources {
		tasks = append(tasks, func(ctx context.Context) error {
			source.run(ctx, d.Look)
			return nil
		})
	}
	return together(ctx, tasks)
}

// together runs tasks until all have ended; the first that fails ends the others.
func together(ctx context.Context, tasks []Task) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	failed := make(chan error, len(tasks))
	for _, task := range tasks {
		all.Go(func() {
			if err := task(ctx); err != nil && ctx.Err() == nil {
				failed <- err
				cancel()
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// Look asks for a look at the kernel soon.
func (d *Daemon) Look() { notify(d.looks) }

// Await takes a look and returns after it, whether or not the kernel is as wanted then, or when ctx ends.
func (d *Daemon) Await(ctx context.Context) {
	taken := make(chan struct{})
	select {
	case d.awaited <- taken:
	case <-ctx.Done():
		return
	}
	select {
	case <-taken:
	case <-ctx.Done():
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is already asked for
	}
}

// With lends the data plane, to ask it.
func (d *Daemon) With(f func(*dataplane.Dataplane)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.plane)
}

// Change lends the data plane, to change what the next look puts in order: it reads the kernel first.
func (d *Daemon) Change(f func(*dataplane.Dataplane)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = nil
	f(d.plane)
}

// keep takes a look whenever one is asked for, and now and then. Every event is a look at
// everything: a role has one state.
func (d *Daemon) keep(ctx context.Context) error {
	retry := retryFirst
	looks, told, again := d.looks, d.told, resync
	for {
		var awaited chan struct{}
		select {
		case <-ctx.Done():
			return nil
		case <-looks:
		case <-told:
		case awaited = <-d.awaited:
		case <-time.After(again):
		}
		looks, told, again = d.looks, d.told, resync
		err := d.look(ctx)
		if awaited != nil {
			close(awaited)
		}
		if err == nil {
			retry = retryFirst
			d.failure.Store(nil)
			continue
		}
		if ctx.Err() != nil {
			return nil
		}
		d.counts.failures.Add(1)
		now := Failure{Since: time.Now(), Err: err}
		if before := d.failure.Load(); before != nil {
			now.Since = before.Since
		}
		d.failure.Store(&now)
		klog.FromContext(ctx).Error(err, "The network could not be made as wanted", "again", retry)
		looks, told, again = nil, nil, retry // events wait until then; who awaits a look does not
		retry = min(2*retry, retryLast)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (d *Daemon) look(ctx context.Context) error {
	if !d.complete() {
		return nil
	}
	want, ready, err := d.Want(ctx)
	if err != nil {
		return err
	}
	if ready {
		contents := d.Contents.wanted()
		if err := d.settle(ctx, want.With(contents)); err != nil {
			return err
		}
		d.With(func(p *dataplane.Dataplane) { d.Contents.found(contents, p) })
	}
	d.settled.Store(true)
	d.counts.last.Store(time.Now().Unix())
	return nil
}

// complete tells whether all objects are known: a part of them would take away what stands.
func (d *Daemon) complete() bool {
	return !slices.ContainsFunc(d.Sources, func(s Source) bool { return !s.complete() })
}

// settle changes the kernel until it is as wanted. What is wanted anew is changed before the kernel is read:
// that takes longer the more peers there are, and tells of what others did. If another look is asked for already, the
// kernel is read then.
func (d *Daemon) settle(ctx context.Context, want plan.State) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.desired = want
	last := d.last
	d.last = nil
	if last != nil {
		if changes := plan.Diff(*last, want); !changes.Empty() {
			err := d.change(ctx, changes)
			switch {
			case err != nil:
				klog.FromContext(ctx).V(1).Info("The network is not as it was left, and is read again", "reason", err)
			case len(d.looks) > 0:
				d.last = &want
				return nil
			}
		}
	}
	var changes plan.Changes
	for range passes {
		have, err := d.plane.Observe(ctx, devices(want)...)
		if err != nil {
			return err
		}
		if changes = plan.Diff(have, want); changes.Empty() {
			d.last = &have
			return nil
		}
		if err := d.change(ctx, changes); err != nil {
			return err
		}
	}
	return fmt.Errorf("change the network: the kernel does not keep\n%s", changes)
}

// change makes changes, and waits until the kernel has told of them: the next look at it sees them.
func (d *Daemon) change(ctx context.Context, c plan.Changes) error {
	for line := range strings.Lines(c.String()) { // a record each: line breaks in values are escaped
		klog.FromContext(ctx).Info("Changing the network", "change", strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "  "))
	}
	d.counts.changes.Add(1)
	if err := d.plane.Apply(ctx, c); err != nil {
		return err
	}
	pause(ctx, echo)
	select {
	case <-d.told:
	default:
	}
	return nil
}

// devices are those whose settings matter.
func devices(s plan.State) []string {
	var out []string
	for _, x := range s.Settings {
		out = append(out, x.Device)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ready tells why the network is not set up yet.
func (d *Daemon) ready() error {
	switch {
	case d.settled.Load():
		return nil
	case !d.complete():
		return errors.New("the API server has not told all objects yet; see the log")
	default:
		return errors.New("the network is not set up yet; see the log")
	}
}

// watchKernel takes a look when somebody changed what is ours, or a pod is heard of.
func (d *Daemon) watchKernel(ctx context.Context) error {
	return d.plane.Watch(ctx, func() { notify(d.told) }, d.Look)
}
