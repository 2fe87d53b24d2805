// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"slices"
	"time"

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

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings/status,verbs=patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;patch;delete

// schedulingLabel labels offloaded namespaces, so that their new pods are sent to the admission
// webhook.
func schedulingLabel() ctl.Registrar {
	return ctl.Controller[*corev1.Namespace, plan.SchedulingLabelInput]{
		Name:    "scheduling-label",
		Watches: []ctl.Watch{{Kind: &offloadingv1beta1.NamespaceOffloading{}, Map: itsNamespace}},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Namespace) (plan.SchedulingLabelInput, error) {
			offloading, err := offloadingOf(ctx, r, root.Name)
			return plan.SchedulingLabelInput{Namespace: root, Offloading: offloading}, err
		},
		Plan: plan.SchedulingLabel,
	}
}

// offloadingOf returns the NamespaceOffloading of a namespace; nil if there is none.
func offloadingOf(ctx context.Context, r client.Reader,
	namespace string) (*offloadingv1beta1.NamespaceOffloading, error) {
	return ctl.Optional(ctx, r, types.NamespacedName{Namespace: namespace, Name: api.NamespaceOffloadingName},
		&offloadingv1beta1.NamespaceOffloading{})
}

// itsNamespace maps an object to the namespace that it is in.
func itsNamespace(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: obj.GetNamespace()}}}
}

// itsOffloading maps a namespace to its NamespaceOffloading.
func itsOffloading(_ context.Context, _ client.Reader, namespace client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: namespace.GetName(), Name: api.NamespaceOffloadingName}}}
}

// namespaceMap reconciles the NamespaceMap of each peer, which lists the namespaces for it.
func namespaceMap(o Options) ctl.Registrar {
	tenants := ctl.All(&corev1.NamespaceList{}, client.MatchingLabels{api.LabelTenantNamespace: api.True})
	return ctl.Controller[*corev1.Namespace, plan.NamespaceMapInput]{
		Name: "namespacemap",
		Owns: []client.Object{&offloadingv1beta1.NamespaceMap{}, &rbacv1.RoleBinding{}},
		Watches: []ctl.Watch{
			{Kind: &offloadingv1beta1.VirtualNode{}, Map: itsNamespace},
			{Kind: &offloadingv1beta1.NamespaceOffloading{}, Map: tenants},
			{Kind: &corev1.Node{}, Map: when(isVirtual, tenants)},
		},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Namespace) (plan.NamespaceMapInput, error) {
			return gatherNamespaceMap(ctx, r, root, o.Kubelet.ClusterID)
		},
		Plan: plan.NamespaceMap,
	}
}

func gatherNamespaceMap(ctx context.Context, r ctl.Reader, root *corev1.Namespace,
	clusterID string) (plan.NamespaceMapInput, error) {
	in := plan.NamespaceMapInput{ClusterID: clusterID, Namespace: *root}
	if root.Labels[api.LabelTenantNamespace] != api.True {
		return in, nil
	}
	var err error
	if in.VirtualNodes, in.Nodes, err = virtualNodes(ctx, r, client.InNamespace(root.Name)); err != nil {
		return in, err
	}
	in.VirtualNodes = slices.DeleteFunc(in.VirtualNodes, plan.Drained)
	var offloadings offloadingv1beta1.NamespaceOffloadingList
	if err := r.List(ctx, &offloadings); err != nil {
		return in, fmt.Errorf("list namespace offloadings: %w", err)
	}
	in.Offloadings = offloadings.Items
	current := types.NamespacedName{Namespace: root.Name, Name: root.Labels[api.LabelRemoteClusterID]}
	cached, err := ctl.Optional(ctx, r, current, &offloadingv1beta1.NamespaceMap{})
	if err != nil {
		return in, err
	}
	if in.Ending, err = endingNamespaces(ctx, r, in.Offloadings, cached); err != nil {
		return in, err
	}
	if len(in.Offloadings) == 0 && len(in.Ending) == 0 {
		return in, nil
	}
	// A stale map may have a former selector, and a remote namespace that is given up is lost with
	// its data.
	if in.Current, err = ctl.Optional(ctx, r.Live, current, &offloadingv1beta1.NamespaceMap{}); err != nil {
		return in, err
	}
	in.HoldVolumes = map[string]bool{}
	for _, namespace := range in.Deselected() {
		if in.HoldVolumes[namespace], err = holdsVolumes(ctx, r.Live, namespace, current.Name); err != nil {
			return in, err
		}
	}
	return in, nil
}

