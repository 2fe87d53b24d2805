// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// gatewayGrace is how long a gateway may have no ready pod before its tunnel counts as down. A
// killed gateway is back within 3 s, and reactions to a lost tunnel cost more than such a pause.
const gatewayGrace = 10 * time.Second

// ConnectionInput holds the input of Connection.
type ConnectionInput struct {
	Root *netv1beta1.Connection
	// Pods are the pods of the gateway.
	Pods []corev1.Pod
	// Now is the transition time of conditions that change.
	Now time.Time
}

// Connection reports a tunnel as down while this cluster's gateway does not run. Otherwise only the
// gateway writes the status, and it cannot report its own absence.
//
//	pods of the gateway        Connection
//	one is ready               is the gateway's; the value is again the one that the gateway wrote last
//	none is ready              GatewayRunning is False, with what the pods lack
//	none for gatewayGrace      the value is Error, too
//
// A running gateway answers with GatewayRunning True. While none of its pods is ready,
// GatewayRunning is set to False again each gatewayGrace. Either the kubelet of its node hangs, or
// the gateway has ended since.
func Connection(in ConnectionInput) desired.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	old := meta.FindStatusCondition(root.Status.Conditions, netv1beta1.ConnectionGatewayRunning)
	status := netv1beta1.ConnectionStatus{}
	if slices.ContainsFunc(in.Pods, func(p corev1.Pod) bool { return ready(&p) }) {
		if old == nil || old.Status == metav1.ConditionTrue {
			return desired.Plan{}
		}
		if root.Status.Value == netv1beta1.ConnectionError &&
			meta.IsStatusConditionTrue(root.Status.Conditions, desired.ConditionReady) {
			status.Value = netv1beta1.Connected
		}
		return desired.Plan{Status: &netv1beta1.Connection{Status: status}}
	}
	if old != nil && old.Status == metav1.ConditionTrue {
		if left := old.LastTransitionTime.Add(gatewayGrace).Sub(in.Now); left > 0 {
			return desired.Plan{RequeueAfter: left}
		}
	}
	why := podPending(in.Pods, root.Namespace, root.Spec.GatewayRef.Name)
	c := stamped(root.Status.Conditions, metav1.Condition{
		Type: netv1beta1.ConnectionGatewayRunning, Status: metav1.ConditionFalse, Reason: why.Reason,
		Message: why.Message,
	}, in.Now)
	left := c.LastTransitionTime.Add(gatewayGrace).Sub(in.Now)
	if left <= 0 {
		status.Value, left = netv1beta1.ConnectionError, 0
	}
	status.Conditions = []metav1.Condition{c}
	return desired.Plan{Status: &netv1beta1.Connection{Status: status}, RequeueAfter: left}
}

// Opened reports whether a Connection belongs to a gateway that this installation runs.
func Opened(c *netv1beta1.Connection) bool {
	ref := c.Spec.GatewayRef
	return ref.Namespace == c.Namespace && api.GatewayResourceName(ref.Name) == c.Name &&
		(ref.Kind == "WgGatewayServer" || ref.Kind == "WgGatewayClient")
}
