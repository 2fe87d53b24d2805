// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// tenantOf holds one side of a peering: the namespace, this cluster's address and the peer's
// parameters as liqoctl copied them.
const tenantOf = `
apiVersion: v1
kind: Namespace
metadata: {name: NS, labels: {liqo.io/tenant-namespace: "true", liqo.io/remote-cluster-id: PEER}}
---
apiVersion: v1
kind: Node
metadata: {name: worker}
spec: {podCIDRs: [10.10.1.0/24], podCIDR: 10.10.1.0/24}
status: {addresses: [{type: InternalIP, address: ADDRESS}]}
---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: PEER, namespace: NS, labels: {liqo.io/remote-cluster-id: PEER}}
spec: {remote: {cidr: {pod: [10.10.0.0/16], external: [10.70.0.0/16]}}}
---
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata: {name: PEER, namespace: NS, labels: {liqo.io/remote-cluster-id: PEER, networking.liqo.io/gateway-resource: "true"}}
---
apiVersion: v1
kind: Pod
metadata:
  name: gateway
  namespace: NS
  labels: {liqo.io/managed: "true", networking.liqo.io/gateway-name: gw, networking.liqo.io/active: "true"}
spec: {nodeName: worker, containers: [{name: gateway, image: none}]}
status: {phase: Running, podIP: 10.10.1.7, podIPs: [{ip: 10.10.1.7}]}
`

const server = `
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: gw, namespace: NS, labels: {liqo.io/remote-cluster-id: PEER}}
spec: {endpoint: {port: 51840, serviceType: NodePort, nodePort: 30742}}
`

const dialer = `
apiVersion: networking.liqo.io/v1beta1
kind: GatewayClient
metadata: {name: gw, namespace: NS, labels: {liqo.io/remote-cluster-id: PEER}}
spec: {endpoint: {addresses: [ADDRESS], port: 30742, protocol: UDP}}
`

// half is one cluster of the peering.
type half struct {
	cluster
	peer, namespace, address string
}

func (h half) filled(text string) string {
	return strings.NewReplacer("PEER", h.peer, "NS", h.namespace, "ADDRESS", h.address).Replace(text)
}

func startHalf(t *testing.T, id string, h half) half {
	t.Helper()
	h.cluster = startControllers(t, id)
	for _, obj := range parsed(t, installed+"---"+h.filled(tenantOf)) {
		if obj.GetName() != "liqo-tenant-milan" || h.namespace == "liqo-tenant-milan" {
			create(t, h, obj)
		}
	}
	for _, template := range chartTemplates(t, []byte("ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}")) {
		create(t, h, template)
	}
	return h
}

