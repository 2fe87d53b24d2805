// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/remote"
)

// recentEvents is of how many objects is known what was said last, so that it is counted and not written again.
// Nearly all is said once; of 4096 objects, as by default, it took 1.5 kB of each.
const recentEvents = 256

const (
	// newsRate is how many events that tell of success are written in a second, and newsBurst how many at once:
	// twice what kubelets wrote by default until Kubernetes 1.26. Each costs what a step of a pod costs, and no
	// pod of a thousand waits for them. As with all events, those that a thousand others wait before are dropped.
	newsRate, newsBurst = 10, 20
)

const (
	// shownRate is how many events of a provider are made at home in a second, and shownBurst how many at once: one of
	// each pod when a thousand fail together. With what translate lets through of each (8 kB) and the hour after which
	// API servers remove events by default, a virtual node takes about 300 MB of home's etcd at most, whose own limit
	// is 2 GB by default.
	shownRate, shownBurst = 10, 1000
)

// bound limits what somebody else has us write. Objects that are there are followed at a rate of their own, however
// many others are to be made.
type bound struct {
	made, changed flowcontrol.PassiveRateLimiter
}

func newBound() *bound {
	return &bound{
		made:    flowcontrol.NewTokenBucketPassiveRateLimiter(shownRate, shownBurst),
		changed: flowcontrol.NewTokenBucketPassiveRateLimiter(shownRate, shownBurst),
	}
}

// allows takes one of those that may be made or changed now, if any is left; nil allows everything.
func (b *bound) allows(anew bool) bool {
	switch {
	case b == nil:
		return true
	case anew:
		return b.made.TryAccept()
	}
	return b.changed.TryAccept()
}

// recorders write events at home.
type recorders struct {
	// news are of success and wait for their turn; warnings do not wait for them.
	news, warnings record.EventBroadcaster
}

func newRecorders(ctx context.Context, home *remote.Cluster) (recorders, error) {
	start := func(qps float32, burst int) (record.EventBroadcaster, error) {
		config := rest.CopyConfig(home.RESTConfig)
		config.QPS, config.Burst = qps, burst
		client, err := corev1client.NewForConfigAndClient(config, home.HTTP)
		if err != nil {
			return nil, fmt.Errorf("make client for events of the home cluster: %w", err)
		}
		b := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{LRUCacheSize: recentEvents}))
		b.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.Events("")})
		return b, nil
	}
	news, err := start(newsRate, newsBurst)
	if err != nil {
		return recorders{}, err
	}
	warnings, err := start(shownRate, shownBurst) // the peer's refusals are among them
	if err != nil {
		news.Shutdown()
	}
	return recorders{news, warnings}, err
}

func (r recorders) shutdown() {
	r.news.Shutdown()
	r.warnings.Shutdown()
}

// of gives the writer of a source.
func (r recorders) of(s *runtime.Scheme) func(source string) EventFunc {
	return func(source string) EventFunc {
		from := corev1.EventSource{Component: source}
		news, warnings := r.news.NewRecorder(s, from), r.warnings.NewRecorder(s, from)
		return func(object runtime.Object, level, reason, message string) {
			// Peers write parts of it.
			message = api.Printable(message)
			if level == corev1.EventTypeNormal && reason != reasonDisabled { // which explains what a user misses
				news.Event(object, level, reason, message)
			} else {
				warnings.Event(object, level, reason, message)
			}
		}
	}
}
