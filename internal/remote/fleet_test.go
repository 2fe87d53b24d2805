// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/remote"
)

// provider is an API server behind a proxy that can fail, and observes who asks.
type provider struct {
	*httptest.Server
	// status is that of all responses, 0 = those of the API server; hangs leaves requests without
	// response.
	status  atomic.Int32
	hangs   atomic.Bool
	token   atomic.Value // of the last request
	lists   atomic.Int32 // that were asked for
	watches atomic.Int32 // that are open
}

func newProvider(t *testing.T, server *apitest.Server) *provider {
	t.Helper()
	target, err := url.Parse(server.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	if proxy.Transport, err = rest.TransportFor(server.Config); err != nil {
		t.Fatal(err)
	}
	p := &provider{}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.token.Store(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		r.Header.Del("Authorization")
		switch {
		case p.hangs.Load():
			<-r.Context().Done()
			return
		case p.status.Load() != 0:
			w.WriteHeader(int(p.status.Load()))
			return
		case r.URL.Query().Get("watch") != "":
			p.watches.Add(1)
			defer p.watches.Add(-1)
		case strings.HasSuffix(r.URL.Path, "/configmaps"):
			p.lists.Add(1)
		}
		proxy.ServeHTTP(w, r)
	}))
	p.EnableHTTP2 = true
	p.StartTLS()
	t.Cleanup(func() { p.CloseClientConnections(); p.Close() })
	return p
}

// kubeconfig enters the provider with a token.
func (p *provider) kubeconfig(token string) []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw})
	return kubeconfig(p.URL, "certificate-authority-data: "+base64.StdEncoding.EncodeToString(ca), "token: "+token)
}

// until waits until something holds.
func until(t *testing.T, claim string, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience.Limit, true, func(context.Context) (bool, error) {
		return holds(), nil
	})
	if err != nil {
		t.Fatalf("gave up after %s: waited until %s: %v", patience.Limit, claim, err)
	}
}

// left returns the goroutines of this package, and those that read connections it made.
func left() string {
	stacks := make([]byte, 1<<22)
	var out []string
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		for _, mark := range []string{"remote.(*Link)", "remote.(*Peer)", "remote.(*Fleet)", "remote.connection"} {
			if strings.Contains(stack, mark) {
				out = append(out, stack)
				break
			}
		}
	}
	return strings.Join(out, "\n\n")
}

// runFleet runs a fleet until the returned function is called.
func runFleet(t *testing.T, f *remote.Fleet, config *rest.Config) (stop func()) {
	t.Helper()
	mgr, err := manager.New(config, manager.Options{Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err == nil {
		err = f.Register(mgr)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func tenantNamespace(name, id string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: id,
	}}}
}

func identitySecret(namespace, id string, kubeconfig []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "cplane",
			Labels: map[string]string{
				api.LabelRemoteClusterID: id, api.LabelIdentityType: string(authv1beta1.IdentityControlPlane),
			},
			Annotations: map[string]string{api.AnnotationRemoteTenantNamespace: "default"},
		},
		Data: map[string][]byte{api.KubeconfigField: kubeconfig},
	}
}

