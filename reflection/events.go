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

// recentEvents is the number of objects whose last event is cached, so that a repetition is counted
// instead of written. Nearly all events occur once. With client-go's default of 4096 objects, the
// cache took 1.5 kB for each.
const recentEvents = 256

const (
	// newsRate is how many events about success are written per second, and newsBurst how many at
	// once. Each costs as much as a step of a pod's start, no pod waits for them, and in a burst
	// they all say the same. Events are dropped while a thousand others are queued.
	newsRate, newsBurst = 1, 20
)

const (
	// shownRate is how many events of a provider are created locally per second, and shownBurst how
	// many at once: one of each pod when a thousand fail together. Each has at most 8 kB (see
	// translate), and API servers delete events after an hour by default. So a virtual node takes
	// about 300 MB of the local etcd at most, whose default limit is 2 GB.
	shownRate, shownBurst = 10, 1000
)

// writeLimit limits the rate at which a peer can cause writes. Changes of existing objects have a
// rate of their own, however many others are to be created.
type writeLimit struct {
	made, changed flowcontrol.PassiveRateLimiter
}

func newWriteLimit() *writeLimit {
	return &writeLimit{
		made:    flowcontrol.NewTokenBucketPassiveRateLimiter(shownRate, shownBurst),
		changed: flowcontrol.NewTokenBucketPassiveRateLimiter(shownRate, shownBurst),
	}
}

// allows reports whether an object may be created or changed now, and counts it; nil allows
// everything.
func (l *writeLimit) allows(isNew bool) bool {
	switch {
	case l == nil:
		return true
	case isNew:
		return l.made.TryAccept()
	}
	return l.changed.TryAccept()
}

// recorders write events to the local cluster.
type recorders struct {
	// news records events about success, which are rate limited; warnings do not wait for them.
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
		recent := record.CorrelatorOptions{LRUCacheSize: recentEvents}
		b := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(recent))
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

// of returns the function that makes event writers by source.
func (r recorders) of(s *runtime.Scheme) func(source string) EventFunc {
	return func(source string) EventFunc {
		from := corev1.EventSource{Component: source}
		news, warnings := r.news.NewRecorder(s, from), r.warnings.NewRecorder(s, from)
		return func(object runtime.Object, level, reason, message string) {
			// Peers write parts of the message.
			message = api.Printable(message)
			if level == corev1.EventTypeNormal && reason != reasonDisabled { // Disabled explains a missing object
				news.Event(object, level, reason, message)
			} else {
				warnings.Event(object, level, reason, message)
			}
		}
	}
}