// TestPeeringFollowsItsParameters: the consumer rome has an identity at milan. Changes on either
// side reach the other, whichever is the server. Fields that a user wrote are kept.
func TestPeeringFollowsItsParameters(t *testing.T) {
	t.Parallel()
	rome := startHalf(t, "rome", half{peer: "milan", namespace: "liqo-tenant-milan", address: "172.31.10.11"})
	milan := startHalf(t, "milan", half{peer: "rome", namespace: "tenant-of-rome", address: "172.31.20.11"})
	identity := milan.identityFor(t)

	// Milan serves. Until rome has an identity, nothing is followed.
	create(t, milan, parsed(t, milan.filled(server))[0])
	create(t, rome, parsed(t, strings.ReplaceAll(rome.filled(dialer), rome.address, milan.address))[0])
	milan.eventuallyServes(t, milan.address)
	create(t, rome, parsed(t, identity)[0])
	rome.eventuallyDials(t, milan.address)
	rome.eventuallyNotes(t, milan.address)
	eventually(t, "each other's key", haveEachOthersKey(t, rome, milan))
	milan.moves(t, "172.31.20.12")
	rome.eventuallyDials(t, "172.31.20.12")

	// A generated key is rotated by deleting it; gateway pods are made anew with the next one.
	old := milan.key(t)
	must(t, milan.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: milan.namespace, Name: "gw-gw"}}))
	eventually(t, "another key of milan", func() error { return equal(false, bytes.Equal(old, milan.key(t))) })
	eventually(t, "each other's key", haveEachOthersKey(t, rome, milan))
	eventually(t, "the new key in the Deployment of milan", func() error {
		var d appsv1.Deployment
		err := milan.Get(t.Context(), types.NamespacedName{Namespace: milan.namespace, Name: "gw-gw"}, &d)
		return errors.Join(err, equal(encoded(milan.key(t)), d.Spec.Template.Annotations["networking.liqo.io/public-key"]))
	})

	// A CIDR is added, on either side.
	for _, more := range []struct {
		from, to half
		cidr     string
	}{{milan, rome, "10.99.0.0/16"}, {rome, milan, "10.98.0.0/16"}} {
		create(t, more.from, parsed(t, `
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: pod-cidr-more, namespace: liqo, labels: {ipam.liqo.io/network-type: pod-cidr, ipam.liqo.io/network-not-remapped: "true", ipam.liqo.io/network-shared: "true"}}
spec: {cidr: `+more.cidr+`}
`)[0])
		eventually(t, "CIDR "+more.cidr+" at the peer", func() error {
			var c netv1beta1.Configuration
			err := more.to.Get(t.Context(), types.NamespacedName{Namespace: more.to.namespace, Name: more.to.peer}, &c)
			if c.Spec.Remote == nil || c.Status.Remote == nil {
				return errors.Join(err, errors.New("no CIDRs"))
			}
			return errors.Join(err, equal([]string{"10.10.0.0/16", more.cidr}, c.Spec.Remote.CIDR.Pod), equal(2, len(c.Status.Remote.CIDR.Pod)))
		})
	}

	// Rome serves: its endpoint and its key are told to milan.
	for _, gateway := range []client.Object{
		&netv1beta1.GatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: milan.namespace, Name: "gw"}},
		&netv1beta1.WgGatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: milan.namespace, Name: "gw"}},
	} {
		must(t, milan.Delete(t.Context(), gateway))
	}
	for _, gateway := range []client.Object{
		&netv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{Namespace: rome.namespace, Name: "gw"}},
		&netv1beta1.WgGatewayClient{ObjectMeta: metav1.ObjectMeta{Namespace: rome.namespace, Name: "gw"}},
	} {
		must(t, rome.Delete(t.Context(), gateway))
	}
	create(t, rome, parsed(t, rome.filled(server))[0])
	create(t, milan, parsed(t, strings.ReplaceAll(milan.filled(dialer), milan.address, rome.address))[0])
	rome.eventuallyServes(t, rome.address)
	milan.eventuallyNotes(t, rome.address)
	rome.moves(t, "172.31.10.12")
	milan.eventuallyDials(t, "172.31.10.12")
	eventually(t, "each other's key", haveEachOthersKey(t, milan, rome))

	// The administrator of milan puts a NAT in front: that stays, whatever rome does.
	byHand := client.WithFieldOwner(milan.Client, "kubectl-edit")
	eventually(t, "a write of the endpoint", func() error {
		c, err := milan.dialer(t)
		if err != nil {
			return err
		}
		c.Spec.Endpoint.Addresses = []string{"203.0.113.1"}
		return byHand.Update(t.Context(), &c) // again when a controller wrote in between
	})
	rome.moves(t, "172.31.10.13")
	rome.eventuallyServes(t, "172.31.10.13")
	// A key that changes later arrives: the follower has seen the move.
	old = rome.key(t)
	must(t, rome.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: rome.namespace, Name: "gw-gw"}}))
	eventually(t, "another key of rome", func() error { return equal(false, bytes.Equal(old, rome.key(t))) })
	eventually(t, "each other's key", haveEachOthersKey(t, milan, rome))
	milan.eventuallyDials(t, "203.0.113.1")
}

