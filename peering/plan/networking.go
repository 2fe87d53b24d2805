// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// networking returns the conditions about configuration, gateways and tunnel; nil if none exists.
func (in Input) networking() []corev1beta1.Condition {
	gateways := len(in.GatewayServers) + len(in.GatewayClients)
	if len(in.Configurations)+len(in.Connections)+gateways == 0 {
		return nil
	}
	conditions := []corev1beta1.Condition{
		presence(corev1beta1.NetworkConfigurationStatusCondition, len(in.Configurations) > 0,
			text{"NetworkConfigurationPresence", "the network configuration is there"},
			text{"NetworkConfigurationMissing", "no Configuration for this peer; run 'liqoctl network connect'"}),
		presence(corev1beta1.NetworkGatewayPresenceCondition, gateways > 0,
			text{"GatewayPresence", in.endpoints()},
			text{"GatewayMissing", "no gateway for this peer; run 'liqoctl network connect'"}),
	}
	if len(in.GatewayServers) > 0 {
		conditions = append(conditions, gatewayStatus(in, corev1beta1.NetworkGatewayServerStatusCondition,
			pointers(in.GatewayServers)))
	}
	if len(in.GatewayClients) > 0 {
		conditions = append(conditions, gatewayStatus(in, corev1beta1.NetworkGatewayClientStatusCondition,
			pointers(in.GatewayClients)))
	}
	return append(conditions, in.connection())
}

// endpoints says where clients reach the gateway servers, and where the gateway clients dial.
func (in Input) endpoints() string {
	var says []string
	for i := range in.GatewayServers {
		if e := in.GatewayServers[i].Status.Endpoint; e != nil {
			says = append(says, "the peer reaches the gateway server at "+where(e))
		}
	}
	for i := range in.GatewayClients {
		if e := in.GatewayClients[i].Spec.Endpoint; e != nil && len(e.Addresses) > 0 {
			says = append(says, "the gateway client dials "+where(e))
		}
	}
	if len(says) == 0 {
		return "a gateway is there"
	}
	return api.Printable(strings.Join(says, "; "))
}

// where returns addresses and ports of a server.
func where(e *netv1beta1.EndpointStatus) string {
	ports := e.Ports
	if len(ports) == 0 {
		ports = []int32{e.Port}
	}
	numbers := strings.Trim(fmt.Sprint(ports), "[]")
	return fmt.Sprintf("%s, port %s %s", strings.Join(e.Addresses, ", "), strings.ReplaceAll(numbers, " ", ", "),
		cmp.Or(e.Protocol, netv1beta1.ProtocolUDP))
}

// presence returns the condition of a subject that exists, or does not.
func presence(t corev1beta1.ConditionType, exists bool, present, missing text) corev1beta1.Condition {
	if exists {
		return condition(t, corev1beta1.ConditionReady, present)
	}
	return condition(t, corev1beta1.ConditionNotReady, missing)
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// gateway is either end of a tunnel.
type gateway interface {
	desired.Object
	OtherTechnology() (other, runs bool)
}

// gatewayStatus counts the replicas of all gateways of one side. A gateway of another technology
// counts as one replica.
func gatewayStatus[G gateway](in Input, t corev1beta1.ConditionType, gateways []G) corev1beta1.Condition {
	ready, wanted := 0, 0
	for _, g := range gateways {
		name := types.NamespacedName{Namespace: g.GetNamespace(), Name: api.GatewayResourceName(g.GetName())}
		r, w := in.replicas(name)
		if other, runs := g.OtherTechnology(); runs {
			r, w = 1, 1
		} else if other {
			r, w = 0, 1
		}
		ready, wanted = ready+r, wanted+w
	}
	const look = "; look at their pods in the tenant namespace"
	return readiness(t, ready, wanted,
		text{"GatewaysReady", "all replicas of the gateways are ready"},
		text{"GatewaysSomeNotReady", "some replicas of the gateways are not ready" + look},
		text{"GatewaysNotReady", "no replica of the gateways is ready" + look})
}

// replicas counts the ready and the wanted replicas of a Deployment; an absent one wants one.
func (in Input) replicas(name types.NamespacedName) (ready, wanted int) {
	deployment := in.Deployments[name]
	if deployment == nil {
		return 0, 1
	}
	wanted = 1
	if deployment.Spec.Replicas != nil {
		wanted = int(max(*deployment.Spec.Replicas, 1))
	}
	return min(int(deployment.Status.ReadyReplicas), wanted), wanted
}

// connection returns the worst state of the tunnels.
func (in Input) connection() corev1beta1.Condition {
	connected, connecting, failed := false, false, false
	for _, c := range in.Connections {
		switch c.Status.Value {
		case netv1beta1.Connected:
			connected = true
		case netv1beta1.Connecting, "":
			connecting = true
		default:
			failed = true
		}
	}
	const t = corev1beta1.NetworkConnectionStatusCondition
	switch {
	case failed:
		return condition(t, corev1beta1.ConditionError,
			text{"ConnectionError", "the tunnel lost the peer; check that its gateway is reachable"})
	case connecting:
		return condition(t, corev1beta1.ConditionPending, text{"ConnectionPending", "the tunnel waits for the peer"})
	case connected:
		return condition(t, corev1beta1.ConditionEstablished, text{"ConnectionEstablished", "the tunnel works"})
	}
	return condition(t, corev1beta1.ConditionNotReady,
		text{"ConnectionMissing", "the gateway has not opened the tunnel; look at its conditions"})
}
