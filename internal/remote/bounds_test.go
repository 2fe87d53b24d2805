// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"

	"github.com/liqo-go/liqo/internal/patience"
)

// serverOf is a peer's API server that answers with handler.
func serverOf(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server
}

// clientOf is a client of the peer, as the controllers have one.
func clientOf(t *testing.T, server *httptest.Server, b bounds, wrap ...transport.WrapperFunc) *kubernetes.Clientset {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"users": [{"name": "u", "user": {"token": "t"}}], "clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority-data": %q}}]}`, server.URL, base64.StdEncoding.EncodeToString(ca))
	peer, err := newPeer(t.Context(), kubeconfig, b)
	if err != nil {
		t.Fatal(err)
	}
	config := peer.Config()
	config.WrapTransport = transport.Wrappers(wrap...)
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

// endlessly is how many bytes a server sends unless it is stopped.
const endlessly = 256 << 20

// endless writes piece until the client has enough, or sent, which counts bytes on the wire, says so.
func endless(w io.Writer, piece string, sent *atomic.Int64) {
	piece = strings.Repeat(piece, 1+(64<<10)/len(piece))
	for sent.Load() <= endlessly {
		if _, err := io.WriteString(w, piece); err != nil {
			return
		}
	}
}

// counter counts the bytes that are written.
type counter struct {
	io.Writer
	n *atomic.Int64
}

func (c counter) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n.Add(int64(n))
	return n, err
}

const (
	jsonType     = kruntime.ContentTypeJSON
	protobufType = kruntime.ContentTypeProtobuf
)

// hostile is how a server answers a request, and what its client says then.
type hostile struct {
	what    string
	typ     string
	headers func(http.Header)
	body    func(w io.Writer, sent *atomic.Int64)
	ask     func(*testing.T, *kubernetes.Clientset) error
	want    string
}

// patient are the bounds of a peer without that of time, which a busy machine may exceed first.
func patient(b bounds) bounds {
	b.time = patience.Limit
	return b
}

// limited is a context for a request that must fail by itself.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	t.Cleanup(cancel)
	return ctx
}

func list(t *testing.T, c *kubernetes.Clientset) error {
	_, err := c.CoreV1().Pods("shop").List(limited(t), metav1.ListOptions{})
	return err
}

func get(t *testing.T, c *kubernetes.Clientset) error {
	_, err := c.CoreV1().Pods("shop").Get(limited(t), "web", metav1.GetOptions{})
	return err
}

// watchOne returns the error that ends a watch.
func watchOne(t *testing.T, c *kubernetes.Clientset) error {
	w, err := c.CoreV1().Pods("shop").Watch(limited(t), metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if status, ok := e.Object.(*metav1.Status); ok {
			return fmt.Errorf("%s", status.Message)
		}
	}
	return io.EOF
}

// TestAttackEndlessResponse: a provider's API server answers without end: with a list, an object, an error, one event
// of a watch, text that compresses well, objects that are small only as text, or headers.
//
// Outcome: the request fails once its bound is exceeded, with a message that names the API server and the bound, and
// the connection is closed. The memory of the consumer's controller stays within a multiple of the bound.
func TestAttackEndlessResponse(t *testing.T) {
	begun := `{"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": "`
	text := func(begin, piece string) func(io.Writer, *atomic.Int64) {
		return func(w io.Writer, sent *atomic.Int64) { _, _ = io.WriteString(w, begin); endless(w, piece, sent) }
	}
	for _, h := range []hostile{
		{what: "list", typ: jsonType, body: text(begun, "x"), ask: list, want: "list of API server HOST exceeds 64MiB"},
		{what: "object", typ: jsonType, body: text(begun, "x"), ask: get, want: "response of API server HOST exceeds 4MiB"},
		{what: "object in protobuf", typ: protobufType, body: text("k8s\x00", "x"), ask: get, want: "response of API server HOST exceeds 4MiB"},
		{what: "many objects", typ: jsonType, body: func(w io.Writer, _ *atomic.Int64) {
			_, _ = io.WriteString(w, begun+`"}, "items": [{}`+strings.Repeat(",{}", 400_000)+"]}")
		}, ask: list, want: "list of API server HOST exceeds 64MiB"},
		{what: "YAML", typ: "application/yaml", body: text("kind: PodList\nitems:\n", "- {}\n"), ask: list, want: "list of API server HOST exceeds 64MiB"},
		{what: "event", typ: jsonType, body: text(`{"type": "ADDED", "object": {"kind": "`, "x"), ask: watchOne, want: "watch event of API server HOST exceeds 2MiB"},
		{what: "event of many lines", typ: jsonType, body: text(`{"type": "ADDED", "object": {"metadata": {"finalizers": ["x"`, ",\n\"}\""), ask: watchOne, want: "watch event of API server HOST exceeds 2MiB"},
		{what: "spaces between events", typ: jsonType, body: text(`{"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1"}}`, "\n"), ask: watchOne, want: "watch event of API server HOST exceeds 2MiB"},
		{what: "event in protobuf", typ: protobufType, body: text("\x00\xff\xff\xff", "x"), ask: watchOne, want: "watch event of API server HOST exceeds 2MiB"},
		{what: "event in an encoding nobody asked for", typ: "text/html", body: text("", "x"), ask: watchOne, want: "no stream serializers"},
		{what: "compressed list", typ: jsonType, headers: func(h http.Header) { h.Set("Content-Encoding", "gzip") }, body: func(w io.Writer, sent *atomic.Int64) {
			bomb, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
			text(begun, "x")(bomb, sent)
		}, ask: list, want: "list of API server HOST exceeds 64MiB"},
		{what: "headers", typ: jsonType, headers: func(h http.Header) {
			for i := range 16 << 10 {
				h.Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 1<<10))
			}
		}, body: text("{}", " "), ask: get, want: "PROTOCOL_ERROR"},
	} {
		t.Run(h.what, func(t *testing.T) {
			var sent atomic.Int64
			server := serverOf(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", h.typ)
				if h.headers != nil {
					h.headers(w.Header())
				}
				h.body(counter{w, &sent}, &sent)
			})
			err := within(t, 512<<20, func() error { return h.ask(t, clientOf(t, server, patient(ordinary))) })
			want := strings.ReplaceAll(h.want, "HOST", server.Listener.Addr().String())
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
			if sent.Load() > endlessly {
				t.Errorf("%d bytes were read", sent.Load())
			}
		})
	}
}

