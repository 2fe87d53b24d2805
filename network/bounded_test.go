// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/remote"
)

const kubeconfig = `
apiVersion: v1
kind: Config
clusters: [{name: milan, cluster: {server: %q}}]
users: [{name: rome, user: {token: none}}]
contexts: [{name: milan, context: {cluster: milan, user: rome}}]
current-context: milan
`

// TestAnswersOfPeersEnd: a provider that answers without end does not fill the memory of who follows it.
func TestAnswersOfPeersEnd(t *testing.T) {
	t.Parallel()
	const endless = 16 * answerLimit
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "GatewayServerList", "apiVersion": "networking.liqo.io/v1beta1", "items": [], "metadata": {"continue": "`)
		for chunk, sent := bytes.Repeat([]byte("x"), 1<<16), 0; sent < endless; sent += len(chunk) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
		fmt.Fprint(w, `"}}`)
	}))
	defer server.Close()
	peer, err := remote.New(fmt.Appendf(nil, kubeconfig, server.URL))
	if err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(netv1beta1.GroupVersion.WithKind("GatewayServer"), meta.RESTScopeNamespace)
	f, p := &follower{scheme: scheme.New(), mapper: mapper, clusterID: "rome"}, &followed{id: "milan", namespace: "liqo-tenant-rome", server: peer}
	if err := f.open(p); err != nil {
		t.Fatal(err)
	}
	tooLong := new(http.MaxBytesError)
	if err := p.client.List(t.Context(), &netv1beta1.GatewayServerList{}); !errors.As(err, &tooLong) {
		t.Errorf("an answer of %d bytes was read; error %v", endless, err)
	}
}
