// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/retry"
	kubeletportforward "k8s.io/cri-streaming/pkg/streaming/portforward"
	kubeletremotecommand "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/offloading/kubelet"
)

// provider is the kubelet of a provider's real node: what the chain of API servers ends at.
type provider struct{}

func (provider) ExecInContainer(
	_ context.Context, pod string, _ string, container string, cmd []string, in io.Reader, out, errOut io.WriteCloser,
	tty bool, sizes <-chan kubeletremotecommand.TerminalSize, _ time.Duration,
) error {
	if tty {
		tellSizes(out, sizes)
	} else {
		fmt.Fprintf(errOut, "%s/%s %v", pod, container, cmd)
	}
	_, err := io.Copy(out, in)
	return err
}

func (provider) AttachContainer(
	_ context.Context, pod string, _ string, container string, in io.Reader, out, errOut io.WriteCloser,
	tty bool, sizes <-chan kubeletremotecommand.TerminalSize,
) error {
	if tty {
		tellSizes(out, sizes)
	} else {
		fmt.Fprintf(errOut, "%s/%s", pod, container)
	}
	_, err := io.Copy(out, in)
	return err
}

// tellSizes prints the first two sizes a terminal has.
func tellSizes(out io.Writer, sizes <-chan kubeletremotecommand.TerminalSize) {
	for range 2 {
		size := <-sizes
		fmt.Fprintf(out, "%dx%d ", size.Width, size.Height)
	}
}

func (provider) PortForward(_ context.Context, _ string, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	fmt.Fprintf(stream, "port %d", port)
	if port == 9090 { // one that goes on
		_, err := io.Copy(io.Discard, stream)
		return err
	}
	return nil
}

// endlessLog is a number of lines whose log has no end.
const endlessLog = "999999"

