// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestInterruptedQuestion: an interrupt while liqoctl asks counts as no.
func TestInterruptedQuestion(t *testing.T) {
	in, _ := io.Pipe()
	interrupted := make(chan struct{})
	e := &env{IOStreams: genericiooptions.IOStreams{In: in, Out: io.Discard, ErrOut: io.Discard}, interrupted: interrupted}
	close(interrupted)
	if err := e.confirm("drain", ": "); err != errAborted {
		t.Errorf("the question ends with %v", err)
	}
}

// TestNoAnswerWithoutATerminal: a pipe that nobody writes to does not hang a question for ever, and
// the error names the flag that skips it.
func TestNoAnswerWithoutATerminal(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = in.Close(), out.Close() }) // the test is over
	if limit := answerTimeout(in); limit != 10*time.Second {
		t.Errorf("a question to a pipe waits for %s", limit)
	}
	e := &env{IOStreams: genericiooptions.IOStreams{In: in, Out: io.Discard, ErrOut: io.Discard}, answerTimeout: time.Millisecond}
	if err := e.confirm("drain", ": "); !errors.Is(err, errAborted) || !strings.Contains(err.Error(), "--skip-confirm") {
		t.Errorf("the question ends with %v", err)
	}
	e.skipConfirm = true
	if err := e.confirm("drain", ": "); err != nil {
		t.Error(err)
	}
}

// TestTimeToAnswer: the time that the user needs to answer a question does not count for --timeout.
func TestTimeToAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, user := io.Pipe()
		e := &env{IOStreams: genericiooptions.IOStreams{In: in, Out: io.Discard, ErrOut: io.Discard}, printer: newPrinter(io.Discard, io.Discard)}
		s, stop := e.newScript(t.Context(), 200*time.Millisecond)
		defer stop()
		first := s.ctx
		go func() {
			<-first.Done()
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
	})
}

// TestStepsWaitForStepsBefore: every name in after is that of an earlier step, since a step ignores
// other names and would start at once.
func TestStepsWaitForStepsBefore(t *testing.T) {
	localCluster, remoteCluster := &cluster{id: "rome", side: local}, &cluster{id: "milan", side: remote}
	localCluster.other, remoteCluster.other = remoteCluster, localCluster
	n := newNetwork(nil, localCluster, remoteCluster, networkOptions{wait: true})
	a := &authentication{consumer: localCluster, provider: remoteCluster, after: []string{"namespaces"}}
	a.after = append(a.after, inBandAfter(localCluster)...)
	w := &sliceRequest{consumer: localCluster, provider: remoteCluster.id}
	known := map[string]bool{}
	for _, s := range slices.Concat(n.namespaceSteps(true), n.configuration(), n.connection(), a.steps(), w.steps(), n.reset()) {
		for _, name := range s.after {
			if !known[name] {
				t.Errorf("%q waits for %q, which is not before it", s.doing, name)
			}
		}
		known[s.name] = true
	}
}

// TestStepsPrintInOrder: lines are printed in the order of the steps, whichever ends first. Skipped
// and silent steps print none. After a failure no work starts, but the lines before it are printed.
func TestStepsPrintInOrder(t *testing.T) {
	var out strings.Builder
	e := &env{printer: newPrinter(&out, &out)}
	s, stop := e.newScript(t.Context(), time.Minute)
	defer stop()
	at, last, begun := &cluster{side: remote}, make(chan struct{}), make(chan struct{})
	failure := errors.New("no answer")
	err := s.run(
		step{name: "one", doing: "…", done: "one", at: &at, do: func(context.Context) error { <-last; return nil }},
		step{name: "two", do: func(context.Context) error { close(last); return nil }},
		step{after: []string{"two"}, doing: "…", done: "skipped", skip: func() bool { return true }},
		step{name: "late", do: func(context.Context) error { close(begun); <-s.ctx.Done(); return nil }},
		step{after: []string{"one", "two", "late"}, doing: "…", report: func(string) { e.warn(noCluster, "three") }},
		step{name: "four", after: []string{"one", "unknown"}, doing: "…", do: func(context.Context) error { <-begun; return failure }},
		step{after: []string{"four"}, doing: "…", done: "five", do: func(context.Context) error { t.Error("five ran"); return nil }},
	)
	if want := " INFO   (remote) one\n WARN   three\n"; out.String() != want || err != failure {
		t.Errorf("%v after\n%s", err, out.String())
	}
}