// within fails the test when do takes more memory at once.
func within(t *testing.T, limit uint64, do func() error) error {
	t.Helper()
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	runtime.GC()
	before, peak := inUse(), uint64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			peak = max(peak, inUse())
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	err := do()
	close(stop)
	<-stopped
	t.Logf("memory grew by %d MiB", (max(peak, before)-before)>>20)
	if peak > before+limit {
		t.Errorf("memory grew from %d to %d bytes", before, peak)
	}
	return err
}

// TestAttackSlowResponse: a provider's API server sends a list byte by byte and never comes to its end.
//
// Outcome: the request fails after 30 seconds, with a message that names the API server, and is tried again later.
func TestAttackSlowResponse(t *testing.T) {
	t.Parallel()
	server := serverOf(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	})
	b := ordinary
	b.time = 200 * time.Millisecond
	clients := clientOf(t, server, b)
	want := fmt.Sprintf("response of API server %s takes longer than 200ms", server.Listener.Addr())
	for what, ask := range map[string]func(*testing.T, *kubernetes.Clientset) error{"list": list, "object": get} {
		if err := ask(t, clients); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", what, err, want)
		}
	}
	w, err := clients.CoreV1().Pods("shop").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		t.Errorf("a watch without events ends with %v", e)
	case <-time.After(2 * b.time):
	}
}

// informer fills a cache of pods as controllers do.
func informer(t *testing.T, clients *kubernetes.Clientset, watchList bool) cache.SharedIndexInformer {
	t.Helper()
	lw := cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "pods", "shop", fields.Everything())
	i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, semantics(watchList)), &corev1.Pod{}, 0, nil)
	go i.RunWithContext(t.Context())
	return i
}

