// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// All maps any change to every root, or to those the options leave; prototype is an empty list of
// the root's kind.
func All(prototype client.ObjectList, options ...client.ListOption) MapFunc {
	return func(ctx context.Context, r client.Reader, _ client.Object) []reconcile.Request {
		return Roots(ctx, r, prototype, options...)
	}
}

// Where maps a change to the roots that match it.
func Where[R client.Object](prototype client.ObjectList, match func(changed client.Object, root R) bool) MapFunc {
	return func(ctx context.Context, r client.Reader, changed client.Object) []reconcile.Request {
		return rootsWhere(ctx, r, prototype, func(root client.Object) bool { return match(changed, root.(R)) })
	}
}

// SameLabel maps a change to the roots that have the same value of label as the changed object.
func SameLabel(prototype client.ObjectList, label string) MapFunc {
	return func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
		value, ok := obj.GetLabels()[label]
		if !ok {
			return nil
		}
		return Roots(ctx, r, prototype, client.MatchingLabels{label: value})
	}
}

// SameNamespace maps a change to the roots in the changed object's namespace.
func SameNamespace(prototype client.ObjectList) MapFunc {
	return func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
		return Roots(ctx, r, prototype, client.InNamespace(obj.GetNamespace()))
	}
}

// SameName maps a change to the root that has the changed object's namespace and name.
func SameName(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}}
}

// Roots lists the roots that the options leave, in the cache of the roots.
func Roots(
	ctx context.Context, r client.Reader, prototype client.ObjectList, opts ...client.ListOption,
) []reconcile.Request {
	return rootsWhere(ctx, r, prototype, func(client.Object) bool { return true }, opts...)
}

func rootsWhere(
	ctx context.Context, r client.Reader, prototype client.ObjectList, match func(client.Object) bool,
	opts ...client.ListOption,
) []reconcile.Request {
	roots := reflect.New(reflect.TypeOf(prototype).Elem()).Interface().(client.ObjectList)
	if err := r.List(ctx, roots, append(opts, client.UnsafeDisableDeepCopy)...); err != nil { // they are only read
		log.FromContext(ctx).Error(err, "list roots")
		return nil
	}
	var requests []reconcile.Request
	err := meta.EachListItem(roots, func(item runtime.Object) error {
		if root := item.(client.Object); match(root) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(root)})
		}
		return nil
	})
	if err != nil {
		log.FromContext(ctx).Error(err, "walk roots")
	}
	return requests
}

// Optional reads an object that need not exist; nil if it does not.
func Optional[T client.Object](ctx context.Context, r client.Reader, key types.NamespacedName, into T) (T, error) {
	err := r.Get(ctx, key, into)
	if client.IgnoreNotFound(err) != nil {
		return into, fmt.Errorf("get %T %s: %w", into, key, err)
	}
	if err != nil {
		var none T
		return none, nil
	}
	return into, nil
}
