// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/peering/plan"
)

const (
	// unreachable is an address where nobody listens: the discard port of this machine.
	unreachable = "https://127.0.0.1:9"
)

// TestForeignClusterFollows: it appears with the first object of a peer, follows the others and
// the peer's API server, outlives all of them, and does not come back while Liqo is uninstalled.
func TestForeignClusterFollows(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t)
	c := start(t, server)
	// A Secret that somebody keeps elsewhere in the peer's name is not believed.
	forged := identitySecret("forged", kubeconfig(t, server.Config, unreachable))
	create(t, c, forged)
	configuration := &netv1beta1.Configuration{ObjectMeta: meta("rome")}
	create(t, c, configuration)
	peer := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}
	until(t, c, "networking is enabled", peer, func() bool { return peer.Status.Modules != nil && peer.Status.Modules.Networking.Enabled })

	if peer.Status.Role != corev1beta1.RoleUnknown {
		t.Errorf("a Secret outside of the tenant namespace gives role %s", peer.Status.Role)
	}

	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-rome", Labels: meta("").Labels}}
	tenant.Labels[api.LabelTenantNamespace] = api.True
	secret := identitySecret("cplane", kubeconfig(t, server.Config, server.Config.Host))
	secret.Namespace = tenant.Name
	create(t, c, tenant)
	create(t, c, secret)
	until(t, c, "its API server answers", peer, func() bool { return apiServer(peer) == corev1beta1.ConditionEstablished })
	if peer.Status.Role != corev1beta1.RoleProvider || peer.Status.APIServerURL != server.Config.Host {
		t.Errorf("role %s at %s", peer.Status.Role, peer.Status.APIServerURL)
	}
	measured(t, c, peerInfo(), ctl.Gauge{Value: 1, Labels: []string{"rome", "Provider"}})
	measured(t, c, peerConditions(), ctl.Gauge{Value: 1, Labels: []string{"rome", "all", "APIServerStatus"}})
	patch := client.MergeFrom(secret.DeepCopy())
	secret.Data[api.KubeconfigField] = kubeconfig(t, server.Config, unreachable)
	if err := c.Patch(t.Context(), secret, patch); err != nil {
		t.Fatal(err)
	}
	until(t, c, "its API server is lost", peer, func() bool { return apiServer(peer) == corev1beta1.ConditionError })
	measured(t, c, peerConditions(), ctl.Gauge{Value: 0, Labels: []string{"rome", "all", "APIServerStatus"}})

	remove(t, c, configuration, secret)
	until(t, c, "the role is Unknown again", peer, func() bool {
		return peer.Status.Role == corev1beta1.RoleUnknown && !peer.Status.Modules.Networking.Enabled && peer.Status.APIServerURL == ""
	})

	// Deleted by the uninstaller, it does not come back; nor does one appear for what is no ID.
	create(t, c, uninstalling())
	remove(t, c, peer)
	if p := planned(t, c, "default", "rome"); len(p.Actions) > 0 {
		t.Errorf("a foreign cluster appears during an uninstallation: %v", p.Actions)
	}
	if p := planned(t, c, "elsewhere", "not_an_id"); len(p.Actions) > 0 {
		t.Errorf("a foreign cluster appears for what is no ID: %v", p.Actions)
	}
	if p := planned(t, c, "elsewhere", "rome"); len(p.Actions) != 1 {
		t.Errorf("no foreign cluster appears: %v", p.Actions)
	}
}

