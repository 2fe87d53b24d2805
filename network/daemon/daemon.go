// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package daemon implements the common part of the roles gateway and fabric. It keeps the network
// namespace of the process in the state that the role plans.
//
//	objects ─watch─▶ Role.Want ─▶ plan.State ─┐
//	kernel ─dataplane─▶ Observe ──────────────┴▶ plan.Diff ─▶ Apply, only what differs
//
// It reconciles when an object changes, when the kernel reports a change of Liqo's configuration,
// and at an interval. A reconcile without a difference writes and logs nothing. Nothing is removed
// when the process ends, so a restart does not affect traffic.
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
	// resync is the longest time between two readings of the kernel. It bounds how long a change of
	// Liqo's rules by others lasts, because nft reports changes to subscribers only.
	resync = 10 * time.Second
	// verifyAfter is the time without an event after which the kernel is read to verify changes.
	verifyAfter = time.Second
	// retryFirst and retryLast are the shortest and longest pause after a reconcile that failed;
	// the pause doubles in between. It is needed because the daemon's own partial change triggers a
	// reconcile.
	retryFirst, retryLast = 50 * time.Millisecond, 2 * time.Second
	// passes is how often a difference may reappear before it is an error. One pass creates
	// objects, another restores those the kernel deleted with a device that was recreated.
	passes = 3
	// echo is how long kernel notifications are ignored after the daemon's own change of devices, so
	// that it does not trigger a reconcile.
	echo = 5 * time.Millisecond
)

// Task is a function that a role runs in the background until the context ends.
type Task func(context.Context) error

// Role defines one role: its objects, its plan and its background tasks.
type Role struct {
	// Name is the name of the role: gateway or fabric.
	Name string
	// Sources are the kinds of objects the role reads; a change of an object triggers a reconcile.
	// None happens before all sources are complete.
	Sources []Source
	// Want plans the desired state from the objects. If it is not ready, the kernel is left
	// unchanged. What it read from the kernel before is still valid unless reread is set.
	Want func(ctx context.Context, reread bool) (want plan.State, ready bool, err error)
	// ObjectChanged is called after each change of an object; nil = Look is called.
	ObjectChanged func()
	// Looked is called after each reconcile. The failure is nil if it succeeded.
	Looked func(context.Context, *Failure)
	// Tasks run in the background; the first that fails ends the process.
	Tasks []Task
	// Contents are the rules of users for this host; nil = they are not read.
	Contents *Contents
	// MetricsAddress and HealthAddress are the addresses to listen on; "0" or empty = do not
	// listen.
	MetricsAddress, HealthAddress string
	// Metrics returns further metrics to serve; nil = none.
	Metrics func() []Metric
}

// Daemon runs a role.
type Daemon struct {
	Role
	// looks holds a message if a reconcile is requested; told holds one if the kernel reported a
	// change of Liqo's configuration.
	looks, told chan struct{}
	// urgent holds a message if a reconcile is requested that does not wait for the pause after a
	// failed one.
	urgent chan struct{}

	mu      sync.Mutex // guards plane, desired and last
	plane   *dataplane.Dataplane
	desired plan.State
	// last is the state that the last reconcile left in the kernel; nil = it failed, or there was
	// none. unverified reports whether it has changes made since the kernel was read.
	last       *plan.State
	unverified bool
	changed    atomic.Bool // since then, by Changed
	// reread reports whether the next reconcile reads the kernel.
	reread  atomic.Bool
	settled atomic.Bool
	failure atomic.Pointer[Failure]
	counts  counts
}

// Failure describes why the kernel is not in the desired state. Since is the time of the first of
// consecutive failures.
type Failure struct {
	Since time.Time
	Err   error
}

// Failing returns why the last reconcile failed; nil = it succeeded.
func (d *Daemon) Failing() *Failure { return d.failure.Load() }

