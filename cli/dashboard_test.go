// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/liqo-go/liqo/cli"
	"github.com/liqo-go/liqo/internal/patience"
)

var (
	printedURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=[\w-]+`)
	tokenOf    = regexp.MustCompile(`/\?token=.*`)
)

// dashboard runs liqoctl dashboard and returns the address of its pages and a browser that was admitted. It ends with
// the test, without an error.
func (s *session) dashboard(t *testing.T, kubeconfig string, flags ...string) (string, *http.Client) {
	t.Helper()
	urls, browser := s.dashboards(t, 1, append([]string{"--kubeconfig", filepath.Join(s.dir, kubeconfig)}, flags...)...)
	return urls[0], browser
}

// dashboards runs liqoctl dashboard, which prints some addresses, with flags.
func (s *session) dashboards(t *testing.T, addresses int, flags ...string) (urls []string, _ *http.Client) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	reader, writer := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: writer, ErrOut: writer}
		ended <- cli.Run(ctx, append([]string{"liqoctl", "dashboard"}, flags...), streams)
		_ = writer.Close() // the reader ends
	}()
	out := bufio.NewReader(reader)
	for len(urls) < addresses {
		line, err := out.ReadString('\n')
		if waits.MatchString(line) {
			continue
		}
		url := printedURL.FindString(line)
		if err != nil || url == "" {
			stop()
			t.Fatalf("liqoctl dashboard printed %q, %v", line, err)
		}
		urls = append(urls, url)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		stop()
		transport.CloseIdleConnections()
		if rest, err := io.ReadAll(out); err != nil || len(waits.ReplaceAll(rest, nil)) > 0 {
			t.Errorf("liqoctl dashboard printed %q, %v", rest, err)
		}
		if code := <-ended; code != 0 {
			t.Errorf("liqoctl dashboard ended with %d", code)
		}
	})
	browser := &http.Client{Transport: transport, Jar: jar}
	for i, url := range urls {
		s.browse(t, browser, url)
		urls[i] = tokenOf.ReplaceAllString(url, "")
	}
	return urls, browser
}

// browse opens a page.
func (s *session) browse(t *testing.T, browser *http.Client, url string) *bufio.Scanner {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience.Limit)
	t.Cleanup(stop)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := browser.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return lines
}

// shows waits until a page that is kept up to date contains all texts.
func shows(t *testing.T, page *bufio.Scanner, texts ...string) {
	t.Helper()
	last := ""
	for page.Scan() {
		if data, ok := strings.CutPrefix(page.Text(), "data: "); !ok || json.Unmarshal([]byte(data), &last) != nil {
			continue
		}
		missing := false
		for _, text := range texts {
			missing = missing || !strings.Contains(last, text)
		}
		if !missing {
			return
		}
	}
	t.Fatalf("the page ended without %q: %v; last %s", texts, page.Err(), last)
}

// TestDashboard: the pages follow the cluster. A user with few rights sees what they cover, and why the rest is missing.
func TestDashboard(t *testing.T) {
	t.Parallel()
	s := newSession(t, "rome")
	cluster, user := s.admin("rome")
	user.Impersonate, user.ImpersonateGroups = "alice", []string{"system:authenticated"}
	s.kubeconfig(t, "alice", cluster, user)
	s.apply(t, "rome", []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: liqo}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: liqo-clusterid-configmap, namespace: liqo}, data: {CLUSTER_ID: rome}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: looks}
rules:
- {apiGroups: [core.liqo.io], resources: [foreignclusters], verbs: [list, watch]}
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: looks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: looks}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
`))
	url, browser := s.dashboard(t, "rome")
	page := s.browse(t, browser, url+"/live?page=/")
	shows(t, page, "0 peers", "no pod of Liqo runs in namespace liqo")
	began := time.Now()
	peer := `{apiVersion: core.liqo.io/v1beta1, kind: ForeignCluster, metadata: {name: milan}, spec: {clusterID: milan},
status: {role: Provider, modules: {networking: {enabled: true, conditions: [{type: NetworkConnectionStatus, status: Error,
message: "<b>nothing</b> arrives"}]}, authentication: {enabled: false}, offloading: {enabled: false}}}}`
	s.apply(t, "rome", []byte(peer))
	shows(t, page, "1 peer,", "milan", `&lt;b&gt;nothing`)
	t.Logf("a peer was shown %s after the first request to make it", time.Since(began).Round(time.Millisecond))

	url, browser = s.dashboard(t, "alice")
	shows(t, s.browse(t, browser, url+"/live?page=/"), "1 peer,", "milan",
		"Pod: the user may not list and watch pods in all namespaces")
	shows(t, s.browse(t, browser, url+"/live?page=/events"), "Not known: the user may not list and watch events")
}

// TestDashboardOfSomeNamespaces: a user with a role in one namespace names it, and sees what is in it. Of the rest the
// pages say that it is not known.
func TestDashboardOfSomeNamespaces(t *testing.T) {
	t.Parallel()
	s := newSession(t, "rome")
	cluster, user := s.admin("rome")
	user.Impersonate, user.ImpersonateGroups = "alice", []string{"system:authenticated"}
	s.kubeconfig(t, "alice", cluster, user)
	pod := "spec: {serviceAccountName: default, automountServiceAccountToken: false, containers: [{name: web, image: web}]}"
	s.apply(t, "rome", []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: liqo}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: liqo-clusterid-configmap, namespace: liqo}, data: {CLUSTER_ID: rome}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: other}}
