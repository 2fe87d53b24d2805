// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/liqo-go/liqo/internal/seed"
	"github.com/liqo-go/liqo/view"
)

var update = flag.Bool("update", false, "write the pages in testdata")

// start serves snapshots and returns the server, and a client of it.
func start(t *testing.T, snapshots *Snapshots) (*Server, *http.Client) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(snapshots, listener)
	return s, serve(t, s)
}

// serve answers requests until the test ends, and returns a client that keeps neither cookies nor follows redirects.
func serve(t *testing.T, s *Server) *http.Client {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	transport := &http.Transport{}
	t.Cleanup(func() {
		stop()
		transport.CloseIdleConnections()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func recorded(t *testing.T) *view.Snapshot {
	t.Helper()
	demo, err := Demo()
	if err != nil {
		t.Fatal(err)
	}
	return demo
}

// request returns a request of the server with its cookie.
func (s *Server) request(t *testing.T, method, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.listener.Addr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: s.cookie(), Value: s.session})
	return r
}

// answer returns status and body of the answer to a request.
func answer(t *testing.T, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // it was read
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// TestAttackDashboardRequests: another site, another name for loopback, another user of the machine and a method that
// writes try the dashboard.
//
// Outcome: each is refused before anything of the cluster is shown, and no answer allows scripts that are not its own.
func TestAttackDashboardRequests(t *testing.T) {
	s, c := start(t, NewSnapshots(recorded(t)))
	host := s.listener.Addr().String()
	for name, test := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"own":               {func(*http.Request) {}, http.StatusOK},
		"head":              {func(r *http.Request) { r.Method = http.MethodHead }, http.StatusOK},
		"own origin":        {func(r *http.Request) { r.Header.Set("Origin", "http://"+host) }, http.StatusOK},
		"rebound name":      {func(r *http.Request) { r.Host = "attacker.example" }, http.StatusMisdirectedRequest},
		"name with port":    {func(r *http.Request) { r.Host = "attacker.example:80" }, http.StatusMisdirectedRequest},
		"other port":        {func(r *http.Request) { r.Host = "127.0.0.1:1" }, http.StatusMisdirectedRequest},
		"other origin":      {func(r *http.Request) { r.Header.Set("Origin", "https://attacker.example") }, http.StatusForbidden},
		"no origin":         {func(r *http.Request) { r.Header.Set("Origin", "null") }, http.StatusForbidden},
		"secure own origin": {func(r *http.Request) { r.Header.Set("Origin", "https://"+host) }, http.StatusForbidden},
		"other site":        {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, http.StatusForbidden},
		"page of another port": {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") },
			http.StatusForbidden},
		"own site":        {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, http.StatusOK},
		"typed address":   {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") }, http.StatusOK},
		"no cookie":       {func(r *http.Request) { r.Header.Del("Cookie") }, http.StatusForbidden},
		"empty cookie":    {func(r *http.Request) { r.Header.Set("Cookie", s.cookie()+"=") }, http.StatusForbidden},
		"token as cookie": {func(r *http.Request) { r.Header.Set("Cookie", s.cookie()+"="+s.token) }, http.StatusForbidden},
		"wrong token": {func(r *http.Request) {
			r.Header.Del("Cookie")
			r.URL.RawQuery = "token=" + s.session
		}, http.StatusForbidden},
		"post":    {func(r *http.Request) { r.Method = http.MethodPost }, http.StatusMethodNotAllowed},
		"delete":  {func(r *http.Request) { r.Method = http.MethodDelete }, http.StatusMethodNotAllowed},
		"asset":   {func(r *http.Request) { r.URL.Path = "/assets/live.js" }, http.StatusOK},
		"no page": {func(r *http.Request) { r.URL.Path = "/peer" }, http.StatusNotFound},
		"no peer": {func(r *http.Request) { r.URL.Path = "/peers/atlantis" }, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			r := s.request(t, http.MethodGet, "/")
			test.change(r)
			response, body := answer(t, c, r)
			if response.StatusCode != test.want || test.want > 400 && strings.Contains(body, "milan") {
				t.Errorf("got %s, want %d: %.100s", response.Status, test.want, body)
			}
			if got := response.Header.Get("Content-Security-Policy"); got != policy || strings.Contains(got, "unsafe") {
				t.Errorf("policy %q", got)
			}
		})
	}
}

// standard listens on the port of http without a socket: tests may not open that port.
type standard struct{ net.Listener }

func (standard) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// TestOwnHost: a server on the port of http is named without it.
func TestOwnHost(t *testing.T) {
	s := New(NewSnapshots(recorded(t)), standard{})
	for host, want := range map[string]bool{"127.0.0.1": true, "localhost": true, "127.0.0.1:80": true,
		"localhost:80": true, "attacker.example": false, "localhost:8080": false, "": false} {
		if s.isOwnHost(host) != want {
			t.Errorf("host %q: %t", host, !want)
		}
	}
	other, _ := start(t, NewSnapshots(recorded(t)))
	if other.isOwnHost("localhost") {
		t.Error("a server on another port is named without it")
	}
}

// TestTokenBecomesACookie: the token of the printed address is exchanged for a cookie and is gone from the address.
func TestTokenBecomesACookie(t *testing.T) {
	s, c := start(t, NewSnapshots(recorded(t)))
	for _, path := range []string{"/", "/peers/milan", "//attacker.example/"} {
		r := s.request(t, http.MethodGet, path+"?token="+s.token)
		r.Header.Del("Cookie")
		response, _ := answer(t, c, r)
		cookie := response.Header.Get("Set-Cookie")
		for _, want := range []string{s.cookie() + "=" + s.session, "HttpOnly", "SameSite=Strict", "Path=/"} {
			if !strings.Contains(cookie, want) {
				t.Errorf("%s: cookie %q lacks %s", path, cookie, want)
			}
		}
		to := response.Header.Get("Location")
		if response.StatusCode != http.StatusSeeOther || strings.Contains(to, "token") || strings.HasPrefix(to, "//") {
			t.Errorf("%s: got %s to %q", path, response.Status, to)
		}
	}
	if !strings.HasPrefix(s.URL(), "http://127.0.0.1:") || s.token == s.session || len(s.token) < 40 {
		t.Error("the address or the secrets are not as they should be")
	}
}

// TestPages compares the pages of recorded clusters with testdata.
func TestPages(t *testing.T) {
	s, c := start(t, NewSnapshots(recorded(t)))
	for name, path := range map[string]string{"map": "/", "peer-works": "/peers/milan", "peer-tunnel-down": "/peers/naples",
		"peer-consumer": "/peers/turin", "workloads": "/workloads", "events": "/events"} {
		response, got := answer(t, c, s.request(t, http.MethodGet, path))
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s: %s", path, response.Status, got)
		}
		file := filepath.Join("testdata", name+".html")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

// TestLive: an open page gets its content at once, and again when it looks different.
func TestLive(t *testing.T) {
	snapshots := NewSnapshots(recorded(t))
	s, c := start(t, snapshots)
	response, err := c.Do(s.request(t, http.MethodGet, "/live?page=%2F"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	next := func() (text string) {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if err := json.Unmarshal([]byte(data), &text); err != nil {
					t.Fatal(err)
				}
				return text
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return ""
	}
	if text := next(); !strings.Contains(text, "naples") || strings.Contains(text, "<html") {
		t.Errorf("first: %.200s", text)
	}
	same := recorded(t)
	snapshots.Renew(func() *view.Snapshot { return same }) // looks the same
	fewer := recorded(t)
	fewer.ForeignClusters.Items = fewer.ForeignClusters.Items[:1]
	snapshots.Renew(func() *view.Snapshot { return fewer })
	if text := next(); strings.Contains(text, "naples") || !strings.Contains(text, "milan") {
		t.Errorf("second: %.200s", text)
	}
}

// TestStreamsEndWhole: pages that are open when the dashboard ends get the end of their streams.
func TestStreamsEndWhole(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(NewSnapshots(recorded(t)), listener)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	streams := make([]io.ReadCloser, maxStreams)
	for i := range streams {
		response, err := http.DefaultClient.Do(s.request(t, http.MethodGet, "/live?page=%2F"))
		if err != nil {
			t.Fatal(err)
		}
		streams[i] = response.Body
		defer func() { _ = response.Body.Close() }()
	}
	stop()
	for _, stream := range streams {
		if _, err := io.ReadAll(stream); err != nil {
			t.Error(err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestSnapshotsAreTakenWhenNeeded: changes that no page shows cost nothing, and pages share what is taken.
func TestSnapshotsAreTakenWhenNeeded(t *testing.T) {
	snapshots, taken := NewSnapshots(recorded(t)), 0
	s, c := start(t, snapshots)
	for range 3 {
		snapshots.Renew(func() *view.Snapshot { taken++; return &view.Snapshot{ClusterID: "new"} })
	}
	if taken != 0 {
		t.Errorf("taken %d times without a page", taken)
	}
	for range 2 {
		if _, body := answer(t, c, s.request(t, http.MethodGet, "/")); !strings.Contains(body, "new") {
			t.Error(body)
		}
	}
	if taken != 1 {
		t.Errorf("taken %d times for one change", taken)
	}
}

// TestOrderOfListsIsNotSeen: caches list objects in any order, pages always in the same one, broken peers first.
func TestOrderOfListsIsNotSeen(t *testing.T) {
	s := recorded(t)
	s.Sort()
	want := drawn(t, s)
	if broken, works := strings.Index(want, `id="peer-naples"`), strings.Index(want, `id="peer-turin"`); broken > works {
		t.Error("a broken peer is behind one that works")
	}
	chance := seed.Rand(t)
	for range 10 {
		for _, list := range s.Lists() {
			items := reflect.ValueOf(list).Elem().FieldByName("Items")
			chance.Shuffle(items.Len(), reflect.Swapper(items.Interface()))
		}
		s.Sort()
		if diff := cmp.Diff(want, drawn(t, s)); diff != "" {
			t.Fatal(diff)
		}
	}
}

// TestStreamsAreBounded: beyond the limit, further open pages are refused, and a page without a stream is none.
func TestStreamsAreBounded(t *testing.T) {
	s, c := start(t, NewSnapshots(recorded(t)))
	for range maxStreams {
		s.streams <- struct{}{}
	}
	if response, _ := answer(t, c, s.request(t, http.MethodGet, "/live?page=/")); response.StatusCode != http.StatusServiceUnavailable {
		t.Error(response.Status)
	}
	if response, _ := answer(t, c, s.request(t, http.MethodGet, "/live?page=https://x/")); response.StatusCode != http.StatusNotFound {
		t.Error(response.Status)
	}
}

// TestStaleIsSaidOnce: screen readers read that the page may be old, and not each error that follows.
func TestStaleIsSaidOnce(t *testing.T) {
	s := recorded(t)
	has(t, page(t, s, "/"), `<p id="stale" role="status"></p>`)
	s.Stale = "connection refused"
	has(t, page(t, s, "/"), `role="status" class="problem">What is shown may be old.</p>`, `<p>connection refused</p>`,
		"!role=\"alert\"")
}

// TestBundleIsSmall: what a browser loads beside a page, and what pages are made of, is far under 300 KB.
func TestBundleIsSmall(t *testing.T) {
	size := 0
	for _, all := range []fs.FS{assets, templates} {
		if err := fs.WalkDir(all, ".", func(name string, _ fs.DirEntry, err error) error {
			if text, unread := fs.ReadFile(all, name); unread == nil { // no directory
				size += len(text)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if size < 10_000 || size > 50_000 {
		t.Errorf("%d bytes", size)
	}
}

// TestMapDrawsSomeOfMany: the drawing shows the first peers of each side and how many follow.
func TestMapDrawsSomeOfMany(t *testing.T) {
	s := recorded(t)
	for i := range 2 * maxDrawn {
		peer := s.ForeignClusters.Items[0].DeepCopy()
		peer.Spec.ClusterID, peer.Status.Role = fmt.Sprintf("city-%02d", i), ""
		s.Add(peer)
	}
	has(t, page(t, s, "/"), `<h2 id="consumers">Consumers</h2>`, `<h2 id="providers">Providers and others</h2>`,
		`<div class="card node broken"><a href="/peers/naples">`, `and <a href="#peers">11 more</a>`)
	s.ForeignClusters.Items = nil
	has(t, page(t, s, "/"), "This cluster: rome", "!Consumers", "!Providers")
}
