// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
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
	since   map[foreignName]metav1.Time
	changed func(namespace string)
}

// foreignName identifies a local object.
type foreignName struct {
	namespace string
	translate.Reference
}

// note records whether a name belongs to the provider. On nil it does nothing.
func (f *foreign) note(kind string, key types.NamespacedName, taken bool) {
	if f == nil {
		return
	}
	name := foreignName{key.Namespace, translate.Reference{Kind: kind, Name: key.Name}}
	f.mu.Lock()
	_, was := f.since[name]
	switch {
	case taken && !was:
		f.since[name] = metav1.Now().Rfc3339Copy()
	case !taken:
		delete(f.since, name)
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
		message := translate.ForeignObjects(&pods[i])
		for _, r := range translate.References(&pods[i].Spec) {
			if strings.Contains(message, r.String()) && reflectors[strings.ToLower(r.Kind)].Workers > 0 {
				f.since[foreignName{pods[i].Namespace, r}] = metav1.Now().Rfc3339Copy()
			}
		}
	}
}

// clear removes everything: another process may reflect now, and would not report changes to this
// one.
func (f *foreign) clear() {
	namespaces := map[string]bool{}
	f.mu.Lock()
	for name := range f.since {
		namespaces[name.namespace] = true
	}
	clear(f.since)
	f.mu.Unlock()
	for namespace := range namespaces {
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
	for name := range f.since {
		if name.Kind == kind && name.namespace == namespace {
			out = append(out, name.Name)
		}
	}
	return out
}

// of returns the objects of the provider that a pod uses, by the text of their Reference, and since
// when; nil = none.
func (f *foreign) of(pod *corev1.Pod) (out map[string]metav1.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.since) == 0 {
		return nil
	}
	for _, r := range translate.References(&pod.Spec) {
		if since, is := f.since[foreignName{pod.Namespace, r}]; is {
			if out == nil {
				out = map[string]metav1.Time{}
			}
			out[r.String()] = since
		}
	}
	return out
}
