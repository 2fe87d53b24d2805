// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errTimeout is what a passed deadline reads like; users' scripts look for it.
var errTimeout = errors.New("timed out waiting for the condition")

// script runs the work of a verb side by side and prints its lines one after the other:
//
//	work    ──Configuration──┐            ┌─gateways───────────────┐
//	        ──Nonce──Tenant──┼──Identity──┼──ResourceSlice──┐      │
//	lines   Configuration ▸ gateways … ▸ Nonce ▸ Tenant ▸ Identity ▸ ResourceSlice
//
// A line appears when its work and all lines before it are done. The first failure ends all work.
type script struct {
	*printer
	env  *env
	ctx  context.Context
	fail context.CancelCauseFunc
	// wind gives the work its whole time, from now on.
	wind func()
	// progress is that of the work outside tasks.
	progress *progress
	// verbose shows times: those of the tasks, and of the phases they are started in.
	verbose bool
	began   time.Time
	phases  []phase
}

// phase is a part of a verb's work; its tasks may run beside those of others.
type phase struct {
	name  string
	tasks []*task
}

// newScript ends all work when ctx ends or the timeout has passed. The returned function frees
// what the script holds.
func (e *env) newScript(ctx context.Context, timeout time.Duration) (*script, func()) {
	s, free := &script{printer: e.printer, env: e, verbose: e.verbose, began: time.Now()}, func() {}
	s.wind = func() {
		free()
		limited, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
		limited, s.fail = context.WithCancelCause(limited)
		s.ctx, s.progress = withProgress(limited)
		free = func() { s.fail(nil); cancel() }
	}
	s.wind()
	return s, func() { free() }
}

// confirm asks before the action named by subject, while no task runs. The time to answer is not that of the work.
func (s *script) confirm(subject string) error {
	defer s.wind()
	return s.env.confirm(subject, ": ")
}

// busy shows on a terminal what is done and what it waits for, until the next line.
func (s *script) busy(at side, doing string) {
	show(s.ctx, "")
	s.printer.busy(at, func() string { return s.progress.behind(doing) })
}

// task is one piece of work; done is closed when it has ended with err.
type task struct {
	done         chan struct{}
	err          error
	progress     *progress
	began, ended time.Time
}

// start begins the work as soon as the tasks before it have succeeded.
func (s *script) start(work func(ctx context.Context) error, before ...*task) *task {
	ctx, p := withProgress(s.ctx)
	t := &task{done: make(chan struct{}), progress: p}
	if last := len(s.phases) - 1; last >= 0 {
		s.phases[last].tasks = append(s.phases[last].tasks, t)
	}
	go func() {
		defer close(t.done)
		for _, b := range before {
			if <-b.done; b.err != nil {
				t.err = b.err
				return
			}
		}
		if t.err = context.Cause(ctx); t.err != nil {
			return
		}
		t.began = time.Now()
		t.err = work(ctx)
		t.ended = time.Now()
		if t.err != nil {
			s.fail(t.err)
		}
	}()
	return t
}

// await shows what is done until the task has ended.
func (s *script) await(t *task, at side, doing string) error {
	select {
	case <-t.done:
	default:
		s.printer.busy(at, func() string { return t.progress.behind(doing) })
		<-t.done
	}
	if errors.Is(t.err, context.Canceled) {
		return context.Cause(s.ctx)
	}
	return t.err
}

// row is one line of a verb's output.
type row struct {
	work *task
	at   side
	// doing is shown while the work runs, done is printed after it.
	doing, done string
}

// say prints the rows in order.
func (s *script) say(rows ...row) error {
	for _, r := range rows {
		if err := s.await(r.work, r.at, r.doing); err != nil {
			return err
		}
		s.info(r.at, "%s%s", r.done, s.took(r.work))
	}
	return nil
}

// took is how long a task that has ended took, for who wants to know.
func (s *script) took(t *task) string {
	if !s.verbose {
		return ""
	}
	return fmt.Sprintf(" (%.2fs)", t.ended.Sub(t.began).Seconds())
}

// begin names the phase to which the tasks started from now on belong.
func (s *script) begin(name string) { s.phases = append(s.phases, phase{name: name}) }

// times prints when each phase was worked on, counted from the start of the command.
func (s *script) times() {
	if !s.verbose {
		return
	}
	for _, p := range s.phases {
		var from, to time.Time
		for _, t := range p.tasks {
			select {
			case <-t.done:
			default:
				continue // nobody waits for it
			}
			if from.IsZero() || t.began.Before(from) {
				from = t.began
			}
			if t.ended.After(to) {
				to = t.ended
			}
		}
		if !from.IsZero() {
			s.info(nowhere, "Time of %s: %.2fs, from %.2fs to %.2fs", p.name, to.Sub(from).Seconds(), from.Sub(s.began).Seconds(), to.Sub(s.began).Seconds())
		}
	}
	s.info(nowhere, "Time in all: %.2fs", time.Since(s.began).Seconds())
}

// both begins work on two clusters and returns the tasks.
func (s *script) both(a, b *cluster, work func(ctx context.Context, c *cluster) error, before ...*task) (ta, tb *task) {
	run := func(c *cluster) *task {
		return s.start(func(ctx context.Context) error { return work(ctx, c) }, before...)
	}
	return run(a), run(b)
}

// together waits for all functions and returns the first error in their order.
func together(work ...func() error) error {
	errs := make([]error, len(work))
	done := make(chan struct{})
	for i, f := range work {
		go func() { errs[i] = f(); done <- struct{}{} }()
	}
	for range work {
		<-done
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// hint adds what the user can do to an error.
func hint(err error, format string, args ...any) error {
	return fmt.Errorf("%w; %s", err, fmt.Sprintf(format, args...))
}
