// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// relistAfter is the pause before asking again after a watch broke or a request failed.
const relistAfter = 500 * time.Millisecond

// items are the objects of one list by their UID.
type items map[types.UID]client.Object

// await watches one object until ok, which reads obj, holds. While the object does not exist ok is
// not asked. When time is up the error says why, looking at obj and then at blame.
func (c *cluster) await(ctx context.Context, obj client.Object, ok func() bool, blame ...client.Object) error {
	return c.timedOut(c.until(ctx, obj, ok), append([]client.Object{obj}, blame...)...)
}

// until is await without the reason.
func (c *cluster) until(ctx context.Context, obj client.Object, ok func() bool) error {
	list, err := listFor(obj, c.Scheme())
	if err != nil {
		return err
	}
	defer show(ctx, "")
	return c.follow(ctx, list, func(have items) bool {
		for _, item := range have {
			reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(item).Elem())
			show(ctx, c.remark(obj))
			return ok()
		}
		show(ctx, c.nameOf(obj)+" does not exist yet")
		return false
	}, only(obj)...)
}

// remark is an object's name and what it says of itself.
func (c *cluster) remark(object client.Object) string {
	if says := saysOf(object); says != "" {
		return c.nameOf(object) + ": " + says
	}
	return c.nameOf(object)
}

// only selects one object by its name.
func only(obj client.Object) []client.ListOption {
	return []client.ListOption{client.InNamespace(obj.GetNamespace()), client.MatchingFields{nameField: obj.GetName()}}
}

// nameField selects by name, in every kind.
const nameField = "metadata.name"

// awaitGone watches until the object does not exist; of one that was read another of its name is none.
func (c *cluster) awaitGone(ctx context.Context, obj client.Object) error {
	list, err := listFor(obj, c.Scheme())
	if err != nil {
		return err
	}
	another := func(o client.Object) bool { return obj.GetUID() != "" && o.GetUID() != obj.GetUID() }
	return c.awaitAll(ctx, list, another, only(obj)...)
}

// awaitNone watches until no object of the list exists.
func (c *cluster) awaitNone(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.awaitAll(ctx, list, func(client.Object) bool { return false }, opts...)
}

// awaitAll watches until ok holds for all objects of the list.
func (c *cluster) awaitAll(ctx context.Context, list client.ObjectList, ok func(client.Object) bool, opts ...client.ListOption) error {
	defer show(ctx, "")
	var left []client.Object
	err := c.follow(ctx, list, func(have items) bool {
		left = slices.DeleteFunc(have.sorted(), ok)
		if len(left) > 1 {
			show(ctx, fmt.Sprintf("%s, and %d more", c.remark(left[0]), len(left)-1))
		} else if len(left) == 1 {
			show(ctx, c.remark(left[0]))
		}
		return len(left) == 0
	}, opts...)
	switch {
	case meta.IsNoMatchError(err):
		return nil
	case len(left) == 0:
		return err
	}
	return c.timedOut(err, left[0])
}

// follow watches the objects of one list until done holds for them. Who may not watch, or may only
// read the one object asked for, asks again and again.
func (c *cluster) follow(ctx context.Context, list client.ObjectList, done func(items) bool, opts ...client.ListOption) error {
	for {
		finished, err := c.followOnce(ctx, list, done, opts)
		switch {
		case finished:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case meta.IsNoMatchError(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), runtime.IsNotRegisteredError(err):
			return fmt.Errorf("list %s of the %scluster: %w", c.kindsOf(list), c.side.named(), err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(relistAfter):
		}
	}
}

// errPoll: the watch is forbidden to this user, but the list is not.
var errPoll = errors.New("watch forbidden")

// followOnce lists, then watches from there until done holds or the watch ends.
func (c *cluster) followOnce(ctx context.Context, list client.ObjectList, done func(items) bool, opts []client.ListOption) (bool, error) {
	have, err := c.listOnce(ctx, list, opts)
	if err != nil {
		return false, err
	}
	if done(have) {
		return true, nil
	}
	from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
	w, err := c.Watch(ctx, list, append(opts[:len(opts):len(opts)], from)...)
	if apierrors.IsForbidden(err) {
		return false, errPoll
	}
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		switch event.Type {
		case watch.Added, watch.Modified:
			have.put(event.Object)
		case watch.Deleted:
			have.drop(event.Object)
		case watch.Error:
			return false, apierrors.FromObject(event.Object)
		}
		if done(have) {
			return true, nil
		}
	}
	return false, nil
}

