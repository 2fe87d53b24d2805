// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What is said twice must be said in the same words: a message that differs is written, and what is
// written leads to another look at once.

// differing is what network errors say otherwise each time, and what is said instead: the local end of a
// connection, the time of day, the number of a stream of HTTP/2.
var differing = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\S+:\d+->`), ""},
	{regexp.MustCompile(`current time \S+ is`), "the time is"},
	{regexp.MustCompile(`stream ID \d+`), "a stream"},
	{regexp.MustCompile(`LastStreamID=\d+, `), ""},
}

// Steady is what an error says in one line, without what differs though the cause is the same.
func Steady(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ") // of several errors, joined
	for _, d := range differing {
		text = d.what.ReplaceAllString(text, d.by)
	}
	return text
}

// sorted gives lists by namespace and name. A cache gives them in another order each time, so a plan that
// names the first of several would differ each time.
type sorted struct{ client.Reader }

func (s sorted) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := s.Reader.List(ctx, list, opts...); err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return fmt.Errorf("sort a list: %w", err)
	}
	before := func(a, b runtime.Object) int {
		x, y := a.(client.Object), b.(client.Object)
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	}
	if slices.IsSortedFunc(items, before) {
		return nil
	}
	slices.SortFunc(items, before)
	return meta.SetList(list, items)
}