// semantics says whether a client gets the first state by a watch.
type semantics bool

func (s semantics) IsWatchListSemanticsUnSupported() bool { return !bool(s) }

// holds waits until the cache holds so many pods.
func holds(t *testing.T, i cache.SharedIndexInformer, pods int) {
	t.Helper()
	wait(t, fmt.Sprintf("%d pods in the cache", pods), func() (string, bool) {
		synced, n := i.HasSynced(), len(i.GetStore().ListKeys())
		return fmt.Sprintf("%d, synced %t", n, synced), synced && n == pods
	})
}

// wait waits until a condition is met, which returns what is observed instead.
func wait(t *testing.T, what string, condition func() (observed string, met bool)) {
	t.Helper()
	for end := time.Now().Add(patience.Limit); ; time.Sleep(5 * time.Millisecond) {
		observed, met := condition()
		if met {
			return
		}
		if time.Now().After(end) {
			t.Fatal(patience.GaveUp(what, observed))
		}
	}
}

// bookmark ends the first events of a watch.
const bookmark = `{"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}}}`

func podText(i int) string {
	return fmt.Sprintf(`{"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "shop", "name": "web-%d", "resourceVersion": "7", "annotations": {"x": %q}}}`,
		i, strings.Repeat("x", 700))
}

// TestAttackEndlessObjects: a provider's API server adds objects without end, each of ordinary size: on further pages
// of a list, as first events of a watch, or in a watch that goes on.
//
// Outcome: the cache fails once its list and events exceed their bound together, backs off and lists again, which
// drops what exceeded. When the provider answers as it should, the cache is complete again. Caches of other providers
// are not affected.
func TestAttackEndlessObjects(t *testing.T) {
	t.Parallel()
	b := patient(ordinary)
	b.list, b.cache, b.event = 1<<20, 2<<20, 1<<16
	const limit = 4 << 10 // more pods than b.cache has room for
	added := func(w io.Writer, from int) {
		for i := range limit {
			if _, err := fmt.Fprintf(w, `{"type": "ADDED", "object": %s}`, podText(from+i)); err != nil {
				return
			}
		}
	}
	for _, way := range []string{"pages", "first events", "events"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			var attacks, pods atomic.Int64
			var honest atomic.Bool
			server := serverOf(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", jsonType)
				watches, first := r.FormValue("watch") != "", r.FormValue("sendInitialEvents") != ""
				hostile := !honest.Load()
				switch {
				case !watches && hostile && way == "pages":
					from := pods.Add(1000) - 1000
					if from == 0 {
						attacks.Add(1)
					}
					fmt.Fprintf(w, `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7", "continue": "more"}, "items": [%s`, podText(int(from)))
					for i := from + 1; i < from+1000; i++ {
						fmt.Fprint(w, ",", podText(int(i)))
					}
					fmt.Fprint(w, "]}")
					return
				case !watches:
					fmt.Fprintf(w, `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [%s]}`, podText(0))
					return
				case first && hostile && way == "first events":
					attacks.Add(1)
					added(w, 0)
				case first:
					fmt.Fprintf(w, `{"type": "ADDED", "object": %s}%s`, podText(0), bookmark)
				}
				w.(http.Flusher).Flush()
				if hostile && way == "events" {
					attacks.Add(1)
					added(w, 1)
				}
				<-r.Context().Done()
			})
			i := informer(t, clientOf(t, server, b), way != "pages")
			for end := time.Now().Add(patience.Limit); attacks.Load() == 0; time.Sleep(5 * time.Millisecond) {
				n := len(i.GetStore().ListKeys())
				if n >= limit {
					t.Fatalf("without an attack the cache holds %d pods", n)
				}
				if time.Now().After(end) {
					t.Fatal(patience.GaveUp("an attack", fmt.Sprintf("the cache holds %d pods", n)))
				}
			}
			other := serverOf(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", jsonType)
				fmt.Fprintf(w, `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [%s]}`, podText(0))
			})
			if err := list(t, clientOf(t, other, b)); err != nil {
				t.Errorf("another provider: %v", err)
			}
			honest.Store(true)
			holds(t, i, 1)
		})
	}
}

