// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=connections,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=connections/status,verbs=patch

// connection reports the Connections of gateways that do not run as down.
func (o Options) connection() ctl.Registrar {
	return ctl.Controller[*netv1beta1.Connection, plan.ConnectionInput]{
		Name: "connection", Quiet: true, Only: plan.Opened,
		Watches: []ctl.Watch{{Kind: &corev1.Pod{}, Map: connectionOf}},
		Gather: func(ctx context.Context, r ctl.Reader, root *netv1beta1.Connection) (plan.ConnectionInput, error) {
			in := plan.ConnectionInput{Root: root, Now: time.Now()}
			var pods corev1.PodList
			err := list(ctx, r, &pods, client.InNamespace(root.Namespace),
				client.MatchingLabels{api.LabelGatewayName: root.Spec.GatewayRef.Name})
			in.Pods = pods.Items
			return in, err
		},
		Plan: plan.Connection,
	}
}

// connectionOf maps a gateway pod to its Connection.
func connectionOf(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	name := obj.GetLabels()[api.LabelGatewayName]
	if name == "" {
		return nil
	}
	return request(obj.GetNamespace(), api.GatewayResourceName(name))
}