// endingNamespaces returns those namespaces of the offloadings and of the map that are being deleted, with what
// holds each whose offloading is being deleted, too. These are read from the API server: by an older state users
// would seem to have taken the namespace back. m may be nil.
func endingNamespaces(ctx context.Context, r ctl.Reader, offloadings []offloadingv1beta1.NamespaceOffloading,
	m *offloadingv1beta1.NamespaceMap) (map[string][]string, error) {
	ending, known := map[string][]string{}, map[string]bool{}
	for _, o := range offloadings {
		if known[o.Namespace] = true; !isEnding(&o) {
			continue // it is in the map
		}
		ends, held, err := heldBy(ctx, r, o.Namespace)
		if err != nil {
			return nil, err
		}
		if ends {
			ending[o.Namespace] = held
		}
	}
	if m == nil {
		return ending, nil
	}
	for name := range m.Status.CurrentMapping {
		if known[name] {
			continue
		}
		namespace, err := ctl.Optional(ctx, r, types.NamespacedName{Name: name}, &corev1.Namespace{})
		if err != nil {
			return nil, err
		}
		if namespace != nil && isEnding(namespace) {
			ending[name] = nil
		}
	}
	return ending, nil
}

// heldBy reports whether a namespace is being deleted, and what holds it then. It reads from the API server,
// because volumes are lost with a remote namespace.
func heldBy(ctx context.Context, r ctl.Reader, name string) (ends bool, held []string, err error) {
	namespace, err := ctl.Optional(ctx, r.Live, types.NamespacedName{Name: name}, &corev1.Namespace{})
	if namespace == nil || err != nil || !isEnding(namespace) {
		return false, nil, err
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(name)); err != nil {
		return false, nil, fmt.Errorf("list pods of namespace %s: %w", name, err)
	}
	var claims corev1.PersistentVolumeClaimList
	if err := r.Live.List(ctx, &claims, client.InNamespace(name)); err != nil {
		return false, nil, fmt.Errorf("list claims of namespace %s: %w", name, err)
	}
	return true, plan.Held(namespace, pods.Items, claims.Items), nil
}

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=list
// +kubebuilder:rbac:groups="",resources=pods,verbs=list

// holdsVolumes reports whether claims of a namespace have their volumes at a provider. It reads
// from the API server, because a volume that is given up is lost.
func holdsVolumes(ctx context.Context, live client.Reader, namespace, provider string) (bool, error) {
	var claims corev1.PersistentVolumeClaimList
	if err := live.List(ctx, &claims, client.InNamespace(namespace)); err != nil {
		return false, fmt.Errorf("list claims of namespace %s: %w", namespace, err)
	}
	return slices.ContainsFunc(claims.Items, func(claim corev1.PersistentVolumeClaim) bool {
		return slices.Contains(claim.Finalizers, api.ClaimFinalizer(provider))
	}), nil
}

