// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// TestConnectionOfAGatewayWithoutPod: while no pod of the gateway runs, the Connection is down and
// reports why. Once a pod runs, it has the last value that the gateway wrote. Connections created
// by others are not changed.
func TestConnectionOfAGatewayWithoutPod(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	labels := map[string]string{"liqo.io/remote-cluster-id": "milan", "networking.liqo.io/gateway-name": "milan"}
	connect := func(name, kind string) {
		connection := &netv1beta1.Connection{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
			Spec:       netv1beta1.ConnectionSpec{Type: "Client", GatewayRef: corev1.ObjectReference{Kind: kind, Namespace: "default", Name: "milan"}},
		}
		must(t, c.Create(t.Context(), connection))
		eventually(t, "the status of Connection "+name, func() error { // again when the controller wrote in between
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(connection), connection); err != nil {
				return err
			}
			connection.Status.Value = netv1beta1.Connected
			meta.SetStatusCondition(&connection.Status.Conditions, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Connected"})
			return c.Status().Update(t.Context(), connection)
		})
	}
	says := func(name string, value netv1beta1.ConnectionStatusValue, reason string) {
		t.Helper()
		eventually(t, "the reason "+reason+" in Connection "+name, func() error {
			var connection netv1beta1.Connection
			err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &connection)
			got := ""
			if running := meta.FindStatusCondition(connection.Status.Conditions, netv1beta1.ConnectionGatewayRunning); running != nil {
				got = running.Reason
			}
			return errors.Join(err, equal(value, connection.Status.Value), equal(reason, got),
				equal(true, meta.IsStatusConditionTrue(connection.Status.Conditions, "Ready")))
		})
	}
	connect("gw-milan", "WgGatewayClient")
	connect("fancy", "FancyGateway")
	says("gw-milan", netv1beta1.ConnectionError, "GatewayPodMissing")

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gw-milan-1", Labels: labels},
		Spec:       corev1.PodSpec{NodeName: "rome-1", Containers: []corev1.Container{{Name: "gateway", Image: "none"}}},
	}
	must(t, c.Create(t.Context(), pod))
	says("gw-milan", netv1beta1.ConnectionError, "GatewayPodPending")
	patch := client.MergeFrom(pod.DeepCopy())
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.10.1.7", PodIPs: []corev1.PodIP{{IP: "10.10.1.7"}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	must(t, c.Status().Patch(t.Context(), pod, patch))
	says("gw-milan", netv1beta1.Connected, "")

	must(t, c.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	says("gw-milan", netv1beta1.ConnectionError, "GatewayPodMissing")
	says("fancy", netv1beta1.Connected, "")
}
