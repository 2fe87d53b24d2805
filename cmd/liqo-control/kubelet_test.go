// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/elect"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/remote"
	nodekubelet "github.com/liqo-go/liqo/offloading/kubelet"
	"github.com/liqo-go/liqo/reflection"
)

const tenant, virtualNode = "liqo-tenant-rome", "rome"

// stage is one API server, home and provider in one, with a virtual node nobody keeps yet.
type stage struct {
	*testing.T
	client.WithWatch
	kubeconfig string
}

func newStage(t *testing.T) *stage {
	server := apitest.Start(t)
	c, err := client.NewWithWatch(server.Config, client.Options{Scheme: scheme.New()})
	w := &stage{T: t, WithWatch: c, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	w.must("make client", err)
	text, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "c",
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}},
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.Config.Host, CertificateAuthorityData: server.Config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"c": {ClientCertificateData: server.Config.CertData, ClientKeyData: server.Config.KeyData}},
	})
	w.must("write kubeconfig", err)
	w.must("write kubeconfig", os.WriteFile(w.kubeconfig, text, 0o600))
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: virtualNode, Namespace: tenant}}
	vn.Spec.ClusterID = virtualNode
	vn.Spec.ResourceQuota.Hard = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kubeconfig", Namespace: tenant}, Data: map[string][]byte{api.KubeconfigField: text}},
		&corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: virtualNode}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: virtualNode}},
		vn,
	} {
		w.must(fmt.Sprintf("create %T", obj), c.Create(t.Context(), obj))
	}
	return w
}

func (w *stage) must(what string, err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// replica runs a virtual kubelet, one of two, until the returned function is called.
func (w *stage) replica(name, address string) (stop func()) {
	port, err := strconv.ParseUint(freePort(w.T), 10, 16)
	w.must("read the port", err)
	f := nodekubelet.NewFlags()
	f.HomeKubeconfig, f.ForeignKubeconfigSecretName = w.kubeconfig, "kubeconfig"
	f.HomeClusterID, f.ForeignClusterID, f.NodeName, f.NodeIP = "milan", virtualNode, virtualNode, address
	f.TenantNamespace, f.ListenPort, f.CertificateType = tenant, uint16(port), nodekubelet.CertificateSelfSigned
	f.PodName, f.Replicas = name, 2
	// A replica that ends gives the lease back; one that a busy machine keeps from renewing it is not to lose it.
	f.LeaseDuration, f.LeaseRenewInterval, f.LeaseRetryPeriod = time.Minute, 40*time.Second, 500*time.Millisecond
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- runKubelet(ctx, f) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("replica %s: %v", name, err)
		}
	}
}

// freePort returns a port that nothing listens on.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (w *stage) eventually(what string, check func(ctx context.Context) error) {
	w.Helper()
	var last error
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil { // else err reports the limit
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		w.Fatal(patience.GaveUp(what, last))
	}
}

func (w *stage) nodeHas(address string) {
	w.Helper()
	w.eventually("address "+address, func(ctx context.Context) error {
		var node corev1.Node
		if err := w.Get(ctx, types.NamespacedName{Name: virtualNode}, &node); err != nil {
			return err
		}
		for _, a := range node.Status.Addresses {
			if a.Address == address {
				return nil
			}
		}
		return fmt.Errorf("addresses %v", node.Status.Addresses)
	})
}

// nodeRests waits until the Node was not written for a time in which two active kubelets would have
// written it hundreds of times.
func (w *stage) nodeRests(quiet time.Duration) {
	w.Helper()
	w.eventually("a Node that nobody writes", func(ctx context.Context) error {
		var nodes corev1.NodeList
		if err := w.List(ctx, &nodes); err != nil {
			return err
		}
		events, err := w.Watch(ctx, &corev1.NodeList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: nodes.ResourceVersion}})
		if err != nil {
			return err
		}
		defer events.Stop()
		select {
		case event := <-events.ResultChan():
			return fmt.Errorf("written: %s", event.Type)
		case <-time.After(quiet):
			return nil
		}
	})
}

// TestReplicasTakeTurns runs two kubelets of one virtual node: one acts, and the other takes over
// when it ends.
func TestReplicasTakeTurns(t *testing.T) {
	t.Parallel()
	w := newStage(t)
	stopFirst := w.replica("vk-1", "127.0.0.1")
	w.nodeHas("127.0.0.1")
	stopSecond := w.replica("vk-2", "127.0.0.2")
	defer stopSecond()
	w.nodeRests(5 * time.Second)
	w.nodeHas("127.0.0.1")
	stopFirst()
	began := time.Now()
	w.nodeHas("127.0.0.2")
	t.Logf("the other acted after %s", time.Since(began))
	var lease coordinationv1.Lease
	w.must("read lease", w.Get(t.Context(), types.NamespacedName{Namespace: tenant, Name: virtualNode}, &lease))
	if diff := cmp.Diff("vk-2", *lease.Spec.HolderIdentity); diff != "" {
		t.Error(diff)
	}
	w.nodeRests(time.Second)
}

// TestFlagsReachTheReflection shows that the documented flags set the options of reflection.
func TestFlagsReachTheReflection(t *testing.T) {
	t.Parallel()
	f := nodekubelet.NewFlags()
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	f.AddFlags(set)
	if err := set.Parse([]string{
		"--node-ip=10.0.0.9", "--local-podcidr=10.1.0.0/16",
		"--remote-pod-cidr=10.2.0.0/16", "--remote-pod-cidr-remap=10.3.0.0/16",
		"--vk-lease-enabled=false", "--vk-lease-duration=30s", "--vk-lease-renew-interval=20s", "--vk-lease-retry-period=2s",
		"--secret-reflection-type=AllowList", "--event-reflection-workers=0",
	}); err != nil {
		t.Fatal(err)
	}
	peer, err := remote.New(t.Context(), []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],"users":[{"name":"c","user":{"token":"t"}}],"clusters":[{"name":"c","cluster":{"server":"https://milan:6443"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := reflectionOptions(f, nil, peer, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := reflection.Options{
		PeerPods: netv1beta1.Mappings{{
			Remote: netip.MustParsePrefix("10.2.0.0/16"), Local: netip.MustParsePrefix("10.3.0.0/16"),
		}},
		NoLease: true,
		Lease:   elect.Times{Duration: 30 * time.Second, Renewal: 20 * time.Second, Retry: 2 * time.Second},
	}
	if diff := cmp.Diff(want, reflection.Options{PeerPods: got.PeerPods, NoLease: got.NoLease, Lease: got.Lease}, cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	if _, on := got.Reflectors["event"]; on || !got.Reflectors["secret"].IsAllowList() {
		t.Errorf("reflectors %v", got.Reflectors)
	}
}
