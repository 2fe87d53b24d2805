// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// TestEventsAreNotOfTheFirstState: the next server of a process does not wait for an event that only the first one
// recorded, nor for its leases.
func TestEventsAreNotOfTheFirstState(t *testing.T) {
	const role = "/registry/clusterroles/view"
	etcd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var kvs []pair
		for _, key := range []string{role, "/registry/events/default/kubernetes.18ece81501160308", "/registry/masterleases/192.0.2.1"} {
			kvs = append(kvs, pair{Key: []byte(key), Value: []byte("v")})
		}
		if err := json.NewEncoder(w).Encode(map[string]any{"header": map[string]string{"revision": "7"}, "kvs": kvs}); err != nil {
			t.Error(err)
		}
	}))
	defer etcd.Close()
	s := &state{etcd: etcd.URL}
	if err := s.record(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if keys := slices.Collect(maps.Keys(s.first)); !slices.Equal(keys, []string{role}) || s.revision != 7 {
		t.Errorf("the first state at revision %d has %q", s.revision, keys)
	}
}
