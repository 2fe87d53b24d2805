// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
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
			words{"NetworkConfigurationPresence", "the network configuration is there"},
			words{"NetworkConfigurationMissing", "no Configuration for this peer; run 'liqoctl network connect'"}),
		presence(corev1beta1.NetworkGatewayPresenceCondition, gateways > 0,
			words{"GatewayPresence", "a gateway is there"},
			words{"GatewayMissing", "no gateway for this peer; run 'liqoctl network connect'"}),
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

func presence(t corev1beta1.ConditionType, there bool, yes, no words) corev1beta1.Condition {
	if there {
		return corev1beta1.Condition{Type: t, Status: corev1beta1.ConditionReady, Reason: yes.reason,
			Message: yes.message}
	}
	return corev1beta1.Condition{Type: t, Status: corev1beta1.ConditionNotReady, Reason: no.reason, Message: no.message}
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

// gatewayStatus counts replicas over all gateways of one side. One of another technology counts as one.
func gatewayStatus[G gateway](in Input, t corev1beta1.ConditionType, gateways []G) corev1beta1.Condition {
	ready, wanted := 0, 0
	for _, g := range gateways {
		r, w := in.replicas(types.NamespacedName{Namespace: g.GetNamespace(),
			Name: api.GatewayResourceName(g.GetName())})
		if other, runs := g.OtherTechnology(); runs {
			r, w = 1, 1
		} else if other {
			r, w = 0, 1
		}
		ready, wanted = ready+r, wanted+w
	}
	return tally(t, ready, wanted,
		words{"GatewaysReady", "all replicas of the gateways are ready"},
		words{"GatewaysSomeNotReady", "some replicas of the gateways are not ready; look at their pods in the tenant " +
			"namespace"},
		words{"GatewaysNotReady", "no replica of the gateways is ready; look at their pods in the tenant namespace"})
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

// connection is the worst state among the tunnels.
func (in Input) connection() corev1beta1.Condition {
	c := corev1beta1.Condition{Type: corev1beta1.NetworkConnectionStatusCondition}
	seen := map[netv1beta1.ConnectionStatusValue]bool{}
	for _, connection := range in.Connections {
		switch value := connection.Status.Value; value {
		case netv1beta1.Connected:
			seen[value] = true
		case netv1beta1.Connecting, "":
			seen[netv1beta1.Connecting] = true
		default:
			seen[netv1beta1.ConnectionError] = true
		}
	}
	switch {
	case seen[netv1beta1.ConnectionError]:
		c.Status, c.Reason, c.Message = corev1beta1.ConditionError, "ConnectionError",
			"the tunnel lost the peer; check that its gateway is reachable"
	case seen[netv1beta1.Connecting]:
		c.Status, c.Reason, c.Message = corev1beta1.ConditionPending, "ConnectionPending",
			"the tunnel waits for the peer"
	case seen[netv1beta1.Connected]:
		c.Status, c.Reason, c.Message = corev1beta1.ConditionEstablished, "ConnectionEstablished", "the tunnel works"
	default:
		c.Status, c.Reason, c.Message = corev1beta1.ConditionNotReady, "ConnectionMissing",
			"the gateway has not opened the tunnel; look at its conditions"
	}
	return c
}