// TestRepairsStayWhileTheProviderIsAway: changes of a provider are followed although it answers no
// request any more. Changes received before an outage do not undo a repair made here during it.
// After the outage the provider is followed again.
func TestRepairsStayWhileTheProviderIsAway(t *testing.T) {
	t.Parallel()
	milan := startHalf(t, "milan", half{peer: "rome", namespace: "tenant-of-rome", address: "172.31.20.11"})
	way := newWay(t, milan.Config)
	rome := startHalf(t, "rome", half{peer: "milan", namespace: "liqo-tenant-milan", address: "172.31.10.11"})
	create(t, milan, parsed(t, milan.filled(server))[0])
	create(t, rome, parsed(t, strings.ReplaceAll(rome.filled(dialer), rome.address, milan.address))[0])
	milan.eventuallyServes(t, milan.address)
	throughWay := milan
	throughWay.Server = &apitest.Server{Config: way.config()}
	create(t, rome, parsed(t, throughWay.identityFor(t))[0])
	rome.eventuallyNotes(t, milan.address)
	eventually(t, "each other's key", haveEachOthersKey(t, rome, milan))

	way.silent.Store(true) // what is heard may be the last by this way: nobody need be asked
	milan.moves(t, "172.31.20.14")
	rome.eventuallyDials(t, "172.31.20.14")
	way.silent.Store(false)
	rome.eventuallyNotes(t, "172.31.20.14")
	noted := reconciles(t, "follow") // the one that ends next may be the one that wrote it
	eventually(t, "two more reconciles", func() error {
		c, err := rome.dialer(t)
		if err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, "touched", time.Now().String())
		return cmp.Or(rome.Update(t.Context(), &c), equal(true, reconciles(t, "follow") >= noted+2))
	})

	way.close()
	var repaired netv1beta1.GatewayClient
	eventually(t, "the repair of the endpoint", func() (err error) { // as liqoctl network connect does; again when a controller wrote in between
		if repaired, err = rome.dialer(t); err != nil {
			return err
		}
		repaired.Spec.Endpoint.Addresses = []string{"172.31.20.12"}
		plan.Note(&repaired, repaired.Spec.Endpoint)
		return rome.Update(t.Context(), &repaired)
	})
	before := reconciles(t, "follow") // the one that ends next may have begun before the repair
	eventually(t, "two more reconciles", func() error { return equal(true, reconciles(t, "follow") >= before+2) })
	milan.moves(t, "172.31.20.13")
	milan.eventuallyServes(t, "172.31.20.13")
	if c, err := rome.dialer(t); err != nil || c.Generation != repaired.Generation {
		t.Errorf("the repair became %v; error %v", c.Spec.Endpoint, err)
	}

	way.closed.Store(false)
	rome.eventuallyDials(t, "172.31.20.13")
	if c, err := rome.dialer(t); err != nil || c.Generation != repaired.Generation+1 {
		t.Errorf("to follow took %d changes, want 1; error %v", c.Generation-repaired.Generation, err)
	}
}

// way forwards to an API server unless it is closed; while silent, it serves only watches that are
// open.
type way struct {
	*httptest.Server
	closed, silent atomic.Bool
}

func newWay(t *testing.T, to *rest.Config) *way {
	t.Helper()
	target, err := url.Parse(to.Host)
	must(t, err)
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: to.CAData}})
	must(t, err)
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	w := &way{}
	w.Server = httptest.NewTLSServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		if w.closed.Load() || w.silent.Load() && !r.URL.Query().Has("watch") {
			http.Error(answer, "the way is closed", http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(answer, r)
	}))
	t.Cleanup(func() {
		w.close()
		w.Close()
	})
	return w
}

// close ends what is under way, too.
func (w *way) close() {
	w.closed.Store(true)
	w.CloseClientConnections()
}

func (w *way) config() *rest.Config {
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
	return &rest.Config{Host: w.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certificate}}
}

