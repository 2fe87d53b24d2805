// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/liqo-go/liqo/internal/await"
	"github.com/liqo-go/liqo/view"
)

// await watches one object, copies it into obj and returns when ok holds for it. After a timeout
// the error says why, from obj and then from the objects in blame.
func (c *cluster) await(ctx context.Context, obj client.Object, ok func() bool, blame ...client.Object) error {
	return c.timedOut(c.until(ctx, obj, ok), append([]client.Object{obj}, blame...)...)
}

// until is await whose error does not say why.
func (c *cluster) until(ctx context.Context, obj client.Object, ok func() bool) error {
	list, err := listFor(obj, c.Scheme())
	if err != nil {
		return err
	}
	defer show(ctx, "")
	return c.follow(ctx, list, func(have await.Objects) bool {
		for _, item := range have {
			reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(item).Elem())
			show(ctx, c.remark(obj))
			return ok()
		}
		show(ctx, c.nameOf(obj)+" does not exist yet")
		return false
	}, await.Only(obj)...)
}

// remark returns an object's name and what its conditions report as wrong.
func (c *cluster) remark(object client.Object) string {
	if problem := view.Problem(object); problem != "" {
		return c.nameOf(object) + ": " + problem
	}
	return c.nameOf(object)
}

// awaitGone watches until the object is gone. If obj has a UID, a new object of the same name
// counts as gone.
func (c *cluster) awaitGone(ctx context.Context, obj client.Object) error {
	list, err := listFor(obj, c.Scheme())
	if err != nil {
		return err
	}
	another := func(o client.Object) bool { return obj.GetUID() != "" && o.GetUID() != obj.GetUID() }
	return c.awaitAll(ctx, list, another, await.Only(obj)...)
}

// awaitNone watches until no object of the list exists.
func (c *cluster) awaitNone(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.awaitAll(ctx, list, func(client.Object) bool { return false }, opts...)
}

// awaitAll watches until ok holds for all objects of the list.
func (c *cluster) awaitAll(
	ctx context.Context, list client.ObjectList, ok func(client.Object) bool, opts ...client.ListOption,
) error {
	defer show(ctx, "")
	var left []client.Object
	err := c.follow(ctx, list, func(have await.Objects) bool {
		left = slices.DeleteFunc(have.Sorted(), ok)
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

// follow watches the objects of one list until done holds for them.
func (c *cluster) follow(
	ctx context.Context, list client.ObjectList, done func(await.Objects) bool, opts ...client.ListOption,
) error {
	err := await.Until(ctx, c, list, done, opts...)
	if ctx.Err() != nil {
		return err
	}
	return c.listing(list, err)
}

// all lists objects sorted by name. It returns none of a kind that the cluster does not know.
func (c *cluster) all(ctx context.Context, list client.ObjectList, opts ...client.ListOption) ([]client.Object, error) {
	found, err := await.List(ctx, c, list, opts...)
	return found, c.listing(list, err)
}

// list lists objects.
func (c *cluster) list(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.listing(list, c.List(ctx, list, opts...))
}

// listing adds the kind of a list and its cluster to an error.
func (c *cluster) listing(list client.ObjectList, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("list %s of the %scluster: %w", c.kindsOf(list), c.side.clusterPrefix(), err)
}

// kindsOf returns the kind of a list's objects as kubectl takes it.
func (c *cluster) kindsOf(list client.ObjectList) string {
	gvk, err := apiutil.GVKForObject(list, c.Scheme())
	if err != nil {
		return fmt.Sprintf("%T", list)
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk.GroupVersion().WithKind(strings.TrimSuffix(gvk.Kind, "List")))
	return plural.Resource
}

// textsOf returns what text returns for each object.
func textsOf(objects []client.Object, text func(client.Object) string) []string {
	var out []string
	for _, object := range objects {
		out = append(out, text(object))
	}
	return out
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