func (p provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch parts[0] {
	case "containerLogs":
		for r.FormValue("tailLines") == endlessLog && r.Context().Err() == nil {
			_, _ = w.Write(make([]byte, 32<<10)) // until the context ends
		}
		fmt.Fprintf(w, "logs of %s, %s", strings.Join(parts[1:], "/"), r.URL.RawQuery)
		if r.FormValue("follow") == "true" {
			fmt.Fprintln(w)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	case "exec", "attach":
		tty := r.FormValue("tty") == "1"
		options := &kubeletremotecommand.Options{Stdin: r.FormValue("input") == "1", Stdout: true, Stderr: !tty, TTY: tty}
		if parts[0] == "exec" {
			kubeletremotecommand.ServeExec(w, r, p, parts[2], "", parts[3], r.URL.Query()["command"], options, time.Minute, time.Minute,
				[]string{"v4.channel.k8s.io"})
			return
		}
		kubeletremotecommand.ServeAttach(w, r, p, parts[2], "", parts[3], options, time.Minute, time.Minute, []string{"v4.channel.k8s.io"})
	case "portForward":
		kubeletportforward.ServePortForward(w, r, p, parts[2], "", nil, time.Minute, time.Minute, []string{"portforward.k8s.io"})
	}
}

// start runs a virtual node whose provider is the same cluster. The remote namespace of "demo" is
// "demo-milan", with one pod on a real node. More objects exist before the virtual node runs.
func start(t *testing.T, more ...client.Object) (*apitest.Server, client.Client, string, *wire) {
	t.Helper()
	server := apitest.Start(t)
	c, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	realNode := httptest.NewTLSServer(provider{})
	t.Cleanup(realNode.Close)
	create(t, c, append(home(), more...)...)
	grant(t, c)
	create(t, c, remoteSide(portOf(t, realNode.Listener.Addr().String()))...)
	port := freePort(t)
	f := kubelet.NewFlags()
	f.HomeClusterID, f.ForeignClusterID, f.NodeName, f.NodeIP, f.TenantNamespace = "milan", "rome", "rome", "127.0.0.1", "tenant-rome"
	f.ListenPort, f.CertificateType = uint16(port), kubelet.CertificateSelfSigned
	far, err := url.Parse(server.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	way := newWire(t, far.Host)
	through := rest.CopyConfig(server.Config)
	through.Host = "https://" + way.listener.Addr().String()
	pods, err := cache.New(server.ConfigFor("kubelet"), cache.Options{Scheme: scheme.New(), ByObject: map[client.Object]cache.ByObject{
		&corev1.Pod{}: {Field: fields.OneTermEqualSelector("spec.nodeName", f.NodeName)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := pods.Start(ctx); err != nil {
			t.Errorf("watch pods: %v", err)
		}
	})
	t.Cleanup(watching.Wait)
	go func() {
		done <- kubelet.RunNode(ctx, kubelet.Options{
			Flags: f, Home: server.ConfigFor("kubelet"), Peer: peer(t, through), Pods: pods, Metrics: prometheus.NewRegistry(),
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("node: %v", err)
		}
	})
	return server, c, "https://127.0.0.1:" + strconv.Itoa(int(port)), way
}

// freePort returns a port that nothing listens on.
func freePort(t *testing.T) int32 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return portOf(t, listener.Addr().String())
}

func portOf(t *testing.T, address string) int32 {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(port)
}

func peer(t *testing.T, c *rest.Config) *remote.Peer {
	t.Helper()
	text, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "default-context",
		Contexts:       map[string]*clientcmdapi.Context{"default-context": {Cluster: "rome", AuthInfo: "milan"}},
		Clusters:       map[string]*clientcmdapi.Cluster{"rome": {Server: c.Host, CertificateAuthorityData: c.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"milan": {ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}},
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := remote.New(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func home() []client.Object {
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{
		Name: "rome", Namespace: "tenant-rome", Finalizers: []string{api.FinalizerVirtualNode},
	}}
	vn.Spec.ClusterID = "rome"
	vn.Spec.ResourceQuota.Hard = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}
	fc.Spec.ClusterID = "rome"
	fc.Status.Role, fc.Status.Modules = corev1beta1.RoleProvider, &corev1beta1.Modules{}
	nsmap := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Name: "rome", Namespace: "tenant-rome"}}
	nsmap.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{
		"demo": {RemoteNamespace: "demo-milan", Phase: offloadingv1beta1.NamespaceAccepted},
	}
	return []client.Object{namespace("tenant-rome"), namespace("demo"), vn, fc, nsmap}
}

// grant gives the kubelet the rights it has in an installation.
func grant(t *testing.T, c client.Client) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/liqo/files/rbac/kubelet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.Unmarshal(text, role); err != nil {
		t.Fatal(err)
	}
	create(t, c, role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubelet"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "kubelet"}},
	})
	inForce(t, c, "kubelet", "create", "nodes", "")
}

// inForce waits until the API server applies a new right, which takes a moment.
func inForce(t *testing.T, c client.Client, user, verb, resource, subresource string) {
	t.Helper()
	until(t, "the rights of "+user, func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Resource: resource, Subresource: subresource},
		}}
		err := c.Create(ctx, review)
		if err == nil && !review.Status.Allowed {
			err = fmt.Errorf("not in force: %s", review.Status.Reason)
		}
		return err
	})
}

func remoteSide(port int32) []client.Object {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "real"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "demo-milan"}}
	pod.Spec = corev1.PodSpec{NodeName: "real", Containers: []corev1.Container{{Name: "c", Image: "image"}}}
	pod.Status.Phase = corev1.PodRunning
	return []client.Object{namespace("demo-milan"), node, pod}
}

// create creates objects with their status.
func create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		full := obj.DeepCopyObject().(client.Object)
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
		}
		full.SetResourceVersion(obj.GetResourceVersion())
		if err := c.Status().Update(t.Context(), full); client.IgnoreNotFound(err) != nil {
			t.Fatalf("update status of %T %s: %v", obj, obj.GetName(), err)
		}
	}
}

func until(t *testing.T, what string, met func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		err := met(ctx)
		if ctx.Err() == nil { // else err reports the limit
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(patience.GaveUp(what, last))
	}
}

