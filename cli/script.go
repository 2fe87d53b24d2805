// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// errTimeout is the cause of every passed deadline. Users' scripts match its text.
var errTimeout = errors.New("timed out waiting for the condition")

// limits bound what does not wait for as long as --timeout says. Tests lengthen them, because a slow
// machine answers later.
var limits = struct{ reach, explain, complete, sign time.Duration }{
	reach:    15 * time.Second, // the first request to a cluster
	explain:  5 * time.Second,  // the search for a reason after the verb's own timeout has passed
	complete: 3 * time.Second,  // one completion
	sign:     30 * time.Second, // the cluster's signer, which usually needs a second
}

// step is a piece of a verb's work and the line that reports it.
type step struct {
	// name identifies the step in the field after of other steps. Several steps may share a name.
	name string
	// after lists the names of the steps that must succeed first. A name that no step of the verb
	// has is ignored.
	after []string
	// at is the cluster that the line is about, read when it is printed; nil = none.
	at **cluster
	// doing is shown on a terminal during the work. If it is empty, the step prints nothing.
	doing string
	// done is the line printed afterwards; empty = no line.
	done string
	// report prints the lines instead of done. Its argument ends the last line: the duration with
	// --verbose.
	report func(took string)
	// skip reports that there is nothing to do or print. It is called when the steps in after have
	// succeeded.
	skip func() bool
	// do is the work; nil = the line only.
	do func(ctx context.Context) error
}

// script runs the steps of a verb concurrently and prints their lines in the order of the list:
//
//	work    ──Configuration──┐            ┌─gateways───────────────┐
//	        ──Nonce──Tenant──┼──Identity──┼──ResourceSlice──┐      │
//	lines   Configuration ▸ gateways … ▸ Nonce ▸ Tenant ▸ Identity ▸ ResourceSlice
//
// A line appears when its step and all lines before it are done. The first failure ends all work.
type script struct {
	*printer
	env     *env
	timeout time.Duration
	ctx     context.Context
	fail    context.CancelCauseFunc
	// restartTimeout gives the work its whole time, from now on.
	restartTimeout func()
	// progress is the progress of the work outside steps.
	progress *progress
	// verbose prints the durations of the steps and of the phases.
	verbose bool
	began   time.Time
	phases  []phase
	// unreported holds the steps whose lines are not printed yet.
	unreported []*task
}

// phase is a part of a verb's work; its steps may run concurrently with those of other phases.
type phase struct {
	name  string
	tasks []*task
}

// task is a step that was started; ended is closed when it has ended with err.
type task struct {
	step
	ended      chan struct{}
	err        error
	skipped    bool
	progress   *progress
	from, upTo time.Time
}

// newScript returns a script whose work ends with ctx or after the timeout. The returned function
// releases its resources.
func (e *env) newScript(ctx context.Context, timeout time.Duration) (*script, func()) {
	s := &script{printer: e.printer, env: e, timeout: timeout, verbose: e.verbose, began: time.Now()}
	free := func() {}
	s.restartTimeout = func() {
		free()
		limited, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
		limited, s.fail = context.WithCancelCause(limited)
		s.ctx, s.progress = withProgress(limited)
		free = func() { s.fail(nil); cancel() }
	}
	s.restartTimeout()
	return s, func() { free() }
}

// confirm asks before the action named by subject, while no step runs. The time to answer does not
// count as work.
func (s *script) confirm(subject string) error {
	defer s.restartTimeout()
	return s.env.confirm(subject, ": ")
}

// busy shows on a terminal what is done and what it waits for, until the next line is printed.
func (s *script) busy(at side, doing string) {
	show(s.ctx, "")
	s.printer.busy(at, func() string { return s.progress.appendTo(doing) })
}

// runInOrder starts each step when the one before it has succeeded, and prints their lines.
func (s *script) runInOrder(steps ...step) error {
	for i := range steps {
		steps[i].name = strconv.Itoa(i)
		if i > 0 {
			steps[i].after = []string{steps[i-1].name}
		}
	}
	return s.run(steps...)
}

// run starts steps and prints their lines.
func (s *script) run(steps ...step) error {
	s.start("", steps...)
	return s.finish()
}

// start starts the steps of a phase; finish prints their lines. Each step follows all that it waits
// for.
func (s *script) start(phaseName string, steps ...step) {
	p := phase{name: phaseName}
	known := map[string][]*task{}
	for _, t := range s.unreported {
		known[t.name] = append(known[t.name], t)
	}
	for _, st := range steps {
		t := &task{step: st, ended: make(chan struct{})}
		var before []*task
		for _, name := range st.after {
			before = append(before, known[name]...)
		}
		known[st.name] = append(known[st.name], t)
		p.tasks = append(p.tasks, t)
		ctx, progress := withProgress(s.ctx)
		t.progress = progress
		if st.do == nil && len(before) > 0 {
			t.progress = before[0].progress // what the line waits for
		}
		go func() {
			defer close(t.ended)
			if t.err = t.work(ctx, before); t.err != nil {
				s.fail(t.err)
			}
		}()
	}
	s.phases, s.unreported = append(s.phases, p), append(s.unreported, p.tasks...)
}

