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

	"github.com/liqo-go/liqo/internal/patience"
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
	const rounds = 6
	// No time passes after which a healthy peer is asked all the same.
	checks := remote.Checks{Interval: time.Second, Timeout: patience.Limit, MaxUnasked: 1 << 20}
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	done, noticed := 0, false
	peer.Monitor(ctx, checks, func(_ time.Time, h remote.Health) bool {
		switch done++; {
		case done <= rounds && h.Code != http.StatusOK:
			t.Errorf("a peer that lives is not healthy: %+v", h)
			cancel()
		case done == rounds:
			// It is asked again only if a ping is not answered within a second.
			if n := asked.Load(); n == 0 || n > rounds/2 {
				t.Errorf("asked %d times in %d checks", n, rounds)
			}
			server.CloseClientConnections()
			server.Close()
		case h.Err != nil:
			noticed = true
			cancel()
		}
		return h.Code == http.StatusOK
	})
	if !noticed {
		t.Errorf("the end of a peer is not noticed in %d checks", done)
	}
}
