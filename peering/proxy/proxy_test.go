// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/tls"
	"io"
	"k8s.io/klog/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// TestEveryHostIsTheAPIServer: whatever host a client names, it ends at the API server.
func TestEveryHostIsTheAPIServer(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "asked for "+r.Host)
	}))
	defer server.Close()
	proxy := httptest.NewServer(&handler{target: server.Listener.Addr().String(), log: klog.Logger{}})
	defer proxy.Close()

	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{
		Proxy:           http.ProxyURL(address),
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the host named does not exist
	}}
	response, err := client.Get("https://anything.invalid:6443/livez")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(body), "asked for anything.invalid:6443"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestRefusals: anything but CONNECT, and hosts that are not on the list.
func TestRefusals(t *testing.T) {
	proxy := httptest.NewServer(&handler{target: "127.0.0.1:1", allowed: []string{"kubernetes.default.svc:443"}, log: klog.Logger{}})
	defer proxy.Close()
	for _, c := range []struct {
		method, host string
		status       int
	}{
		{http.MethodGet, "kubernetes.default.svc:443", http.StatusMethodNotAllowed},
		{http.MethodConnect, "example.org:443", http.StatusForbidden},
		{http.MethodConnect, "kubernetes.default.svc:443", http.StatusBadGateway},
	} {
		request := httptest.NewRequest(c.method, "http://"+c.host, nil)
		request.Host = c.host
		recorder := httptest.NewRecorder()
		proxy.Config.Handler.ServeHTTP(recorder, request)
		if recorder.Code != c.status {
			t.Errorf("%s %s: got %d, want %d", c.method, c.host, recorder.Code, c.status)
		}
	}
}
