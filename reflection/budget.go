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
	// statusRate is how many bytes of pods a provider has home write in a second by what it says of one of them, and
	// statusBurst how many at once: etcd keeps every state for up to ten minutes (API servers compact it every five),
	// so a thousand pods take about 1.1 GB of home's at most, whose own limit is 2 GB by default. A pod has about
	// 8 kB: it may change 64 times at once, where one that starts and ends changes six times.
	statusRate, statusBurst = 1 << 10, 512 << 10
	// specSize stands for the spec of a pod, which is not known when its status is written, but written with it.
	specSize = 4 << 10

	// answerRate is how many states of one object that is not a pod a provider has home write in a second, and
	// answerBurst how many at once. One larger than answerSize, in bytes, counts as several. Managed fields may name
	// each key again, so that one object takes at most 2.5 MiB of home's etcd in a minute: 80 states of twice
	// answerSize.
	answerRate, answerBurst, answerSize = 1, 20, 16 << 10
	// peerRate and peerBurst are the same for all objects of an engine that are not pods. A peer has two such engines:
	// that of the replication, and that of claims in one of its virtual kubelets. Together they write 100 a second.
	peerRate, peerBurst = 50, 50
	// peerRetry is the least time until an object is looked at again that waits for others: there may be thousands.
	peerRetry = time.Second
)

// budget limits what somebody else has us write into each object, however much is written into others.
type budget struct {
	// rate is how much may be written in a second, and burst how much at once, counted as cost does.
	rate, burst float64
	cost        func(client.Object) float64
	// all limits all objects together; nil = each has what is its own.
	all *budget

	mu   sync.Mutex
	left map[types.NamespacedName]savings
}

// savings is how much an object had left at a time. An object that is not known has all of burst.
type savings struct {
	amount float64
	at     time.Time
}

// podBudget is the budget of pods, in bytes.
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

// peerBudget is the budget of all objects of an engine that are not pods, in answers.
func peerBudget() *budget {
	return &budget{rate: peerRate, burst: peerBurst, left: map[types.NamespacedName]savings{}}
}

// answerBudget is the budget of a kind other than pods, in answers.
func answerBudget(all *budget) *budget {
	return &budget{rate: answerRate, burst: answerBurst, cost: answers, all: all,
		left: map[types.NamespacedName]savings{}}
}

// answers is how many answers an object counts as: one for each answerSize, at least one.
func answers(obj client.Object) float64 {
	text, err := json.Marshal(obj)
	if err != nil {
		return answerBurst // what cannot be encoded is not written either
	}
	return max(1, float64(len(text))/answerSize)
}

// wait takes what writing an object costs from what is left of it, and returns 0. If that is not enough it takes
// nothing, and returns the time after which the object, as it is by then, is to be tried again; nil never waits.
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
	cost = min(cost, b.burst) // what is larger is written, too
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

// forget forgets an object that is no more.
func (b *budget) forget(key types.NamespacedName) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.left, key)
}
