// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// +kubebuilder:rbac:groups="",resources=pods;nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=get;list;watch;create;patch;delete

// podIP keeps the IPs by which peers reach pods that run at other peers.
func (o Options) podIP() ctl.Registrar {
	offloaded := ctl.All(&corev1.PodList{}, client.HasLabels{api.LabelShadowPod})
	return ctl.Controller[*corev1.Pod, plan.PodIPInput]{
		Name: "pod-ip", Quiet: true, Only: plan.Offloaded,
		Owns:    []client.Object{&ipamv1alpha1.IP{}},
		Watches: []ctl.Watch{{Kind: &netv1beta1.Configuration{}, Map: offloaded}},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Pod) (plan.PodIPInput, error) {
			in := plan.PodIPInput{Root: root, LiqoNamespace: o.LiqoNamespace}
			var configurations netv1beta1.ConfigurationList
			if err := list(ctx, r, &configurations, client.UnsafeDisableDeepCopy); err != nil {
				return in, err
			}
			in.Configurations = configurations.Items
			key := client.ObjectKey{Name: root.Spec.NodeName}
			node, err := ctl.Optional(ctx, r, key, &corev1.Node{})
			if node == nil && err == nil { // if the cache shows it later, that does not enqueue the pod
				node, err = ctl.Optional(ctx, r.Live, key, &corev1.Node{})
			}
			if err != nil {
				return in, err
			}
			if node != nil {
				in.Provider = node.Labels[api.LabelRemoteClusterID]
			}
			in.IP, err = ctl.Optional(ctx, r, client.ObjectKeyFromObject(root), &ipamv1alpha1.IP{})
			return in, err
		},
		Plan: plan.PodIP,
	}
}

// nodesOfPod maps a pod to the nodes whose ranges or protected addresses it may change. Nearly
// everywhere CNIs keep to the ranges of nodes, and most pods are mapped to none.
func (o Options) nodesOfPod(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil
	}
	var nodes corev1.NodeList
	var known netv1beta1.InternalNodeList
	for _, l := range []client.ObjectList{&nodes, &known} {
		if err := list(ctx, r, l, client.UnsafeDisableDeepCopy); err != nil {
			klog.FromContext(ctx).Error(err, "find the nodes a pod concerns")
			return nil
		}
	}
	var requests []reconcile.Request
	protected := plan.IsProtected(pod, o.LiqoNamespace, o.ProtectedNamespaces)
	for _, name := range plan.NodesOfPod(pod, protected, nodes.Items, known.Items) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	}
	return requests
}
