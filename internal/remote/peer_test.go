// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"k8s.io/client-go/kubernetes"

	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/remote"
)

// kubeconfig names a server and adds lines to its cluster and its user.
func kubeconfig(server, cluster, user string) []byte {
	return fmt.Appendf(nil, `
apiVersion: v1
kind: Config
current-context: default-context
contexts: [{name: default-context, context: {cluster: milan, user: rome, namespace: liqo-tenant-rome}}]
clusters: [{name: milan, cluster: {server: %q, %s}}]
users: [{name: rome, user: {%s}}]
`, server, cluster, user)
}

// whoAsks is a server that answers with its name and the token of the request.
func whoAsks(t *testing.T, name string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", name, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// A client made once goes on with the new token, and to the new address.
func TestClientsFollowTheKubeconfig(t *testing.T) {
	t.Parallel()
	before, after := whoAsks(t, "before"), whoAsks(t, "after")
	peer, err := remote.New(t.Context(), kubeconfig(before, "", "token: one"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(peer.Config())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(want string) {
		t.Helper()
		answer, err := client.Get(before + "/version")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		got := make([]byte, 64)
		n, _ := answer.Body.Read(got)
		if string(got[:n]) != want {
			t.Errorf("answered %q, want %q", got[:n], want)
		}
	}
	ask("before one")
	if changed, err := peer.Update(kubeconfig(before, "", "token: two")); !changed || err != nil {
		t.Fatal(changed, err)
	}
	ask("before two")
	if changed, err := peer.Update(kubeconfig(before, "", "token: two")); changed || err != nil {
		t.Error("the same kubeconfig is a change", err)
	}
	if _, err := peer.Update([]byte("{}")); err == nil {
		t.Error("an empty kubeconfig is accepted")
	}
	ask("before two")
	if _, err := peer.Update(kubeconfig(after, "", "token: three")); err != nil {
		t.Fatal(err)
	}
	ask("after three")
	if token := peer.Credentials().BearerToken; token != "three" {
		t.Errorf("credentials of now have token %q", token)
	}
}

// A Secret must not make us run programs or read files.
func TestKubeconfigsThatLeadOutsideAreRefused(t *testing.T) {
	t.Parallel()
	for field, text := range map[string][]byte{
		"exec":                  kubeconfig("https://x", "", "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}"),
		"auth-provider":         kubeconfig("https://x", "", "auth-provider: {name: gcp}"),
		"tokenFile":             kubeconfig("https://x", "", "tokenFile: /etc/passwd"),
		"client-certificate":    kubeconfig("https://x", "", "client-certificate: /etc/passwd"),
		"client-key":            kubeconfig("https://x", "", "client-key: /etc/passwd"),
		"certificate-authority": kubeconfig("https://x", "certificate-authority: /etc/passwd", ""),
	} {
		_, err := remote.New(t.Context(), text)
		if err == nil || !strings.Contains(err.Error(), field+" is not allowed in a Secret") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// Follow waits for the Secret, and hands on what changes in it.
func TestFollowASecret(t *testing.T) {
	t.Parallel()
	home := apitest.Start(t)
	clients, err := kubernetes.NewForConfig(home.Config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	secrets := clients.CoreV1().Secrets("default")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kubeconfig"}, Data: map[string][]byte{"kubeconfig": []byte("{}")}}
	followed := make(chan *remote.Peer, 1)
	go func() {
		peer, err := remote.Follow(ctx, home.Config, types.NamespacedName{Namespace: "default", Name: "kubeconfig"})
		if err != nil {
			t.Error(err)
		}
		followed <- peer
	}()
	if secret, err = secrets.Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"one", "two"} {
		secret.Data["kubeconfig"] = kubeconfig("https://x", "", "token: "+token)
		if secret, err = secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	peer := <-followed
	for peer.Credentials().BearerToken != "two" && ctx.Err() == nil {
		<-time.After(10 * time.Millisecond)
	}
	if ctx.Err() != nil {
		t.Errorf("gave up after %s: waited for the token \"two\", it is %q", patience.Limit, peer.Credentials().BearerToken)
	}
}