// TestNode shows that the Node becomes ready, follows its virtual node and the peer, keeps the
// fields of others, and is not created again once the virtual node is deleted. Its API authorizes
// clients and streams.
func TestNode(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rome", Labels: map[string]string{api.LabelType: api.TypeVirtualNode}}}
	server, c, address, way := start(t, node.DeepCopy()) // of an earlier version, without a provider's ID
	ready := func(want corev1.ConditionStatus) func(context.Context) error {
		return func(ctx context.Context) error {
			err := c.Get(ctx, client.ObjectKeyFromObject(node), node)
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady && condition.Status == want {
					return err
				}
			}
			return fmt.Errorf("conditions %v (%v)", node.Status.Conditions, err)
		}
	}
	until(t, "node ready", ready(corev1.ConditionTrue))
	t.Run("follows", func(t *testing.T) { follows(t, c, node, ready) })
	admin := rest.CopyConfig(server.Config)
	admin.Host, admin.TLSClientConfig.CAData, admin.TLSClientConfig.Insecure = address, nil, true
	t.Run("lets in who may", func(t *testing.T) { letsIn(t, server, c, address) })
	t.Run("answers tools", func(t *testing.T) { answersTools(t, c, admin) })
	t.Run("logs", func(t *testing.T) {
		if status, body := ask(t, admin, "/containerLogs/demo/web/c?tailLines=3"); status != http.StatusOK || body != "logs of demo-milan/web/c, tailLines=3" {
			t.Errorf("%d %s", status, body)
		}
		if status, body := ask(t, admin, "/containerLogs/other/web/c"); status != http.StatusNotFound {
			t.Errorf("a namespace that is not offloaded: %d %s", status, body)
		}
	})
	t.Run("exec", func(t *testing.T) { execs(t, admin) })
	t.Run("port-forward by SPDY", func(t *testing.T) { forwards(t, admin, false) })
	t.Run("port-forward by WebSocket", func(t *testing.T) { forwards(t, admin, true) })
	t.Run("goes", func(t *testing.T) { goes(t, c, node) })
	t.Run("breaks", func(t *testing.T) { breaks(t, admin, way) })
}

// TestAttackEndlessLog: a provider's API server answers a request for logs without end.
//
// Outcome: the virtual kubelet passes the log on through a buffer and keeps nothing of it, and closes the connection
// to the provider when the user's request ends.
func TestAttackEndlessLog(t *testing.T) {
	t.Parallel()
	server, _, address, way := start(t)
	admin := rest.CopyConfig(server.Config)
	admin.Host, admin.TLSClientConfig.CAData, admin.TLSClientConfig.Insecure = address, nil, true
	c, err := rest.HTTPClientFor(admin)
	if err != nil {
		t.Fatal(err)
	}
	var log *http.Response
	until(t, "the log", func(context.Context) error {
		if log, err = c.Get(address + "/containerLogs/demo/web/c?tailLines=" + endlessLog); err == nil && log.StatusCode != http.StatusOK {
			err = errors.Join(errors.New(log.Status), log.Body.Close())
		}
		return err
	})
	if _, err := io.CopyN(io.Discard, log.Body, 16<<20); err != nil { // four times what is kept of other responses
		t.Errorf("read the log: %v", err)
	}
	if err := log.Body.Close(); err != nil {
		t.Error(err)
	}
	until(t, "the end of the log", func(context.Context) error {
		before := way.passed.Load()
		time.Sleep(100 * time.Millisecond)
		if more := way.passed.Load() - before; more > 1<<20 {
			return fmt.Errorf("%d bytes more came from the provider", more)
		}
		return nil
	})
}

