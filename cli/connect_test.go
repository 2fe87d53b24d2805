// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestOverloadedServersAreReadAgain: a read that an API server gives up is sent again, and what changes something is not.
func TestOverloadedServersAreReadAgain(t *testing.T) {
	for _, c := range []struct {
		method                 string
		overloaded, want, sent int
	}{
		{http.MethodGet, 2, http.StatusOK, 3},
		{http.MethodGet, 9, http.StatusGatewayTimeout, 3},
		{http.MethodPost, 9, http.StatusGatewayTimeout, 1},
		{http.MethodGet, 0, http.StatusOK, 1},
	} {
		sent := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if sent++; sent <= c.overloaded {
				w.WriteHeader(http.StatusGatewayTimeout)
			}
		}))
		request, err := http.NewRequestWithContext(t.Context(), c.method, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := persistent{http.DefaultTransport}.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		server.Close()
		if answer.StatusCode != c.want || sent != c.sent {
			t.Errorf("%s of a server that gives up %d times: %d after %d requests", c.method, c.overloaded, answer.StatusCode, sent)
		}
	}
}
