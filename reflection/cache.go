// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/internal/packed"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/reflection/translate"
)

// contents describes what a cache holds, by kind.
type contents map[client.Object]content

// content describes the objects of one kind in a cache: those that marks and fields select, reduced
// by trim. A nil field does not restrict anything.
type content struct {
	selector labels.Selector
	fields   fields.Selector
	trim     func(client.Object)
}

// newCache makes a cache of one namespace. Its objects are shared: readers must not change them.
func newCache(c *remote.Cluster, namespace string, kinds contents) (cache.Cache, error) {
	byObject := map[client.Object]cache.ByObject{}
	for kind, content := range kinds {
		byObject[kind] = cache.ByObject{
			Label: content.selector, Field: content.fields, Transform: trimming(content.trim),
		}
	}
	return c.NewCache(cache.Options{
		DefaultNamespaces:            map[string]cache.Config{namespace: {}},
		ByObject:                     byObject,
		DefaultTransform:             trimming(nil),
		DefaultUnsafeDisableDeepCopy: new(true),
		NewInformer:                  packed.Informer,
	})
}

// mapperOf maps the kinds of a scheme, and custom resources.
func mapperOf(s *runtime.Scheme, custom []CustomResource) meta.RESTMapper {
	mapper := remote.StaticMapper(s)
	for _, resource := range custom {
		resource.add(mapper)
	}
	return mapper
}

// trimming returns a transform that keeps only the managed fields that record which labels and
// annotations of a remote object came from the consumer. It also calls trim; nil = nothing more.
func trimming(trim func(client.Object)) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		o, ok := obj.(client.Object)
		if !ok {
			return obj, nil
		}
		o.SetManagedFields(translate.OwnKeys(o.GetManagedFields()))
		if trim != nil {
			trim(o)
		}
		return o, nil
	}
}
