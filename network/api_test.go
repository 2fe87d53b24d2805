// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/internal/seed"
	"github.com/liqo-go/liqo/network"
)

const installed = `
apiVersion: v1
kind: Namespace
metadata: {name: liqo}
---
apiVersion: v1
kind: Namespace
metadata: {name: liqo-tenant-milan, labels: {liqo.io/tenant-namespace: "true", liqo.io/remote-cluster-id: milan}}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata:
  name: pod-cidr
  namespace: liqo
  labels: {ipam.liqo.io/network-type: pod-cidr, ipam.liqo.io/network-not-remapped: "true", ipam.liqo.io/network-shared: "true"}
  annotations: {liqo.io/preinstalled: "true"}
spec: {cidr: 10.10.0.0/16}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: external-cidr, namespace: liqo, labels: {ipam.liqo.io/network-type: external-cidr}, annotations: {liqo.io/preinstalled: "true"}}
spec: {cidr: 10.70.0.0/16, preAllocated: 1}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: internal-cidr, namespace: liqo, labels: {ipam.liqo.io/network-type: internal-cidr}, annotations: {liqo.io/preinstalled: "true"}}
spec: {cidr: 10.80.0.0/16}
`

// onNodePort, onLoadBalancer and dialing are the gateway of the peering, one of them.
const onNodePort = `
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: gw, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec:
  mtu: 1340
  endpoint: {port: 51840, serviceType: NodePort, nodePort: 30742}
  serverTemplateRef: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServerTemplate, name: wireguard-server, namespace: liqo}
  secretRef: {name: gw-keys}
`

const onLoadBalancer = `
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: gw, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec:
  endpoint: {port: 51840, serviceType: LoadBalancer, loadBalancerIP: 172.31.200.7}
  secretRef: {name: gw-keys}
`

const dialing = `
apiVersion: networking.liqo.io/v1beta1
kind: GatewayClient
metadata: {name: gw, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec:
  mtu: 1340
  endpoint: {addresses: [172.31.20.11], port: 30742, protocol: UDP}
  clientTemplateRef: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayClientTemplate, name: wireguard-client, namespace: liqo}
  secretRef: {name: gw-keys}
`

const peering = `
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec: {remote: {cidr: {pod: [10.20.0.0/16], external: [10.70.0.0/16]}}}
---
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan, networking.liqo.io/gateway-resource: "true"}}
spec: {publicKey: 17XoHTNuV4sTuNcG6C0GHjA4yWvOZs3PUNVmuW3buhA=}
---
apiVersion: v1
kind: Secret
metadata: {name: gw-keys, namespace: liqo-tenant-milan}
# made by openssl genpkey -algorithm X25519
data: {privateKey: CF824zCtj4KdJbMjfOvmHzeFF6tW0d4kDoKIZlbWgXg=, publicKey: Y4QWQbuBNNr9IYpYmx/W850xoAiDr/XTdp6Wwcdj4DY=}
---
apiVersion: v1
kind: Node
metadata: {name: rome-1}
spec: {podCIDRs: [10.10.1.0/24], podCIDR: 10.10.1.0/24}
status: {addresses: [{type: InternalIP, address: 172.31.10.11}]}
---
apiVersion: v1
kind: Pod
metadata:
  name: gw-1
  namespace: liqo-tenant-milan
  labels: {liqo.io/managed: "true", networking.liqo.io/gateway-name: gw, networking.liqo.io/active: "true"}
spec: {nodeName: rome-1, containers: [{name: gateway, image: none}]}
status: {phase: Running, podIP: 10.10.1.7, podIPs: [{ip: 10.10.1.7}]}
`

// rounds is how often a peering is made and ended in one cluster, each time in other orders.
const rounds = 4

