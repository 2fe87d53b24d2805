// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/reflection/translate"
)

// TestAttackManyStatuses: a provider changes the statuses of its copies all the time, each as large as may come back,
// to fill the consumer's etcd by their number: those of one object of each kind, or of a thousand objects.
//
// Outcome: each object is written 20 times at once and then once a second, a large one less often, and all together
// 50 times a second in each of two engines. An object that did not change much, and another peer, do not wait.
func TestAttackManyStatuses(t *testing.T) {
	t.Parallel()
	key := func(name any) types.NamespacedName {
		return types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(name)}
	}
	small, large := &authv1beta1.Renew{}, &authv1beta1.Renew{}
	large.Status.AuthParams = &authv1beta1.AuthParams{APIServer: strings.Repeat("x", 64<<10)}
	began := time.Now()
	written := func(b *budget, obj *authv1beta1.Renew, objects int, duration, step time.Duration) int {
		count := 0
		for after := time.Duration(0); after < duration; after += step {
			for i := range objects {
				if b.wait(key(i), obj, began.Add(after)) == 0 {
					count++
				}
			}
		}
		return count
	}
	if n := written(answerBudget(peerBudget()), small, 1, time.Minute, 50*time.Millisecond); n < 79 || n > 81 {
		t.Errorf("one object is written %d times in a minute", n)
	}
	if bytes := 4 * written(answerBudget(peerBudget()), large, 1, time.Minute, 50*time.Millisecond) * 64 << 10; bytes > 10<<20 {
		t.Errorf("large objects of four kinds are written with %d bytes in a minute", bytes)
	}
	busy := peerBudget()
	if n := written(answerBudget(busy), small, 1000, 10*time.Second, time.Second); n < 400 || n > 600 {
		t.Errorf("a thousand objects are written %d times in ten seconds", n)
	}
	if wait := answerBudget(busy).wait(key("new"), small, began.Add(9*time.Second)); wait != peerRetry {
		t.Errorf("an object of a busy peer waits %s", wait)
	}
	b := answerBudget(peerBudget())
	const busyFor = 2500 * time.Millisecond
	written(b, small, 1, busyFor, 50*time.Millisecond)
	wait := b.wait(key(0), small, began.Add(busyFor))
	if wait <= 0 || wait > time.Second || b.wait(key(0), small, began.Add(busyFor+wait+time.Millisecond)) > 0 {
		t.Errorf("an object that changes much waits %s, or does not have room then", wait)
	}
	if b.wait(key("quiet"), small, began.Add(busyFor)) > 0 || answerBudget(peerBudget()).wait(key(0), small, began) > 0 {
		t.Error("another object or another peer waits")
	}
}

// counting answers requests for events, and tells of each.
type counting chan struct{}

func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	c <- struct{}{}
	return &http.Response{
		StatusCode: http.StatusCreated, Request: req, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"kind": "Event", "apiVersion": "v1"}`)),
	}, nil
}

// TestAttackRefusalsFillEtcd: a provider refuses what the consumer changes in thousands of objects, each time with
// another message of 1 MiB, so that the consumer writes an event for each.
//
// Outcome: events have the first 1024 bytes of such a message. A virtual kubelet writes at most 1000 of them at once,
// and then 10 a second.
func TestAttackRefusalsFillEtcd(t *testing.T) {
	t.Parallel()
	w := &worker{engine: &Engine{Config: Config{Peer: "milan"}}}
	if said := w.failure(errors.New(strings.Repeat("ö", 1<<19))); len(said) > translate.LongestEvent || !strings.HasPrefix(said, "Error reflecting object") {
		t.Errorf("an event has a message of %d bytes", len(said))
	}
	const more = 5 // half a second
	sent := make(chan struct{}, 2*shownBurst)
	r, err := newRecorders(t.Context(), &remote.Cluster{RESTConfig: &rest.Config{Host: "http://unused.invalid", QPS: -1}, HTTP: &http.Client{Transport: counting(sent)}})
	if err != nil {
		t.Fatal(err)
	}
	tell := r.of(scheme.Scheme)("liqo-test-reflection")
	began, limit := time.Now(), time.After(patience.Limit)
	for i := range shownBurst + more {
		tell(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(i)}}, corev1.EventTypeWarning, "Told", "ill")
		select {
		case <-sent:
		case <-limit:
			t.Fatal(patience.GaveUp(fmt.Sprintf("event %d", i+1), "no request"))
		}
	}
	if took := time.Since(began); took < more*time.Second/shownRate*8/10 {
		t.Errorf("%d warnings are written within %s", shownBurst+more, took)
	}
	r.shutdown()
}
