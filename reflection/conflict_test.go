// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// refuser answers the first write of each kind to each object with a conflict, as webhooks may:
// nothing changes, and no event follows.
type refuser struct {
	mu      sync.Mutex
	refused map[string]bool
	next    http.RoundTripper
}

func refusing(config *rest.Config) (*rest.Config, *refuser) {
	r := &refuser{refused: map[string]bool{}}
	return through(config, r, &r.next), r
}

func (r *refuser) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodDelete || req.Method == http.MethodPatch {
		r.mu.Lock()
		write := req.Method + " " + req.URL.Path
		before := r.refused[write]
		r.refused[write] = true
		r.mu.Unlock()
		if !before {
			return says(req, apierrors.NewConflict(schema.GroupResource{}, "injected", errors.New("a webhook refused")))
		}
	}
	return r.next.RoundTrip(req)
}

// TestAConflictIsTriedAgain: a write that met a conflict is tried again although no event follows
// it. Whatever is deleted at home ends on both sides, and the status of a pod comes home.
func TestAConflictIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var atHome, atRemote *refuser
	w.options.Home, atHome = refusing(w.options.Home)
	w.options.Remote, atRemote = refusing(w.options.Remote)
	w.reflect()
	settings := &corev1.ConfigMap{}
	settings.Namespace, settings.Name, settings.Data = homeNS, "settings", map[string]string{"a": "1"}
	w.create(w.home, settings)
	w.exists(w.remote, &corev1.ConfigMap{}, remoteNS, "settings")
	w.create(w.home, pod("web"))
	w.runAt("web", "10.20.1.7")
	var web corev1.Pod
	w.exists(w.home, &web, homeNS, "web", func() error { return equal(corev1.PodRunning, web.Status.Phase) })

	w.must("delete at home", w.home.Delete(w.Context(), settings))
	w.gone(w.remote, &corev1.ConfigMap{}, remoteNS, "settings")
	there := pod("web")
	there.Namespace = remoteNS
	w.must("delete at home", w.home.Delete(w.Context(), &web))
	w.gone(w.remote, &offv1beta1.ShadowPod{}, remoteNS, "web")
	w.must("end at the provider", w.remote.Delete(w.Context(), there, client.GracePeriodSeconds(0)))
	w.gone(w.home, &corev1.Pod{}, homeNS, "web")

	for _, c := range []struct {
		at    *refuser
		write string
	}{
		{atHome, "PATCH /api/v1/namespaces/shop/pods/web/status"},
		{atHome, "DELETE /api/v1/namespaces/shop/pods/web"},
		{atRemote, "DELETE /api/v1/namespaces/shop-rome/configmaps/settings"},
		{atRemote, "DELETE /apis/offloading.liqo.io/v1beta1/namespaces/shop-rome/shadowpods/web"},
	} {
		if c.at.mu.Lock(); !c.at.refused[c.write] {
			t.Errorf("%s was never refused", c.write)
		}
		c.at.mu.Unlock()
	}
}
