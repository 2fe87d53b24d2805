// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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
	list, err := listFor(obj, c.Scheme())
	if err != nil {
		return err
	}
	err = c.follow(ctx, list, func(have items) bool {
		for _, item := range have {
			reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(item).Elem())
			return ok()
		}
		return false
	}, client.InNamespace(obj.GetNamespace()), client.MatchingFields{"metadata.name": obj.GetName()})
	return c.timedOut(err, append([]client.Object{obj}, blame...)...)
}

// awaitGone watches until the object does not exist.
func (c *cluster) awaitGone(ctx context.Context, obj client.Object) error {
	list, err := listFor(obj, c.Scheme())
	if err != nil {
		return err
	}
	return c.awaitNone(ctx, list, client.InNamespace(obj.GetNamespace()),
		client.MatchingFields{"metadata.name": obj.GetName()})
}

// awaitNone watches until no object of the list exists.
func (c *cluster) awaitNone(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var left client.Object
	err := c.follow(ctx, list, func(have items) bool {
		for _, left = range have {
			return false
		}
		return true
	}, opts...)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if left != nil {
		return c.timedOut(err, left)
	}
	return err
}

// follow watches the objects of one list until done holds for them.
func (c *cluster) follow(ctx context.Context, list client.ObjectList, done func(items) bool, opts ...client.ListOption) error {
	for {
		finished, err := c.followOnce(ctx, list, done, opts)
		switch {
		case finished:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case meta.IsNoMatchError(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), runtime.IsNotRegisteredError(err):
			return fmt.Errorf("list %T: %w", list, err)
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
	if err := c.List(ctx, list, opts...); err != nil {
		return false, err
	}
	have := items{}
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		have.put(o)
		return nil
	}); err != nil {
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

func (i items) put(o runtime.Object) {
	if object, ok := o.(client.Object); ok {
		i[object.GetUID()] = object
	}
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
