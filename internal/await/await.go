// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package await waits until the objects of a list are as wanted. It lists them and then watches
// from that version on; it does not say why they are not as wanted. Start with Until.
package await

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// relistAfter is the pause before the next list after a watch broke or a request failed.
const relistAfter = 500 * time.Millisecond

// Objects holds the objects of one list by their UID.
type Objects map[types.UID]client.Object

// Sorted returns the objects in the order of their namespaces and names.
func (o Objects) Sorted() []client.Object {
	return slices.SortedFunc(maps.Values(o), func(a, b client.Object) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
}

func (o Objects) put(object runtime.Object) {
	if object, ok := object.(client.Object); ok {
		o[object.GetUID()] = object
	}
}

// objectsOf returns the objects of a list.
func objectsOf(list client.ObjectList) (Objects, error) {
	out := Objects{}
	return out, meta.EachListItem(list, func(object runtime.Object) error {
		out.put(object)
		return nil
	})
}

// List lists objects in the order of their namespaces and names. A kind that the cluster does not
// know has none.
func List(
	ctx context.Context, c client.Reader, list client.ObjectList, opts ...client.ListOption,
) ([]client.Object, error) {
	err := c.List(ctx, list, opts...)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := objectsOf(list)
	return found.Sorted(), err
}

// Only selects one object by its name.
func Only(object client.Object) []client.ListOption {
	return []client.ListOption{
		client.InNamespace(object.GetNamespace()), client.MatchingFields{metav1.ObjectNameField: object.GetName()}}
}

// Until lists and watches until done holds for the objects of the list. If the watch is forbidden
// it lists again and again; if the list is too, it reads the one object that opts select by name.
// It retries other errors, but returns those that a retry cannot heal, and the cause of the end of
// ctx.
func Until(
	ctx context.Context, c client.WithWatch, list client.ObjectList, done func(Objects) bool, opts ...client.ListOption,
) error {
	for {
		finished, err := once(ctx, c, list, done, opts)
		switch {
		case finished:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case meta.IsNoMatchError(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err),
			runtime.IsNotRegisteredError(err):
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(relistAfter):
		}
	}
}

// errPoll reports that this user may list, but not watch.
var errPoll = errors.New("watch forbidden")

// once lists, then watches from there until done holds or the watch ends.
func once(
	ctx context.Context, c client.WithWatch, list client.ObjectList, done func(Objects) bool, opts []client.ListOption,
) (bool, error) {
	have, err := listOrGet(ctx, c, list, opts)
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
			if object, ok := event.Object.(client.Object); ok {
				delete(have, object.GetUID())
			}
		case watch.Error:
			return false, apierrors.FromObject(event.Object)
		}
		if done(have) {
			return true, nil
		}
	}
	return false, nil
}

// listOrGet lists objects. If the user may not list, it reads the single object that opts select.
func listOrGet(
	ctx context.Context, c client.Client, list client.ObjectList, opts []client.ListOption,
) (Objects, error) {
	have := Objects{}
	err := c.List(ctx, list, opts...)
	if apierrors.IsForbidden(err) {
		switch found, got := getOnly(ctx, c, list, opts); {
		case got == nil:
			have.put(found)
			return have, nil
		case apierrors.IsNotFound(got):
			return have, nil
		case ctx.Err() != nil:
			return nil, got // ctx has ended; the forbidden list is already handled
		}
	}
	if err != nil {
		return nil, err
	}
	return objectsOf(list)
}

// errNotOne reports that a list is not limited to one object by its name.
var errNotOne = errors.New("not a single object")

// getOnly reads the object that opts select by its name.
func getOnly(
	ctx context.Context, c client.Client, list client.ObjectList, opts []client.ListOption,
) (client.Object, error) {
	wanted := (&client.ListOptions{}).ApplyOptions(opts)
	if wanted.FieldSelector == nil {
		return nil, errNotOne
	}
	name, ok := wanted.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
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