---
apiVersion: offloading.liqo.io/v1beta1
kind: NamespaceOffloading
metadata: {name: offloading, namespace: shop}
spec: {podOffloadingStrategy: Remote}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, `+pod+`}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: other}, `+pod+`}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: looks, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: looks}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: looks}
rules:
- {apiGroups: [offloading.liqo.io], resources: [namespaceoffloadings], verbs: [list, watch]}
- {apiGroups: [""], resources: [pods, services], verbs: [list, watch]}
`))
	url, browser := s.dashboard(t, "alice", "--only-namespaces", "shop")
	shows(t, s.browse(t, browser, url+"/live?page=/workloads"), "1 offloaded namespace: ", ">shop</h2>",
		"1 pod not ready", "no scheduler has looked at the pod", "objects in other namespaces than shop: not read",
		"EndpointSlice: the user may not list and watch endpointslices.discovery.k8s.io in namespaces shop")
	shows(t, s.browse(t, browser, url+"/live?page=/"), "peers not known", "<dt>Installation</dt><dd>not known",
		"Connection: they are in namespaces of Liqo and of peerings")
}

// TestDashboardThroughput: while a page is open, the rates of a tunnel come from its gateway's metrics, through the API
// server. A user without the right to them sees that they are not known.
func TestDashboardThroughput(t *testing.T) {
	t.Parallel()
	s := newSession(t, "rome")
	var carried atomic.Int64
	gateway := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := carried.Add(1_000_000)
		if r.URL.Path != "/metrics" {
			n = 0
		}
		_, _ = fmt.Fprintf(w, "liqo_peer_receive_bytes_total{cluster_id=\"milan\"} %d\n"+
			"liqo_peer_transmit_bytes_total{cluster_id=\"milan\"} %d\n", n, 2*n)
	})}
	listener, err := net.Listen("tcp4", net.JoinHostPort(ownAddress(t), "0"))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = gateway.Serve(listener) }()
	t.Cleanup(func() { _ = gateway.Close() })
	host, port, _ := net.SplitHostPort(listener.Addr().String())
	s.apply(t, "rome", fmt.Appendf(nil, `{apiVersion: v1, kind: Namespace, metadata: {name: liqo}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: liqo-clusterid-configmap, namespace: liqo}, data: {CLUSTER_ID: rome}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: liqo-tenant-milan}}
---
apiVersion: core.liqo.io/v1beta1
kind: ForeignCluster
metadata: {name: milan}
spec: {clusterID: milan}
status: {role: Provider, modules: {networking: {enabled: true}, authentication: {enabled: false}, offloading: {enabled: false}}}
---
apiVersion: networking.liqo.io/v1beta1
kind: Connection
metadata: {name: gw-milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec: {type: Client, gatewayRef: {name: milan}}
status: {value: Connected}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayClient
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec: {clientTemplateRef: {kind: WgGatewayClientTemplate, name: wireguard-client, namespace: liqo}}
---
apiVersion: v1
kind: Pod
metadata:
  name: gw-milan
  namespace: liqo-tenant-milan
  labels: {liqo.io/remote-cluster-id: milan, networking.liqo.io/component: gateway, networking.liqo.io/active: "true"}
spec:
  serviceAccountName: default
  automountServiceAccountToken: false
  containers: [{name: gateway, image: liqo, ports: [{name: gw-metrics, containerPort: %s}]}]
status: {phase: Running, podIP: %q, podIPs: [{ip: %q}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: looks}
rules:
- {apiGroups: [core.liqo.io, networking.liqo.io], resources: ["*"], verbs: [list, watch]}
- {apiGroups: [""], resources: [pods], verbs: [list, watch]}
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: looks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: looks}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
`, port, host, host))
	url, browser := s.dashboard(t, "rome")
	shows(t, s.browse(t, browser, url+"/live?page=/"), "milan", "kB/s received")

	cluster, user := s.admin("rome")
	user.Impersonate, user.ImpersonateGroups = "alice", []string{"system:authenticated"}
	s.kubeconfig(t, "alice", cluster, user)
	url, browser = s.dashboard(t, "alice")
	shows(t, s.browse(t, browser, url+"/live?page=/"), "milan", "Connected", "<dt>Throughput</dt><dd>not known")
}

// ownAddress returns an address of this machine that an API server accepts for a pod: not one of loopback.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Is4() && prefix.Addr().IsGlobalUnicast() {
			return prefix.Addr().String()
		}
	}
	t.Fatal("this machine has loopback addresses only")
	return ""
}

// TestDashboardRefuses: flags that contradict each other, and values that cannot be right, are refused in one line that
// says what to do.
func TestDashboardRefuses(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "nope")
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]string{
		"--demo --bundle x":                 "use either --demo or --bundle\n",
		"--demo --only-namespaces shop":     "--only-namespaces is for a cluster",
		"--bundle x --only-namespaces shop": "--only-namespaces is for a cluster",
		"--demo --port 99999":               "--port: 99999 is no port; use 1 to 65535, or 0 for any that is free\n",
		"--demo --port -1":                  "--port: -1 is no port",
		"--bundle " + missing:               "no such file or directory; name an archive that 'liqoctl gather' has made\n",
		"--bundle " + text:                  "read the archive: unexpected EOF; name an archive that 'liqoctl gather' has made\n",
	} {
		var out strings.Builder
		streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
		code := cli.Run(t.Context(), append([]string{"liqoctl", "dashboard"}, strings.Fields(flags)...), streams)
		said := waits.ReplaceAllString(out.String(), "")
		if code != 1 || !strings.Contains(said, want) || strings.Count(said, "\n") != 1 {
			t.Errorf("%s: %d, %q", flags, code, said)
		}
	}
}
