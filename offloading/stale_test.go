// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// TestStaleCache: what a cache does not show yet, or still shows, misleads no controller. Two API servers stand for
// the states of one cluster in the cache and now.
func TestStaleCache(t *testing.T) {
	t.Parallel()
	cached, now := provider{t, apitest.Start(t).Config}, provider{t, apitest.Start(t).Config}
	tenant := func() client.Object { return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant-rome"}} }
	r := ctl.Reader{Reader: cached.create(tenant()), Live: now.create(tenant())}
	virtualNode := func(name string) *offloadingv1beta1.VirtualNode {
		return &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "tenant-rome"}}
	}
	now.namespace("shop-rome", "rome")

	t.Run("the last virtual node deletes the lease of all", func(t *testing.T) {
		cached.create(virtualNode("first"))
		cached.create(virtualNode("last"))
		now.create(virtualNode("last"))
		in, err := gatherDismantling(t.Context(), r, plan.VirtualNodeInput{Root: virtualNode("last")})
		if err != nil || !in.Last {
			t.Errorf("last: %v (%v)", in.Last, err)
		}
	})

	t.Run("a slice waits for its namespace", func(t *testing.T) {
		slice := &offloadingv1beta1.ShadowEndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome"}}
		r := ctl.Reader{Reader: cached.cache()} // it reads any name, also an empty one
		if in, err := gatherShadowEndpointSlice(t.Context(), r, slice, Options{}); err == nil {
			t.Errorf("planned for consumer %q", in.Origin)
		}
	})

	t.Run("a pod of an offloaded namespace is admitted", func(t *testing.T) {
		offloading := &offloadingv1beta1.NamespaceOffloading{
			ObjectMeta: metav1.ObjectMeta{Name: api.NamespaceOffloadingName, Namespace: "shop-rome"}}
		now.create(offloading)
		pod, err := json.Marshal(&corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Namespace: "shop-rome", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: pod}}}
		response := admissionServer{}.mutatePod(t.Context(), r, admission.NewDecoder(scheme.New()), request)
		if !response.Allowed {
			t.Errorf("refused: %v", response.Result)
		}
	})
}
