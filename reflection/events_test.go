// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/remote"
)

// TestNewsWait: what went well is told at a rate that leaves room for work, and what went wrong at
// once.
func TestNewsWait(t *testing.T) {
	t.Parallel()
	const held = 5 // of the news
	written, release := make(chan string), make(chan struct{})
	news := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		event, _, failed := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil || failed != nil {
			t.Error(err, failed)
			return
		}
		level := event.(*corev1.Event).Type
		if level == corev1.EventTypeNormal {
			if news++; news == held { // they come one after the other
				<-release
			}
		}
		written <- level
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"kind": "Event", "apiVersion": "v1"}`)
	}))
	defer server.Close() // waits for its requests
	goOn := sync.OnceFunc(func() { close(release) })
	defer goOn()
	r, err := newRecorders(t.Context(), &remote.Cluster{RESTConfig: &rest.Config{Host: server.URL, QPS: -1}, HTTP: http.DefaultClient})
	if err != nil {
		t.Fatal(err)
	}
	tell := r.of(scheme.Scheme)("liqo-test-reflection")
	config := func(name string) runtime.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	}
	last := "none"
	next := func() string {
		t.Helper()
		select {
		case last = <-written:
			return last
		case <-time.After(patience.Limit):
			t.Fatal(patience.GaveUp("an event that is written", last))
			return ""
		}
	}
	began := time.Now()
	const all = newsBurst + newsRate // takes a second
	for i := range all {
		tell(config(fmt.Sprint("well-", i)), corev1.EventTypeNormal, "Told", "well")
	}
	for range held - 1 {
		if level := next(); level != corev1.EventTypeNormal {
			t.Fatalf("%s, though nothing went wrong", level)
		}
	}
	tell(config("ill"), corev1.EventTypeWarning, "Told", "ill")
	if level := next(); level != corev1.EventTypeWarning {
		t.Errorf("a warning waits for what is %s", level)
	}
	goOn()
	for range all - held + 1 {
		next()
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("%d events of success are written within %s", all, took)
	}
	r.shutdown()
}

// TestAPodThatChangesMuchWaits, and no other with it: thousands may start and end in a moment. In
// the ten minutes until etcd forgets, what a provider says of a pod costs about a megabyte.
func TestAPodThatChangesMuchWaits(t *testing.T) {
	t.Parallel()
	b, began := podBudget(), time.Now()
	key := func(name any) types.NamespacedName {
		return types.NamespacedName{Namespace: "shop", Name: fmt.Sprint(name)}
	}
	pod := &corev1.Pod{Status: corev1.PodStatus{Message: strings.Repeat("x", 4<<10)}}
	written := 0
	for after := time.Duration(0); after < 10*time.Minute; after += 50 * time.Millisecond {
		if b.wait(key("loud"), pod, began.Add(after)) == 0 {
			written += pod.Size() + specSize
		}
	}
	if written < 1<<20 || written > 5<<18 {
		t.Errorf("%d bytes are written", written)
	}
	for i := range 5000 {
		for change := range 10 {
			if b.wait(key(i), pod, began) > 0 {
				t.Fatalf("change %d of pod %d waits", change, i)
			}
		}
	}
	if large := (&corev1.Pod{Status: corev1.PodStatus{Message: strings.Repeat("x", statusBurst)}}); b.wait(key("large"), large, began) > 0 {
		t.Error("a large pod is never written")
	}
	if b.forget(key("large")); b.wait(key("large"), pod, began) > 0 {
		t.Error("a pod pays for a former one of its name")
	}
	var none *budget
	if none.forget(key("loud")); none.wait(key("loud"), pod, began) > 0 {
		t.Error("a kind without a budget has one")
	}
}

// TestWhatIsThereIsFollowed though as many as may be are being made, and a kind without bound has
// none.
func TestWhatIsThereIsFollowed(t *testing.T) {
	t.Parallel()
	b, made := newWriteLimit(), 0
	for made < 2*shownBurst && b.allows(true) {
		made++
	}
	if made < shownBurst || made == 2*shownBurst {
		t.Errorf("%d are made at once", made)
	}
	if !b.allows(false) {
		t.Error("what is there waits for what is to be made")
	}
	var none *writeLimit
	if !none.allows(true) || !none.allows(false) {
		t.Error("a kind without a bound has one")
	}
}
