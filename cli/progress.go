// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"sync/atomic"
)

// progress is what a piece of work waits for at the moment. It travels in the work's context, so
// that whatever waits can say so; a terminal shows it behind what is being done.
type progress struct{ text atomic.Pointer[string] }

type progressKey struct{}

// withProgress gives the work that runs with ctx a progress of its own.
func withProgress(ctx context.Context) (context.Context, *progress) {
	p := &progress{}
	return context.WithValue(ctx, progressKey{}, p), p
}

// show replaces what the work of ctx waits for; an empty text means nothing in particular.
func show(ctx context.Context, text string) {
	if p, ok := ctx.Value(progressKey{}).(*progress); ok {
		p.text.Store(&text)
	}
}

// behind is text and what is waited for.
func (p *progress) behind(text string) string {
	now := p.text.Load()
	if now == nil || *now == "" {
		return text
	}
	return text + ": " + *now
}

// someNames are names for a sentence, the first few and how many there are further.
func someNames(names []string) string { return upTo(3, names) } // they fit on a line with a sentence around them

// upTo names so many, and tells how many more there are.
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