func follows(t *testing.T, c client.Client, node *corev1.Node, ready func(corev1.ConditionStatus) func(context.Context) error) {
	const feature = "InPlacePodLevelResourcesVerticalScaling"
	ctx := t.Context()
	change(t, c, node, func() {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "manual", Effect: corev1.TaintEffectNoSchedule})
	})
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-rome", Name: "rome"}}
	change(t, c, vn, func() {
		vn.Spec.Labels = map[string]string{"tier": "gold"}
		vn.Spec.ResourceQuota.Hard[corev1.ResourceCPU] = resource.MustParse("8")
		vn.Spec.Node = &authv1beta1.NodeFacts{DeclaredFeatures: []string{feature, "Unknown"}, Architectures: []string{"arm64"}}
	})
	until(t, "labels, amounts and taints", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(node), node)
		if node.Labels["tier"] != "gold" || node.Status.Allocatable.Cpu().Value() != 8 || !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "manual" }) {
			return fmt.Errorf("labels %v, allocatable %v, taints %v (%v)", node.Labels, node.Status.Allocatable, node.Spec.Taints, err)
		}
		return err
	})
	until(t, "what the provider's nodes are", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(node), node)
		if !slices.Equal(node.Status.DeclaredFeatures, []string{feature}) || node.Labels[corev1.LabelArchStable] != "arm64" || node.Spec.ProviderID != "liqo://rome/rome" {
			return fmt.Errorf("features %v, labels %v, ID %s (%v)", node.Status.DeclaredFeatures, node.Labels, node.Spec.ProviderID, err)
		}
		return err
	})
	for _, entry := range node.ManagedFields { // an earlier version would remove what it finds applied, and cannot
		if entry.Operation == metav1.ManagedFieldsOperationApply && strings.Contains(entry.FieldsV1.GetRawString(), "f:providerID") {
			t.Errorf("the provider's ID is applied: %s", entry.FieldsV1.GetRawString())
		}
	}
	fc := &corev1beta1.ForeignCluster{}
	if err := c.Get(ctx, types.NamespacedName{Name: "rome"}, fc); err != nil {
		t.Fatal(err)
	}
	fc.Status.Modules.Networking.Enabled = true
	if err := c.Status().Update(ctx, fc); err != nil {
		t.Fatal(err)
	}
	until(t, "not ready without tunnel", ready(corev1.ConditionFalse))
}

// change reads an object and updates it, and retries after conflicts.
func change(t *testing.T, c client.Client, o client.Object, f func()) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		f()
		return c.Update(t.Context(), o)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// ask sends a request to the kubelet API.
