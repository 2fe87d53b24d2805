// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/offloading/kubelet"
)

// TestLeaseFollowsTheProvider shows that the lease is renewed more often than the provider is
// checked while other responses of it arrive. From when the provider freezes, the lease is not
// renewed, and no later than with a check each time.
func TestLeaseFollowsTheProvider(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t)
	c, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	create(t, c, home()...)
	grant(t, c)
	var asked atomic.Int32
	provider := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	provider.EnableHTTP2 = true
	provider.StartTLS()
	t.Cleanup(provider.Close)
	way := newWire(t, provider.Listener.Addr().String())

	f := kubelet.NewFlags()
	f.HomeClusterID, f.ForeignClusterID, f.NodeName, f.NodeIP, f.TenantNamespace = "milan", "rome", "rome", "127.0.0.1", "tenant-rome"
	f.ListenPort, f.CertificateType = uint16(freePort(t)), kubelet.CertificateSelfSigned
	f.NodePingInterval, f.NodeLeaseDuration, f.NodePingTimeout = 6*time.Second, 24*time.Second, time.Second
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: provider.Certificate().Raw})
	there := &rest.Config{Host: "https://" + way.listener.Addr().String(), TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- kubelet.RunNode(ctx, kubelet.Options{Flags: f, Home: server.ConfigFor("kubelet"), Peer: peer(t, there)})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("node: %v", err)
		}
	})

	lease := &coordinationv1.Lease{}
	// renewed waits until the lease is renewed, or tells that it is not any more.
	renewed := func(most time.Duration) bool {
		before := lease.Spec.RenewTime
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, most, true, func(ctx context.Context) (bool, error) {
			err := c.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: "rome"}, lease)
			return err == nil && !lease.Spec.RenewTime.Equal(before), client.IgnoreNotFound(err)
		})
		return err == nil
	}
	// A slow machine may have the provider checked more often, as other responses are late there.
	renewed(patience.Limit)
	unasked := 0
	for most := patience.Limit / f.NodePingInterval; unasked < 2; most-- {
		before := asked.Load()
		if most == 0 || !renewed(patience.Limit) {
			t.Fatalf("gave up: waited for 2 renewals without a check, while the provider lives; %d came", unasked)
		}
		if asked.Load() == before {
			unasked++
		}
	}
	way.freeze(t)
	// One renewal may not have been read yet, and one for an earlier response not written. Without a
	// response there would be three until the next request.
	for after := 0; renewed(2 * f.NodePingInterval); {
		if after++; after > 2 {
			t.Fatalf("the lease was renewed %d times after the provider froze", after)
		}
	}
}
