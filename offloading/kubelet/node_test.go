// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/liqo-go/liqo/offloading/plan"
)

// TestVersionFollowsTheAPIServer: an upgrade of the API server shows after a heartbeat, and its last version stays
// while it does not answer.
func TestVersionFollowsTheAPIServer(t *testing.T) {
	t.Parallel()
	answers := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if answers == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else if err := json.NewEncoder(w).Encode(version.Info{GitVersion: answers}); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	home, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	upgraded := make(chan struct{}, 1)
	n := &node{Options: Options{Upgraded: upgraded}, home: home, version: fallbackVersion}
	for _, step := range []struct {
		later           time.Duration
		answers, expect string
		upgrades        int
	}{
		{0, "", fallbackVersion, 0},
		{0, "v1.35.4", "v1.35.4", 0},
		{0, "v1.36.3", "v1.35.4", 0},
		{plan.Heartbeat, "", "v1.35.4", 0},
		{0, "v1.36.3", "v1.36.3", 1},
		{plan.Heartbeat, "v1.36.3", "v1.36.3", 1},
	} {
		answers = step.answers
		n.versionRead = n.versionRead.Add(-step.later)
		if n.readVersion(t.Context()); n.version != step.expect {
			t.Errorf("%+v: %s", step, n.version)
		}
		if len(upgraded) != step.upgrades {
			t.Errorf("%+v: %d upgrades are announced", step, len(upgraded))
		}
	}
}
