// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cleanup_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/deploy/cleanup"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/patience"
)

// TestCleanup: while a namespace is offloaded, the role fails, names it and deletes nothing. Afterwards
// it deletes everything, even an object with a finalizer that no controller removes.
func TestCleanup(t *testing.T) {
	server, c := cluster(t)
	inLiqo := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: api.Namespace, Name: name} }
	offloaded := &offv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: api.NamespaceOffloadingName}}
	network := &ipamv1alpha1.Network{ObjectMeta: inLiqo(api.NetworkPodCIDR), Spec: ipamv1alpha1.NetworkSpec{CIDR: "10.10.0.0/16"}}
	network.Finalizers = []string{api.FinalizerNetwork}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.Namespace}}, controller(inLiqo(api.ControllerManagerName)), offloaded, network,
		&corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan"}},
		&ipamv1alpha1.IP{ObjectMeta: inLiqo(api.IPAPIServer), Spec: ipamv1alpha1.IPSpec{IP: "10.96.0.1"}},
		options(map[string]string{desired.LabelController: "defaults"}, "virtual-kubelet-default"), options(nil, "mine"),
		options(map[string]string{desired.LabelController: "defaults"}, "copied"),
		request(t, "liqo-kubelet-1", map[string]string{api.LabelManaged: api.True}), request(t, "somebody-elses", nil),
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}

	ctx, end := context.WithCancelCause(t.Context())
	refused := make(chan error, 1)
	go func() {
		_, err := run(ctx)
		refused <- err
	}()
	awaitWatch(t, server, "namespaceoffloadings", refused)
	end(context.DeadlineExceeded) // as if its time were up
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "default/offloading") {
		t.Fatalf("with an offloaded namespace: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(network), network); err != nil || network.DeletionTimestamp != nil {
		t.Fatalf("network was touched: %v", err)
	}

	if err := c.Delete(t.Context(), offloaded); err != nil {
		t.Fatal(err)
	}
	if out, err := run(t.Context()); err != nil { // after 5 minutes at most
		t.Fatalf("%s%v", out, err)
	}
	for _, list := range []client.ObjectList{&ipamv1alpha1.NetworkList{}, &ipamv1alpha1.IPList{}, &corev1beta1.ForeignClusterList{}, &netv1beta1.InternalNodeList{}} {
		if err := c.List(t.Context(), list); err != nil || meta.LenList(list) > 0 {
			t.Errorf("%T: %d left, %v", list, meta.LenList(list), err)
		}
	}
	left := &offv1beta1.VkOptionsTemplateList{}
	if err := c.List(t.Context(), left); err != nil || len(left.Items) != 2 || left.Items[0].Name != "copied" || left.Items[1].Name != "mine" {
		t.Errorf("options left: %v, %v", left.Items, err)
	}
	requests := &certificatesv1.CertificateSigningRequestList{}
	if err := c.List(t.Context(), requests); err != nil || len(requests.Items) != 1 || requests.Items[0].Name != "somebody-elses" {
		t.Errorf("certificate requests left: %v, %v", requests.Items, err)
	}
	marked := &appsv1.Deployment{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: api.Namespace, Name: api.ControllerManagerName}, marked); err != nil ||
		marked.Annotations[api.AnnotationUninstalling] != api.True {
		t.Errorf("the controller is not marked: %v", err)
	}
}

func options(labels map[string]string, name string) *offv1beta1.VkOptionsTemplate {
	return &offv1beta1.VkOptionsTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.Namespace, Name: name, Labels: labels},
		Spec:       offv1beta1.VkOptionsTemplateSpec{ContainerImage: "liqo:1"},
	}
}

// request returns a request for a kubelet's serving certificate.
func request(t *testing.T, name string, labels map[string]string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeletServingSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth},
		},
	}
}

// awaitWatch waits until a resource is watched, or the role has ended.
func awaitWatch(t *testing.T, server *apitest.Server, resource string, ended chan error) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	watched := regexp.MustCompile(`apiserver_longrunning_requests\{[^}]*resource="` + resource + `"[^}]*verb="WATCH"[^}]*\} 1`)
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		metrics, err := clients.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
		return watched.Match(metrics) || len(ended) > 0, err
	})
	if err != nil {
		t.Fatal(patience.GaveUp("a watch of "+resource, err))
	}
}

func run(ctx context.Context) (string, error) {
	var out bytes.Buffer
	cmd := cleanup.Command()
	cmd.SetArgs([]string{})
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(ctx)
	return out.String(), err
}

// cluster starts an API server and makes it the one that the role connects to.
func cluster(t *testing.T) (*apitest.Server, client.Client) {
	t.Helper()
	server := apitest.Start(t)
	tls := server.Config.TLSClientConfig
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["c"] = &clientcmdapi.Cluster{Server: server.Config.Host, CertificateAuthorityData: tls.CAData}
	kubeconfig.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: tls.CertData, ClientKeyData: tls.KeyData}
	kubeconfig.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	kubeconfig.CurrentContext = "x"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
	t.Setenv("POD_NAMESPACE", api.Namespace)
	c, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return server, c
}

func controller(at metav1.ObjectMeta) *appsv1.Deployment {
	labels := map[string]string{"app": at.Name}
	return &appsv1.Deployment{ObjectMeta: at, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		},
	}}
}