// work runs a step as soon as those before it have succeeded. A step without work takes as long as the
// first step before it, and its line is printed even if another step has failed meanwhile.
func (t *task) work(ctx context.Context, before []*task) error {
	for _, b := range before {
		if <-b.ended; b.err != nil {
			return b.err
		}
	}
	if t.skipped = t.skip != nil && t.skip(); t.skipped {
		return nil
	}
	if t.do == nil {
		if len(before) > 0 {
			t.from, t.upTo = before[0].from, before[0].upTo
		}
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	t.from = time.Now()
	err := t.do(ctx)
	t.upTo = time.Now()
	return err
}

// finish prints the lines of all steps that were started, in the order in which they were listed.
func (s *script) finish() error {
	defer s.clearBusy()
	for ; len(s.unreported) > 0; s.unreported = s.unreported[1:] {
		t := s.unreported[0]
		if t.doing == "" {
			continue
		}
		if err := s.waitFor(t); err != nil {
			return err
		}
		took := ""
		if s.verbose {
			took = fmt.Sprintf(" (%.2fs)", t.upTo.Sub(t.from).Seconds())
		}
		switch {
		case t.skipped:
		case t.report != nil:
			t.report(took)
		case t.done != "":
			s.info(t.side(), "%s%s", t.done, took)
		}
	}
	return nil
}

// side returns the cluster that the line is about.
func (t *task) side() side {
	if t.at == nil {
		return noCluster
	}
	return (*t.at).side
}

// waitFor shows what is done until the task has ended.
func (s *script) waitFor(t *task) error {
	select {
	case <-t.ended:
	default:
		s.printer.busy(t.side(), func() string { return t.progress.appendTo(t.doing) })
		<-t.ended
	}
	if errors.Is(t.err, context.Canceled) {
		return context.Cause(s.ctx)
	}
	return t.err
}

// times prints when each phase ran, counted from the start of the command. It is called when all
// steps have ended.
func (s *script) times() {
	if !s.verbose {
		return
	}
	for _, p := range s.phases {
		var from, to time.Time
		for _, t := range p.tasks {
			if from.IsZero() || !t.from.IsZero() && t.from.Before(from) {
				from = t.from
			}
			if t.upTo.After(to) {
				to = t.upTo
			}
		}
		s.info(noCluster, "Time of %s: %.2fs, from %.2fs to %.2fs",
			p.name, to.Sub(from).Seconds(), from.Sub(s.began).Seconds(), to.Sub(s.began).Seconds())
	}
	s.info(noCluster, "Time in all: %.2fs", time.Since(s.began).Seconds())
}

// collect calls do for all items concurrently. It returns the results and the first error, both in
// the order of the items.
func collect[T, R any](items []T, do func(T) (R, error)) ([]R, error) {
	out, errs := make([]R, len(items)), make([]error, len(items))
	var running sync.WaitGroup
	for i, item := range items {
		running.Go(func() { out[i], errs[i] = do(item) })
	}
	running.Wait()
	return out, cmp.Or(errs...)
}

// onEach is collect for functions without a result.
func onEach[T any](items []T, do func(T) error) error {
	_, err := collect(items, func(item T) (struct{}, error) { return struct{}{}, do(item) })
	return err
}

// inParallel calls all functions concurrently and returns the first error in their order.
func inParallel(work ...func() error) error {
	return onEach(work, func(do func() error) error { return do() })
}

// hint adds to an error what the user can do.
func hint(err error, format string, args ...any) error {
	return fmt.Errorf("%w; %s", err, fmt.Sprintf(format, args...))
}

// progress holds the text of what a piece of work waits for. The context of the work carries it, so
// that any function that waits can set it. A terminal shows it behind what is being done.
type progress struct{ text atomic.Pointer[string] }

type progressKey struct{}

// withProgress returns a context with a new progress.
func withProgress(ctx context.Context) (context.Context, *progress) {
	p := &progress{}
	return context.WithValue(ctx, progressKey{}, p), p
}

// show sets what the work of ctx waits for; empty means nothing in particular.
func show(ctx context.Context, text string) {
	if p, ok := ctx.Value(progressKey{}).(*progress); ok {
		p.text.Store(&text)
	}
}

// appendTo returns text followed by what the work waits for.
func (p *progress) appendTo(text string) string {
	now := p.text.Load()
	if now == nil || *now == "" {
		return text
	}
	return text + ": " + *now
}

// someNames lists the first three names, which fit on a line with a sentence around them, and the
// number of the others.
func someNames(names []string) string { return upTo(3, names) }

// upTo lists the first names, at most the given number, and the number of the others.
func upTo(named int, names []string) string {
	out := ""
	for i, name := range names {
		switch {
		case i == named:
			return fmt.Sprintf("%s and %d more", out, len(names)-named)
		case i > 0:
			out += ", "
		}
		out += name
	}
	return out
}