// New returns a daemon on a data plane, which Run closes at its end.
func New(role Role, plane *dataplane.Dataplane) *Daemon {
	if role.Contents != nil {
		role.Sources = append(role.Sources, role.Contents.firewalls, role.Contents.routings)
	}
	d := &Daemon{
		Role: role, plane: plane,
		looks: make(chan struct{}, 1), told: make(chan struct{}, 1), urgent: make(chan struct{}, 1),
	}
	d.reread.Store(true)
	d.Look() // also when there is no object
	return d
}

// Run runs until the context ends or a task fails.
func (d *Daemon) Run(ctx context.Context) error {
	defer d.plane.Close()
	tasks := append([]Task{d.keep, d.serveHealth, d.serveMetrics, d.serveShow, d.watchKernel}, d.Tasks...)
	if d.Contents != nil {
		tasks = append(tasks, d.Contents.report)
	}
	changed := d.ObjectChanged
	if changed == nil {
		changed = d.Look
	}
	for _, source := range d.Sources {
		tasks = append(tasks, func(ctx context.Context) error {
			source.run(ctx, changed)
			return nil
		})
	}
	return together(ctx, tasks)
}

// together runs tasks until all have ended; the first that fails cancels the others.
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

// Look requests a reconcile.
func (d *Daemon) Look() { notify(d.looks) }

// LookNow requests a reconcile that does not wait for the pause after a failed one.
func (d *Daemon) LookNow() { notify(d.urgent) }

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is already asked for
	}
}

// With calls f with the data plane, for reading.
func (d *Daemon) With(f func(*dataplane.Dataplane)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.plane)
}

// Changed reports a change of the kernel that no reconcile made; the next one observes the kernel
// first.
func (d *Daemon) Changed() { d.changed.Store(true) }

// keep reconciles on request and at an interval. Every event plans everything, because a role has one
// state. The kernel is read only if it reported a change, to verify changes, and at an interval:
// reading takes longer the more peers there are.
func (d *Daemon) keep(ctx context.Context) error {
	retry, read := retryFirst, time.Now()
	looks, told, again := d.looks, d.told, resync
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-looks:
		case <-told:
			d.reread.Store(true)
		case <-d.urgent:
		case <-time.After(again):
			d.reread.Store(true)
		}
		if d.reread.Load() {
			read = time.Now()
		}
		err := d.look(ctx)
		looks, told, again = d.looks, d.told, time.Until(read.Add(resync))
		if d.unverified {
			again = min(again, verifyAfter)
		}
		if ctx.Err() != nil {
			return nil
		}
		d.record(err)
		if d.Looked != nil {
			d.Looked(ctx, d.failure.Load())
		}
		if err == nil {
			retry = retryFirst
			continue
		}
		klog.FromContext(ctx).Error(err, "The network could not be made as wanted", "again", retry)
		d.reread.Store(true)
		looks, told, again = nil, nil, retry // events wait until then, but for urgent ones
		retry = min(2*retry, retryLast)
	}
}