// TestAttackTenPeers: ten providers together answer without end, on all seven caches that the consumer's controller
// keeps of each, with objects that take far more memory than their text.
//
// Outcome: each cache fails at its bound and lists again. The controller stays below the memory limit of the chart.
func TestAttackTenPeers(t *testing.T) {
	const (
		peers, caches = 10, 7
		limit         = 2 << 30 // controllerManager.pod.resources
		object        = `{"kind": "Pod", "apiVersion": "v1", "metadata": {"namespace": "shop", "name": "web-%d"}, "spec": {"containers": [{}, {}, {}, {}]}}`
	)
	var asked [peers]*atomic.Int64
	_ = within(t, limit, func() error {
		for p := range peers {
			asked[p] = new(atomic.Int64)
			server := serverOf(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", jsonType)
				asked[p].Add(1)
				first, next := `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [{}`, ","+object
				if r.FormValue("watch") != "" {
					first, next = "", `{"type": "ADDED", "object": `+object+"}"
				}
				_, err := io.WriteString(w, first)
				for i := 0; err == nil; i++ {
					_, err = fmt.Fprintf(w, next, i)
				}
			})
			clients := clientOf(t, server, patient(few))
			for c := range caches {
				lw := cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "pods", fmt.Sprint("shop-", c), fields.Everything())
				i := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, semantics(c%2 == 0)), &corev1.Pod{}, 0, nil)
				go i.RunWithContext(t.Context())
			}
		}
		for p := range peers { // a busy machine works minutes for each
			for rounds := int64(1); rounds <= 3; rounds++ {
				wait(t, fmt.Sprintf("round %d of requests of the caches of peer %d", rounds, p), func() (string, bool) {
					n := asked[p].Load()
					return fmt.Sprintf("%d requests", n), n >= rounds*caches
				})
			}
		}
		return nil
	})
}

// counting counts requests that the peer did not answer.
type counting struct {
	http.RoundTripper
	unanswered *atomic.Int64
}

func (c counting) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(req)
	if err != nil || resp.StatusCode == http.StatusGone {
		c.unanswered.Add(1)
	}
	return resp, err
}

// history is an API server whose only pod is changed once. It resumes watches at any version, as
// kube-apiserver does with those of another history that it has reached.
func history(pod int) http.HandlerFunc {
	text := podText(pod)
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		switch {
		case r.FormValue("watch") == "":
			fmt.Fprintf(w, `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": [%s]}`, text)
			return
		case r.FormValue("sendInitialEvents") != "":
			fmt.Fprintf(w, `{"type": "ADDED", "object": %s}%s`, text, bookmark)
		}
		if pod == 0 {
			fmt.Fprintf(w, `{"type": "MODIFIED", "object": %s}`, strings.ReplaceAll(text, `"7"`, `"8"`))
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// hasVersion returns the version of the first pod in the cache, and whether it is as wanted.
func hasVersion(i cache.SharedIndexInformer, want string) (version string, has bool) {
	pod, ok, _ := i.GetStore().GetByKey("shop/web-0")
	if !ok {
		return "no pod", false
	}
	version = pod.(*corev1.Pod).ResourceVersion
	return version, version == want
}

// holdsChanged waits until the cache holds the pod of the first history as it is after its change.
func holdsChanged(t *testing.T, i cache.SharedIndexInformer) {
	t.Helper()
	wait(t, "version 8 of the pod", func() (string, bool) { return hasVersion(i, "8") })
}

// holdsBackup waits until the cache holds the pod of the second history, and no other.
func holdsBackup(t *testing.T, i cache.SharedIndexInformer) {
	t.Helper()
	backup := []string{"shop/web-1"}
	wait(t, "the pod of the backup", func() (string, bool) {
		keys := i.GetStore().ListKeys()
		return fmt.Sprint(keys), slices.Equal(keys, backup)
	})
}

// TestAttackRestoredEtcd: a provider's administrator stops its API server and restores its etcd from a backup. When
// the API server answers again, the new history has already reached the resource version of the consumer's watches.
//
// Outcome: the consumer's caches do not resume their watches, but list anew: they drop what the provider no longer
// has, and hold what the backup had.
func TestAttackRestoredEtcd(t *testing.T) {
	t.Parallel()
	for way, watchList := range map[string]bool{"list": false, "first events": true} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			server := serverOf(t, history(0))
			var unanswered atomic.Int64
			i := informer(t, clientOf(t, server, patient(ordinary), func(rt http.RoundTripper) http.RoundTripper { return counting{rt, &unanswered} }), watchList)
			holdsChanged(t, i)
			address := server.Listener.Addr().String()
			_ = server.Listener.Close() // new connections are refused
			server.CloseClientConnections()
			wait(t, "a watch that fails", func() (string, bool) { return "no failure", unanswered.Load() > 0 })
			listener, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			restored := httptest.NewUnstartedServer(history(1))
			_ = restored.Listener.Close()
			restored.Listener, restored.EnableHTTP2 = listener, true
			restored.StartTLS()
			t.Cleanup(func() { restored.CloseClientConnections(); restored.Close() })
			holdsBackup(t, i)
		})
	}
}