func ask(t *testing.T, config *rest.Config, path string) (int, string) {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Get(config.Host + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func letsIn(t *testing.T, server *apitest.Server, c client.Client, address string) {
	insecure := rest.TLSClientConfig{Insecure: true}
	path := "/containerLogs/demo/web/c"
	if status, _ := ask(t, &rest.Config{Host: address, TLSClientConfig: insecure}, path); status != http.StatusUnauthorized {
		t.Errorf("nobody: %d", status)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey("admin", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if status, _ := ask(t, &rest.Config{Host: address, TLSClientConfig: rest.TLSClientConfig{Insecure: true, CertData: cert, KeyData: key}}, path); status != http.StatusUnauthorized {
		t.Errorf("a certificate of another CA: %d", status)
	}
	if status, _ := ask(t, &rest.Config{Host: address, TLSClientConfig: insecure, BearerToken: token(t, server, c, "nobody", nil)}, path); status != http.StatusForbidden {
		t.Errorf("a user without rights: %d", status)
	}
	metrics := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/metrics", "nodes/stats"}, Verbs: []string{"get"}}
	reader := &rest.Config{Host: address, TLSClientConfig: insecure, BearerToken: token(t, server, c, "metrics", &metrics)}
	if status, body := ask(t, reader, "/metrics/resource"); status != http.StatusOK || !strings.Contains(body, "node_cpu_usage_seconds_total 0") {
		t.Errorf("metrics: %d %s", status, body)
	}
	if status, body := ask(t, reader, "/stats/summary"); status != http.StatusOK || !strings.Contains(body, `"nodeName":"rome"`) {
		t.Errorf("summary: %d %s", status, body)
	}
	for _, path := range []string{path, "/pods", "/runningpods", "/configz", "/logs/"} {
		if status, _ := ask(t, reader, path); status != http.StatusForbidden {
			t.Errorf("%s for a reader of metrics: %d", path, status)
		}
	}
	pods := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes/pods"}, Verbs: []string{"get"}}
	reader.BearerToken = token(t, server, c, "pods", &pods)
	for path, want := range map[string]int{"/pods": http.StatusOK, "/runningpods/": http.StatusOK, "/metrics": http.StatusForbidden} {
		if status, body := ask(t, reader, path); status != want {
			t.Errorf("%s for a reader of pods: %d %s", path, status, body)
		}
	}
}

// answersTools sends the requests that support tools and Prometheus send to kubelets.
func answersTools(t *testing.T, c client.Client, admin *rest.Config) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "api", Namespace: "demo"}}
	pod.Spec = corev1.PodSpec{NodeName: "rome", Containers: []corev1.Container{{Name: "main", Image: "wanted"}, {Name: "done", Image: "image"}}}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "main", Image: "pulled", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		{Name: "done", Image: "image", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
	}}
	create(t, c, pod)
	// one asks for the only pod of the node.
	one := func(path string) (*corev1.Pod, error) {
		status, body := ask(t, admin, path)
		var list corev1.PodList
		if err := json.Unmarshal([]byte(body), &list); err != nil || list.Kind != "PodList" || list.APIVersion != "v1" || len(list.Items) != 1 ||
			list.Items[0].UID != pod.UID {
			return nil, fmt.Errorf("%s: %d %s (%w)", path, status, body, err)
		}
		return &list.Items[0], nil
	}
	until(t, "the running pod", func(context.Context) error {
		got, err := one("/runningpods/")
		if err == nil && (len(got.Spec.Containers) != 1 || got.Spec.Containers[0].Image != "pulled") {
			err = fmt.Errorf("containers that run: %v", got.Spec.Containers)
		}
		return err
	})
	if got, err := one("/pods"); err != nil || got.Spec.Containers[0].Image != "wanted" || got.Status.Phase != corev1.PodRunning {
		t.Errorf("pods: %v (%v)", got, err)
	}
	status, body := ask(t, admin, "/configz")
	var config struct {
		KubeletConfig kubeletconfigv1beta1.KubeletConfiguration
	}
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&config); err != nil || status != http.StatusOK || config.KubeletConfig.NodeLeaseDurationSeconds != 40 {
		t.Errorf("configz: %d %s (%v)", status, body, err)
	}
	for _, answer := range []struct{ path, has string }{
		{"/metrics", `kubelet_node_name{node="rome"} 1`},
		{"/metrics", "kubelet_running_pods 1\n"},
		{"/metrics/", `kubelet_running_containers{container_state="exited"} 1`},
		{"/metrics/cadvisor", "container_scrape_error 0\n"},
		{"/metrics/probes", ""},
		{"/metrics/slis", `kubernetes_healthcheck{name="ping",type="healthz"} 1`},
		{"/healthz", "ok"},
		{"/healthz/syncloop", "ok"},
	} {
		if status, body := ask(t, admin, answer.path); status != http.StatusOK || !strings.Contains(body, answer.has) {
			t.Errorf("%s: %d %s, want %s", answer.path, status, body, answer.has)
		}
	}
	if status, body := ask(t, admin, "/checkpoint/demo/api/main"); status != http.StatusMethodNotAllowed || !strings.Contains(body, "no checkpoints") {
		t.Errorf("checkpoint: %d %s", status, body)
	}
	if err := c.Delete(t.Context(), pod); err != nil {
		t.Error(err)
	}
}

// token is that of a new service account with one right.
func token(t *testing.T, server *apitest.Server, c client.Client, name string, rule *rbacv1.PolicyRule) string {
	t.Helper()
	create(t, c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "demo"}})
	if rule != nil {
		create(t, c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{*rule}},
			&rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: "demo"}},
			})
		for _, resource := range rule.Resources {
			_, part, _ := strings.Cut(resource, "/")
			inForce(t, c, "system:serviceaccount:demo:"+name, rule.Verbs[0], "nodes", part)
		}
	}
	clients, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := clients.CoreV1().ServiceAccounts("demo").CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// execs tries exec and attach over both streaming protocols, with and without a terminal.
