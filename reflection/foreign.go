// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/reflection/translate"
)

// foreign knows which names of local objects the peer has given to objects of its own, as far as this process has
// tried to make the remote ones. The engine of what lies in namespaces finds it out, that of pods says it.
type foreign struct {
	mu      sync.Mutex
	since   map[string]map[string]metav1.Time // by local namespace and translate.Reference; zero = not any more
	changed func(namespace string)
}

// note notes whether a name belongs to the peer. Nil notes nothing.
func (f *foreign) note(kind string, key types.NamespacedName, taken bool) {
	if f == nil {
		return
	}
	r := translate.Reference(kind, key.Name)
	f.mu.Lock()
	was := f.since[key.Namespace][r]
	switch {
	case !taken:
		f.set(key.Namespace, r, metav1.Time{})
	case was.IsZero():
		f.set(key.Namespace, r, metav1.Now().Rfc3339Copy())
	}
	f.mu.Unlock()
	if was.IsZero() == taken {
		f.changed(key.Namespace)
	}
}

// forget forgets a local object that is gone. What pods say of it stays.
func (f *foreign) forget(kind string, key types.NamespacedName) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.since[key.Namespace], translate.Reference(kind, key.Name))
}

// of tells since when the peer has objects of its own under names of those that a pod uses; nil = never. What a pod
// says already holds until the remote object is ours: after a start it is found out again.
func (f *foreign) of(pod *corev1.Pod) (out map[string]metav1.Time) {
	says := translate.ForeignObjects(pod)
	f.mu.Lock()
	defer f.mu.Unlock()
	if says == "" && len(f.since[pod.Namespace]) == 0 {
		return nil
	}
	for _, r := range translate.References(&pod.Spec) {
		since, known := f.since[pod.Namespace][r]
		if !known && strings.Contains(says, r) {
			since = metav1.Now().Rfc3339Copy()
			f.set(pod.Namespace, r, since)
		}
		if !since.IsZero() {
			out = with(out, r, since)
		}
	}
	return out
}

func (f *foreign) set(namespace, r string, since metav1.Time) {
	f.since[namespace] = with(f.since[namespace], r, since)
}

func with(m map[string]metav1.Time, key string, value metav1.Time) map[string]metav1.Time {
	if m == nil {
		m = map[string]metav1.Time{}
	}
	m[key] = value
	return m
}