// TestPeeringInAnyOrder creates and deletes the objects of a peering in random orders, on either
// side, in a tenant namespace of any name. Each order leads to the same result, also with leftovers
// of a former peering. Only the user's Secret outlives the gateway. The tenant namespace and the
// cluster's own ranges, which are created once, may come after the peering.
func TestPeeringInAnyOrder(t *testing.T) {
	t.Parallel()
	from := seed.Of(t)
	for n, way := range []struct {
		name, namespace, gateway string
		endpoint                 *netv1beta1.EndpointStatus
	}{
		{"server on a node port", "liqo-tenant-milan", onNodePort, &netv1beta1.EndpointStatus{Addresses: []string{"172.31.10.11"}, Port: 30742, Protocol: "UDP"}},
		{"server on a load balancer", "north", onLoadBalancer, &netv1beta1.EndpointStatus{Addresses: []string{"172.31.200.7"}, Port: 51840, Protocol: "UDP"}},
		{"client", "default", dialing, nil},
	} {
		t.Run(way.name, func(t *testing.T) {
			c := startControllers(t, "rome")
			in := func(text string) string { return strings.ReplaceAll(text, "liqo-tenant-milan", way.namespace) }
			objects := append(parsed(t, in(peering)), parsed(t, in(way.gateway))...)
			for _, template := range chartTemplates(t, []byte("ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}")) {
				objects = append(objects, template)
			}
			slices.SortFunc(objects, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetKind(), b.GetKind()) })
			r := rand.New(rand.NewPCG(from, uint64(n)))
			mixed := func(list []*unstructured.Unstructured) []*unstructured.Unstructured {
				list = slices.Clone(list)
				r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
				return list
			}
			come := slices.Concat(parsed(t, in(installed)), objects)
			for range rounds {
				c.receive(t, r, mixed(come))
				come = objects
				if way.gateway == onLoadBalancer {
					c.balances(t, way.namespace)
				}
				checkGateway(t, c, way.namespace, way.endpoint, checkPeering(t, c, way.namespace))
				for _, obj := range mixed(objects) {
					if obj.GetKind() != "Secret" { // the user's
						must(t, c.Delete(t.Context(), obj.DeepCopy(), client.GracePeriodSeconds(0)))
					}
				}
				checkTeardown(t, c, way.namespace)
			}
		})
	}
}

// receive creates objects in their order. As with tools for manifests, objects without a namespace
// are retried after the others. Now and then it waits before the next one, until the controllers
// have done what they can.
func (c cluster) receive(t *testing.T, r *rand.Rand, objects []*unstructured.Unstructured) {
	t.Helper()
	for i := 0; i < len(objects); i++ {
		if r.IntN(8) == 0 {
			c.settle(t)
		}
		if err := c.Create(t.Context(), objects[i].DeepCopy()); apierrors.IsNotFound(err) {
			objects = append(objects, objects[i])
		} else {
			create(t, c, objects[i])
		}
	}
}

// settle waits until the controllers have reported on all objects, and nothing changes between two
// polls.
func (c cluster) settle(t *testing.T) {
	t.Helper()
	before := ""
	eventually(t, "conditions of all objects and no change between two reads", func() error {
		now := ""
		for _, kind := range []schema.GroupVersionKind{
			ipamv1alpha1.GroupVersion.WithKind("NetworkList"), netv1beta1.GroupVersion.WithKind("ConfigurationList"),
			netv1beta1.GroupVersion.WithKind("GatewayServerList"), netv1beta1.GroupVersion.WithKind("GatewayClientList"),
		} {
			list := unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			if err := c.List(t.Context(), &list); err != nil {
				return err
			}
			for _, obj := range list.Items {
				if told, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions"); len(told) == 0 {
					return fmt.Errorf("%s %s has no condition", obj.GetKind(), obj.GetName())
				}
				now += fmt.Sprintln(obj.GetKind(), obj.GetName(), obj.GetResourceVersion())
			}
		}
		defer func() { before = now }()
		return equal(before, now)
	})
}

// balances assigns the address that the server's Service requests, as a load balancer does.
func (c cluster) balances(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, "the address of the load balancer", func() error {
		service := corev1.Service{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "gw-gw"}, &service); err != nil {
			return err
		}
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: service.Spec.LoadBalancerIP}}
		return c.Status().Update(t.Context(), &service)
	})
}

// checkPeering waits until the peering is complete, and returns the CIDRs that the peer is remapped
// to. Both clusters request the same external CIDR: the first gets it, the other the next one.
func checkPeering(t *testing.T, c client.Client, namespace string) []string {
	t.Helper()
	own, peer := "10.70.0.0/16", "10.71.0.0/16"
	eventually(t, "the ranges in Configuration milan", func() error {
		conf := netv1beta1.Configuration{}
		err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "milan"}, &conf)
		if seen := conf.Status.Remote; seen != nil && slices.Equal(seen.CIDR.External, []string{own}) {
			own, peer = peer, own
		}
		return errors.Join(err,
			equal(&netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{"10.10.0.0/16"}, External: []string{own}}}, conf.Spec.Local),
			equal(&netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{"10.20.0.0/16"}, External: []string{peer}}}, conf.Status.Remote),
			equal(true, meta.IsStatusConditionTrue(conf.Status.Conditions, netv1beta1.NetworkCIDRsConfigured)),
			equal(true, meta.IsStatusConditionTrue(conf.Status.Conditions, desired.ConditionReady)))
	})
	eventually(t, "the addresses that the cluster needs", func() error {
		node, unknown, server := netv1beta1.InternalNode{}, ipamv1alpha1.IP{}, ipamv1alpha1.IP{}
		return errors.Join(
			c.Get(t.Context(), client.ObjectKey{Name: "rome-1"}, &node),
			equal("10.80.0.1", node.Spec.Interface.Node.IP),
			equal(netv1beta1.NodeIP{Local: "172.31.10.11", Remote: "172.31.10.11"}, node.Status.NodeIP),
			c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "milan-unknown-source"}, &unknown),
			c.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: "api-server"}, &server),
			equal([]string{own, own}, []string{unknown.Status.CIDR, server.Status.CIDR}))
	})
	return []string{"10.20.0.0/16", peer}
}

