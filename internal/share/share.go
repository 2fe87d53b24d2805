// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package share lets objects in caches keep one copy of what they have in common: a thousand pods of one
// Deployment differ in names and times only, yet each was decoded with labels, variables and words of its own.
//
// No object's value changes. What is shared must not be changed in place, which nobody does with objects in
// caches; copies of them share nothing.
package share

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// longest is the length of texts and encoded parts that are shared: longer ones are seldom equal.
	longest = 512
	// most is how many parts of a sort are known at once. When there are more all are forgotten, so that what
	// is gone is not kept; those who share something go on to.
	most = 256
)

// parts are the types of which equal ones are often found in many objects, as what a pointer leads to or as
// elements of a slice.
var parts = map[reflect.Type]bool{
	reflect.TypeFor[corev1.Affinity]():                      true,
	reflect.TypeFor[corev1.ConfigMapProjection]():           true,
	reflect.TypeFor[corev1.Container]():                     true,
	reflect.TypeFor[corev1.ContainerPort]():                 true,
	reflect.TypeFor[corev1.DownwardAPIProjection]():         true,
	reflect.TypeFor[corev1.EnvVar]():                        true,
	reflect.TypeFor[corev1.KeyToPath]():                     true,
	reflect.TypeFor[corev1.PodSecurityContext]():            true,
	reflect.TypeFor[corev1.Probe]():                         true,
	reflect.TypeFor[corev1.SecurityContext]():               true,
	reflect.TypeFor[corev1.ServiceAccountTokenProjection](): true,
	reflect.TypeFor[corev1.Toleration]():                    true,
	reflect.TypeFor[corev1.TopologySpreadConstraint]():      true,
	reflect.TypeFor[corev1.VolumeMount]():                   true,
	reflect.TypeFor[corev1.VolumeProjection]():              true,
	reflect.TypeFor[metav1.FieldsV1]():                      true,
	reflect.TypeFor[metav1.ManagedFieldsEntry]():            true,
	reflect.TypeFor[metav1.OwnerReference]():                true,
}

// Pool remembers parts of objects it has seen. The zero value is empty and ready; safe for concurrent use.
type Pool struct {
	mu    sync.Mutex
	key   []byte // of what is looked for
	texts map[string]string
	maps  map[string]map[string]string
	lists map[string]corev1.ResourceList
	parts map[string]reflect.Value // by type and encoding
}

// Object makes an object use what objects before it had in the same form. It is nobody else's yet.
func (p *Pool) Object(obj client.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.visit(reflect.ValueOf(obj))
}

// Amounts gives the list that others of the same amounts got, which must not be changed. m is nobody else's yet.
func (p *Pool) Amounts(m corev1.ResourceList) corev1.ResourceList {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.amounts(m)
}

func (p *Pool) visit(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			p.visit(v.Elem())
			p.share(v)
		}
	case reflect.Struct:
		if meta, ok := v.Addr().Interface().(*metav1.ObjectMeta); ok {
			p.meta(meta)
			return
		}
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() {
				p.visit(field)
			}
		}
	case reflect.Slice:
		if v.Len() == 0 || v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			p.visit(v.Index(i))
		}
		p.share(v)
	case reflect.String:
		if text := v.String(); text != "" && len(text) <= longest {
			v.SetString(p.text(text))
		}
	case reflect.Map:
		switch m := v.Interface().(type) {
		case map[string]string:
			v.Set(reflect.ValueOf(p.words(m)))
		case corev1.ResourceList:
			v.Set(reflect.ValueOf(p.amounts(m)))
		}
	}
}

// meta leaves out what no two objects have in common.
func (p *Pool) meta(m *metav1.ObjectMeta) {
	m.Namespace, m.Labels, m.Annotations = p.text(m.Namespace), p.words(m.Labels), p.words(m.Annotations)
	p.visit(reflect.ValueOf(&m.OwnerReferences).Elem())
	p.visit(reflect.ValueOf(&m.ManagedFields).Elem())
	for i := range m.Finalizers {
		m.Finalizers[i] = p.text(m.Finalizers[i])
	}
}

// text is the copy of a text that all have.
func (p *Pool) text(text string) string {
	if have, ok := p.texts[text]; ok {
		return have
	}
	note(&p.texts, text, text)
	return text
}

// words is the copy of labels or annotations that all have.
func (p *Pool) words(m map[string]string) map[string]string {
	if len(m) == 0 {
		return m
	}
	p.key = p.key[:0]
	for _, k := range slices.Sorted(maps.Keys(m)) {
		p.key = append(append(append(append(p.key, k...), 0), m[k]...), 0)
	}
	if len(p.key) > longest {
		return m
	}
	if have, ok := p.maps[string(p.key)]; ok {
		return have
	}
	for k, v := range m {
		m[p.text(k)] = p.text(v)
	}
	note(&p.maps, string(p.key), m)
	return m
}

// amounts is the copy of requests or limits that all have.
func (p *Pool) amounts(m corev1.ResourceList) corev1.ResourceList {
	if len(m) == 0 {
		return m
	}
	p.key = p.key[:0]
	for _, name := range slices.Sorted(maps.Keys(m)) {
		amount := m[name]
		p.key = append(append(p.key, name...), 0)
		p.key = append(append(append(p.key, amount.Format...), 0), amount.String()...)
		p.key = append(p.key, 0)
	}
	if len(p.key) > longest {
		return m
	}
	if have, ok := p.lists[string(p.key)]; ok {
		return have
	}
	note(&p.lists, string(p.key), m)
	return m
}

// share replaces what a pointer leads to, or a slice, by the copy that all have.
func (p *Pool) share(v reflect.Value) {
	if !parts[v.Type().Elem()] || !v.CanSet() || !p.encode(v) {
		return
	}
	if have, ok := p.parts[string(p.key)]; ok {
		v.Set(have)
		return
	}
	note(&p.parts, string(p.key), reflect.ValueOf(v.Interface()))
}

// encoder is what all parts are.
type encoder interface {
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
}

// encode makes a key that is equal for equal parts and differs for different ones, and reports whether it is
// short enough.
func (p *Pool) encode(v reflect.Value) bool {
	p.key = append(p.key[:0], v.Type().Elem().Name()...)
	if v.Kind() == reflect.Pointer {
		return p.append(v.Interface())
	}
	p.key = append(p.key, "[]"...)
	for i := range v.Len() {
		if !p.append(v.Index(i).Addr().Interface()) {
			return false
		}
	}
	return true
}

// append adds the encoding of one part to the key, behind its length.
func (p *Pool) append(part any) bool {
	e, ok := part.(encoder)
	if !ok {
		return false
	}
	size, at := e.Size(), len(p.key)+2
	if at+size > longest {
		return false
	}
	p.key = slices.Grow(append(p.key, byte(size), byte(size>>8)), size)[:at+size]
	n, err := e.MarshalToSizedBuffer(p.key[at:])
	return err == nil && n == size
}

// note remembers something new.
func note[T any](table *map[string]T, key string, part T) {
	if *table == nil || len(*table) >= most {
		*table = map[string]T{}
	}
	(*table)[key] = part
}