func execs(t *testing.T, config *rest.Config) {
	for path, seen := range map[string]string{
		"/exec/demo/web/c?command=echo&command=-n&input=1&output=1&error=1": "web/c [echo -n]",
		"/exec/demo/web/c?command=sh&input=1&output=1&tty=1":                "",
		"/attach/demo/web/c?input=1&output=1&error=1":                       "web/c",
		"/attach/demo/web/c?input=1&output=1&tty=1":                         "",
	} {
		target, err := url.Parse(config.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		spdyExecutor, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, target)
		if err != nil {
			t.Fatal(err)
		}
		webSocketExecutor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, target.String())
		if err != nil {
			t.Fatal(err)
		}
		for name, executor := range map[string]remotecommand.Executor{"spdy": spdyExecutor, "websocket": webSocketExecutor} {
			var out, errOut bytes.Buffer
			options, want := remotecommand.StreamOptions{Stdin: strings.NewReader("ciao"), Stdout: &out, Stderr: &errOut}, "ciao"
			if strings.Contains(path, "tty=1") {
				options.Stderr, options.Tty, want = nil, true, "80x24 120x50 ciao"
				options.TerminalSizeQueue = &window{{Width: 80, Height: 24}, {Width: 120, Height: 50}}
			}
			err := executor.StreamWithContext(t.Context(), options)
			if err != nil || out.String() != want || errOut.String() != seen {
				t.Errorf("%s of %s: %v, out %q, err %q", name, path, err, out.String(), errOut.String())
			}
		}
	}
}

// window is a terminal's, by the sizes it is given one after the other.
type window []remotecommand.TerminalSize

func (w *window) Next() *remotecommand.TerminalSize {
	if len(*w) == 0 {
		return nil
	}
	next := (*w)[0]
	*w = (*w)[1:]
	return &next
}

func forwards(t *testing.T, config *rest.Config, webSocket bool) {
	target, err := url.Parse(config.Host + "/portForward/demo/web")
	if err != nil {
		t.Fatal(err)
	}
	roundTripper, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, target)
	if webSocket {
		if dialer, err = portforward.NewSPDYOverWebsocketDialer(target, config); err != nil {
			t.Fatal(err)
		}
	}
	ready, stop := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	defer close(stop)
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if said, err := io.ReadAll(conn); err != nil || string(said) != "port 8080" {
		t.Errorf("%v, said %q", err, said)
	}
}

// goes deletes the Node of a virtual node that is to have none, or is being deleted: it is not
// created again. That the kubelet knows is visible in a label that was changed after that. A Node
// that is wanted again has the labels of users.
func goes(t *testing.T, c client.Client, node *corev1.Node) {
	ctx := t.Context()
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: "rome", Namespace: "tenant-rome"}}
	read := func(ctx context.Context) error { return c.Get(ctx, client.ObjectKeyFromObject(node), node) }
	leaves := func(tier string) {
		t.Helper()
		change(t, c, vn, func() { vn.Spec.Labels = map[string]string{"tier": tier} })
		until(t, "label", func(ctx context.Context) error {
			err := read(ctx)
			if err == nil && node.Labels["tier"] != tier {
				err = fmt.Errorf("labels %v", node.Labels)
			}
			return err
		})
		if err := c.Delete(ctx, node); err != nil {
			t.Fatal(err)
		}
		err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Second, true, func(ctx context.Context) (bool, error) {
			err := read(ctx)
			return err == nil, client.IgnoreNotFound(err)
		})
		if !wait.Interrupted(err) {
			t.Errorf("the node came back (%v)", err)
		}
	}
	change(t, c, vn, func() { vn.Spec.CreateNode = new(false) })
	leaves("bronze")
	change(t, c, vn, func() {
		vn.Spec.CreateNode, vn.Annotations = new(true), map[string]string{"offloading.liqo.io/labels-of-users": "rack=7"}
	})
	until(t, "the node again", read)
	if node.Labels["rack"] != "7" {
		t.Errorf("the node came back without labels of users: %v", node.Labels)
	}
	if err := c.Delete(ctx, vn); err != nil {
		t.Fatal(err)
	}
	leaves("silver")
}
