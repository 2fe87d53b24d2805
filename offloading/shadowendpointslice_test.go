// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
)

// TestAttackSlicesThatFollowPods: a consumer makes many ShadowEndpointSlices that name pods at the
// provider, its own and those of others, so that each pod that comes or goes there makes work for
// every slice.
//
// Outcome: a change of a pod is followed only by those slices of its own consumer that name its
// address. A pod that was not made for a ShadowPod is followed by none.
func TestAttackSlicesThatFollowPods(t *testing.T) {
	t.Parallel()
	p := provider{t, apitest.Start(t).Config}
	consumers := map[string]string{"shop-rome": "rome", "till-rome": "rome", "shop-bari": "bari", "own": ""}
	for name, consumer := range consumers {
		p.namespace(name, consumer)
		p.slice(name, "first", "10.0.0.1")
		p.slice(name, "second", "10.0.0.2", "fd00::2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6")
	}
	p.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "tenant-rome", Labels: map[string]string{api.LabelRemoteClusterID: "rome"},
	}})
	p.slice("tenant-rome", "first", "10.0.0.1")
	pods := map[string]*corev1.Pod{
		"first":    p.pod("shop-rome", "first", api.ManagedByShadowPod, "10.0.0.1"),
		"second":   p.pod("shop-rome", "second", api.ManagedByShadowPod, "10.0.0.2", "fd00::2"),
		"bari's":   p.pod("shop-bari", "third", api.ManagedByShadowPod, "10.0.0.3"),
		"foreign":  p.pod("shop-rome", "fourth", "", "10.0.0.4"),
		"own":      p.pod("own", "fifth", api.ManagedByShadowPod, "10.0.0.5"),
		"tenant's": p.pod("tenant-rome", "sixth", api.ManagedByShadowPod, "10.0.0.6"),
		"starting": p.pod("shop-rome", "seventh", api.ManagedByShadowPod),
	}
	r := p.cache()
	for name, want := range map[string][]string{
		"first": {"shop-rome/first", "till-rome/first"}, "second": {"shop-rome/second", "till-rome/second"},
		"bari's": {"shop-bari/second"}, "foreign": nil, "own": nil, "tenant's": nil, "starting": nil,
	} {
		var got []string
		for _, request := range slicesNaming(t.Context(), r, pods[name]) {
			got = append(got, request.String())
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
			t.Errorf("pod %s is followed by (-want +got):\n%s", name, diff)
		}
	}
	for consumer, want := range map[string]map[string]string{
		"rome": {"10.0.0.1": "node-of-first", "10.0.0.2": "node-of-second", "fd00::2": "node-of-second"},
		"bari": {"10.0.0.3": "node-of-third"},
		"":     {},
	} {
		var addresses []netip.Addr
		for _, text := range []string{"10.0.0.1", "10.0.0.2", "fd00::2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"} {
			addresses = append(addresses, netip.MustParseAddr(text))
		}
		found, err := nodesOf(t.Context(), r, consumer, addresses)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for address, node := range found {
			got[address.String()] = node
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("nodes of addresses of %q (-want +got):\n%s", consumer, diff)
		}
	}
}

// provider is the API server of a provider.
type provider struct {
	t      *testing.T
	config *rest.Config
}

func (p provider) create(obj client.Object) client.Client {
	p.t.Helper()
	c, err := client.New(p.config, client.Options{Scheme: scheme.New()})
	if err == nil {
		err = c.Create(p.t.Context(), obj)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

// namespace creates a namespace for a consumer, or one of the provider's own.
func (p provider) namespace(name, consumer string) {
	p.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if consumer != "" {
		ns.Labels = map[string]string{api.LabelRemoteClusterID: consumer}
		nsmap := api.ManagedByNamespaceMap("tenant-"+consumer, "milan")
		ns.Annotations = map[string]string{api.AnnotationManagedByNamespaceMap: nsmap}
	}
	p.create(ns)
}

// slice creates a ShadowEndpointSlice with addresses of pods in the same cluster.
func (p provider) slice(namespace, name string, addresses ...string) {
	p.t.Helper()
	text, err := json.Marshal([]discoveryv1.Endpoint{{Addresses: addresses}})
	if err != nil {
		p.t.Fatal(err)
	}
	shadow := &offloadingv1beta1.ShadowEndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: namespace, Annotations: map[string]string{api.AnnotationProviderEndpoints: string(text)},
	}}
	shadow.Spec.Template.AddressType = discoveryv1.AddressTypeIPv4
	p.create(shadow)
}

func (p provider) pod(namespace, name, managedBy string, addresses ...string) *corev1.Pod {
	p.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	pod.Labels = map[string]string{api.LabelManagedBy: managedBy}
	pod.Spec = corev1.PodSpec{NodeName: "node-of-" + name, Containers: []corev1.Container{{Name: "c", Image: "image"}}}
	c := p.create(pod)
	for _, address := range addresses {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: address})
		pod.Status.PodIP = addresses[0]
	}
	if err := c.Status().Update(p.t.Context(), pod); err != nil {
		p.t.Fatal(err)
	}
	return pod
}

// cache returns a reader with the indexes of the controller.
func (p provider) cache() client.Reader {
	p.t.Helper()
	mgr, err := manager.New(p.config, manager.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, index := range []ctl.Registrar{podsByAddress(), slicesByProviderAddress()} {
		if err := index.Register(mgr); err != nil {
			p.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	p.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("manager: %v", err)
		}
	})
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		p.t.Fatal("the cache is not filled")
	}
	return mgr.GetClient()
}
