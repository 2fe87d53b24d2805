// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// +kubebuilder:rbac:groups="",resources=nodes;pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalnodes,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalfabrics,verbs=get;list;watch

// internalNode gives every node an address in the overlay. It has one worker; see assigned.
func (o Options) internalNode() ctl.Registrar {
	nodes := ctl.All(&corev1.NodeList{})
	var addresses assigned
	return ctl.Controller[*corev1.Node, plan.NodeInput]{
		Name: "internal-node",
		Owns: []client.Object{&netv1beta1.InternalNode{}},
		Watches: []ctl.Watch{
			{Kind: &corev1.Node{}, Relevant: ctl.Differs(otherNode)},
			{Kind: &ipamv1alpha1.Network{}, Map: o.onOwnNetworks(nodes)},
			{Kind: &corev1.Pod{}, Map: o.nodesOfPod, Relevant: ctl.Differs(plan.Moved)},
			o.onUninstall(nodes),
		},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Node) (plan.NodeInput, error) {
			in := plan.NodeInput{Root: root, LiqoNamespace: o.LiqoNamespace, ProtectedNamespaces: o.ProtectedNamespaces}
			var networks ipamv1alpha1.NetworkList
			if err := list(ctx, r, &networks, client.UnsafeDisableDeepCopy); err != nil {
				return in, err
			}
			in.Networks = networks.Items
			var err error
			if in.Pods, err = podsAround(ctx, r, root); err != nil {
				return in, err
			}
			in.Overlay, err = addresses.overlay(ctx, r, plan.NodeOf(root), in.Networks, o.LiqoNamespace)
			if err != nil {
				return in, err
			}
			in.Uninstalling, err = o.uninstalling(ctx, r)
			return in, err
		},
		Plan: func(in plan.NodeInput) desired.Plan { return addresses.record(plan.InternalNode(in)) },
	}
}

// podsAround returns the pods of a node, and all others if their addresses matter for the node.
// There may be thousands, and with some CNIs each new pod enqueues its node.
func podsAround(ctx context.Context, r client.Reader, node *corev1.Node) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := list(ctx, r, &pods, client.MatchingFields{fieldNode: node.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	if !plan.Holds(node, pods.Items) {
		return pods.Items, nil
	}
	err := list(ctx, r, &pods, client.UnsafeDisableDeepCopy)
	return pods.Items, err
}

// fieldNode is the index of pods by their node.
const fieldNode = "spec.nodeName"

func podsByNode() ctl.Registrar {
	return ctl.Index{Kind: &corev1.Pod{}, Field: fieldNode, Of: func(obj client.Object) []string {
		if node := obj.(*corev1.Pod).Spec.NodeName; node != "" {
			return []string{node}
		}
		return nil
	}}
}

// otherNode reports whether a node changed in what its plan depends on. Kubelets update the status
// periodically, and a reconcile may read all pods.
func otherNode(a, b *corev1.Node) bool {
	return a.UID != b.UID || !a.DeletionTimestamp.Equal(b.DeletionTimestamp) ||
		a.Labels[api.LabelType] != b.Labels[api.LabelType] ||
		a.Spec.PodCIDR != b.Spec.PodCIDR || !slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs)
}

// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalnodes/status,verbs=patch

// nodeAddress reports the outer addresses of nodes.
func (o Options) nodeAddress() ctl.Registrar {
	return ctl.Controller[*netv1beta1.InternalNode, plan.NodeAddressInput]{
		Name:    "node-address",
		Watches: []ctl.Watch{{Kind: &corev1.Node{}, Map: ctl.SameName}},
		Gather: func(ctx context.Context, r ctl.Reader, root *netv1beta1.InternalNode) (plan.NodeAddressInput, error) {
			node, err := ctl.Optional(ctx, r, client.ObjectKeyFromObject(root), &corev1.Node{})
			return plan.NodeAddressInput{Root: root, Node: node}, err
		},
		Plan: plan.NodeAddress,
	}
}
