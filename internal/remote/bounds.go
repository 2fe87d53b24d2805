// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// bounds limit what the responses of one peer may take of this process, which may serve other
// peers, too. Sizes are in bytes, after decompression, with decodedSize for each object of an
// array.
//
//	response             size                               time
//	page of a list       list                               time
//	watch                event, each; cache, with its list  unlimited
//	anything else        other                              time
//
// A cache whose list and events exceed the bound fails, backs off and lists again, which drops what
// the peer no longer has.
type bounds struct {
	list, cache, event, other int64
	time                      time.Duration
}

// ordinary bounds a peer that has a process of its own. etcd accepts objects of 1.5 MiB by default.
// 10,000 ShadowPods of a namespace are about 90 MB, and as many Pods 100 MB.
var ordinary = bounds{list: 64 << 20, cache: 192 << 20, event: 2 << 20, other: 4 << 20, time: 30 * time.Second}

// few bounds a peer in a process that serves all peers and reads only the objects of peerings: at
// most 100 slices and 1000 namespaces. Ten peers that fill each of seven caches take 560 MiB, and 1
// GiB with garbage: TestAttackTenPeers.
var few = bounds{list: 8 << 20, cache: 8 << 20, event: 2 << 20, other: 4 << 20, time: 30 * time.Second}

const (
	// decodedSize is the least size of a decoded object, whatever the size of its text: "{}" may
	// become a Container of 700 bytes or a Pod of 1.3 KB, an EnvVar has 40.
	decodedSize = 256
	// pageSize is the number of objects in a page, for a list too large for one response. client-go
	// uses the same.
	pageSize = "500"
)

// bounded sends requests to one peer and bounds the responses.
type bounded struct {
	bounds
	mu     sync.Mutex
	caches map[string]*content // by path and selectors
}

// content measures the responses of a peer for one cache.
type content struct {
	size  atomic.Int64 // since the cache was listed last
	paged atomic.Bool  // a response was too large: ask for pages
	until atomic.Int64 // the planned end of the last watch, Unix time in ns
}

// roundTrip sends a request by transport; base is the path at which the peer's API begins.
func (b *bounded) roundTrip(transport http.RoundTripper, base string, req *http.Request) (*http.Response, error) {
	r, query := b.response(req), req.URL.Query()
	if req.Method != http.MethodGet ||
		!isCollection(strings.TrimPrefix(req.URL.Path, strings.TrimSuffix(base, "/"))) {
		return r.send(transport, req, false)
	}
	r.content = b.content(req.URL.Path, query)
	watches := query.Get("watch") == "true" || query.Get("watch") == "1"
	if query.Get("sendInitialEvents") == "true" || !watches && query.Get("continue") == "" {
		r.content.size.Store(0)
		r.content.until.Store(0) // the next watch starts from this list
	}
	if watches {
		return b.watch(transport, req, r, query)
	}
	if r.content.paged.Load() {
		req = req.Clone(req.Context())
		req.URL = inPages(req.URL, query)
	}
	return r.send(transport, req, false)
}

// watch sends the request of a watch. If it fails and cannot be resumed, its cache lists again.
func (b *bounded) watch(
	transport http.RoundTripper, req *http.Request, r *response, query url.Values,
) (resp *http.Response, err error) {
	resumes, held := query.Get("sendInitialEvents") != "true", query.Get("resourceVersion")
	if resumes && held != "" && held != "0" && time.Now().UnixNano() < r.content.until.Load() {
		resp, err = b.checkHistory(transport, req, held)
	}
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds")) // 0: the API server chooses
	r.content.until.Store(time.Now().Add(time.Duration(seconds) * time.Second).UnixNano())
	if resp == nil && err == nil {
		resp, err = r.send(transport, req, true)
	}
	if err != nil && resumes && r.parent.Err() == nil {
		return expired(req, err), nil
	}
	return resp, err
}

