// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	identityplan "github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/patience"
)

const (
	// slower is how much longer the last of a hundred providers may take than the first ones.
	slower = 1.3
	// memoryPerProvider is in MB.
	memoryPerProvider = 3.0
)

// TestManyProviders peers one consumer with a hundred providers, one after the other; ten unless
// -soak. The providers are stubs: tenant namespaces of one API server, in which every ResourceSlice
// is accepted. The network is not part of the test.
func TestManyProviders(t *testing.T) {
	providers := 10
	if *soak {
		providers = 100
	}
	there := apitest.Start(t)
	go accept(t.Context(), t, there.Config)
	home := startConsumer(t)
	var took []float64
	var memory []float64
	for i := range providers {
		if i%(providers/10) == 0 {
			memory = append(memory, anonymous(t))
		}
		began := time.Now()
		home.join(t, there, fmt.Sprintf("provider-%03d", i))
		took = append(took, time.Since(began).Seconds())
	}
	memory = append(memory, anonymous(t))
	tenth := providers / 10
	first, last := middle(took[:max(tenth, 5)]), middle(took[providers-max(tenth, 5):])
	each := (memory[10] - memory[0]) / float64(providers)
	t.Logf("a provider took %.3f s at first and %.3f s at last; the very first %.3f s", first, last, took[0])
	t.Logf("memory of each: %.2f MB; MB after each tenth: %.1f", each, memory)
	// A few providers say too little: one collection of garbage is as much as they are.
	if *soak && last > slower*first {
		t.Errorf("the last providers took %.3f s, the first %.3f s", last, first)
	}
	if *soak && each > memoryPerProvider {
		t.Errorf("a provider takes %.2f MB", each)
	}
}

// consumer is the cluster whose controller is measured.
type consumer struct{ client.Client }

func startConsumer(t *testing.T) consumer {
	t.Helper()
	server := apitest.Start(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, kubeconfigOf(t, server.Config, ""), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	c, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	home := consumer{c}
	home.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}},
		&offloadingv1beta1.VkOptionsTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "virtual-kubelet-default"},
			Spec:       offloadingv1beta1.VkOptionsTemplateSpec{ContainerImage: "liqo"},
		})
	cmd := controller()
	cmd.SetArgs([]string{
		"--cluster-id=rome", "--podcidr=10.10.0.0/16", "--metrics-address=0", "--health-probe-address=0", "--webhook-port=" + freePort(t),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("controller: %v", err)
		}
	})
	home.until(t, "the controller has its keys", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: api.AuthenticationKeysSecret}}, func() bool { return true })
	return home
}

// join peers with a provider by manifests and returns when its virtual kubelet is made and the peer summed up.
func (c consumer) join(t *testing.T, there *apitest.Server, id string) {
	t.Helper()
	labels := map[string]string{api.LabelRemoteClusterID: id}
	at := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: api.TenantNamespace(id), Name: name, Labels: labels}
	}
	far, err := client.New(there.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	remoteNamespace := "for-rome-at-" + id
	consumer{far}.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNamespace}})
	secret := &corev1.Secret{ObjectMeta: at("cplane"), Data: map[string][]byte{api.KubeconfigField: kubeconfigOf(t, there.Config, id)}}
	secret.Labels = map[string]string{api.LabelRemoteClusterID: id, api.LabelIdentityType: string(authv1beta1.IdentityControlPlane)}
	secret.Annotations = map[string]string{api.AnnotationRemoteTenantNamespace: remoteNamespace}
	slice := &authv1beta1.ResourceSlice{ObjectMeta: at(id)}
	slice.Annotations = map[string]string{api.AnnotationCreateVirtualNode: api.True}
	slice.Labels = map[string]string{api.LabelRemoteClusterID: id, api.LabelReplication: api.True, api.LabelRemoteID: id}
	c.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.TenantNamespace(id), Labels: map[string]string{
		api.LabelRemoteClusterID: id, api.LabelTenantNamespace: api.True,
	}}}, secret, slice)
	c.until(t, "the virtual kubelet is made", &appsv1.Deployment{ObjectMeta: at(api.VirtualKubeletName(id))}, func() bool { return true })
	peer := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: id}}
	c.until(t, "the peer is summed up", peer, func() bool {
		return peer.Status.Role == corev1beta1.RoleProvider && peer.Status.Modules != nil && peer.Status.Modules.Offloading.Enabled &&
			slices.ContainsFunc(peer.Status.Conditions, func(c corev1beta1.Condition) bool { return c.Status == corev1beta1.ConditionEstablished })
	})
}

// accept answers every slice as a provider does.
func accept(ctx context.Context, t *testing.T, config *rest.Config) {
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Error(err)
		return
	}
	_, signer, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Error(err)
		return
	}
	for ctx.Err() == nil {
		events, err := c.Watch(ctx, &authv1beta1.ResourceSliceList{})
		if err != nil {
			continue // the test ends, or the server has ended an old watch
		}
		for event := range events.ResultChan() {
			slice, ok := event.Object.(*authv1beta1.ResourceSlice)
			if !ok || event.Type == apiwatch.Deleted || slice.Status.AuthParams != nil || len(slice.Spec.CSR) == 0 {
				continue
			}
			slice.Status.AuthParams = &authv1beta1.AuthParams{APIServer: config.Host, CA: config.CAData, SignedCRT: certificate(signer, slice.Spec.CSR)}
			slice.Status.Resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
			for _, kind := range []authv1beta1.ResourceSliceConditionType{authv1beta1.ResourceSliceAuthentication, authv1beta1.ResourceSliceResources} {
				slice.Status.Conditions = append(slice.Status.Conditions, authv1beta1.ResourceSliceCondition{
					Type: kind, Status: authv1beta1.ResourceSliceAccepted, Reason: "Accepted", LastTransitionTime: metav1.Now(),
				})
			}
			// The next event tells what is newer or gone.
			if err := c.Status().Update(ctx, slice); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				t.Errorf("answer %s: %v", slice.Name, err)
			}
		}
	}
}

// certificate signs a request for an hour.
func certificate(signer ed25519.PrivateKey, request []byte) []byte {
	asked, err := identityplan.ParseRequest(request)
	if err != nil {
		return nil
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: asked.Subject, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, asked.PublicKey, signer)
	if err != nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// kubeconfigOf enters a server. Its CA differs by a comment for each peer: clients whose TLS is the same share
// connections, and those to different clusters do not.
func kubeconfigOf(t *testing.T, config *rest.Config, peer string) []byte {
	t.Helper()
	text, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "c",
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}},
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, CertificateAuthorityData: append(bytes.Clone(config.CAData), "# "+peer+"\n"...)}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"c": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (c consumer) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatalf("create %T: %v", object, err)
		}
	}
}

// until reads an object until it is as claimed.
func (c consumer) until(t *testing.T, claim string, object client.Object, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
		return err == nil && holds(), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatalf("%+v\ngave up after %s: waited until %s, as the object above is not: %v", object, patience.Limit, claim, err)
	}
}

// anonymous is the memory of this process that is no file's, in MB, after all garbage was collected: that of the
// controller and of little else.
func anonymous(t *testing.T) float64 {
	t.Helper()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	kilobytes, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes / 1024
}

func middle(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }
