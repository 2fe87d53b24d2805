// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=virtualnodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=virtualnodes/status,verbs=patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=vkoptionstemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterrolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-virtual-kubelet-local;liqo-virtual-kubelet-offloaded,verbs=bind
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=list;delete

// virtualNode creates the Deployments and rights of virtual kubelets, and takes them down again.
func virtualNode(o Options) ctl.Registrar {
	all := &offloadingv1beta1.VirtualNodeList{}
	namesakes := ctl.Where(all, func(changed client.Object, root *offloadingv1beta1.VirtualNode) bool {
		return root.Name == changed.GetName()
	})
	return ctl.Controller[*offloadingv1beta1.VirtualNode, plan.VirtualNodeInput]{
		Name:      "virtualnode",
		Finalizer: api.FinalizerVirtualNode,
		Owns: []client.Object{&appsv1.Deployment{}, &corev1.ServiceAccount{}, &rbacv1.ClusterRoleBinding{},
			&rbacv1.RoleBinding{}},
		Creates: []client.Object{&corev1.ServiceAccount{}}, // a gateway of that name has one as well
		Watches: []ctl.Watch{
			{Kind: &offloadingv1beta1.VkOptionsTemplate{}, Map: ctl.All(all)},
			{Kind: &corev1.Node{}, Map: namesakes},
			{Kind: &offloadingv1beta1.VirtualNode{}, Map: namesakes},
			{Kind: &corev1beta1.ForeignCluster{}, Map: when(isDead, ctl.All(all))},
			{Kind: &corev1.Pod{}, Map: itsVirtualNode, Relevant: ends},
			{Kind: &corev1.Pod{}, Map: ctl.Where(all, drainedFrom), Relevant: ends, Delay: drainDelay},
		},
		Unreferenced: []client.Object{&rbacv1.ClusterRoleBinding{}},
		Gather: func(ctx context.Context, r ctl.Reader,
			root *offloadingv1beta1.VirtualNode) (plan.VirtualNodeInput, error) {
			return gatherVirtualNode(ctx, r, root, o)
		},
		Plan: plan.VirtualNode,
	}
}

// drainDelay is how long the ends of drained pods are collected before the rest is counted: there may
// be thousands.
const drainDelay = 100 * time.Millisecond

// ends selects the pods that are deleted or finish.
func ends(before, after client.Object) bool {
	finished := func(pod client.Object) bool { return api.Finished(pod.(*corev1.Pod).Status.Phase) }
	return after == nil || before != nil && !finished(before) && finished(after)
}

// itsVirtualNode maps the pod of a virtual kubelet to its virtual node.
func itsVirtualNode(_ context.Context, _ client.Reader, pod client.Object) []reconcile.Request {
	name := pod.GetLabels()[api.LabelVirtualNode]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}}}
}

// drainedFrom reports whether a pod was on the node of a virtual node that is drained.
func drainedFrom(pod client.Object, root *offloadingv1beta1.VirtualNode) bool {
	return pod.(*corev1.Pod).Spec.NodeName == root.Name && !plan.HasNode(root)
}

func gatherVirtualNode(ctx context.Context, r ctl.Reader, root *offloadingv1beta1.VirtualNode,
	o Options) (plan.VirtualNodeInput, error) {
	in := plan.VirtualNodeInput{Root: root, Kubelet: o.Kubelet, Now: time.Now()}
	var err error
	if in.Node, err = ctl.Optional(ctx, r, types.NamespacedName{Name: root.Name}, &corev1.Node{}); err != nil {
		return in, err
	}
	deployment := types.NamespacedName{Namespace: root.Namespace, Name: api.VirtualKubeletName(root.Name)}
	if in.Deployment, err = ctl.Optional(ctx, r, deployment, &appsv1.Deployment{}); err != nil {
		return in, err
	}
	if in.Namesake, err = olderNamesake(ctx, r, root); err != nil {
		return in, err
	}
	if !plan.HasNode(root) && (in.Node != nil || root.DeletionTimestamp != nil) {
		if in, err = gatherDismantling(ctx, r, in); err != nil || root.DeletionTimestamp != nil {
			return in, err
		}
	}
	in.Options, err = ctl.Optional(ctx, r, optionsOf(root, o), &offloadingv1beta1.VkOptionsTemplate{})
	return in, err
}

// olderNamesake returns the namespace of an older virtual node of the same name, to which the Node
// belongs; empty if there is none.
func olderNamesake(ctx context.Context, r client.Reader, root *offloadingv1beta1.VirtualNode) (string, error) {
	first, err := firstNamed(ctx, r, root.Name)
	if err != nil || first == nil || first.UID == root.UID {
		return "", err
	}
	return first.Namespace, nil
}