// TestAttackRestoredEtcdWithoutOutage: a provider restores its etcd from a backup, and no
// connection of the consumer is refused meanwhile. Another API server takes over when the
// connections break, or a load balancer asks for another attempt.
//
// Outcome: a watch that ended early, or could not begin, is resumed only after the consumer has
// asked for the newest resource version. If it is lower than before, the consumer's caches list
// anew, and hold what the backup had.
func TestAttackRestoredEtcdWithoutOutage(t *testing.T) {
	t.Parallel()
	for way, watchList := range map[string]bool{"list": false, "first events": true} {
		t.Run(way+", connections break", func(t *testing.T) {
			t.Parallel()
			var answers atomic.Pointer[http.HandlerFunc]
			before, after := history(0), history(1)
			answers.Store(&before)
			server := serverOf(t, func(w http.ResponseWriter, r *http.Request) { (*answers.Load())(w, r) })
			i := informer(t, clientOf(t, server, patient(ordinary)), watchList)
			holdsChanged(t, i)
			answers.Store(&after)
			server.CloseClientConnections()
			holdsBackup(t, i)
		})
		for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
			t.Run(fmt.Sprint(way, ", ", status), func(t *testing.T) {
				t.Parallel()
				stops, stop := context.WithCancel(t.Context())
				var attempts atomic.Int64
				server := serverOf(t, func(w http.ResponseWriter, r *http.Request) {
					switch {
					case stops.Err() == nil:
						history(0)(w, r.WithContext(stops)) // watches end without an error
					case attempts.Add(1) > 1:
						history(1)(w, r)
					default:
						w.Header().Set("Retry-After", "1")
						w.WriteHeader(status)
					}
				})
				i := informer(t, clientOf(t, server, patient(ordinary)), watchList)
				holdsChanged(t, i)
				stop()
				holdsBackup(t, i)
			})
		}
	}
}

