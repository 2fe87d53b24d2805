// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"encoding/json"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// statusRate is how many bytes per second the status of one pod at the provider may write to
	// the local cluster. statusBurst is how many bytes it may write at once. etcd keeps every
	// revision for up to ten minutes, because API servers compact it every five. So a thousand pods
	// take about 1.1 GB of the local etcd at most, whose default limit is 2 GB. A pod has about 8
	// kB: it may change 64 times at once, where a pod that starts and ends changes six times.
	statusRate, statusBurst = 1 << 10, 512 << 10
	// specSize estimates the size of a pod's spec, which etcd stores with every status but is not
	// known here.
	specSize = 4 << 10

	// answerRate is how many states per second of one remote object other than a pod are written to
	// the local cluster. answerBurst is how many may be written at once. A state larger than
	// answerSize, in bytes, counts as several. Managed fields may repeat each key, so one object
	// takes at most 2.5 MiB of the local etcd in a minute: 80 states of twice answerSize.
	answerRate, answerBurst, answerSize = 1, 20, 16 << 10
	// peerRate and peerBurst limit all objects of an engine except pods. A peer has two such
	// engines: that of the replication, and that of claims in one of its virtual kubelets. Together
	// they write 100 states a second.
	peerRate, peerBurst = 50, 50
	// peerRetry is the least time until an object that waits for others is retried: there may be
	// thousands.
	peerRetry = time.Second
)

// budget limits how much a peer can cause to be written into each local object, independently of
// the others.
type budget struct {
	// rate is the amount per second, and burst the amount at once, both in the unit of cost.
	rate, burst float64
	cost        func(client.Object) float64
	// all limits all objects together; nil = each object has only its own limit.
	all *budget

	mu   sync.Mutex
	left map[types.NamespacedName]savings
}

// savings holds the amount an object had left at a time. An unknown object has all of burst.
type savings struct {
	amount float64
	at     time.Time
}

// podBudget returns the budget of pods, in bytes.
func podBudget() *budget {
	return &budget{rate: statusRate, burst: statusBurst, cost: podSize, left: map[types.NamespacedName]savings{}}
}

func podSize(obj client.Object) float64 {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return 0
	}
	return float64(pod.Size() + specSize)
}

// peerBudget returns the budget that all objects of an engine except pods share, in answers.
func peerBudget() *budget {
	return &budget{rate: peerRate, burst: peerBurst, left: map[types.NamespacedName]savings{}}
}

// answerBudget returns the budget of a kind other than pods, in answers.
func answerBudget(all *budget) *budget {
	return &budget{rate: answerRate, burst: answerBurst, cost: answers, all: all,
		left: map[types.NamespacedName]savings{}}
}

// answers returns how many answers an object counts as: one for each answerSize, at least one.
func answers(obj client.Object) float64 {
	text, err := json.Marshal(obj)
	if err != nil {
		return answerBurst // an object that cannot be encoded is not written either
	}
	return max(1, float64(len(text))/answerSize)
}

// wait takes the cost of writing an object from its budget, and returns 0. If too little is left,
// it takes nothing and returns the time after which to retry with the state of then. A nil budget
// never waits.
func (b *budget) wait(key types.NamespacedName, obj client.Object, now time.Time) time.Duration {
	if b == nil {
		return 0
	}
	return b.take(key, b.cost(obj), now)
}

func (b *budget) take(key types.NamespacedName, cost float64, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.burst
	if had, known := b.left[key]; known {
		left = min(left, had.amount+now.Sub(had.at).Seconds()*b.rate)
	}
	cost = min(cost, b.burst) // an object larger than burst is written, too
	if left < cost {
		return max(time.Duration((cost-left)/b.rate*float64(time.Second)), time.Millisecond)
	}
	if b.all != nil {
		if wait := b.all.take(types.NamespacedName{}, cost, now); wait > 0 {
			return max(wait, peerRetry)
		}
	}
	b.left[key] = savings{left - cost, now}
	return 0
}

// forget drops the state of an object that no longer exists.
func (b *budget) forget(key types.NamespacedName) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.left, key)
}