// checkGateway waits until the gateway is complete and routes to the peer's CIDRs; endpoint is nil
// for a client.
func checkGateway(t *testing.T, c client.Client, namespace string, endpoint *netv1beta1.EndpointStatus, peer []string) {
	t.Helper()
	key := client.ObjectKey{Namespace: namespace, Name: "gw"}
	eventually(t, "the status of the gateway", func() error {
		status := netv1beta1.GatewayServerStatus{}
		if endpoint == nil {
			var gw netv1beta1.GatewayClient
			if err := c.Get(t.Context(), key, &gw); err != nil {
				return err
			}
			s := gw.Status
			status = netv1beta1.GatewayServerStatus{SecretRef: s.SecretRef, PublicKey: s.PublicKey, InternalEndpoint: s.InternalEndpoint, Conditions: s.Conditions}
		} else {
			var gw netv1beta1.GatewayServer
			if err := c.Get(t.Context(), key, &gw); err != nil {
				return err
			}
			status = gw.Status
		}
		fabric, secret, deployment := netv1beta1.InternalFabric{}, corev1.Secret{}, appsv1.Deployment{}
		err := errors.Join(
			c.Get(t.Context(), key, &fabric),
			c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "gw-keys"}, &secret),
			c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "gw-gw"}, &deployment),
			c.Get(t.Context(), client.ObjectKey{Name: "liqo-gateway-" + namespace + "-gw"}, &rbacv1.ClusterRoleBinding{}))
		if endpoint != nil {
			err = errors.Join(err, equal("10.80.128.0", fabric.Spec.Interface.Gateway.IP))
		}
		return errors.Join(err,
			equal(endpoint, status.Endpoint), equal("", message(status.Conditions)),
			equal(&netv1beta1.InternalGatewayEndpoint{IP: "10.10.1.7", Node: "rome-1"}, status.InternalEndpoint),
			equal(&corev1.ObjectReference{Name: "gw-keys", Namespace: namespace}, status.SecretRef),
			equal(secret.Data["publicKey"], status.PublicKey),
			equal("true", secret.Labels["networking.liqo.io/gateway-resource"]),
			equal(peer, fabric.Spec.RemoteCIDRs))
	})
}

// checkTeardown deletes the objects that the garbage collector, which does not run here, would
// delete with the gateway.
func checkTeardown(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	wgServer, wgClient := &netv1beta1.WgGatewayServer{ObjectMeta: at("gw")}, &netv1beta1.WgGatewayClient{ObjectMeta: at("gw")}
	for _, obj := range []client.Object{&netv1beta1.GatewayServer{ObjectMeta: at("gw")}, &netv1beta1.GatewayClient{ObjectMeta: at("gw")}, wgServer, wgClient} {
		must(t, client.IgnoreNotFound(c.Delete(t.Context(), obj)))
	}
	gone := []client.Object{
		wgServer, wgClient, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "liqo-gateway-" + namespace + "-gw"}},
		&appsv1.Deployment{ObjectMeta: at("gw-gw")}, &corev1.Service{ObjectMeta: at("gw-gw")},
	}
	for _, obj := range gone {
		eventually(t, fmt.Sprintf("the end of %T %s", obj, obj.GetName()), func() error {
			err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
			return equal(true, apierrors.IsNotFound(err))
		})
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "gw-keys"}, &corev1.Secret{}); err != nil {
		t.Errorf("the user's keys are gone: %v", err)
	}
}