// TestBrokenWatchIsResumed: a watch that broke off continues at its resource version, without a
// list, which would wait for the back-off of its cache. The newest resource version is not read for
// a watch that ended after its timeout.
func TestBrokenWatchIsResumed(t *testing.T) {
	t.Parallel()
	const breaks = 5
	var lists, versions, changes atomic.Int64
	server := serverOf(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		switch {
		case r.FormValue("limit") == "1":
			versions.Add(1)
			fmt.Fprint(w, `{"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
				"metadata": {"resourceVersion": "99"}, "items": []}`)
			return
		case r.FormValue("timeoutSeconds") == "1":
			return
		case r.FormValue("sendInitialEvents") != "":
			lists.Add(1)
			fmt.Fprintf(w, `{"type": "ADDED", "object": %s}%s`, podText(0), bookmark)
		}
		version := strconv.Quote(fmt.Sprint(10 + changes.Add(1)))
		fmt.Fprintf(w, `{"type": "MODIFIED", "object": %s}`, strings.ReplaceAll(podText(0), `"7"`, version))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	clients := clientOf(t, server, patient(ordinary))
	i := informer(t, clients, true)
	for n := range breaks + 1 {
		wait(t, "an event of each watch", func() (string, bool) { return hasVersion(i, fmt.Sprint(11+n)) })
		if n < breaks {
			server.CloseClientConnections()
		}
	}
	if lists.Load() != 1 || versions.Load() != breaks {
		t.Errorf("%d lists and %d reads of the version for %d broken watches", lists.Load(), versions.Load(), breaks)
	}
	for range 2 {
		options := metav1.ListOptions{ResourceVersion: "7", TimeoutSeconds: new(int64(1))}
		w, err := clients.CoreV1().Pods("other").Watch(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		for range w.ResultChan() {
			t.Error("unexpected event")
		}
		ended := time.Now() // no earlier than the watch began, by the clock of the client
		wait(t, "the timeout", func() (string, bool) { return "a second is not over", time.Since(ended) > time.Second })
	}
	if versions.Load() != breaks {
		t.Error("the newest version was read for a watch that ended after its timeout")
	}
}

// TestLargeListsComeInPages: a list that is too large for one response is asked for again in pages.
func TestLargeListsComeInPages(t *testing.T) {
	t.Parallel()
	const pods = 3000
	b := patient(ordinary)
	b.list, b.cache = 1<<20, 8<<20
	server := serverOf(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		from, to, more := 0, pods, ""
		if limit, _ := strconv.Atoi(r.FormValue("limit")); limit > 0 && r.FormValue("resourceVersion") != "0" { // as kube-apiserver
			from, _ = strconv.Atoi(r.FormValue("continue"))
			if to = from + limit; to < pods {
				more = strconv.Itoa(to)
			}
		}
		if r.FormValue("watch") != "" {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		fmt.Fprintf(w, `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7", "continue": %q}, "items": [%s`, more, podText(from))
		for i := from + 1; i < min(to, pods); i++ {
			fmt.Fprint(w, ",", podText(i))
		}
		fmt.Fprint(w, "]}")
	})
	holds(t, informer(t, clientOf(t, server, b), false), pods)
}

// TestEventsOfAnySize: where an event ends is found whatever is in it, and however it is cut into
// reads.
func TestEventsOfAnySize(t *testing.T) {
	t.Parallel()
	event := `{"type": "ADDED", "object": {"a": "\\\"}{", "b": [1, "[", {"c": "\\"}, []], "d": {}}}` + "\n"
	length := binary.BigEndian.AppendUint32(nil, uint32(len(event)))
	for name, c := range map[string]struct {
		meter meter
		body  string
		event int64 // the size of each
	}{
		"json":     {meter{events: true, json: true}, event, int64(len(event)) + 3*decodedSize},
		"protobuf": {meter{events: true, protobuf: true}, string(length) + event, int64(len(event)) + decodedSize},
	} {
		for cut := 1; cut < 9; cut++ {
			m, body := c.meter, []byte(strings.Repeat(c.body, 4))
			for part := range slices.Chunk(body, cut) {
				m.read(part)
			}
			if m.all != 4*c.event || m.largest > c.event || m.open > 1 {
				t.Errorf("%s in reads of %d: %d bytes, the largest event %d, %d left; want events of %d", name, cut, m.all, m.largest, m.open, c.event)
			}
		}
	}
}

func TestCollections(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/api/v1/pods": true, "/api/v1/namespaces/shop/pods": true, "/apis/apps/v1/namespaces/shop/deployments": true, "/api/v1/namespaces": true,
		"/api/v1/namespaces/shop": false, "/api/v1/namespaces/shop/pods/web": false, "/api/v1/namespaces/shop/pods/web/log": false,
		"/apis/apps/v1": false, "/apis": false, "/api/v1": false, "/livez": false, "/": false, "": false, "/api/v1/nodes/x": false,
	} {
		if got := isCollection(path); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
}
