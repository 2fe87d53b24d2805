// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/fabric"
	"github.com/liqo-go/liqo/network/gateway"
	"github.com/liqo-go/liqo/network/gateway/plan"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// role is a process of the test: this binary started again in a namespace.
type role struct {
	// Socket leads to the API server, which is in another network namespace.
	Socket string
	// DNS is the address of the server for names; empty = that of the host.
	DNS     string
	Config  config
	Gateway *plan.Options
	Fabric  *fabric.Options
}

// config is the part of a rest.Config that a file can hold.
type config struct {
	Host          string
	CA, Cert, Key []byte
	// User has the rights of the role and no others.
	User string
}

const roleVariable = "LIQO_TEST_ROLE"

func TestMain(m *testing.M) {
	if text := os.Getenv(roleVariable); text != "" {
		if err := runRole(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	space.Main(m)
}

func runRole(text string) error {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg := &rest.Config{Host: r.Config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: r.Config.CA, CertData: r.Config.Cert, KeyData: r.Config.Key}}
	cfg.Impersonate.UserName = r.Config.User
	cfg.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", r.Socket)
	}
	if r.DNS != "" {
		net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "udp", r.DNS)
		}}
	}
	if r.Gateway != nil {
		return gateway.Run(ctx, cfg, *r.Gateway)
	}
	return fabric.Run(ctx, cfg, *r.Fabric)
}

// world is one cluster: its namespaces, its API server and what reads it.
type world struct {
	*space.Cluster
	client client.Client
	role   role
	key    wgtypes.Key
	dir    string
}

const (
	tenant = "tenant"
	name   = "peer"
)

func newWorld(t testing.TB, internet *space.Space, cluster string, number int, gatewayIP string) *world {
	t.Helper()
	server := apitest.Start(t)
	w := &world{Cluster: space.NewCluster(t, internet, cluster, number, gatewayIP), dir: t.TempDir()}
	c := server.Config
	w.role = role{Socket: filepath.Join(w.dir, "api"), Config: config{Host: c.Host, CA: c.CAData, Cert: c.CertData, Key: c.KeyData}}
	bridge(t, w.role.Socket, c.Host, nil)
	var err error
	if w.client, err = client.New(c, client.Options{Scheme: scheme.New()}); err != nil {
		t.Fatal(err)
	}
	if w.key, err = wgtypes.GeneratePrivateKey(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "privateKey"), w.key[:], 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// worlds are two clusters with equal addresses on one internet, with what controllers and users would
// make there, and no process of ours yet.
func worlds(t testing.TB) (internet *space.Space, a, b *world) {
	t.Helper()
	internet = space.NewInternet(t)
	a = newWorld(t, internet, "A", 1, "10.10.1.5")
	b = newWorld(t, internet, "B", 2, "10.10.1.6")
	a.describe(t, "10.71.0.0/16", "10.73.0.0/16")
	b.describe(t, "10.72.0.0/16", "10.74.0.0/16")
	a.grant(t)
	b.grant(t)
	return internet, a, b
}

// bridge leads from a socket, which belongs to no network namespace, to an API server, until it is cut. What an
// outage takes gets lost.
func bridge(t testing.TB, socket, host string, lost *outage) (cut func()) {
	t.Helper()
	u, err := url.Parse(host)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	ctx, cut := context.WithCancel(t.Context())
	context.AfterFunc(ctx, func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", u.Host)
			if err != nil {
				in.Close()
				continue
			}
			context.AfterFunc(ctx, func() { in.Close(); out.Close() })
			forward := func(to, from net.Conn) { io.Copy(lossy{to, lost}, from); to.Close() }
			go forward(out, in)
			go forward(in, out)
		}
	}()
	return cut
}

// lossy is a connection that loses what an outage takes.
type lossy struct {
	io.Writer
	*outage
}

func (l lossy) Write(b []byte) (int, error) {
	if l.takes() {
		return len(b), nil
	}
	return l.Writer.Write(b)
}

// process is a role that runs.
type process struct {
	cmd  *exec.Cmd
	ends chan struct{}
}

// kill ends it as a crash does, tell as the kubelet does first.
func (p process) kill() { p.cmd.Process.Kill(); <-p.ends }

func (p process) tell() { p.cmd.Process.Signal(syscall.SIGTERM) }

// ended waits for the process to end by itself.
func (p process) ended(t *testing.T, within time.Duration) {
	t.Helper()
	select {
	case <-p.ends:
	case <-time.After(within):
		t.Errorf("gave up after %s: waited for the end of a gateway that is not needed any more", within)
	}
}

