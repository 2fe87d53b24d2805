// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/view"
)

const (
	// sampled is how often the counters of gateways are read while a page is open.
	sampled = 5 * time.Second
	// sampleTime bounds the answer of one gateway, and maxSamples the requests at a time.
	sampleTime = 3 * time.Second
	maxSamples = 8
	// refusal is how long a gateway that the user may not read is left alone.
	refusal = 5 * time.Minute
)

// meter measures how many bytes tunnels carry, from the metrics of gateways. Its functions can be called by several
// goroutines, except measure.
type meter struct {
	// read returns the metrics that a gateway pod serves.
	read func(context.Context, *corev1.Pod) ([]byte, error)
	// last holds the last counters of each pod, and refused until when a pod is left alone.
	last    map[types.UID]counters
	refused map[types.UID]time.Time

	mu    sync.Mutex
	rates map[string]view.Traffic
}

// counters holds the bytes that a gateway has carried at a time.
type counters struct {
	received, sent float64
	at             time.Time
}

func newMeter(read func(context.Context, *corev1.Pod) ([]byte, error)) *meter {
	return &meter{read: read, last: map[types.UID]counters{}, refused: map[types.UID]time.Time{}}
}

// traffic returns the rates by cluster ID. A peer is missing if its rate is not known.
func (m *meter) traffic() map[string]view.Traffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rates
}

// measure reads gateways and reports whether the rates have changed. Those of a gateway are known once it
// was read twice.
func (m *meter) measure(ctx context.Context, pods []corev1.Pod) bool {
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool {
		return time.Now().Before(m.refused[pod.UID])
	})
	last, rates := map[types.UID]counters{}, map[string]view.Traffic{}
	var running sync.WaitGroup
	var mu sync.Mutex
	places := make(chan struct{}, maxSamples)
	for i := range pods {
		pod := &pods[i]
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			now, err := m.sample(ctx, pod)
			mu.Lock()
			defer mu.Unlock()
			if apierrors.IsForbidden(err) {
				m.refused[pod.UID] = time.Now().Add(refusal)
			}
			if err != nil {
				return
			}
			last[pod.UID] = now
			if rate, ok := now.since(m.last[pod.UID]); ok {
				rates[pod.Labels[api.LabelRemoteClusterID]] = rate
			}
		})
	}
	running.Wait()
	m.last = last
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := !maps.Equal(m.rates, rates)
	m.rates = rates
	return changed
}

// sample reads the counters of one gateway. A replica without the tunnel has none, which is an error.
func (m *meter) sample(ctx context.Context, pod *corev1.Pod) (counters, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTime)
	defer cancel()
	text, err := m.read(ctx, pod)
	if err != nil {
		return counters{}, err
	}
	out := counters{at: time.Now()}
	if out.received, err = counter(string(text), "liqo_peer_receive_bytes_total"); err == nil {
		out.sent, err = counter(string(text), "liqo_peer_transmit_bytes_total")
	}
	return out, err
}

// counter returns the value of a metric in the text format of Prometheus; an error if it is missing.
func counter(page, name string) (float64, error) {
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, name+"{"); ok {
			fields := strings.Fields(rest[strings.LastIndex(rest, "}")+1:])
			return strconv.ParseFloat(strings.Join(fields[:min(1, len(fields))], ""), 64)
		}
	}
	return 0, strconv.ErrSyntax
}

// since returns the mean rates between former counters and these. It returns false before the second sample and after
// a restart of the gateway, which resets its counters.
func (c counters) since(former counters) (view.Traffic, bool) {
	seconds := c.at.Sub(former.at).Seconds()
	out := view.Traffic{Received: (c.received - former.received) / seconds, Sent: (c.sent - former.sent) / seconds}
	return out, !former.at.IsZero() && seconds > 0 && out.Received >= 0 && out.Sent >= 0
}

// gateways returns the pods of active gateways. It returns none if the user may not list gateways or pods.
func (w *Watcher) gateways(ctx context.Context) []corev1.Pod {
	var found view.Snapshot
	for _, list := range []client.ObjectList{&found.Servers, &found.Clients} {
		if _, hidden := w.Base.Hidden[view.KindOf(list)]; !hidden {
			_ = w.Cache.List(ctx, list, client.UnsafeDisableDeepCopy) // without it, no rate is known
		}
	}
	_ = w.Cache.List(ctx, &found.Pods, client.UnsafeDisableDeepCopy, client.MatchingLabels{
		api.LabelNetworkingComponent: api.GatewayComponent}) // the same
	return found.Gateways()
}

// meterTraffic measures while a page is open, until ctx ends.
func (w *Watcher) meterTraffic(ctx context.Context, into *Snapshots, changed func(any)) {
	for tick := time.NewTicker(sampled); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		if into.wanted() && w.meter.measure(ctx, w.gateways(ctx)) {
			changed(nil)
		}
	}
}
