// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestInterruptedQuestion: who interrupts liqoctl while it asks has said no.
func TestInterruptedQuestion(t *testing.T) {
	in, _ := io.Pipe()
	interrupted := make(chan struct{})
	e := &env{IOStreams: genericiooptions.IOStreams{In: in, Out: io.Discard, ErrOut: io.Discard}, interrupted: interrupted}
	close(interrupted)
	if err := e.confirm("drain", ": "); err != errAborted {
		t.Errorf("the question ends with %v", err)
	}
}

// TestTimeToAnswer is not that of the work: whoever thinks longer than --timeout about a question
// has all of it.
func TestTimeToAnswer(t *testing.T) {
	in, user := io.Pipe()
	e := &env{IOStreams: genericiooptions.IOStreams{In: in, Out: io.Discard, ErrOut: io.Discard}, printer: newPrinter(io.Discard, io.Discard)}
	s, stop := e.newScript(t.Context(), 200*time.Millisecond)
	defer stop()
	isSet := s.ctx
	go func() {
		<-isSet.Done()
		_, _ = io.WriteString(user, "y\n")
	}()
	if err := s.confirm("drain"); err != nil {
		t.Fatal(err)
	}
	if s.ctx.Err() != nil {
		t.Error("the time of the work has passed before it began")
	}
	<-s.ctx.Done()
	if err := context.Cause(s.ctx); err != errTimeout {
		t.Errorf("the work ends with %v", err)
	}
}

// TestStepsWaitForStepsBefore: a step that waits for one listed behind it, or for none at all,
// would begin at once.
func TestStepsWaitForStepsBefore(t *testing.T) {
	here, there := &cluster{id: "rome", side: local}, &cluster{id: "milan", side: remote}
	here.other, there.other = there, here
	n := newNetwork(nil, here, there, networkOptions{wait: true})
	a := &authentication{consumer: here, provider: there, after: []string{"home"}}
	a.after = append(a.after, inBandAfter(here)...)
	w := &sliceRequest{consumer: here, provider: there.id}
	known := map[string]bool{}
	for _, s := range slices.Concat(n.namespaceSteps(true), n.configuration(), n.connection(), a.steps(), w.steps()) {
		for _, name := range s.after {
			if !known[name] {
				t.Errorf("%q waits for %q, which is not before it", s.doing, name)
			}
		}
		known[s.name] = true
	}
}

// TestStepsPrintInOrder: lines come in the order of the steps, whichever ends first; skipped and
// silent steps have none, and after a failure nothing begins.
func TestStepsPrintInOrder(t *testing.T) {
	var out strings.Builder
	e := &env{printer: newPrinter(&out, &out)}
	s, stop := e.newScript(t.Context(), time.Minute)
	defer stop()
	at, last := &cluster{side: remote}, make(chan struct{})
	failure := errors.New("no answer")
	err := s.run(
		step{name: "one", doing: "…", done: "one", at: &at, do: func(context.Context) error { <-last; return nil }},
		step{name: "two", do: func(context.Context) error { close(last); return nil }},
		step{after: []string{"two"}, doing: "…", done: "skipped", skip: func() bool { return true }},
		step{after: []string{"one", "two"}, doing: "…", report: func(string) { e.warn(noCluster, "three") }},
		step{name: "four", after: []string{"one", "unknown"}, doing: "…", do: func(context.Context) error { return failure }},
		step{after: []string{"four"}, doing: "…", done: "five", do: func(context.Context) error { t.Error("five ran"); return nil }},
	)
	if want := " INFO   (remote) one\n WARN   three\n"; out.String() != want || err != failure {
		t.Errorf("%v after\n%s", err, out.String())
	}
}