// start runs a role in a namespace.
func (w *world) start(t testing.TB, s *space.Space, r role) process {
	t.Helper()
	r.Socket, r.DNS, r.Config = w.role.Socket, w.role.DNS, w.role.Config
	r.Config.User = "fabric"
	if r.Gateway != nil {
		r.Config.User = "gateway"
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"="+string(text))
	logged, err := os.CreateTemp(w.dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = logged, logged
	s.Do(func() { err = cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	p := process{cmd: cmd, ends: make(chan struct{})}
	go func() {
		cmd.Wait()
		close(p.ends)
	}()
	t.Cleanup(func() {
		p.kill()
		if text, _ := os.ReadFile(logged.Name()); t.Failed() {
			t.Logf("%s:\n%s", s.Name, text)
		}
	})
	return p
}

func (w *world) startGateway(t testing.TB, peer *world, server bool) process {
	t.Helper()
	return w.startGatewayPod(t, w.Gateway, "gw", peer, server)
}

// startGatewayPod runs a gateway in one of several pods, with the ping interval users have.
func (w *world) startGatewayPod(t testing.TB, pod *space.Space, podName string, peer *world, server bool, more ...func(*plan.Options)) process {
	t.Helper()
	o := &plan.Options{
		Name: name, Namespace: tenant, RemoteClusterID: "far", NodeName: "n1", Server: server, MTU: 1340,
		KeysDir: w.dir, OverlayPort: api.OverlayPort, PingEnabled: true, PingPort: api.PingPort,
		Ping: plan.PingPolicy{Interval: 2 * time.Second, Threshold: 2}, LatencyInterval: time.Second,
		HealthAddress: ":8083", MetricsAddress: ":8082", PodName: podName,
	}
	if server {
		o.ListenPort = api.WireGuardPort
	} else {
		o.EndpointAddresses, o.EndpointPort = []string{peer.NodeIP.String()}, api.WireGuardPort
	}
	for _, f := range more {
		f(o)
	}
	return w.start(t, pod, role{Gateway: o})
}

func (w *world) startFabric(t testing.TB) process {
	t.Helper()
	return w.start(t, w.Node, role{Fabric: &fabric.Options{NodeName: "n1", OverlayPort: api.OverlayPort, HealthAddress: ":8081", MetricsAddress: ":8082"}})
}

func (w *world) create(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		status, _ := o.DeepCopyObject().(client.Object)
		if err := w.client.Create(t.Context(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
		status.SetResourceVersion(o.GetResourceVersion())
		switch status.(type) {
		case *netv1beta1.InternalNode, *netv1beta1.Configuration, *ipamv1alpha1.IP:
			if err := w.client.Status().Update(t.Context(), status); err != nil {
				t.Fatalf("status of %T %s: %v", o, o.GetName(), err)
			}
		}
	}
}

// describe creates what the controllers and the user would.
func (w *world) describe(t testing.TB, pods, external string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: map[string]string{api.LabelRemoteClusterID: "far", api.LabelGatewayResource: "true"}}
	w.create(t,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}},
		gatewayPod("gw"), gatewayPod("gw2"),
		&netv1beta1.InternalNode{
			ObjectMeta: metav1.ObjectMeta{Name: "n1"},
			Spec: netv1beta1.InternalNodeSpec{PodCIDRs: []string{"10.10.1.0/24"}, Interface: netv1beta1.InternalNodeInterface{
				Node: netv1beta1.InternalNodeNodeInterface{IP: "10.80.0.1"}, Gateway: netv1beta1.InternalNodeGatewayInterface{Name: api.OverlayInterface}}},
			Status: netv1beta1.InternalNodeStatus{NodeIP: netv1beta1.NodeIP{Local: w.NodeIP.String(), Remote: w.NodeIP.String()}},
		},
		&netv1beta1.InternalFabric{ObjectMeta: *meta.DeepCopy(), Spec: netv1beta1.InternalFabricSpec{
			MTU: 1340, GatewayIP: w.GatewayIP.String(), RemoteCIDRs: []string{pods, external}, Interface: netv1beta1.InternalFabricInterface{
				Node:    netv1beta1.InternalFabricNodeInterface{Name: api.OverlayInterface},
				Gateway: netv1beta1.InternalFabricGatewayInterface{IP: "10.80.0.2"}}}},
		&netv1beta1.Configuration{
			ObjectMeta: *meta.DeepCopy(),
			Spec: netv1beta1.ConfigurationSpec{
				Local:  &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{"10.10.0.0/16"}, External: []string{"10.70.0.0/16"}}},
				Remote: &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{"10.10.0.0/16"}, External: []string{"10.70.0.0/16"}}},
			},
			Status: seenAs(1, external, netv1beta1.CIDRView{CIDR: "10.10.0.0/16", SeenAs: pods}),
		},
	)
}

// seenAs is what the controller says of a generation of a Configuration.
func seenAs(generation int64, external string, pods ...netv1beta1.CIDRView) netv1beta1.ConfigurationStatus {
	remote := &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{External: []string{external}}}
	for _, view := range pods {
		remote.CIDR.Pod = append(remote.CIDR.Pod, view.SeenAs)
	}
	return netv1beta1.ConfigurationStatus{
		Remote: remote,
		Views:  append(pods, netv1beta1.CIDRView{CIDR: "10.70.0.0/16", SeenAs: external}),
		Conditions: []metav1.Condition{{
			Type: netv1beta1.NetworkCIDRsConfigured, Status: metav1.ConditionTrue, Reason: netv1beta1.ReasonNetworkCIDRsConfigured,
			ObservedGeneration: generation, LastTransitionTime: metav1.Now(),
		}},
	}
}

func gatewayPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "gateway", Image: "none"}}, AutomountServiceAccountToken: new(false)}}
}

// grant gives the users of the roles the rights the chart gives them.
func (w *world) grant(t testing.TB) {
	t.Helper()
	for _, user := range []string{"fabric", "gateway"} {
		cluster, own := &rbacv1.ClusterRole{}, &rbacv1.Role{}
		rights(t, user, cluster)
		w.create(t, cluster, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: subjects(user),
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: cluster.Name}})
		if user == "gateway" {
			rights(t, "gateway-namespaced", own)
			w.create(t, own, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: user}, Subjects: subjects(user),
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: own.Name}})
		}
	}
}

func rights(t testing.TB, file string, into client.Object) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy/liqo/files/rbac", file+".yaml"))
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatalf("rights %s: %v", file, err)
	}
	if into.GetNamespace() != "" {
		into.SetNamespace(tenant)
	}
}