// listOnce lists; a single object is read instead where that is all the user may do.
func (c *cluster) listOnce(ctx context.Context, list client.ObjectList, opts []client.ListOption) (items, error) {
	have := items{}
	err := c.List(ctx, list, opts...)
	if apierrors.IsForbidden(err) {
		switch found, got := c.getOnly(ctx, list, opts); {
		case got == nil:
			have.put(found)
			return have, nil
		case apierrors.IsNotFound(got):
			return have, nil
		case ctx.Err() != nil:
			return nil, got // the time is up; that the list is forbidden is no news
		}
	}
	if err != nil {
		return nil, err
	}
	return itemsOf(list)
}

// itemsOf are the objects of a list.
func itemsOf(list client.ObjectList) (items, error) {
	out := items{}
	return out, meta.EachListItem(list, func(o runtime.Object) error {
		out.put(o)
		return nil
	})
}

// all lists objects in the order of their names; a kind the cluster does not know has none.
func (c *cluster) all(ctx context.Context, list client.ObjectList, opts ...client.ListOption) ([]client.Object, error) {
	err := c.List(ctx, list, opts...)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s of the %scluster: %w", c.kindsOf(list), c.side.named(), err)
	}
	found, err := itemsOf(list)
	return found.sorted(), err
}

// kindsOf is the kind of a list's objects as kubectl takes it.
func (c *cluster) kindsOf(list client.ObjectList) string {
	gvk, err := apiutil.GVKForObject(list, c.Scheme())
	if err != nil {
		return fmt.Sprintf("%T", list)
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk.GroupVersion().WithKind(strings.TrimSuffix(gvk.Kind, "List")))
	return plural.Resource
}

// getOnly reads the object a list is narrowed down to by its name.
func (c *cluster) getOnly(ctx context.Context, list client.ObjectList, opts []client.ListOption) (client.Object, error) {
	wanted := (&client.ListOptions{}).ApplyOptions(opts)
	if wanted.FieldSelector == nil {
		return nil, errNotOne
	}
	name, ok := wanted.FieldSelector.RequiresExactMatch(nameField)
	if !ok {
		return nil, errNotOne
	}
	gvk, err := apiutil.GVKForObject(list, c.Scheme())
	if err != nil {
		return nil, fmt.Errorf("find the kind of %T: %w", list, err)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	made, err := c.Scheme().New(gvk)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", gvk.Kind, err)
	}
	object, ok := made.(client.Object)
	if !ok {
		return nil, errNotOne
	}
	return object, c.Get(ctx, client.ObjectKey{Namespace: wanted.Namespace, Name: name}, object)
}

// errNotOne: the list is not of one object known by its name.
var errNotOne = errors.New("not a single object")

func (i items) put(o runtime.Object) {
	if object, ok := o.(client.Object); ok {
		i[object.GetUID()] = object
	}
}

// sorted are the objects in the order of their namespaces and names.
func (i items) sorted() []client.Object {
	return slices.SortedFunc(maps.Values(i), func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

// namesIn are the names of the objects, in order.
func namesIn(i items) []string {
	var out []string
	for _, object := range i.sorted() {
		out = append(out, object.GetName())
	}
	return out
}

func (i items) drop(o runtime.Object) {
	if object, ok := o.(client.Object); ok {
		delete(i, object.GetUID())
	}
}

// listFor returns an empty list of the object's kind.
func listFor(obj client.Object, s *runtime.Scheme) (client.ObjectList, error) {
	gvk, err := apiutil.GVKForObject(obj, s)
	if err != nil {
		return nil, fmt.Errorf("find the kind of %T: %w", obj, err)
	}
	gvk.Kind += "List"
	made, err := s.New(gvk)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", gvk.Kind, err)
	}
	list, ok := made.(client.ObjectList)
	if !ok {
		return nil, fmt.Errorf("make %s: %T is not a list", gvk.Kind, made)
	}
	return list, nil
}

// kindOf is the kind of a typed or untyped object.
func kindOf(obj client.Object, s *runtime.Scheme) (schema.GroupVersionKind, error) {
	if gvk := obj.GetObjectKind().GroupVersionKind(); gvk.Kind != "" {
		return gvk, nil
	}
	gvk, err := apiutil.GVKForObject(obj, s)
	if err != nil {
		return gvk, fmt.Errorf("find the kind of %T: %w", obj, err)
	}
	return gvk, nil
}
