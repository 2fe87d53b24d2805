// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"cmp"
	"context"
	"reflect"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Steady is what an error says, without what differs though the cause is the same.
func Steady(err error) string {
	text := err.Error()
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
	items := reflect.ValueOf(list).Elem().FieldByName("Items")
	if !items.IsValid() {
		return nil
	}
	type item struct {
		metav1.Object
		at int
	}
	order := make([]item, items.Len())
	for i := range order {
		o, ok := items.Index(i).Addr().Interface().(metav1.Object)
		if !ok {
			return nil
		}
		order[i] = item{o, i}
	}
	before := func(a, b item) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	}
	if slices.IsSortedFunc(order, before) {
		return nil
	}
	slices.SortFunc(order, before)
	out := reflect.MakeSlice(items.Type(), 0, len(order))
	for _, o := range order {
		out = reflect.Append(out, items.Index(o.at))
	}
	items.Set(out)
	return nil
}