// TestLinkOfASecret: a Secret has one link, whatever its credentials, until it names another
// namespace, is deleted or is not trusted any more. Users share the link and its copies, are called
// only when the link changes, and nothing of a link that is closed goes on. It is not parallel,
// because it looks for goroutines.
func TestLinkOfASecret(t *testing.T) {
	server := apitest.Start(t)
	c, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	apply := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	milan := newProvider(t, server)
	links := &remote.Fleet{}
	var first, second atomic.Int32
	links.Subscribe(func(secret types.NamespacedName, id string) {
		if secret.Name != "cplane" || id != "milan" {
			t.Errorf("called for %s of %s", secret, id)
		}
		first.Add(1)
	})
	links.Subscribe(func(types.NamespacedName, string) { second.Add(1) })
	called := func(times int32) {
		t.Helper()
		until(t, "subscribers are called", func() bool { return first.Load() >= times && second.Load() >= times })
		if first.Load() != times || second.Load() != times {
			t.Fatalf("called %d and %d times, want %d", first.Load(), second.Load(), times)
		}
	}
	stop := runFleet(t, links, server.Config)
	key := types.NamespacedName{Namespace: "tenant", Name: "cplane"}
	namespace, secret := tenantNamespace("tenant", "milan"), identitySecret("tenant", "milan", milan.kubeconfig("one"))
	// A link is made when its namespace is trusted. It sends no request by itself.
	untrusted := namespace.DeepCopy()
	untrusted.Labels = nil
	apply(c.Create(t.Context(), untrusted))
	apply(c.Create(t.Context(), secret))
	namespace.ResourceVersion = untrusted.ResourceVersion
	apply(c.Update(t.Context(), namespace))
	called(1)
	link := links.Get(key)
	if link == nil || link.ID != "milan" || link.Namespace != "default" || len(links.Of("milan")) != 1 || milan.token.Load() != nil {
		t.Fatalf("link %+v, last request by %v", link, milan.token.Load())
	}

	// Two users share a copy, which lists and watches once.
	var changes atomic.Int32
	spec := remote.CopySpec{
		Kinds: []client.Object{&corev1.ConfigMap{}}, Probe: &corev1.ConfigMapList{}, Selector: labels.Everything(),
		Changed: func() { changes.Add(1) },
	}
	copied, err := link.Copy("shared", spec)
	apply(err)
	if other, err := link.Copy("shared", spec); other != copied || err != nil {
		t.Errorf("another user has another copy: %v", err)
	}
	until(t, "the copy is complete", func() bool { return copied.Synced() && milan.watches.Load() == 1 })
	if n := milan.lists.Load(); n > 2 { // the one asked for before, and that of the cache if it does not stream
		t.Errorf("%d lists for one copy", n)
	}
	before := changes.Load()
	apply(c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"}}))
	until(t, "the copy has the new object", func() bool {
		return changes.Load() > before && copied.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "new"}, &corev1.ConfigMap{}) == nil
	})

	// Other credentials are used at once, and an unusable kubeconfig is not; users keep link and
	// copy.
	enters := func(token string) {
		t.Helper()
		until(t, "requests have token "+token, func() bool {
			err := link.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "new"}, &corev1.ConfigMap{})
			return err == nil && milan.token.Load() == token
		})
	}
	enters("one")
	for _, kubeconfig := range [][]byte{milan.kubeconfig("two"), []byte("{}")} {
		secret.Data[api.KubeconfigField] = kubeconfig
		apply(c.Update(t.Context(), secret))
		enters("two")
	}
	called(1)
	if links.Get(key) != link || milan.watches.Load() != 1 {
		t.Error("other credentials replaced the link or its copy")
	}

	// Another namespace at the provider is another link; what belonged to the former ends.
	secret.Annotations[api.AnnotationRemoteTenantNamespace] = "kube-system"
	secret.Data[api.KubeconfigField] = milan.kubeconfig("three")
	apply(c.Update(t.Context(), secret))
	called(2)
	closed := func() {
		t.Helper()
		until(t, "the watch of the former link ends", func() bool { return milan.watches.Load() == 0 })
		if left := left(); strings.Contains(left, "(*Link)") {
			t.Errorf("a closed link goes on:\n%s", left)
		}
		// Goroutines of their own close the connections.
		until(t, "no connection of a closed link is left", func() bool { return !strings.Contains(left(), "remote.connection") })
		if other, err := link.Copy("late", spec); err != nil || other.Synced() {
			t.Errorf("a closed link makes a copy: %v", err)
		}
	}
	closed()
	link = links.Get(key)
	if link == nil || link.Namespace != "kube-system" {
		t.Fatalf("link %+v", link)
	}

	// A Secret that is deleted, and made again, has another link. So has one whose namespace is not
	// trusted for a while.
	apply(c.Delete(t.Context(), secret))
	called(3)
	if links.Get(key) != nil {
		t.Error("a Secret that is gone has a link")
	}
	secret.ResourceVersion, secret.UID = "", ""
	apply(c.Create(t.Context(), secret))
	called(4)
	link = links.Get(key)
	_, err = link.Copy("shared", spec)
	apply(err)
	until(t, "the new link watches", func() bool { return milan.watches.Load() == 1 })
	delete(namespace.Labels, api.LabelTenantNamespace)
	apply(c.Update(t.Context(), namespace))
	called(5)
	closed()
	namespace.Labels[api.LabelTenantNamespace] = api.True
	apply(c.Update(t.Context(), namespace))
	called(6)

	// Everything ends with the manager.
	link = links.Get(key)
	copied, err = link.Copy("shared", spec)
	apply(err)
	link.Health(remote.Checks{Interval: time.Millisecond, Timeout: time.Minute}, func() {})
	until(t, "the copy is complete", copied.Synced)
	stop()
	until(t, "nothing of the links is left", func() bool { return left() == "" })
}

