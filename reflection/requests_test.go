// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// requests counts what is asked of an API server, by verb and resource; watches do not count.
type requests struct {
	mu    sync.Mutex
	count map[string]int
	next  http.RoundTripper
}

// counted makes a configuration whose requests are counted.
func counted(config *rest.Config) (*rest.Config, *requests) {
	r := &requests{count: map[string]int{}}
	return through(config, r, &r.next), r
}

// through returns a copy of a configuration whose requests pass transport, which sends them on by
// next.
func through(config *rest.Config, transport http.RoundTripper, next *http.RoundTripper) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		*next = rt
		return transport
	})
	return config
}

func (r *requests) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Query().Get("watch") == "" {
		r.mu.Lock()
		r.count[req.Method+" "+resourceOf(req.URL.Path)]++
		r.mu.Unlock()
	}
	return r.next.RoundTrip(req)
}

// resourceOf reads resource and subresource from
// …/namespaces/<namespace>/<resource>[/<name>[/<subresource>]].
func resourceOf(path string) string {
	_, inside, found := strings.Cut(path, "/namespaces/")
	parts := strings.Split(inside, "/")
	if !found || len(parts) < 2 {
		return path
	}
	if len(parts) > 3 {
		return parts[1] + "/" + parts[3]
	}
	return parts[1]
}

func (r *requests) take() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.count
	r.count = map[string]int{}
	return out
}

// aBurstOfPodsCostsFewRequests: from creation to the end a pod costs at home a token, an event,
// one status (the provider's kubelet speaks once here) and the deletion; at the provider the
// ShadowPod and the Secret are made and deleted, nothing else.
func aBurstOfPodsCostsFewRequests(t *testing.T, w *world) {
	home, atHome := counted(w.options.Home)
	remote, atRemote := counted(w.options.Remote)
	w.options.Home, w.options.Remote = home, remote
	defer w.reflect()()
	const pods = 50
	names := make([]string, pods)
	for i := range names {
		names[i] = fmt.Sprintf("burst-%d", i)
	}
	w.create(w.home, pod("first"))
	w.runAt("first", "10.20.9.9")
	w.exists(w.home, &corev1.Pod{}, homeNS, "first")
	atHome.take()
	atRemote.take()
	began := time.Now()
	w.each(names, func(here *world, name string) { here.create(here.home, pod(name)) })
	w.each(names, func(here *world, name string) { here.runAt(name, "10.20.2.2") })
	w.each(names, func(here *world, name string) {
		var p corev1.Pod
		here.exists(here.home, &p, homeNS, name, func() error { return equal(corev1.PodRunning, p.Status.Phase) })
	})
	t.Logf("%d pods running after %s", pods, time.Since(began))
	w.each(names, func(here *world, name string) {
		p, there := pod(name), pod(name)
		there.Namespace = remoteNS
		here.must("delete", here.home.Delete(here.Context(), p))
		here.gone(here.remote, &offv1beta1.ShadowPod{}, remoteNS, name)
		here.must("end", here.remote.Delete(here.Context(), there, client.GracePeriodSeconds(0)))
		here.gone(here.home, p, homeNS, name)
	})
	t.Logf("all gone after %s", time.Since(began))
	within(t, pods, atHome.take(), "POST serviceaccounts/token", "POST events", "PATCH pods/status", "DELETE pods")
	within(t, pods, atRemote.take(), "POST shadowpods", "POST secrets", "DELETE shadowpods", "DELETE secrets")
}

// gated is an API server that creates a ShadowPod for each permit.
type gated struct {
	permits chan struct{} // closed = no permit is needed
	next    http.RoundTripper
}

func (g *gated) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost && resourceOf(req.URL.Path) == "shadowpods" {
		select {
		case <-g.permits:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	return g.next.RoundTrip(req)
}

// aPodRunsWhileOthersAreCreated: each status of a remote pod reaches home while most of the burst it
// belongs to waits for the provider.
func aPodRunsWhileOthersAreCreated(t *testing.T, w *world) {
	gate := &gated{permits: make(chan struct{})}
	burst := *w
	burst.options.Remote = through(w.options.Remote, gate, &gate.next)
	defer burst.reflect()()
	const pods = 60
	var names []string
	for i := range pods {
		names = append(names, fmt.Sprintf("gated-%d", i))
	}
	w.each(names, func(here *world, name string) { here.create(here.home, pod(name)) })
	permits := 0
	permit := func(ctx context.Context) error {
		select {
		case gate.permits <- struct{}{}:
			permits++
			return nil
		case <-ctx.Done(): // all are created
			return ctx.Err()
		}
	}
	w.must("permit one", permit(t.Context()))
	var name string
	w.eventually("a ShadowPod exists", func(ctx context.Context) error {
		var all offv1beta1.ShadowPodList
		err := w.remote.List(ctx, &all, client.InNamespace(remoteNS))
		for _, each := range all.Items { // other stories have some, too
			if slices.Contains(names, each.Name) {
				name = each.Name
			}
		}
		return cmp.Or(err, equal(true, name != ""))
	})
	there := w.runAt(name, "10.20.3.3")
	restarts := func(n int32) {
		t.Helper()
		w.eventually(fmt.Sprintf("%s runs at home, restarted %d times", name, n), func(ctx context.Context) error {
			var p corev1.Pod
			err := cmp.Or(permit(ctx), w.home.Get(ctx, client.ObjectKey{Namespace: homeNS, Name: name}, &p))
			if err != nil || len(p.Status.ContainerStatuses) == 0 {
				return cmp.Or(err, errors.New("it has no container"))
			}
			return equal(n, p.Status.ContainerStatuses[0].RestartCount)
		})
	}
	restarts(1)
	there.Status.ContainerStatuses[0].RestartCount = 2 // now its status at home has changed, which is an event, too
	w.must("restart", w.remote.Status().Update(t.Context(), there))
	restarts(2)
	if permits > pods/2 {
		t.Errorf("%d of %d pods were created before the first ran at home", permits, pods)
	}
	close(gate.permits)
	w.each(names, func(here *world, name string) {
		here.exists(here.remote, &offv1beta1.ShadowPod{}, remoteNS, name)
		here.must("delete", here.home.Delete(here.Context(), pod(name), client.GracePeriodSeconds(0)))
		here.gone(here.remote, &offv1beta1.ShadowPod{}, remoteNS, name)
	})
	w.must("end", w.remote.Delete(t.Context(), there, client.GracePeriodSeconds(0)))
}

// within checks that nothing was asked but the named requests, once for each pod. One in ten
// may come twice: a late event is no error.
func within(t *testing.T, pods int, count map[string]int, named ...string) {
	t.Helper()
	t.Log(count)
	for request, n := range count {
		if !slices.Contains(named, request) || n > pods+pods/10 {
			t.Errorf("%d times %s for %d pods", n, request, pods)
		}
	}
}