func subjects(user string) []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}
}

func (w *world) trust(t testing.TB, peer *world) {
	t.Helper()
	public := peer.key.PublicKey()
	w.create(t, &netv1beta1.PublicKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: map[string]string{api.LabelRemoteClusterID: "far", api.LabelGatewayResource: "true"}},
		Spec:       netv1beta1.PublicKeySpec{PublicKey: public[:]},
	})
}

func (w *world) waitFor(t testing.TB, value netv1beta1.ConnectionStatusValue) {
	t.Helper()
	space.Eventually(t, fmt.Sprintf("Connection %s", value), func() error {
		c := &netv1beta1.Connection{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "gw-" + name}, c); err != nil {
			return err
		}
		if c.Status.Value != value {
			return fmt.Errorf("it is %q: %v", c.Status.Value, c.Status.Conditions)
		}
		return nil
	})
}

// TestPeering: two clusters with equal addresses, each with an API server, a fabric and a gateway.
func TestPeering(t *testing.T) {
	t.Parallel()
	_, a, b := worlds(t)
	a.startFabric(t)
	b.startFabric(t)
	server := a.startGateway(t, b, true)
	b.startGateway(t, a, false)
	b.trust(t, a)
	b.waitFor(t, netv1beta1.Connecting)
	start := time.Now()
	a.trust(t, b)
	a.waitFor(t, netv1beta1.Connected)
	b.waitFor(t, netv1beta1.Connected)
	t.Logf("connected %v after the second key", time.Since(start))

	b.Pod.Serve("10.10.1.2:80")
	space.Eventually(t, "pod to pod", func() error {
		seen, err := a.Pod.Asks("tcp", "", "10.71.1.2:80", 0)
		if err == nil && seen != "10.72.1.2" {
			err = fmt.Errorf("the server saw %q", seen)
		}
		return err
	})

	// What the pings tell stands in the Connection and in the metrics.
	space.Eventually(t, "a latency", func() error {
		c := &netv1beta1.Connection{}
		if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "gw-" + name}, c); err != nil {
			return err
		}
		if c.Status.Latency == nil {
			return errors.New("there is none")
		}
		if took, err := time.ParseDuration(c.Status.Latency.Value); err != nil || took <= 0 {
			return fmt.Errorf("it is %q", c.Status.Latency.Value)
		}
		return nil
	})
	positive(t, b.Gateway, "liqo_peer_latency_us", "liqo_peer_latency_histogram_us_count", "liqo_peer_receive_bytes_total", "liqo_peer_transmit_bytes_total", "liqo_wireguard_implementation")

	// A gateway that is away shows as Error and comes back by itself.
	measures(t, b.Gateway, connected+"1")
	server.kill()
	b.waitFor(t, netv1beta1.ConnectionError)
	measures(t, b.Gateway, connected+"0")
	a.startGateway(t, b, true)
	b.waitFor(t, netv1beta1.Connected)
	measures(t, b.Gateway, connected+"1")
	a.waitFor(t, netv1beta1.Connected)
	space.Eventually(t, "pod to pod after a restart", func() error { _, err := a.Pod.Asks("tcp", "", "10.71.1.2:80", 0); return err })

	// A key that is taken away is told at once, and one that comes back connects.
	if err := a.client.Delete(t.Context(), &netv1beta1.PublicKey{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}); err != nil {
		t.Fatal(err)
	}
	a.waitFor(t, netv1beta1.Connecting)
	a.says(t, "the peer's key is taken away", "Ready", plan.ReasonPublicKeyMissing)
	measures(t, a.Gateway, connected+"0")
	a.trust(t, b)
	a.waitFor(t, netv1beta1.Connected)
	b.waitFor(t, netv1beta1.Connected)

	// Nobody is named, as when the pod is gone: nodes send nothing, and a gateway that runs yet keeps the tunnel.
	a.name(t, "0.0.0.0")
	space.Eventually(t, "a node that sends to nobody", func() error {
		if led := a.Node.Run("", "bridge", "fdb", "show", "dev", api.OverlayInterface); strings.Contains(led, "dst ") {
			return errors.New(led)
		}
		return nil
	})
	keepsTunnel(t, a.Gateway, 2)
	a.name(t, a.GatewayIP.String())
	space.Eventually(t, "pod to pod by a gateway that is named again", func() error { _, err := a.Pod.Asks("tcp", "", "10.71.1.2:80", 0); return err })

	// The last gateway goes: nothing of ours stays on the node.
	if err := b.client.Delete(t.Context(), &netv1beta1.InternalFabric{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}); err != nil {
		t.Fatal(err)
	}
	space.Eventually(t, "removal", func() error {
		for _, what := range []string{"link", "rule", "route show table all", "neigh show nud permanent"} {
			if out := b.Node.IP(what); strings.Contains(out, "liqo") || strings.Contains(out, "6091") || strings.Contains(out, "PERMANENT") {
				return fmt.Errorf("%s", out)
			}
		}
		if out := b.Node.Run("", "nft", "list", "ruleset"); strings.Contains(out, "liqo") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}

// TestConnectionComesBack: one that somebody deletes or takes the labels of is made again, with what it said, as long
// as its gateway is to be there. When the controller says that no pod is ready, the gateway answers that it runs.
func TestConnectionComesBack(t *testing.T) {
	t.Parallel()
	_, a, b := worlds(t)
	owner := &netv1beta1.GatewayClient{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: map[string]string{api.LabelRemoteClusterID: "far"}},
		Spec: netv1beta1.GatewayClientSpec{ClientTemplateRef: &corev1.ObjectReference{
			APIVersion: netv1beta1.GroupVersion.String(), Kind: "WgGatewayClientTemplate", Namespace: tenant, Name: "wireguard-client"},
			Endpoint: &netv1beta1.EndpointStatus{Addresses: []string{a.NodeIP.String()}, Port: api.WireGuardPort},
		},
	}
	b.create(t, owner)
	a.startGateway(t, b, true)
	b.startGatewayPod(t, b.Gateway, "gw", a, false, func(o *plan.Options) { o.UID = owner.UID })
	b.trust(t, a)
	a.trust(t, b)
	b.waitFor(t, netv1beta1.Connected)
	connection := &netv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "gw-" + name}}
	remove := func(what client.Object) {
		t.Helper()
		if err := b.client.Delete(t.Context(), what); err != nil {
			t.Fatal(err)
		}
	}
	remove(connection)
	b.waitFor(t, netv1beta1.Connected)
	unlabel := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": null}}`))
	if err := b.client.Patch(t.Context(), connection, unlabel); err != nil {
		t.Fatal(err)
	}
	space.Eventually(t, "labels again", func() error {
		if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(connection), connection); err != nil {
			return err
		}
		if connection.Labels[api.LabelRemoteClusterID] != "far" || connection.Status.Value != netv1beta1.Connected {
			return fmt.Errorf("it has %v and is %q", connection.Labels, connection.Status.Value)
		}
		return nil
	})
	// The controller asks whether the gateway runs: now, and when it took the gateway for ended.
	for _, value := range []string{"Connected", "Error"} {
		asked := metav1.NewTime(time.Unix(1e9, 0))
		patch := fmt.Sprintf(`{"status": {"value": %q, "conditions": [{"type": "GatewayRunning", "status": "False", "reason": "GatewayPodPending", "message": "", "lastTransitionTime": %q}]}}`,
			value, asked.UTC().Format(time.RFC3339))
		if err := b.client.Status().Patch(t.Context(), connection, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		space.Eventually(t, "an answer", func() error {
			if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(connection), connection); err != nil {
				return err
			}
			c := meta.FindStatusCondition(connection.Status.Conditions, netv1beta1.ConnectionGatewayRunning)
			if c == nil || c.Status != metav1.ConditionTrue || !c.LastTransitionTime.Equal(&asked) || connection.Status.Value != netv1beta1.Connected {
				return fmt.Errorf("it is %q: %v", connection.Status.Value, connection.Status.Conditions)
			}
			return nil
		})
	}
	remove(owner)
	remove(connection)
	for end := time.Now().Add(time.Second); time.Now().Before(end); { // it came back within 0.1 s before
		if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(connection), connection); !apierrors.IsNotFound(err) {
			t.Fatalf("the Connection of a gateway that is to go came back: %v", err)
		}
	}
}