// virtualNodes returns virtual nodes, and the Nodes of all virtual nodes by name.
func virtualNodes(ctx context.Context, r client.Reader, in ...client.ListOption) ([]offloadingv1beta1.VirtualNode,
	map[string]corev1.Node, error) {
	var vns offloadingv1beta1.VirtualNodeList
	if err := r.List(ctx, &vns, in...); err != nil {
		return nil, nil, fmt.Errorf("list virtual nodes: %w", err)
	}
	var list corev1.NodeList
	if err := r.List(ctx, &list, client.MatchingLabels{api.LabelType: api.TypeVirtualNode}); err != nil {
		return nil, nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := make(map[string]corev1.Node, len(list.Items))
	for _, node := range list.Items {
		nodes[node.Name] = node
	}
	return vns.Items, nodes, nil
}

// namespaceOffloading reports the state of an offloaded namespace at each provider.
func namespaceOffloading(o Options) ctl.Registrar {
	roots := ctl.All(&offloadingv1beta1.NamespaceOffloadingList{})
	return ctl.Controller[*offloadingv1beta1.NamespaceOffloading, plan.NamespaceOffloadingInput]{
		Name:      "namespaceoffloading",
		Finalizer: api.FinalizerNamespaceOffloading,
		Watches: []ctl.Watch{
			{Kind: &offloadingv1beta1.NamespaceMap{}, Map: roots},
			{Kind: &offloadingv1beta1.VirtualNode{}, Map: roots},
			{Kind: &corev1beta1.ForeignCluster{}, Map: when(isDead, roots)},
			{Kind: &corev1.Namespace{}, Map: when(isEnding, itsOffloading)},
		},
		Gather: func(ctx context.Context, r ctl.Reader,
			root *offloadingv1beta1.NamespaceOffloading) (plan.NamespaceOffloadingInput, error) {
			in := plan.NamespaceOffloadingInput{ClusterID: o.Kubelet.ClusterID, Root: root,
				RuntimeClass: o.Kubelet.RuntimeClass, Now: time.Now()}
			var maps offloadingv1beta1.NamespaceMapList
			if err := r.List(ctx, &maps, client.MatchingLabels{api.LabelReplication: api.True}); err != nil {
				return in, fmt.Errorf("list namespace maps: %w", err)
			}
			in.Maps = maps.Items
			var err error
			if in.VirtualNodes, in.Nodes, err = virtualNodes(ctx, r); err != nil {
				return in, err
			}
			if in.Dead, err = deadPeers(ctx, r); err != nil {
				return in, err
			}
			var pods corev1.PodList
			if err := r.List(ctx, &pods, client.InNamespace(root.Namespace), client.UnsafeDisableDeepCopy); err != nil {
				return in, fmt.Errorf("list pods of namespace %s: %w", root.Namespace, err)
			}
			in.Pods = pods.Items
			namespace, err := ctl.Optional(ctx, r, types.NamespacedName{Name: root.Namespace}, &corev1.Namespace{})
			if namespace == nil || err != nil || !isEnding(namespace) && !isEnding(root) {
				return in, err
			}
			in.Ends, in.Held, err = heldBy(ctx, r, root.Namespace)
			return in, err
		},
		Plan: plan.NamespaceOffloading,
	}
}

// when limits a mapping to changed objects for which a condition holds.
func when(holds func(changed client.Object) bool, roots ctl.MapFunc) ctl.MapFunc {
	return func(ctx context.Context, r client.Reader, changed client.Object) []reconcile.Request {
		if !holds(changed) {
			return nil
		}
		return roots(ctx, r, changed)
	}
}

// isEnding reports whether an object is being deleted.
func isEnding(object client.Object) bool { return object.GetDeletionTimestamp() != nil }

// isDead reports whether a ForeignCluster was declared permanently unreachable.
func isDead(peer client.Object) bool {
	return peer.GetAnnotations()[api.AnnotationPermanentlyUnreachable] == api.True
}

// deadPeers returns the cluster IDs of the peers that were declared permanently unreachable.
func deadPeers(ctx context.Context, r client.Reader) (map[string]bool, error) {
	var list corev1beta1.ForeignClusterList
	if err := r.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list foreign clusters: %w", err)
	}
	dead := map[string]bool{}
	for i := range list.Items {
		if isDead(&list.Items[i]) {
			dead[list.Items[i].Spec.ClusterID] = true
		}
	}
	return dead, nil
}
