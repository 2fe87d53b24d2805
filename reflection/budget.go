// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// statusRate is how many bytes of pods a provider has home write in a second by what it says of one of them, and
	// statusBurst how many at once: etcd keeps every state for up to ten minutes (API servers compact it every five),
	// so a thousand pods take about 1.1 GB of home's at most, whose own limit is 2 GB by default. A pod has about
	// 8 kB: it may change 64 times at once, where one that starts and ends changes six times.
	statusRate, statusBurst = 1 << 10, 512 << 10
	// specSize stands for the spec of a pod, which is not known when its status is written, but written with it.
	specSize = 4 << 10
)

// budget limits what somebody else has us write into each pod, however much is written into others.
type budget struct {
	mu   sync.Mutex
	left map[types.NamespacedName]savings
}

// savings is how many bytes a pod had left at a time. A pod that is not known has all of statusBurst.
type savings struct {
	bytes float64
	at    time.Time
}

func newBudget() *budget { return &budget{left: map[types.NamespacedName]savings{}} }

// allows takes what writing a pod costs from what is left of it, if that is enough; nil allows everything.
func (b *budget) allows(key types.NamespacedName, obj client.Object, now time.Time) bool {
	pod, ok := obj.(*corev1.Pod)
	if b == nil || !ok {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	left := float64(statusBurst)
	if had, known := b.left[key]; known {
		left = min(left, had.bytes+now.Sub(had.at).Seconds()*statusRate)
	}
	cost := float64(min(pod.Size()+specSize, statusBurst))
	if left < cost {
		return false
	}
	b.left[key] = savings{left - cost, now}
	return true
}

// forget forgets a pod that is no more.
func (b *budget) forget(key types.NamespacedName) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.left, key)
}