// checkHistory compares the resource version of a cache with the newest of its collection, before a
// watch is resumed that ended early or failed to start. An etcd restored from a backup has a lower
// version, which is an error. If the response is not a list, it is returned, so that the watch
// fails with it. Both results are nil if the watch can be resumed.
func (b *bounded) checkHistory(transport http.RoundTripper, watch *http.Request, held string) (*http.Response, error) {
	req := watch.Clone(watch.Context())
	req.URL.RawQuery = "limit=1" // from etcd, and without selectors, which might read all of the collection
	req.Header.Set("Accept", runtime.ContentTypeJSON+";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	resp, err := b.response(req).send(transport, req, false)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	defer func() { _ = resp.Body.Close() }()
	var list metav1.PartialObjectMetadataList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("read newest resource version: %w", err)
	}
	if order, err := resourceversion.CompareResourceVersion(held, list.ResourceVersion); err != nil || order > 0 {
		return nil, fmt.Errorf("resource version went from %q back to %q", held, list.ResourceVersion)
	}
	return nil, nil
}

// expired returns the response for a watch that cannot be resumed, so that its cache lists again.
// After other errors client-go resumes the watch at the same resource version. If etcd was restored
// from a backup meanwhile, the watch would continue in another history without notice.
func expired(req *http.Request, err error) *http.Response {
	message := fmt.Sprintf("watch of API server %s was interrupted: %v", req.URL.Host, err)
	status := apierrors.NewResourceExpired(message).Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, _ := json.Marshal(status) // cannot fail
	return &http.Response{
		Status: http.StatusText(http.StatusGone), StatusCode: http.StatusGone, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(bytes.NewReader(body)),
		Request: req,
	}
}

// inPages requests pages if a cache requests the whole list. A cache's request names a resource
// version, and it follows pages; etcd alone serves them, with the newest version. Other readers
// take the first page for the whole list, so their requests are not changed.
func inPages(address *url.URL, query url.Values) *url.URL {
	if !query.Has("resourceVersion") {
		return address
	}
	query.Del("resourceVersion")
	query.Del("resourceVersionMatch")
	query.Set("limit", pageSize)
	out := *address
	out.RawQuery = query.Encode()
	return &out
}

// content returns the content of the cache that a request belongs to.
func (b *bounded) content(path string, query url.Values) *content {
	key := strings.Join([]string{path, query.Get("labelSelector"), query.Get("fieldSelector")}, "\n")
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.caches == nil {
		b.caches = map[string]*content{}
	}
	if b.caches[key] == nil {
		b.caches[key] = &content{}
	}
	return b.caches[key]
}

// isCollection reports whether a path below the API's base is that of a collection: /api/v1/pods,
// /apis/apps/v1/namespaces/shop/deployments.
func isCollection(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return false
	}
	return len(parts) == 1 || len(parts) == 3 && parts[0] == "namespaces"
}

// response bounds the body of a response. After an error it stays at its end.
type response struct {
	io.ReadCloser
	*bounds
	host    string
	kind    string // for messages
	bound   int64  // of the whole body or, in a watch, of each event
	content *content
	meter   meter
	err     error

	parent, ctx context.Context // of the caller, and of the request
	cancel      context.CancelFunc
	late        error // nil without a time limit
}

func (b *bounded) response(to *http.Request) *response {
	return &response{bounds: &b.bounds, host: to.URL.Host, parent: to.Context()}
}

// send sends a request and starts to bound its response.
func (r *response) send(transport http.RoundTripper, req *http.Request, watches bool) (*http.Response, error) {
	if watches {
		r.ctx, r.cancel = context.WithCancel(r.parent)
	} else {
		r.late = fmt.Errorf("response of API server %s takes longer than %v", r.host, r.time)
		r.ctx, r.cancel = context.WithTimeoutCause(r.parent, r.time, r.late)
	}
	resp, err := transport.RoundTrip(req.WithContext(r.ctx))
	if err != nil {
		r.cancel()
		return nil, r.explain(err)
	}
	r.begin(resp, watches)
	return resp, nil
}