// firstNamed returns the oldest virtual node of a name, to which the Node belongs; nil if there is
// none.
func firstNamed(ctx context.Context, r client.Reader, name string) (*offloadingv1beta1.VirtualNode, error) {
	var list offloadingv1beta1.VirtualNodeList
	if err := r.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list virtual nodes: %w", err)
	}
	var first *offloadingv1beta1.VirtualNode
	for i := range list.Items {
		vn := &list.Items[i]
		if vn.Name == name && (first == nil || older(vn, first)) {
			first = vn
		}
	}
	return first, nil
}

func older(a, b *offloadingv1beta1.VirtualNode) bool {
	came := a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	return came < 0 || came == 0 && a.UID < b.UID
}

// optionsOf returns the name of the VkOptionsTemplate of a virtual node.
func optionsOf(root *offloadingv1beta1.VirtualNode, o Options) types.NamespacedName {
	ref := root.Spec.VkOptionsTemplateRef
	if ref == nil || ref.Name == "" {
		return o.DefaultOptions
	}
	if ref.Namespace == "" {
		return types.NamespacedName{Namespace: o.DefaultOptions.Namespace, Name: ref.Name}
	}
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
}

// gatherDismantling reads the objects that delay the deletion of a virtual node, or of its Node. While
// its Deployment exists, the pods of the kubelet and its leases do not matter. No cache holds leases, and
// one that still shows another virtual node would leave the lease that they shared.
func gatherDismantling(ctx context.Context, r ctl.Reader, in plan.VirtualNodeInput) (plan.VirtualNodeInput, error) {
	dead, err := deadPeers(ctx, r)
	if err != nil {
		return in, err
	}
	in.Dead = dead[in.Root.Spec.ClusterID]
	if in.Deployment == nil { // the cache may be stale
		deployment := types.NamespacedName{Namespace: in.Root.Namespace, Name: api.VirtualKubeletName(in.Root.Name)}
		if in.Deployment, err = ctl.Optional(ctx, r.Live, deployment, &appsv1.Deployment{}); err != nil {
			return in, err
		}
	}
	if in.Pods, err = podsOnNode(ctx, r, in.Root.Name); err != nil || in.Deployment != nil {
		return in, err
	}
	var kubelets corev1.PodList
	if err := r.Live.List(ctx, &kubelets, client.InNamespace(in.Root.Namespace),
		client.MatchingLabels{api.LabelVirtualNode: in.Root.Name}); err != nil {
		return in, fmt.Errorf("list pods of virtual kubelet %s: %w", in.Root.Name, err)
	}
	var leases coordinationv1.LeaseList
	if err := r.Live.List(ctx, &leases, client.InNamespace(in.Root.Namespace)); err != nil {
		return in, fmt.Errorf("list leases: %w", err)
	}
	var vns offloadingv1beta1.VirtualNodeList
	if err := r.Live.List(ctx, &vns, client.InNamespace(in.Root.Namespace)); err != nil {
		return in, fmt.Errorf("list virtual nodes: %w", err)
	}
	in.KubeletPods, in.Leases, in.Last = kubelets.Items, leases.Items, len(vns.Items) <= 1
	return in, nil
}

// podsOnNode returns the pods on a virtual node. It asks the API server once the cache shows none to
// evict: another may just have been bound.
func podsOnNode(ctx context.Context, r ctl.Reader, node string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := r.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil { // they are only read
		return nil, fmt.Errorf("list pods: %w", err)
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName != node })
	if len(plan.Draining(pods.Items)) > 0 {
		return pods.Items, nil
	}
	if err := r.Live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", node, err)
	}
	return pods.Items, nil
}

// cordon makes the Node of a virtual node unschedulable while it is to be deleted.
func cordon() ctl.Registrar {
	return ctl.Controller[*corev1.Node, plan.CordonInput]{
		Name:    "cordon",
		Watches: []ctl.Watch{{Kind: &offloadingv1beta1.VirtualNode{}, Map: nodeNamed}},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Node) (plan.CordonInput, error) {
			vn, err := firstNamed(ctx, r, root.Name)
			return plan.CordonInput{Node: root, VirtualNode: vn}, err
		},
		Plan: plan.Cordon,
	}
}

// nodeNamed maps an object to the Node of its name.
func nodeNamed(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: obj.GetName()}}}
}
