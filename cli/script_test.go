// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io"
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

// TestTimeToAnswer is not that of the work: whoever thinks longer than --timeout about a question has all of it.
func TestTimeToAnswer(t *testing.T) {
	in, user := io.Pipe()
	e := &env{IOStreams: genericiooptions.IOStreams{In: in, Out: io.Discard, ErrOut: io.Discard}, printer: newPrinter(io.Discard, io.Discard)}
	s, stop := e.newScript(t.Context(), 200*time.Millisecond)
	defer stop()
	asked := s.ctx
	go func() {
		<-asked.Done()
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