// TestHealthOfALink: users learn when a provider starts to fail and to answer again, whether it
// responds with an error or does not respond at all, and its copy has what it had. A provider that
// is healthy is not reported again.
func TestHealthOfALink(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t)
	c, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept"}}); err != nil {
		t.Fatal(err)
	}
	for _, story := range []struct {
		what    string
		status  int32
		hangs   bool
		code    int
		timeout time.Duration
	}{
		{what: "errors", status: http.StatusServiceUnavailable, code: http.StatusServiceUnavailable, timeout: patience.Limit},
		{what: "hangs", hangs: true, timeout: time.Second},
		{what: "refuses", status: http.StatusUnauthorized, code: http.StatusUnauthorized, timeout: patience.Limit},
	} {
		t.Run(story.what, func(t *testing.T) {
			milan := newProvider(t, server)
			links := &remote.Fleet{}
			runFleet(t, links, server.Config)
			link := linkTo(t, c, links, milan, story.what)
			becomes, calls := reports(t, link, remote.Checks{Interval: 10 * time.Millisecond, Timeout: story.timeout})
			copied, err := link.Copy("shared", remote.CopySpec{
				Kinds: []client.Object{&corev1.ConfigMap{}}, Probe: &corev1.ConfigMapList{}, Selector: labels.Everything(), Changed: func() {},
			})
			if err != nil {
				t.Fatal(err)
			}
			until(t, "the copy is complete", copied.Synced)
			becomes("answers", http.StatusOK)
			if !story.hangs { // else a slow answer counts as none
				healthy := calls.Load()
				<-time.After(200 * time.Millisecond) // 20 checks
				if n := calls.Load(); n != healthy {
					t.Errorf("called %d times for a healthy provider", n-healthy)
				}
			}
			milan.status.Store(story.status)
			milan.hangs.Store(story.hangs)
			becomes(story.what, story.code)
			if err := copied.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "kept"}, &corev1.ConfigMap{}); err != nil {
				t.Errorf("while the provider %s its copy has lost an object: %v", story.what, err)
			}
			milan.CloseClientConnections() // of requests that hang
			milan.status.Store(0)
			milan.hangs.Store(false)
			becomes("answers again", http.StatusOK)
		})
	}
}

// linkTo returns the link to a provider with an ID.
func linkTo(t *testing.T, c client.Client, links *remote.Fleet, p *provider, id string) (link *remote.Link) {
	t.Helper()
	for _, obj := range []client.Object{tenantNamespace(id, id), identitySecret(id, id, p.kubeconfig("one"))} {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "there is a link", func() bool {
		link = links.Get(types.NamespacedName{Namespace: id, Name: "cplane"})
		return link != nil
	})
	return link
}

// reports starts the checks of a link. It returns a function that waits until a provider is reported
// with a code, which is 0 for no response, and the number of reports.
func reports(t *testing.T, link *remote.Link, checks remote.Checks) (becomes func(what string, code int), calls *atomic.Int32) {
	t.Helper()
	calls = &atomic.Int32{}
	reported := make(chan remote.Health, 1) // the last one
	var health func() *remote.Health
	health = func() *remote.Health {
		return link.Health(checks, func() {
			calls.Add(1)
			select {
			case <-reported:
			default:
			}
			reported <- *health()
		})
	}
	if h := health(); h != nil {
		t.Errorf("before the first check: %+v", h)
	}
	return func(what string, code int) {
		t.Helper()
		until(t, "the provider "+what, func() bool {
			select {
			case h := <-reported:
				return h.Code == code && (h.Err != nil) == (code == 0)
			default:
				return false
			}
		})
	}, calls
}