// begin replaces the body of resp by r.
func (r *response) begin(resp *http.Response, watches bool) {
	r.kind, r.bound = "response", r.other
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch mediaType {
	case runtime.ContentTypeJSON, "":
		r.meter.json = true
	case runtime.ContentTypeProtobuf:
	default: // is not decoded: YAML, which no client asks for, takes many times its size
		resp.Header.Set("Content-Type", "text/plain")
	}
	switch {
	case r.content == nil || resp.StatusCode != http.StatusOK:
	case watches:
		r.kind, r.bound = "watch event", r.event
		r.meter.events, r.meter.protobuf = true, mediaType == runtime.ContentTypeProtobuf
	default:
		r.kind, r.bound = "list", r.list
	}
	r.ReadCloser, resp.Body = resp.Body, r
}

// Read fails once a bound is exceeded, and returns nothing of what exceeds it.
func (r *response) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.ReadCloser.Read(p)
	if r.err = r.count(p[:n]); r.err != nil {
		return 0, r.err
	}
	if err != nil {
		r.err = r.explain(err)
	}
	return n, r.err
}

func (r *response) count(p []byte) error {
	before := r.meter.all
	r.meter.read(p)
	if r.meter.largest > r.bound {
		if r.content != nil {
			r.content.paged.Store(true)
		}
		return fmt.Errorf("%s of API server %s exceeds %s", r.kind, r.host, inBinary(r.bound))
	}
	if r.content != nil && r.content.size.Add(r.meter.all-before) > r.cache {
		return fmt.Errorf("list and watch events of API server %s exceed %s", r.host, inBinary(r.cache))
	}
	return nil
}

// explain returns the time limit as the error if it has ended the request.
func (r *response) explain(err error) error {
	if r.late != nil && r.parent.Err() == nil && context.Cause(r.ctx) == r.late {
		return r.late
	}
	return err
}

// Close ends the request.
func (r *response) Close() error {
	defer r.cancel()
	return r.ReadCloser.Close()
}

func inBinary(bytes int64) string {
	return resource.NewQuantity(bytes, resource.BinarySI).String() + "B"
}

// meter measures a body while it is read.
type meter struct {
	all     int64 // the size of all that was read
	open    int64 // the size of the event that has begun or, of other bodies, of all
	largest int64 // the largest value of open

	events, json, protobuf bool // what the body holds; all false: bytes

	depth                    int  // of JSON objects and arrays
	quoted, escaped, element bool // in a JSON string, after a backslash, where an element of an array may begin
	length                   []byte
	left                     int64 // bytes until the event in protobuf ends
}

func (m *meter) add(size int64) {
	m.all, m.open = m.all+size, m.open+size
	m.largest = max(m.largest, m.open)
}

func (m *meter) read(p []byte) {
	switch {
	case m.json:
		for _, c := range p {
			m.readJSON(c)
		}
	case m.protobuf:
		m.readProtobuf(p)
	default:
		m.add(int64(len(p)))
	}
}

// readJSON finds the end of an event by its braces: a newline may come between any two tokens.
// Where the text is not JSON its decoder stops at the same byte.
func (m *meter) readJSON(c byte) {
	m.add(1)
	switch {
	case m.escaped:
		m.escaped = false
	case m.quoted:
		m.escaped, m.quoted = c == '\\', c != '"'
	case c == '"':
		m.quoted, m.element = true, false
	case c == '{' || c == '[':
		if m.depth++; m.element {
			m.add(decodedSize)
		}
		m.element = c == '['
	case c == '}' || c == ']':
		if m.depth--; m.depth == 0 && m.events {
			m.end()
		}
	case c == ',':
		m.element = true
	}
}

// readProtobuf reads events that begin with their length, 4 bytes in network order.
func (m *meter) readProtobuf(p []byte) {
	for len(p) > 0 {
		if m.left > 0 {
			n := min(m.left, int64(len(p)))
			m.left, p = m.left-n, p[n:]
			continue
		}
		m.length, p = append(m.length, p[0]), p[1:]
		if len(m.length) == 4 {
			m.left = int64(binary.BigEndian.Uint32(m.length))
			m.add(m.left)
			m.end()
			m.length = m.length[:0]
		}
	}
}

// end ends an event, which holds an object to decode.
func (m *meter) end() {
	m.all, m.open = m.all+decodedSize, 0
}