// TestGatewaysEndWithTheirNamespace shows that a gateway does not wait until the namespace controller,
// which does not run here, deletes it: its rights and pods end at once, and no finalizer holds it.
// Objects of the peering are deleted one by one without requests of the controllers: the API server would
// refuse them.
func TestGatewaysEndWithTheirNamespace(t *testing.T) {
	t.Parallel()
	for _, gateway := range []string{onNodePort, dialing} {
		c := startControllers(t, "rome")
		for _, obj := range slices.Concat(parsed(t, installed), parsed(t, peering), parsed(t, gateway)) {
			create(t, c, obj)
		}
		for _, template := range chartTemplates(t, []byte("ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}")) {
			create(t, c, template)
		}
		at := metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "gw"}
		var wg client.Object = &netv1beta1.WgGatewayClient{ObjectMeta: at}
		if gateway == onNodePort {
			wg = &netv1beta1.WgGatewayServer{ObjectMeta: at}
		}
		rights := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "liqo-gateway-liqo-tenant-milan-gw"}}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: "gw-gw"}}
		get := func(obj client.Object) error { return c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj) }
		eventually(t, "the rights and the Deployment of the gateway", func() error { return errors.Join(get(rights), get(deployment)) })
		must(t, c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: at.Namespace}}))
		eventually(t, "the end of a gateway whose namespace is deleted", func() error {
			return errors.Join(get(wg), equal(0, len(wg.GetFinalizers())),
				equal(true, apierrors.IsNotFound(get(rights))), equal(true, apierrors.IsNotFound(get(deployment))))
		})
		const refusals = `apiserver_request_total\{code="403",[^}]*group="(?:ipam|networking)\.liqo\.io"[^}]*\} (\d+)`
		before := requests(t, c, refusals)
		for _, obj := range []client.Object{&ipamv1alpha1.IP{}, &ipamv1alpha1.Network{}, &netv1beta1.InternalFabric{}} {
			must(t, c.DeleteAllOf(t.Context(), obj, client.InNamespace(at.Namespace)))
		}
		for _, obj := range parsed(t, strings.ReplaceAll(installed+"---"+peering, "milan", "turin")) {
			if obj.GetNamespace() == "liqo-tenant-turin" || obj.GetName() == "liqo-tenant-turin" {
				create(t, c, obj)
			}
		}
		eventually(t, "a Configuration that is ready after the others are gone", func() error {
			conf := &netv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-turin", Name: "turin"}}
			return errors.Join(get(conf), equal(true, meta.IsStatusConditionTrue(conf.Status.Conditions, desired.ConditionReady)))
		})
		if n := requests(t, c, refusals) - before; n > 5 { // requests in flight; 15 when Configurations of such a namespace were planned
			t.Errorf("%d requests of controllers were refused", n)
		}
	}
}

// cluster is an API server on which the network's controllers run.
type cluster struct {
	client.Client
	*apitest.Server
}

// startControllers runs the network's controllers on a new API server, with the rights of the
// chart.
func startControllers(t *testing.T, clusterID string) cluster {
	t.Helper()
	return startWith(t, network.Options{ClusterID: clusterID, LiqoNamespace: "liqo"})
}

func startWith(t *testing.T, o network.Options) cluster {
	t.Helper()
	server := apitest.Start(t)
	admin, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	must(t, err)
	for _, obj := range append(parsed(t, installed)[:1], parsed(t, rendered(t, nil, "rbac.yaml"))...) {
		must(t, admin.Create(t.Context(), obj))
	}
	config := server.ConfigFor("system:serviceaccount:liqo:liqo-controller-manager", "system:serviceaccounts", "system:authenticated")
	config.UserAgent = "liqo-control" // the fields a patch without a manager's name owns are this one's
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctl.Queues(),
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{&appsv1.DaemonSet{}: o.CachedDaemonSets()},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	o.Links = &remote.Fleet{}
	for _, c := range append(network.Controllers(o), o.Links) {
		if err := c.Register(mgr); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return cluster{client.WithFieldOwner(admin, "liqoctl"), server}
}

func parsed(t *testing.T, docs string) []*unstructured.Unstructured {
	t.Helper()
	var list []*unstructured.Unstructured
	for _, doc := range splitDocs(docs) {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		if len(u.Object) > 0 { // comments alone are no object
			list = append(list, u)
		}
	}
	return list
}

// create creates an object and its status, if it has one.
func create(t *testing.T, c client.Client, obj *unstructured.Unstructured) {
	t.Helper()
	status, given := obj.Object["status"]
	eventually(t, "the creation of "+obj.GetKind()+" "+obj.GetName(), func() error { return client.IgnoreAlreadyExists(c.Create(t.Context(), obj.DeepCopy())) })
	if !given {
		return
	}
	patch := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	patch.SetGroupVersionKind(obj.GroupVersionKind())
	patch.SetNamespace(obj.GetNamespace())
	patch.SetName(obj.GetName())
	text, err := patch.MarshalJSON()
	if err == nil {
		err = c.Status().Patch(t.Context(), patch, client.RawPatch("application/merge-patch+json", text))
	}
	if err != nil {
		t.Fatalf("set status of %s %s: %v", obj.GetKind(), obj.GetName(), err)
	}
}

// eventually waits until check returns no error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		err := check()
		if err == nil {
			tick.Stop()
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal(patience.GaveUp(what, err))
		case <-tick.C:
		}
	}
}

func equal[T any](want, got T) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("(-want +got):\n%s", diff)
	}
	return nil
}

// message returns why an object is not ready; empty if it is.
func message(conditions []metav1.Condition) string {
	c := meta.FindStatusCondition(conditions, desired.ConditionReady)
	switch {
	case c == nil:
		return "no condition"
	case c.Status != metav1.ConditionTrue:
		return c.Reason + ": " + c.Message
	}
	return ""
}
