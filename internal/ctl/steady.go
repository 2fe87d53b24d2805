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

// Messages about the same cause must be equal: a different one is written, which triggers another
// reconciliation.

// differing holds the parts of network errors that differ each time, and their replacements: the
// local end of a connection, the time of day, the number of an HTTP/2 stream.
var differing = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\S+:\d+->`), ""},
	{regexp.MustCompile(`current time \S+ is`), "the time is"},
	{regexp.MustCompile(`stream ID \d+`), "a stream"},
	{regexp.MustCompile(`LastStreamID=\d+, `), ""},
}

// Steady returns the message of an error in one line, without the parts that differ for the same
// cause.
func Steady(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ") // of several errors, joined
	for _, d := range differing {
		text = d.what.ReplaceAllString(text, d.by)
	}
	return text
}

// sorted returns lists sorted by namespace and name. The order of a cache's lists varies, so a plan
// that names the first of several objects would differ each time.
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