// TestForeignClusterSumsUp shows that changes within summaryDelay lead to one update of the status.
func TestForeignClusterSumsUp(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t)
	c := start(t, server)
	peer := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}
	networking := func() bool { return peer.Status.Modules != nil && peer.Status.Modules.Networking.Enabled }
	create(t, c, &netv1beta1.Configuration{ObjectMeta: meta("rome")})
	began := time.Now() // no later than the first write that is counted
	until(t, c, "networking is enabled", peer, networking)
	watcher, err := client.NewWithWatch(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	writes, err := watcher.Watch(t.Context(), &corev1beta1.ForeignClusterList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: peer.ResourceVersion}})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		remove(t, c, &netv1beta1.Configuration{ObjectMeta: meta("rome")})
		create(t, c, &netv1beta1.Configuration{ObjectMeta: meta("rome")})
	}
	remove(t, c, &netv1beta1.Configuration{ObjectMeta: meta("rome")})
	until(t, c, "networking is disabled", peer, func() bool { return !networking() })
	most, n := 2+int(time.Since(began)/summaryDelay), 0
	limit := time.After(patience.Limit)
	for version := ""; version != peer.ResourceVersion; n++ {
		select {
		case event, open := <-writes.ResultChan():
			if !open {
				t.Fatal("the watch ended")
			}
			version = event.Object.(client.Object).GetResourceVersion()
		case <-limit:
			t.Fatal(patience.GaveUp("the event of resource version "+peer.ResourceVersion, version))
		}
	}
	if n > most {
		t.Errorf("40 changes in %s led to %d writes", time.Since(began), n)
	}
}

// planned returns the plan for a peer without ForeignCluster, with Liqo in the given namespace.
func planned(t *testing.T, c client.Client, namespace, id string) desired.Plan {
	t.Helper()
	row := Options{LiqoNamespace: namespace}.creation()
	root := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: id}}
	in, err := row.Gather(t.Context(), ctl.Reader{Reader: c, Live: c}, root)
	if err != nil {
		t.Fatal(err)
	}
	return row.Plan(in)
}

func start(t *testing.T, server *apitest.Server) client.Client {
	t.Helper()
	mgr, err := manager.New(server.Config, manager.Options{Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctl.Queues()})
	if err != nil {
		t.Fatal(err)
	}
	links := &remote.Fleet{}
	for _, controller := range append(Controllers(Options{
		Links: links, LiqoNamespace: "default", Modules: plan.Modules{Networking: true, Authentication: true, Offloading: true},
		ProbeInterval: time.Second, ProbeTimeout: patience.Limit,
	}), links) {
		if err := controller.Register(mgr); err != nil {
			t.Fatal(err)
		}
	}
	ended := make(chan error)
	go func() { ended <- mgr.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	c, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func identitySecret(name string, kubeconfig []byte) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: meta(name), Data: map[string][]byte{api.KubeconfigField: kubeconfig}}
	secret.Labels[api.LabelIdentityType] = string(authv1beta1.IdentityControlPlane)
	return secret
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{api.LabelRemoteClusterID: "rome"}}
}

// kubeconfig enters a server with the credentials of a configuration.
func kubeconfig(t *testing.T, config *rest.Config, server string) []byte {
	t.Helper()
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"rome": {Server: server, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"me": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}},
		Contexts:       map[string]*clientcmdapi.Context{api.KubeconfigContext: {Cluster: "rome", AuthInfo: "me"}},
		CurrentContext: api.KubeconfigContext,
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// apiServer is the peer's condition of that name.
func apiServer(peer *corev1beta1.ForeignCluster) corev1beta1.ConditionStatus {
	for _, c := range peer.Status.Conditions {
		if c.Type == corev1beta1.APIServerStatusCondition {
			return c.Status
		}
	}
	return corev1beta1.ConditionNone
}

// uninstalling is the controller's Deployment as the uninstaller marks it.
func uninstalling() *appsv1.Deployment {
	labels := map[string]string{"app": "liqo"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: api.ControllerManagerName, Annotations: map[string]string{api.AnnotationUninstalling: "true"},
		},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

func create(t *testing.T, c client.Client, obj client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		if err := c.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
}

// until reads obj again and again until it is as claimed.
func until(t *testing.T, c client.Client, claim string, obj client.Object, holds func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		return err == nil && holds(), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Fatalf("%+v\ngave up after %s: waited until %s, as the object above is not: %v", obj, patience.Limit, claim, err)
	}
}

// measured fails the test if a metric lacks a value.
func measured(t *testing.T, c client.Client, metric ctl.Registrar, want ctl.Gauge) {
	t.Helper()
	got, err := metric.(ctl.Gauges).Read(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(got, func(g ctl.Gauge) bool { return cmp.Equal(g, want) }) {
		t.Errorf("want %v among %v", want, got)
	}
}
