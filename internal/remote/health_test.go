// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/remote"
)

// TestHealthyPeerIsAskedSeldom: an open connection tells that the peer lives, and its end is
// noticed.
func TestHealthyPeerIsAskedSeldom(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	peer, err := remote.New(t.Context(), kubeconfig(server.URL, "certificate-authority-data: "+base64.StdEncoding.EncodeToString(ca), ""))
	if err != nil {
		t.Fatal(err)
	}
	const rounds, patience = 8, time.Minute
	checks := remote.Checks{Interval: time.Second, Timeout: patience, MaxUnasked: 4}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	started, ended, done := time.Now(), time.Time{}, 0
	peer.Monitor(ctx, checks, func(_ time.Time, h remote.Health) bool {
		switch done++; {
		case done <= rounds && h.Code != http.StatusOK:
			t.Errorf("a peer that lives is not healthy: %+v", h)
			cancel()
		case done == rounds:
			// On a machine so slow that every check comes when it is time to ask, it asks at every
			// check.
			most := 1 + int(time.Since(started)/(time.Duration(checks.MaxUnasked)*checks.Interval))
			if n := int(asked.Load()); n == 0 || n > most {
				t.Errorf("asked %d times in %d checks, want %d at most", n, rounds, most)
			}
			server.CloseClientConnections()
			server.Close()
			ended = time.Now()
		case h.Err != nil:
			cancel()
		}
		return h.Code == http.StatusOK
	})
	if late := time.Since(ended); done <= rounds || late > patience {
		t.Errorf("the end of a peer is noticed after %v and %d checks", late, done)
	}
}
