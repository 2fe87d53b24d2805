// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"sync/atomic"
)

// progress is what a piece of work currently waits for. The context of the work carries it, so that
// any function that waits can set it. A terminal shows it behind what is being done.
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