// record records the result of a reconcile.
func (d *Daemon) record(err error) {
	if err == nil {
		d.failure.Store(nil)
		return
	}
	d.counts.failures.Add(1)
	now := Failure{Since: time.Now(), Err: err}
	if before := d.failure.Load(); before != nil {
		now.Since = before.Since
	}
	d.failure.Store(&now)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (d *Daemon) look(ctx context.Context) error {
	if !d.Complete() {
		return nil
	}
	reread := d.reread.Swap(false)
	want, ready, err := d.Want(ctx, reread)
	if err != nil {
		return err
	}
	if ready {
		contents := d.Contents.wanted()
		if err := d.settle(ctx, want.With(contents), reread); err != nil {
			return err
		}
		d.With(func(p *dataplane.Dataplane) { d.Contents.found(contents, p) })
	}
	d.settled.Store(true)
	d.counts.last.Store(time.Now().Unix())
	return nil
}

// Complete reports whether all sources are complete: a plan from some of the objects would delete
// what the others need.
func (d *Daemon) Complete() bool {
	return !slices.ContainsFunc(d.Sources, func(s Source) bool { return !s.complete() })
}

// settle changes the kernel until it is in the desired state. Changes of the plan are applied
// before the kernel is read, because reading takes longer the more peers there are. Without reread
// the kernel is read only after changes of devices: the kernel deletes with a device what needs it.
// Reading finds changes by others. It is left to the next reconcile if one is already requested.
func (d *Daemon) settle(ctx context.Context, want plan.State, reread bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.desired = want
	if d.advance(ctx, want, reread) {
		return nil
	}
	var changes plan.Changes
	for range passes {
		have, err := d.plane.Observe(ctx, devices(want)...)
		if err != nil {
			return err
		}
		if changes = plan.Diff(have, want); changes.Empty() {
			d.last, d.unverified = left(want, have), false
			return nil
		}
		if err := d.change(ctx, changes); err != nil {
			return err
		}
		d.awaitEcho(ctx)
	}
	return fmt.Errorf("change the network: the kernel does not keep\n%s", changes)
}

// advance applies what differs from the state that the last reconcile left. It reports whether the
// kernel need not be read.
func (d *Daemon) advance(ctx context.Context, want plan.State, reread bool) (done bool) {
	last := d.last
	d.last = nil
	if changed := d.changed.Swap(false); last == nil || changed {
		return false
	}
	c := difference(*last, want)
	if c.Empty() {
		d.last = last
		return !reread
	}
	if err := d.change(ctx, c); err != nil {
		klog.FromContext(ctx).V(1).Info("The network is not as it was left, and is read again", "reason", err)
		return false
	}
	d.unverified, d.last = true, left(want, *last)
	if len(c.Overlays)+len(c.Tunnels)+len(c.Settings)+len(c.Addresses)+len(c.Peers) > 0 {
		reread, d.last = true, &want
		d.awaitEcho(ctx)
	}
	if reread && len(d.looks)+len(d.urgent) == 0 {
		d.last = nil
		return false
	}
	if reread {
		d.reread.Store(true)
	}
	return true
}

// left returns the desired state as the kernel has it, with the ports and endpoints that it chose.
// Its lists are ordered as those of the next desired state, which difference needs to be cheap.
func left(want, have plan.State) *plan.State {
	want.Tunnels, want.Peers = have.Tunnels, have.Peers
	return &want
}

// difference returns the same changes as plan.Diff. It compares only the differing parts of lists that
// grow with the number of peers, because Diff makes a map of each list.
func difference(have, want plan.State) plan.Changes {
	have.Routes, want.Routes = plan.Differing(have.Routes, want.Routes)
	have.Forwards, want.Forwards = plan.Differing(have.Forwards, want.Forwards)
	have.Neighbors, want.Neighbors = plan.Differing(have.Neighbors, want.Neighbors)
	return plan.Diff(have, want)
}

// change applies changes.
func (d *Daemon) change(ctx context.Context, c plan.Changes) error {
	for line := range strings.Lines(c.String()) { // a record each: line breaks in values are escaped
		text := strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "  ")
		klog.FromContext(ctx).Info("Changing the network", "change", text)
	}
	d.counts.changes.Add(1)
	return d.plane.Apply(ctx, c)
}

// awaitEcho waits for the kernel's notifications of changes of devices, and discards them: the
// kernel is read next.
func (d *Daemon) awaitEcho(ctx context.Context) {
	pause(ctx, echo)
	select {
	case <-d.told:
	default:
	}
}

// devices returns the devices whose settings are observed.
func devices(s plan.State) []string {
	var out []string
	for _, x := range s.Settings {
		out = append(out, x.Device)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// ready returns an error that says why the network is not set up yet.
func (d *Daemon) ready() error {
	switch {
	case d.settled.Load():
		return nil
	case !d.Complete():
		return errors.New("the API server has not told all objects yet; see the log")
	default:
		return errors.New("the network is not set up yet; see the log")
	}
}

// watchKernel reconciles when others changed Liqo's configuration, or the kernel reports a pod.
func (d *Daemon) watchKernel(ctx context.Context) error {
	return d.plane.Watch(ctx, func() { notify(d.told) }, func() {
		d.reread.Store(true)
		d.Look()
	})
}