// announces changes the pod CIDRs of both sides in a Configuration, as one write.
func (w *world) announces(t *testing.T, local, remote []string) (generation int64) {
	t.Helper()
	c := w.configuration(t)
	c.Spec.Local.CIDR.Pod, c.Spec.Remote.CIDR.Pod = local, remote
	if err := w.client.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return c.Generation
}

// grants writes the status of a generation of the Configuration, as the controller does.
func (w *world) grants(t *testing.T, generation int64, external string, pods ...netv1beta1.CIDRView) {
	t.Helper()
	c := w.configuration(t)
	c.Status = seenAs(generation, external, pods...)
	if err := w.client.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func (w *world) configuration(t *testing.T) *netv1beta1.Configuration {
	t.Helper()
	c := &netv1beta1.Configuration{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: name}, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// rules waits until those of a gateway name an address.
func rules(t *testing.T, gateway *space.Space, address string) (text string) {
	t.Helper()
	space.Eventually(t, "rules with "+address, func() error {
		if text = gateway.Run("", "nft", "list", "table", "inet", kernel.NFTable); !strings.Contains(text, address) {
			return errors.New(text)
		}
		return nil
	})
	return text
}

// echo opens a connection to a pod that says back what it hears.
func echo(t *testing.T, from, to *space.Space, listen, dial string) (says func(what string)) {
	t.Helper()
	var l net.Listener
	var err error
	to.Do(func() { l, err = net.Listen("tcp", listen) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	var c net.Conn
	space.Eventually(t, "a connection to "+dial, func() error {
		from.Do(func() { c, err = net.DialTimeout("tcp", dial, time.Second) })
		return err
	})
	t.Cleanup(func() { c.Close() })
	return func(what string) {
		t.Helper()
		c.SetDeadline(time.Now().Add(patience.Limit))
		c.Write([]byte("hello"))
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Errorf("%s: the connection ended: %v", what, err)
		}
	}
}

// TestTimedPodCIDRsChange: a pod CIDR of the peer that is added is reached once it is granted, one that never is
// harms nobody, and one that is replaced is not taken for the former while the controller is away. A
// connection that was there goes on.
func TestTimedPodCIDRsChange(t *testing.T) {
	_, a, b := worlds(t)
	a.startFabric(t)
	b.startFabric(t)
	a.trust(t, b)
	b.trust(t, a)
	a.startGateway(t, b, true)
	b.startGateway(t, a, false)
	b.waitFor(t, netv1beta1.Connected)
	says := echo(t, a.Pod, b.Pod, "10.10.1.2:81", "10.71.1.2:81")
	b.Pod.Serve("10.10.1.2:80")
	a.passes(t, "10.71.1.2:80", "pod CIDRs change", planned, func() {
		says("at first")
		const external = "10.73.0.0/16"
		first := netv1beta1.CIDRView{CIDR: "10.10.0.0/16", SeenAs: "10.71.0.0/16"}
		added := netv1beta1.CIDRView{CIDR: "10.20.0.0/16", SeenAs: "10.75.0.0/16"}
		both := []string{added.CIDR, first.CIDR} // in whatever order
		generation := a.announces(t, []string{"10.10.0.0/16", "10.41.0.0/16"}, both)
		rules(t, a.Gateway, "10.41.0.0/16")
		says("a CIDR is added")
		a.grants(t, generation, external, first)
		generation = a.announces(t, []string{"10.10.0.0/16", "10.42.0.0/16"}, both)
		rules(t, a.Gateway, "10.42.0.0/16")
		a.grants(t, generation, external, first)
		says("the added CIDR is not granted")
		a.grants(t, generation, external, added, first)
		rules(t, a.Gateway, "10.75.0.0")
		says("the added CIDR is granted")
		a.announces(t, []string{"10.10.0.0/16", "10.43.0.0/16"}, []string{"10.10.0.0/16", "10.30.0.0/16"})
		if text := rules(t, a.Gateway, "10.43.0.0/16"); strings.Contains(text, "10.30.0.0") {
			t.Errorf("a replaced CIDR has the view of the former:\n%s", text)
		}
		says("the added CIDR is replaced")
	})
}

// lead does what controller and kube-proxy do when a pod is ready: nodes are led to it, and so is
// what comes new to the node port. What passed there before is led on to where it went.
func (w *world) lead(t *testing.T, addr string) {
	t.Helper()
	w.publish(addr)
	w.name(t, addr)
}

// publish does kube-proxy's part of it.
func (w *world) publish(addr string) {
	w.Node.NFT("flush chain ip cni in\nadd rule ip cni in fib daddr type local udp dport 51840 dnat to " + addr +
		"\nadd rule ip cni in fib daddr type local tcp dport 51840 dnat to " + addr)
}

// name does the controller's.
func (w *world) name(t *testing.T, addr string) {
	t.Helper()
	f := &netv1beta1.InternalFabric{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"gatewayIP":"`+addr+`"}}`))
	if err := w.client.Patch(t.Context(), f, patch); err != nil {
		t.Fatal(err)
	}
}

// most is the longest time without traffic. WireGuard alone needs 15 s to notice that the other end
// is new; what users get is measured on clusters, by the stories: this machine may be busy.
const most = 6 * time.Second

// planned is the longest time without traffic when a server is told to end, however late kube-proxy is.
const planned = 1500 * time.Millisecond

// expected is what a story of gateways that follow each other expects: in time for those named TestTimed…, and
// at all for the others.
type expected struct {
	// traffic does f and expects traffic from a pod of w to come back, after at most a time.
	traffic func(w *world, t *testing.T, to, claim string, most time.Duration, f func())
	// moved waits until a new server has the nodes of w, and in time the client as well: before kube-proxy leads
	// to it, for which a server that was told to end stands in for two seconds only.
	moved func(w *world, t *testing.T, server, to string)
	// end is the time within which a gateway ends that is told to and that another follows.
	end time.Duration
}

var (
	atAll  = expected{traffic: (*world).comesBack, moved: (*world).isLed, end: patience.Limit}
	inTime = expected{traffic: (*world).passes, moved: (*world).reachesBy, end: 5 * time.Second}
)

// passes expects traffic to come back soon after what f does, the machine's own gap beside it not counted.
func (w *world) passes(t *testing.T, to, claim string, most time.Duration, f func()) {
	t.Helper()
	own := w.gap(t, to, func() {})
	gap := w.gap(t, to, f)
	t.Logf("%s: the longest gap is %v, before it %v", claim, gap, own)
	if gap > most+own {
		t.Errorf("%s: the longest gap is %v, more than %v and the %v before", claim, gap, most, own)
	}
}

// comesBack expects traffic to come back after what f does.
func (w *world) comesBack(t *testing.T, to, claim string, _ time.Duration, f func()) {
	t.Helper()
	f()
	w.reaches(t, to, claim)
}

// reaches waits until a pod reaches a peer's.
func (w *world) reaches(t *testing.T, to, claim string) {
	t.Helper()
	space.Eventually(t, "pod to pod: "+claim, func() error { _, err := w.Pod.Asks("udp", "", to, 10); return err })
}

// gap is the longest time without an answer from a peer's pod while f runs and for a while after
// it, until answers come again. It is counted in questions that were sent: while this process waits for its
// machine nobody asks, and nothing is missing.
func (w *world) gap(t *testing.T, to string, f func()) time.Duration {
	t.Helper()
	var conn net.Conn
	var err error
	w.Pod.Do(func() { conn, err = net.Dial("udp", to) })
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const every = 10 * time.Millisecond
	var mu sync.Mutex
	last, unanswered, longest := time.Now(), 0, 0
	go func() {
		for b := make([]byte, 100); ; {
			n, err := conn.Read(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if n > 0 {
				mu.Lock()
				last, unanswered, longest = time.Now(), 0, max(longest, unanswered)
				mu.Unlock()
			}
		}
	}()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		for tick := time.Tick(every); ctx.Err() == nil; <-tick {
			mu.Lock()
			unanswered++
			mu.Unlock()
			conn.Write([]byte("hello"))
		}
	}()
	f()
	after := time.Now()
	space.Eventually(t, "answers", func() error {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(after) < 3*time.Second || time.Since(last) > 100*time.Millisecond {
			return fmt.Errorf("the last came %v ago", time.Since(last))
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	return time.Duration(longest) * every
}

// TestTimedGatewaysAreReplaced: a gateway that is told to end carries traffic until its successor does,
// on either side, and traffic comes back soon after a crash.
func TestTimedGatewaysAreReplaced(t *testing.T) {
	_, a, b := worlds(t)
	a.startFabric(t)
	b.startFabric(t)
	b.trust(t, a)
	a.trust(t, b)
	servers := []process{a.startGateway(t, b, true)}
	clients := []process{b.startGateway(t, a, false)}
	b.waitFor(t, netv1beta1.Connected)
	b.Pod.Serve("10.10.1.2:80")
	const to = "10.71.1.2:80"
	a.reaches(t, to, "at first")

	serverPod, clientPod := space.New(t, "A gateway 2"), space.New(t, "B gateway 2")
	a.Plug(serverPod, "10.10.1.7")
	b.Plug(clientPod, "10.10.1.8")
	for _, c := range []struct {
		claim string
		most  time.Duration
		f     func()
	}{
		{"the server is told to end", planned, func() {
			servers[0].tell()
			servers = append(servers, a.startGatewayPod(t, serverPod, "gw2", b, true))
			ready(t, serverPod)
			a.name(t, "10.10.1.7")
			a.reachesBy(t, "10.10.1.7", to)
			a.publish("10.10.1.7")
		}},
		{"the client is told to end", most, func() {
			clients[0].tell()
			clients = append(clients, b.startGatewayPod(t, clientPod, "gw2", a, false))
			ready(t, clientPod)
			b.lead(t, "10.10.1.8")
		}},
		{"the server crashes", most, func() {
			servers[1].kill()
			servers = append(servers, a.startGatewayPod(t, serverPod, "gw2", b, true))
			ready(t, serverPod)
		}},
		{"the client crashes", most, func() {
			clients[1].kill()
			clients = append(clients, b.startGatewayPod(t, clientPod, "gw2", a, false))
			ready(t, clientPod)
		}},
	} {
		a.passes(t, to, c.claim, c.most, c.f)
	}
	servers[0].ended(t, 5*time.Second)
	clients[0].ended(t, 5*time.Second)
	b.waitFor(t, netv1beta1.Connected)

	// Nobody follows: the peering ends.
	if err := a.client.Delete(t.Context(), &netv1beta1.InternalFabric{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}); err != nil {
		t.Fatal(err)
	}
	servers[2].tell()
	servers[2].ended(t, 10*time.Second) // and not after the 25 s a successor is waited for
}

// TestAServerThatNobodyFollows: a server that is told to end relays what comes anew to itself. If nobody follows, the
// kernel goes on without it, and no rule leads to a port that it had.
func TestAServerThatNobodyFollows(t *testing.T) {
	t.Parallel()
	_, a, b := worlds(t)
	a.startFabric(t)
	b.trust(t, a)
	a.trust(t, b)
	server := a.startGateway(t, b, true)
	relays := func(want bool) error {
		out, err := a.Gateway.Try("", "nft", "list", "table", "inet", kernel.NFTable)
		if err == nil && strings.Contains(out, " redirect to ") != want {
			err = fmt.Errorf("it relays: %t", !want)
		}
		return err
	}
	space.Eventually(t, "a table without a relay", func() error { return relays(false) })
	server.tell()
	space.Eventually(t, "a relay", func() error { return relays(true) })
	server.ended(t, patience.Limit)
	if err := relays(false); err != nil {
		t.Errorf("what comes anew is still led to the server that has ended: %v", err)
	}
}

// TestServersOverTCPHandOver: also then a server that is told to end keeps its client until its successor has it,
// wherever kube-proxy leads meanwhile.
func TestServersOverTCPHandOver(t *testing.T) {
	t.Parallel()
	overTCPHandOver(t, atAll)
}

func TestTimedServersOverTCPHandOver(t *testing.T) { overTCPHandOver(t, inTime) }

func overTCPHandOver(t *testing.T, expected expected) {
	t.Helper()
	_, a, b := worlds(t)
	a.startFabric(t)
	b.startFabric(t)
	b.trust(t, a)
	a.trust(t, b)
	tcp := func(o *plan.Options) { o.TCP = true }
	servers := []process{a.startGatewayPod(t, a.Gateway, "gw", b, true, tcp)}
	b.startGatewayPod(t, b.Gateway, "gw", a, false, tcp)
	b.waitFor(t, netv1beta1.Connected)
	b.Pod.Serve("10.10.1.2:80")
	const to = "10.71.1.2:80"
	a.reaches(t, to, "at first")
	second := space.New(t, "A gateway 2")
	a.Plug(second, "10.10.1.7")
	servers = append(servers, a.startGatewayPod(t, second, "gw2", b, true, tcp))
	ready(t, second)
	expected.traffic(a, t, to, "the server is told to end", planned, func() {
		servers[0].tell()
		a.name(t, "10.10.1.7")
		expected.moved(a, t, "10.10.1.7", to)
		a.publish("10.10.1.7")
	})
	servers[0].ended(t, expected.end)
	b.waitFor(t, netv1beta1.Connected)
}

// isLed waits until nodes are led to a new server.
func (w *world) isLed(t *testing.T, server, _ string) {
	t.Helper()
	space.Eventually(t, "nodes that are led to the new server", func() error {
		if led := w.Node.Run("", "bridge", "fdb", "show", "dev", api.OverlayInterface); !strings.Contains(led, "dst "+server) {
			return fmt.Errorf("nodes are led elsewhere: %s", led)
		}
		return nil
	})
}

// reachesBy waits until nodes are led to a new server and pods reach the peer's by it, before kube-proxy leads there.
func (w *world) reachesBy(t *testing.T, server, to string) {
	t.Helper()
	w.isLed(t, server, to)
	w.reaches(t, to, "by the new server, before kube-proxy leads to it")
}

// ready waits until the gateway in a pod says so to the kubelet.
func ready(t *testing.T, pod *space.Space) {
	t.Helper()
	space.Eventually(t, "readiness", func() error {
		text, err := get(pod, ":8083", "/readyz")
		if err == nil && !strings.Contains(text, " 200 ") {
			err = fmt.Errorf("it says %s", text)
		}
		return err
	})
}

// get is what a process in a pod answers over HTTP.
func get(pod *space.Space, port, path string) (string, error) {
	var c net.Conn
	var err error
	pod.Do(func() { c, err = net.Dial("tcp", "127.0.0.1"+port) })
	if err != nil {
		return "", err
	}
	defer c.Close()
	io.WriteString(c, "GET "+path+" HTTP/1.0\r\n\r\n")
	text, err := io.ReadAll(c)
	return string(text), err
}

// measures waits until a gateway's metrics have a line.
func measures(t *testing.T, pod *space.Space, line string) {
	t.Helper()
	space.Eventually(t, "the metric "+line, func() error {
		text, err := get(pod, ":8082", "/metrics")
		if err == nil && !strings.Contains(text, line+"\n") {
			err = fmt.Errorf("%s has other metrics:\n%s", pod.Name, text)
		}
		return err
	})
}

// positive waits until metrics of a pod are more than nothing.
func positive(t *testing.T, pod *space.Space, names ...string) {
	t.Helper()
	for _, name := range names {
		more := regexp.MustCompile(`(?m)^` + name + `\{.*\} [0-9.e+]*[1-9]`)
		space.Eventually(t, "the metric "+name, func() error {
			text, err := get(pod, ":8082", "/metrics")
			if err == nil && !more.MatchString(text) {
				err = fmt.Errorf("%s has other metrics:\n%s", pod.Name, text)
			}
			return err
		})
	}
}

// TestWithoutPings: the first answer says that the tunnel works, and nothing that it does not any more. A gateway
// without pings sends nothing but answers to a peer that pings. Traffic still finds a server that was replaced.
func TestWithoutPings(t *testing.T) {
	t.Parallel()
	internet, a, b := trusting(t)
	running := map[*world]process{}
	start := func(w, peer *world, pings bool) {
		if p, ok := running[w]; ok {
			p.kill()
		}
		running[w] = w.startGatewayPod(t, w.Gateway, "gw", peer, w == a, func(o *plan.Options) {
			o.PingEnabled, o.Ping.Interval = pings, 500*time.Millisecond
		})
	}
	b.Pod.Serve("10.10.1.2:80")
	for _, c := range []struct{ silent, pings *world }{{a, b}, {b, a}} {
		start(c.silent, c.pings, false)
		start(c.pings, c.silent, false)
		for _, w := range []*world{a, b} {
			w.waitFor(t, netv1beta1.Connected)
			measures(t, w.Gateway, connected+"1")
		}
		a.reaches(t, "10.71.1.2:80", "without pings")
		start(c.pings, c.silent, true)
		a.reaches(t, "10.71.1.2:80", "after a restart")
		measures(t, c.pings.Gateway, connected+"1")
		onlyAnswers(t, c.silent.Gateway, c.pings.Gateway)

		internet.NFT("table ip cut { chain between { type filter hook forward priority 0; drop; }; }")
		c.pings.waitFor(t, netv1beta1.ConnectionError)
		c.silent.waitFor(t, netv1beta1.Connected)
		measures(t, c.silent.Gateway, connected+"1")
		internet.NFT("delete table ip cut")
	}
}

// onlyAnswers waits until one gateway sent as many packets into the tunnel as pings of the other were answered.
func onlyAnswers(t *testing.T, silent, pings *space.Space) {
	t.Helper()
	const enough = 5
	sent := func() int {
		_, counters, _ := strings.Cut(silent.Run("", "cat", "/proc/net/dev"), "liqo-tunnel:")
		n, err := strconv.Atoi(strings.Fields(counters)[9]) // after eight of what was received, and the bytes
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	answered, before := answers(t, pings), sent()
	space.Eventually(t, "nothing but answers from "+silent.Name, func() error {
		more, packets := answers(t, pings)-answered, sent()-before
		if more >= enough && packets == more {
			return nil
		}
		if more >= enough {
			answered, before = answered+more, before+packets
		}
		return fmt.Errorf("%d packets for %d answers", packets, more)
	})
}

// connected is the metric that alerts look at.
const connected = `liqo_peer_is_connected{driver="wireguard",cluster_id="far"} `

// TestReplicasTakeTurns: of two replicas of a server nodes and client are led to the one with the
// lease, and the other follows when it is told to end or falls silent.
func TestReplicasTakeTurns(t *testing.T) {
	t.Parallel()
	replicasTakeTurns(t, atAll)
}

func TestTimedReplicasTakeTurns(t *testing.T) { replicasTakeTurns(t, inTime) }

func replicasTakeTurns(t *testing.T, expected expected) {
	t.Helper()
	_, a, b := worlds(t)
	a.startFabric(t)
	b.startFabric(t)
	b.trust(t, a)
	a.trust(t, b)
	replicas := func(o *plan.Options) {
		o.LeaderElection = true
		o.Lease = plan.LeaseTimes{Duration: 3 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 500 * time.Millisecond}
	}
	second := space.New(t, "A gateway 2")
	a.Plug(second, "10.10.1.7")
	pods := map[string]*space.Space{"gw": a.Gateway, "gw2": second}
	addresses := map[string]string{"gw": "10.10.1.5", "gw2": "10.10.1.7"}
	running := map[string]process{"gw": a.startGatewayPod(t, a.Gateway, "gw", b, true, replicas)}
	a.waitForTurn(t, "gw")
	running["gw2"] = a.startGatewayPod(t, second, "gw2", b, true, replicas)
	ready(t, second)
	b.startGateway(t, a, false)
	b.waitFor(t, netv1beta1.Connected)
	measures(t, a.Gateway, connected+"1")
	if text, err := get(second, ":8082", "/metrics"); err != nil || strings.Contains(text, "liqo_peer_") {
		t.Errorf("a replica without the tunnel tells of it: error %v\n%s", err, text)
	}
	b.Pod.Serve("10.10.1.2:80")
	const to = "10.71.1.2:80"
	a.reaches(t, to, "at first")
	for _, c := range []struct {
		claim    string
		from, to string
		end      func(process)
	}{
		{"the active replica is told to end", "gw", "gw2", process.tell},
		{"the active replica falls silent", "gw2", "gw", process.kill},
	} {
		expected.traffic(a, t, to, c.claim, most, func() {
			c.end(running[c.from])
			a.waitForTurn(t, c.to)
			a.lead(t, addresses[c.to])
		})
		running[c.from].ended(t, expected.end)
		if c.from == "gw" { // the Deployment makes another
			running["gw"] = a.startGatewayPod(t, pods["gw"], "gw", b, true, replicas)
			ready(t, pods["gw"])
		}
	}
}

// waitForTurn waits until a gateway pod holds the lease; the controller marks it then.
func (w *world) waitForTurn(t *testing.T, pod string) {
	t.Helper()
	space.Eventually(t, "the turn of "+pod, func() error {
		lease := &coordinationv1.Lease{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "gw-" + name}, lease); err != nil {
			return err
		}
		if holder := *lease.Spec.HolderIdentity; holder != pod {
			return fmt.Errorf("%q has", holder)
		}
		return nil
	})
}

// TestAClientCutFromItsAPIServer: a replica that cannot renew its lease keeps the tunnel until the server's gateway
// reports a later leader.
func TestAClientCutFromItsAPIServer(t *testing.T) {
	t.Parallel()
	_, a, b := worlds(t)
	b.trust(t, a)
	a.trust(t, b)
	replicas := func(o *plan.Options) {
		o.LeaderElection = true
		o.Lease = plan.LeaseTimes{Duration: 3 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: 500 * time.Millisecond}
	}
	a.startGateway(t, b, true)
	whole := b.role.Socket
	b.role.Socket += "-of-gw"
	cut := bridge(t, b.role.Socket, b.role.Config.Host, nil)
	b.startGatewayPod(t, b.Gateway, "gw", a, false, replicas)
	b.waitForTurn(t, "gw")
	b.waitFor(t, netv1beta1.Connected)
	cut()
	space.Eventually(t, "the end of the lease", func() error {
		lease := &coordinationv1.Lease{}
		if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "gw-" + name}, lease); err != nil {
			return err
		}
		if left := time.Until(lease.Spec.RenewTime.Add(2 * 3 * time.Second)); left > 0 { // twice its duration
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
	keepsTunnel(t, b.Gateway, 2)

	b.role.Socket = whole
	second := space.New(t, "B gateway 2")
	b.Plug(second, "10.10.1.7")
	b.startGatewayPod(t, second, "gw2", a, false, replicas)
	b.waitForTurn(t, "gw2")
	b.name(t, "10.10.1.7")
	space.Eventually(t, "the former replica to give up", func() error {
		text, err := get(b.Gateway, ":8082", "/metrics")
		if err == nil && strings.Contains(text, "liqo_peer_") {
			err = errors.New("it has the tunnel")
		}
		return err
	})
	measures(t, second, connected+"1")
	keepsTunnel(t, second, 10)
	a.waitFor(t, netv1beta1.Connected)
}

var answersCount = regexp.MustCompile(`(?m)^liqo_peer_latency_histogram_us_count\S* (\d+)$`)

// answers returns how many pings of a gateway the peer has answered.
func answers(t *testing.T, pod *space.Space) (n int) {
	t.Helper()
	space.Eventually(t, "answers to pings of "+pod.Name, func() error {
		text, err := get(pod, ":8082", "/metrics")
		if err != nil {
			return err
		}
		found := answersCount.FindStringSubmatch(text)
		if found == nil {
			return errors.New(text)
		}
		n, err = strconv.Atoi(found[1])
		return err
	})
	return n
}

// keepsTunnel waits until the peer has answered some more pings of a gateway.
func keepsTunnel(t *testing.T, pod *space.Space, more int) {
	t.Helper()
	before := answers(t, pod)
	space.Eventually(t, fmt.Sprintf("%d more answers to pings of %s", more, pod.Name), func() error {
		if n := answers(t, pod) - before; n < more {
			return fmt.Errorf("%d answers", n)
		}
		return nil
	})
}
