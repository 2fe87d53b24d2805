// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/reflection/translate"
)

// remappedView is a View of a provider with several ranges of pods, all of them remapped.
func remappedView() translate.View {
	v := translate.View{Networked: true, Service: &corev1.Service{}, Namespaces: map[string]string{"shop": "shop-rome"}}
	for i := range 4 {
		v.PeerPods = append(v.PeerPods, netv1beta1.Mapping{
			Remote: netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", 20+i)),
			Local:  netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", 70+i)),
		})
	}
	return v
}

// BenchmarkPodStatus measures the status of a pod whose address is remapped.
func BenchmarkPodStatus(b *testing.B) {
	ip := "10.23.0.7"
	home, v := &corev1.Pod{}, remappedView()
	home.Namespace = "shop"
	remote := &corev1.Pod{Status: corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
	}}
	b.ReportAllocs()
	for b.Loop() {
		translate.PodStatus(home, &offv1beta1.ShadowPod{}, remote, v)
	}
}

// BenchmarkEndpointSlice measures a full slice of pods at the provider, written by hand.
func BenchmarkEndpointSlice(b *testing.B) {
	home, v := &discoveryv1.EndpointSlice{}, remappedView()
	home.Namespace = "shop"
	for i := range 100 {
		home.Endpoints = append(home.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.73.0.%d", i)}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := translate.EndpointSlice(home, nil, v); err != nil {
			b.Fatal(err)
		}
	}
}
