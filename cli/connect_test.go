// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestOverloadedServersAreReadAgain: a read that an API server gives up twice is sent a third time, and what changes
// something is sent once.
func TestOverloadedServersAreReadAgain(t *testing.T) {
	t.Parallel()
	s := newSession(t, "rome")
	s.apply(t, "rome", ofCluster("rome", "milan", "1"))
	transport, err := rest.TransportFor(s.clusters["rome"].Config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(s.clusters["rome"].Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	var mutex sync.Mutex
	sent := map[string]int{}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mutex.Lock()
		sent[r.Method+" "+r.URL.Path]++
		n := sent[r.Method+" "+r.URL.Path]
		mutex.Unlock()
		if n < 3 && strings.Contains(r.URL.Path, "/namespaces/") {
			w.WriteHeader(http.StatusGatewayTimeout)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(busy.Close)
	s.kubeconfig(t, "busy", &clientcmdapi.Cluster{Server: busy.URL}, &clientcmdapi.AuthInfo{})
	said := s.liqoctl(t, strings.Fields("liqoctl create nonce --remote-cluster-id milan --kubeconfig $DIR/busy"))
	mutex.Lock()
	defer mutex.Unlock()
	writes := 0
	for request, n := range sent {
		if !strings.HasPrefix(request, http.MethodGet) {
			writes += n
		}
	}
	if sent["GET /api/v1/namespaces/liqo/configmaps/liqo-clusterid-configmap"] != 3 || writes != 1 {
		t.Errorf("sent are %v:\n%s", sent, said)
	}
}

// TestServersThatDoNotRunAreNoRefusal: a load balancer before API servers that do not run answers with 503, and users
// are not sent to check their permissions.
func TestServersThatDoNotRunAreNoRefusal(t *testing.T) {
	t.Parallel()
	s := newSession(t, "rome")
	balancer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(balancer.Close)
	s.kubeconfig(t, "balanced", &clientcmdapi.Cluster{Server: balancer.URL}, &clientcmdapi.AuthInfo{})
	said := s.liqoctl(t, strings.Fields("liqoctl info --kubeconfig $DIR/balanced"))
	if !strings.Contains(said, "cannot reach the cluster at "+balancer.URL) || strings.Contains(said, "user") {
		t.Error(said)
	}
}