// identityFor creates a consumer's account with the rights of the chart, and returns its kubeconfig
// Secret.
func (h half) identityFor(t *testing.T) string {
	t.Helper()
	for _, obj := range parsed(t, rendered(t, nil, "remote-roles.yaml")+h.filled(`
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: consumer, namespace: NS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: consumer, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: liqo-remote-controlplane}
subjects: [{kind: ServiceAccount, name: consumer, namespace: NS}]
`)) {
		create(t, h, obj)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "consumer"}}
	token := &authenticationv1.TokenRequest{}
	must(t, h.SubResource("token").Create(t.Context(), account, token))
	text, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "here",
		Contexts:       map[string]*clientcmdapi.Context{"here": {Cluster: "here", AuthInfo: "here"}},
		Clusters:       map[string]*clientcmdapi.Cluster{"here": {Server: h.Config.Host, CertificateAuthorityData: h.Config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"here": {Token: token.Status.Token}},
	})
	must(t, err)
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata:
  name: cplane-secret
  namespace: liqo-tenant-milan
  labels: {%s: ControlPlane, %s: milan}
  annotations: {%s: %s}
data: {kubeconfig: %s}
`, api.LabelIdentityType, api.LabelRemoteClusterID, api.AnnotationRemoteTenantNamespace, h.namespace, encoded(text))
}

// moves gives the only node another address.
func (h half) moves(t *testing.T, address string) {
	t.Helper()
	var node corev1.Node
	must(t, h.Get(t.Context(), types.NamespacedName{Name: "worker"}, &node))
	patch := client.MergeFrom(node.DeepCopy())
	node.Status.Addresses[0].Address = address
	must(t, h.Status().Patch(t.Context(), &node, patch))
}

func (h half) eventuallyServes(t *testing.T, address string) {
	t.Helper()
	eventually(t, "the served address "+address, func() error {
		var s netv1beta1.GatewayServer
		err := h.Get(t.Context(), types.NamespacedName{Namespace: h.namespace, Name: "gw"}, &s)
		return errors.Join(err, equal(&netv1beta1.EndpointStatus{Addresses: []string{address}, Port: 30742, Protocol: "UDP"}, s.Status.Endpoint))
	})
}

func (h half) eventuallyDials(t *testing.T, address string) {
	t.Helper()
	eventually(t, "the dialed address "+address, func() error {
		c, err := h.dialer(t)
		return errors.Join(err, equal(&netv1beta1.EndpointStatus{Addresses: []string{address}, Port: 30742, Protocol: "UDP"}, c.Spec.Endpoint))
	})
}

// eventuallyNotes waits until the follower has recorded that a client dials the announced endpoint.
func (h half) eventuallyNotes(t *testing.T, address string) {
	t.Helper()
	eventually(t, "the note of address "+address, func() error {
		c, err := h.dialer(t)
		return errors.Join(err, equal(fmt.Sprintf(`{"addresses":[%q],"port":30742,"protocol":"UDP"}`, address), c.Annotations["networking.liqo.io/followed"]))
	})
}

func (h half) dialer(t *testing.T) (netv1beta1.GatewayClient, error) {
	t.Helper()
	var c netv1beta1.GatewayClient
	return c, h.Get(t.Context(), types.NamespacedName{Namespace: h.namespace, Name: "gw"}, &c)
}

// key returns the public key that the gateway announces; nil while there is none.
func (h half) key(t *testing.T) []byte {
	t.Helper()
	var servers netv1beta1.GatewayServerList
	var clients netv1beta1.GatewayClientList
	must(t, errors.Join(h.List(t.Context(), &servers), h.List(t.Context(), &clients)))
	for _, s := range servers.Items {
		return s.Status.PublicKey
	}
	for _, c := range clients.Items {
		return c.Status.PublicKey
	}
	return nil
}

// haveEachOthersKey returns a check that each side has the other's key.
func haveEachOthersKey(t *testing.T, a, b half) func() error {
	told := func(h half) []byte {
		var k netv1beta1.PublicKey
		must(t, h.Get(t.Context(), types.NamespacedName{Namespace: h.namespace, Name: h.peer}, &k))
		return k.Spec.PublicKey
	}
	return func() error {
		if key := a.key(t); key == nil || !bytes.Equal(key, told(b)) {
			return fmt.Errorf("%s was told %x of %x", a.peer, told(b), key)
		}
		return equal(b.key(t), told(a))
	}
}

func encoded(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
