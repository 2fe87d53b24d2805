// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// TestNodePortsOutliveTheirService: a server whose Service is deleted is reached where it was announced. After its node
// port was changed, there and back, it is reached at both.
func TestNodePortsOutliveTheirService(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	objects := append(parsed(t, installed+"---"+peering), parsed(t, strings.Replace(onNodePort, ", nodePort: 30742", "", 1))...)
	for _, template := range chartTemplates(t, []byte("ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}")) {
		objects = append(objects, template)
	}
	for _, obj := range objects {
		create(t, c, obj)
	}
	key := client.ObjectKey{Namespace: "liqo-tenant-milan", Name: "gw"}
	announced := func() (port int32) {
		t.Helper()
		eventually(t, "the announced port", func() error {
			var gw netv1beta1.GatewayServer
			if err := c.Get(t.Context(), key, &gw); err != nil {
				return err
			}
			if gw.Status.Endpoint == nil {
				return errors.New("no endpoint is announced")
			}
			port = gw.Status.Endpoint.Port
			return nil
		})
		return port
	}
	serves := func(want ...int32) {
		t.Helper()
		eventually(t, fmt.Sprintf("the ports %v of the Service", want), func() error {
			var service corev1.Service
			err := c.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "gw-gw"}, &service)
			var got []int32
			for _, p := range service.Spec.Ports {
				got = append(got, p.NodePort)
			}
			return errors.Join(err, equal(want, got))
		})
	}
	change := func(port int32) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"endpoint":{"nodePort":%d}}}`, port)
		must(t, c.Patch(t.Context(), &netv1beta1.GatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}, client.RawPatch(types.MergePatchType, patch)))
		eventually(t, fmt.Sprintf("the announced port %d", port), func() error { return equal(port, announced()) })
	}
	first := announced()
	serves(first)
	for range 20 { // often enough to meet an API server that has not set the port free when the Service is made again
		must(t, c.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "gw-gw"}}))
		serves(first)
	}
	if now := announced(); now != first {
		t.Errorf("after the deletion %d is announced, before %d", now, first)
	}
	second := int32(30742)
	if first == second {
		second++
	}
	change(second)
	serves(second, first)
	change(first)
	serves(first, second)
}
