// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package packed encodes the objects of caches. An empty Pod of Go takes more than a kilobyte, most
// of it for fields that are not set, and caches hold thousands. An encoded object takes only the
// size of its content, in one piece without pointers, which the garbage collector does not scan.
//
//	watch ─▶ transform ─▶ pack ─▶ cache ─▶ open ─▶ readers
//
// A decoded object is shared until garbage is collected, so that several readers of a changed object
// decode it once. Readers must not change objects in place, as with all caches that do not copy.
package packed

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// object is an encoded object in a cache.
type object struct {
	namespace, name, version string
	kind                     reflect.Type
	data                     []byte
	fresh                    atomic.Pointer[weak.Pointer[runtime.Object]]
}

// keep caches the decoded object until garbage is collected.
func (o *object) keep(decoded runtime.Object) {
	fresh := weak.Make(&decoded)
	o.fresh.Store(&fresh)
}

// GetObjectMeta returns the metadata that caches read: name, namespace and version.
func (o *object) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: o.namespace, Name: o.name, ResourceVersion: o.version}
}

// protobuf is implemented by the kinds of Kubernetes; our own kinds are encoded as JSON.
type protobuf interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// pack encodes an object. It returns unstructured objects, and values that are not objects,
// unchanged.
func pack(obj any) (any, error) {
	switch obj.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadata:
		return obj, nil
	}
	typed, ok := obj.(runtime.Object)
	if !ok {
		return obj, nil
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("pack %T: %w", obj, err)
	}
	out := &object{kind: reflect.TypeOf(obj).Elem()}
	out.keep(typed)
	key := m.GetNamespace() + m.GetName() + m.GetResourceVersion() // one string, so that it is one allocation
	at, to := len(m.GetNamespace()), len(m.GetNamespace())+len(m.GetName())
	out.namespace, out.name, out.version = key[:at], key[at:to], key[to:]
	if encoder, ok := obj.(protobuf); ok {
		out.data, err = encoder.Marshal()
	} else {
		out.data, err = json.Marshal(obj)
	}
	if err != nil {
		return nil, fmt.Errorf("pack %T %s/%s: %w", obj, out.namespace, out.name, err)
	}
	return out, nil
}

// open returns the decoded object; other values are returned unchanged.
func open(obj any) any {
	switch o := obj.(type) {
	case *object:
		return o.open()
	case cache.DeletedFinalStateUnknown:
		return cache.DeletedFinalStateUnknown{Key: o.Key, Obj: open(o.Obj)}
	}
	return obj
}

func (o *object) open() any {
	if fresh := o.fresh.Load().Value(); fresh != nil {
		return *fresh
	}
	out := reflect.New(o.kind).Interface().(runtime.Object) // all packed objects implement it
	var err error
	if decoder, ok := any(out).(protobuf); ok {
		err = decoder.Unmarshal(o.data)
	} else {
		err = json.Unmarshal(o.data, out)
	}
	if err != nil {
		panic(fmt.Sprintf("open %T %s/%s, which was packed here: %v", out, o.namespace, o.name, err))
	}
	o.keep(out)
	return out
}

func openAll(objs []any) []any {
	for i := range objs {
		objs[i] = open(objs[i])
	}
	return objs
}

// Informer returns a cache.NewSharedIndexInformer that encodes its objects.
func Informer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration,
	indexers cache.Indexers) cache.SharedIndexInformer {
	i := informer{cache.NewSharedIndexInformer(lw, example, resync, opening(indexers))}
	if err := i.SetTransform(nil); err != nil {
		panic(err) // it has not started
	}
	return i
}

// InformerOf returns an Informer for objects of the examples' types, and client-go's informer for
// others.
func InformerOf(examples ...runtime.Object) func(cache.ListerWatcher, runtime.Object, time.Duration,
	cache.Indexers) cache.SharedIndexInformer {
	return func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration,
		indexers cache.Indexers) cache.SharedIndexInformer {
		for _, each := range examples {
			if reflect.TypeOf(each) == reflect.TypeOf(example) {
				return Informer(lw, example, resync, indexers)
			}
		}
		return cache.NewSharedIndexInformer(lw, example, resync, indexers)
	}
}

// informer encodes objects after the transform, and decodes them for handlers, indexes and readers.
type informer struct{ cache.SharedIndexInformer }

func (i informer) SetTransform(transform cache.TransformFunc) error {
	return i.SharedIndexInformer.SetTransform(func(obj any) (any, error) {
		if _, done := obj.(*object); done { // transforms may see an object twice
			return obj, nil
		}
		if transform != nil {
			var err error
			if obj, err = transform(obj); err != nil {
				return nil, err
			}
		}
		return pack(obj)
	})
}

func (i informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(handler{h})
}

func (i informer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler,
	period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler{h}, period)
}

func (i informer) AddEventHandlerWithOptions(h cache.ResourceEventHandler,
	options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(handler{h}, options)
}

func (i informer) AddIndexers(indexers cache.Indexers) error {
	return i.SharedIndexInformer.AddIndexers(opening(indexers))
}

func (i informer) GetStore() cache.Store { return i.GetIndexer() }

func (i informer) GetIndexer() cache.Indexer { return indexer{i.SharedIndexInformer.GetIndexer()} }

// handler decodes the objects of events.
type handler struct{ cache.ResourceEventHandler }

func (h handler) OnAdd(obj any, initial bool) { h.ResourceEventHandler.OnAdd(open(obj), initial) }
func (h handler) OnUpdate(before, after any) {
	h.ResourceEventHandler.OnUpdate(open(before), open(after))
}
func (h handler) OnDelete(obj any) { h.ResourceEventHandler.OnDelete(open(obj)) }

// indexer decodes the objects that are read. Only the informer writes to its store.
type indexer struct{ cache.Indexer }

func (i indexer) List() []any { return openAll(i.Indexer.List()) }

func (i indexer) Get(obj any) (any, bool, error) {
	found, exists, err := i.Indexer.Get(obj)
	return open(found), exists, err
}

func (i indexer) GetByKey(key string) (any, bool, error) {
	found, exists, err := i.Indexer.GetByKey(key)
	return open(found), exists, err
}

func (i indexer) ByIndex(name, value string) ([]any, error) {
	found, err := i.Indexer.ByIndex(name, value)
	return openAll(found), err
}

func (i indexer) Index(name string, obj any) ([]any, error) {
	found, err := i.Indexer.Index(name, obj)
	return openAll(found), err
}

// opening makes index functions decode objects. The index by namespace does not need it.
func opening(indexers cache.Indexers) cache.Indexers {
	out := cache.Indexers{}
	for name, of := range indexers {
		if name != cache.NamespaceIndex {
			of = func(obj any) ([]string, error) { return indexers[name](open(obj)) }
		}
		out[name] = of
	}
	return out
}
