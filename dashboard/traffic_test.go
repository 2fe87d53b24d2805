// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/view"
)

// gatewayPods returns a cluster with the active gateway of each peer, one that waits, and pods of guests that have the
// labels of the active one: elsewhere, and for a peer that has its gateway elsewhere.
func gatewayPods(peers ...string) *view.Snapshot {
	s := &view.Snapshot{Command: "liqoctl"}
	for _, peer := range peers {
		labels := map[string]string{api.LabelRemoteClusterID: peer}
		s.Add(&netv1beta1.GatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + peer, Name: peer, Labels: labels}})
		for _, pod := range []struct{ namespace, name, peer, active string }{{"liqo-tenant-" + peer, peer + "true", peer, api.True},
			{"liqo-tenant-" + peer, peer + "false", peer, "false"}, {"batch-" + peer, "guest", peer, api.True},
			{"liqo-tenant-" + peer, "other", "rome", api.True}} {
			s.Add(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(pod.namespace + pod.name), Namespace: pod.namespace, Name: pod.name,
				Labels: map[string]string{api.LabelRemoteClusterID: pod.peer, api.LabelGatewayActive: pod.active,
					api.LabelNetworkingComponent: api.GatewayComponent}}})
		}
	}
	return s
}

// TestTrafficWithoutMetrics: a page says how metrics are turned on, and not that of gateways that serve them.
func TestTrafficWithoutMetrics(t *testing.T) {
	s := recorded(t)
	s.Traffic = nil
	off := "<dt>Throughput</dt><dd>not known: metrics are off; &#39;liqoctl install --enable-metrics&#39; turns them on</dd>"
	has(t, page(t, s, "/peers/turin"), "<dt>Throughput</dt><dd>not known</dd>")
	s.Add(&gatewayPods("turin").Gateways()[0])
	has(t, page(t, s, "/peers/turin"), off)
	has(t, page(t, s, "/peers/milan"), "<dt>Throughput</dt><dd>not known</dd>")
	gateway := &s.Pods.Items[len(s.Pods.Items)-1]
	gateway.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "gw-metrics", ContainerPort: 8082}}}}
	has(t, page(t, s, "/peers/turin"), "!"+off)
}

// TestMeter: rates come from two readings of the active gateways. One whose counters fall, that cannot be read or that
// serves something else has none, and one that the user may not read is left alone.
func TestMeter(t *testing.T) {
	var round, asked atomic.Int64
	m := newMeter(func(_ context.Context, pod *corev1.Pod) ([]byte, error) {
		asked.Add(1)
		n := round.Load() * 1_000_000
		switch pod.Name {
		case "milantrue":
		case "turintrue":
			n = 9_000_000 - n
		case "paristrue":
			return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod.Name, nil)
		case "lyontrue":
			return []byte("liqo_peer_receive_bytes_total{} <script>\n"), nil
		default:
			t.Errorf("%s is read", pod.Name)
		}
		return fmt.Appendf(nil, "# TYPE liqo_peer_receive_bytes_total counter\nliqo_peer_receive_bytes_total"+
			"{driver=\"wireguard\",cluster_id=\"a}b\"} %g\nliqo_peer_transmit_bytes_total{driver=\"x\"} %d\n",
			float64(n), 2*n), nil
	})
	gateways := gatewayPods("milan", "turin", "paris", "lyon")
	pods := gateways.Gateways()
	if m.measure(t.Context(), pods) || len(m.traffic()) > 0 {
		t.Errorf("one reading gave %v", m.traffic())
	}
	round.Add(1)
	if !m.measure(t.Context(), pods) || len(m.traffic()) != 1 {
		t.Errorf("two readings gave %v", m.traffic())
	}
	if milan := m.traffic()["milan"]; milan.Received <= 0 || milan.Sent != 2*milan.Received {
		t.Errorf("milan has %v", milan)
	}
	if asked.Load() != 7 {
		t.Errorf("gateways were asked %d times", asked.Load())
	}
	if !m.measure(t.Context(), nil) || len(m.traffic()) > 0 {
		t.Errorf("without gateways there is %v", m.traffic())
	}
}

// TestRates: rates follow from the time between readings, and are short as text.
func TestRates(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	got, ok := counters{7_000, 0, begin.Add(5 * time.Second)}.since(counters{2_000, 0, begin})
	if want := "1 kB/s received, 0 B/s sent"; !ok || got.String() != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for bytes, want := range map[float64]string{0.04: "0 B/s", 999.94: "999.9 B/s", 999.96: "1 kB/s", 1234: "1.2 kB/s",
		999_960: "1 MB/s", 2.5e9: "2.5 GB/s", 7e15: "7000 TB/s"} {
		if got := (view.Traffic{Received: bytes}).String(); !strings.HasPrefix(got, want+" ") {
			t.Errorf("%g: got %s, want %s", bytes, got, want)
		}
	}
}

// TestTrafficIsMeasuredWhileAPageIsOpen: nothing is wanted before a page has asked.
func TestTrafficIsMeasuredWhileAPageIsOpen(t *testing.T) {
	snapshots := NewSnapshots(recorded(t))
	if snapshots.wanted() {
		t.Error("wanted without a page")
	}
	snapshots.Get()
	if !snapshots.wanted() {
		t.Error("not wanted by a page")
	}
}
