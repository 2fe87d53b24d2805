// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/reflection/translate"
)

// foreign records which names of local objects the provider uses for objects of its own. The engine
// of namespaced objects reports them when it creates remote objects; the engine of pods reads them.
type foreign struct {
	mu      sync.Mutex
	since   map[string]map[translate.Reference]metav1.Time // by local namespace; a missing entry = not foreign
	changed func(namespace string)
}

// note records whether a name belongs to the provider. On nil it does nothing.
func (f *foreign) note(kind string, key types.NamespacedName, taken bool) {
	if f == nil {
		return
	}
	r := translate.Reference{Kind: kind, Name: key.Name}
	f.mu.Lock()
	_, was := f.since[key.Namespace][r]
	switch {
	case taken && !was:
		f.set(key.Namespace, r, metav1.Now().Rfc3339Copy())
	case !taken:
		delete(f.since[key.Namespace], r)
	}
	f.mu.Unlock()
	if was != taken {
		f.changed(key.Namespace)
	}
}

// restore records the foreign objects that the conditions of pods name, if their kinds are
// reflected. So a restart does not change the conditions. An engine that opens a namespace checks
// each name again.
func (f *foreign) restore(pods []corev1.Pod, reflectors map[string]offv1beta1.ReflectorConfig) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range pods {
		said := translate.ForeignObjects(&pods[i])
		for _, r := range translate.References(&pods[i].Spec) {
			if strings.Contains(said, r.String()) && reflectors[strings.ToLower(r.Kind)].Workers > 0 {
				f.set(pods[i].Namespace, r, metav1.Now().Rfc3339Copy())
			}
		}
	}
}

// clear removes everything: another process may reflect now, and would not report changes to this
// one.
func (f *foreign) clear() {
	f.mu.Lock()
	namespaces := slices.Collect(maps.Keys(f.since))
	clear(f.since)
	f.mu.Unlock()
	for _, namespace := range namespaces {
		f.changed(namespace)
	}
}

// names returns the names of a kind in a local namespace that belong to the provider. On nil it
// returns nothing.
func (f *foreign) names(kind, namespace string) (out []string) {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.since[namespace] {
		if r.Kind == kind {
			out = append(out, r.Name)
		}
	}
	return out
}

// of returns the objects of the provider that a pod uses, by the text of their Reference, and since
// when; nil = none.
func (f *foreign) of(pod *corev1.Pod) (out map[string]metav1.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.since[pod.Namespace]) == 0 {
		return nil
	}
	for _, r := range translate.References(&pod.Spec) {
		if since, is := f.since[pod.Namespace][r]; is {
			if out == nil {
				out = map[string]metav1.Time{}
			}
			out[r.String()] = since
		}
	}
	return out
}

// set records a name. f is locked.
func (f *foreign) set(namespace string, r translate.Reference, since metav1.Time) {
	if f.since[namespace] == nil {
		f.since[namespace] = map[translate.Reference]metav1.Time{}
	}
	f.since[namespace][r] = since
}
