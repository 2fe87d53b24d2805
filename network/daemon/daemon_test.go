// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/plan"
)

// TestObjectsAreFollowed: the cache waits for an API server that is not reachable, then has all
// objects and every change.
func TestObjectsAreFollowed(t *testing.T) {
	t.Parallel()
	cfg := rest.CopyConfig(apitest.Start(t).Config)
	var away atomic.Bool
	away.Store(true)
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if away.Load() {
			return nil, errors.New("away")
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	client, err := Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	nodes := Watch[netv1beta1.InternalNode](client.Networking, "internalnodes", Selection{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var changes atomic.Int64
	go func() {
		nodes.run(ctx, func() { changes.Add(1) })
		close(ended)
	}()
	if nodes.complete() {
		t.Error("complete without an API server")
	}
	away.Store(false)
	space.Eventually(t, "an empty list", func() error { return expect(nodes.complete(), "complete") })

	request := client.Networking.Post().Resource("internalnodes").Body(&netv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	if err := request.Do(ctx).Error(); err != nil {
		t.Fatal(err)
	}
	space.Eventually(t, "the object", func() error {
		list := nodes.List()
		return expect(len(list) == 1 && list[0].Name == "n1" && list[0].UID != "" && list[0].ManagedFields == nil, "as created")
	})
	seen := changes.Load()
	if err := client.Networking.Delete().Resource("internalnodes").Name("n1").Do(ctx).Error(); err != nil {
		t.Fatal(err)
	}
	space.Eventually(t, "no object", func() error { return expect(len(nodes.List()) == 0 && changes.Load() > seen, "gone and told") })

	// Errors of the API server keep their meaning.
	if err := client.Networking.Get().Resource("internalnodes").Name("n1").Do(ctx).Error(); !apierrors.IsNotFound(err) {
		t.Errorf("get what is gone: %v", err)
	}
	cancel()
	<-ended
}

func expect(ok bool, what string) error {
	if !ok {
		return fmt.Errorf("not %s", what)
	}
	return nil
}

// TestOneFailureEndsAll: the first task that fails ends the others, and its error is returned.
func TestOneFailureEndsAll(t *testing.T) {
	t.Parallel()
	waits := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	fails := func(context.Context) error { return errors.New("first") }
	done := func(context.Context) error { return nil }
	if err := together(t.Context(), []Task{waits, done, fails, waits}); err == nil || err.Error() != "first" {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := together(ctx, []Task{waits, done}); err != nil {
		t.Errorf("an end that was asked for: %v", err)
	}
}

// TestUrgentReconcilesDoNotWait: an urgent reconcile happens at once, also while reconciles fail and
// are retried with growing pauses. Looked is called after each.
func TestUrgentReconcilesDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looked := make(chan *Failure)
		d := New(Role{
			Want: func(context.Context, bool) (plan.State, bool, error) {
				return plan.State{}, false, errors.New("nothing is known")
			},
			Looked: func(_ context.Context, f *Failure) { looked <- f },
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { d.keep(ctx); close(done) }()
		first := <-looked
		for range 5 { // 1.6 s before the next
			if f := <-looked; f == nil || f.Since != first.Since {
				t.Errorf("since %v, want %v", f, first.Since)
			}
		}
		began := time.Now()
		d.Look()
		d.LookNow()
		<-looked
		if waited := time.Since(began); waited != 0 {
			t.Errorf("it took %v", waited)
		}
		cancel()
		<-done
	})
}

// TestWhenTheKernelIsRead: the kernel is read at the start and when it reported a change, not because of an object. A
// change that was not verified is, soon.
func TestWhenTheKernelIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		read := make(chan bool)
		d := New(Role{
			Want: func(ctx context.Context, reread bool) (plan.State, bool, error) {
				select {
				case read <- reread:
				case <-ctx.Done():
				}
				return plan.State{}, false, nil
			},
		}, nil)
		go d.keep(t.Context())
		next := func(what string, want bool, after time.Duration) {
			t.Helper()
			began := time.Now()
			if got, waited := <-read, time.Since(began); got != want || waited != after {
				t.Errorf("%s: read %v after %v, want %v after %v", what, got, waited, want, after)
			}
		}
		next("start", true, 0)
		d.Look()
		next("object", false, 0)
		notify(d.told)
		next("device", true, 0)
		d.LookNow()
		next("urgent", false, 0)
		next("interval", true, resync)
		d.unverified = true
		d.Look()
		next("object, after a change", false, 0)
		next("verification", true, verifyAfter)
	})
}

// TestMetricsText: the metrics of every role and a histogram are printed in the text format of Prometheus.
func TestMetricsText(t *testing.T) {
	t.Parallel()
	h := NewHistogram(100, 200)
	for _, v := range []float64{50, 100, 150, 1e6} {
		h.Observe(v)
	}
	var c counts
	c.changes.Add(2)
	c.last.Store(1_800_000_000)
	got := page(append(c.metrics(), []Metric{
		{Name: "bytes_total", Type: "counter", Help: "Bytes.", Labels: Label("peer", `a"b`), Value: 1 << 40},
		h.Metric(Metric{Name: "trip_us", Help: "Round trips.", Labels: Label("peer", "a")}),
		{Name: "up", Type: "gauge", Help: "1 while up."},
	}...))
	want := `# HELP liqo_network_changes_total Changes made to links, routes, rules and tunnels.
# TYPE liqo_network_changes_total counter
liqo_network_changes_total 2
# HELP liqo_network_failures_total Failed reconciles of the kernel.
# TYPE liqo_network_failures_total counter
liqo_network_failures_total 0
# HELP liqo_network_last_look_timestamp_seconds Time of the last look at the kernel that ended well.
# TYPE liqo_network_last_look_timestamp_seconds gauge
liqo_network_last_look_timestamp_seconds 1.8e+09
# HELP bytes_total Bytes.
# TYPE bytes_total counter
bytes_total{peer="a\"b"} 1.099511627776e+12
# HELP trip_us Round trips.
# TYPE trip_us histogram
trip_us_bucket{peer="a",le="100"} 2
trip_us_bucket{peer="a",le="200"} 3
trip_us_bucket{peer="a",le="+Inf"} 4
trip_us_sum{peer="a"} 1.0003e+06
trip_us_count{peer="a"} 4
# HELP up 1 while up.
# TYPE up gauge
up 0
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}
