// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayservers;wggatewayclients,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayservers/status;wggatewayclients/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets;serviceaccounts;services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods;nodes;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=daemonsets,resourceNames=liqo-fabric,verbs=get;list;watch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings;clusterrolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-gateway;liqo-gateway-namespaced,verbs=bind

// wgGatewayServer runs the gateways of servers. The finalizer is needed for the ClusterRoleBinding,
// which no namespaced object can own.
func (o Options) wgGatewayServer() ctl.Registrar {
	all := &netv1beta1.WgGatewayServerList{}
	return ctl.Controller[*netv1beta1.WgGatewayServer, plan.WgServerInput]{
		Name: "wg-gateway-server", Finalizer: api.FinalizerWgGateway, Owns: wgOwns(), Creates: wgCreates(),
		Unreferenced: wgUnreferenced(), EndsWithNamespace: wgEnds(), Workers: wgWorkers,
		Watches: append(wgWatches(all), ctl.Watch{Kind: &corev1.Node{}, Map: ctl.Where(all, isAt)}),
		Gather: func(ctx context.Context, r ctl.Reader, root *netv1beta1.WgGatewayServer) (plan.WgServerInput, error) {
			in := plan.WgServerInput{Root: root}
			if root.DeletionTimestamp != nil {
				return in, nil
			}
			var err error
			if in.WgGatewayInput, err = o.wgInput(ctx, r, root, root.Spec.SecretRef); err != nil {
				return in, err
			}
			var nodes corev1.NodeList
			if err := list(ctx, r, &nodes); err != nil {
				return in, err
			}
			in.Nodes = nodes.Items
			service := client.ObjectKey{Namespace: root.Namespace, Name: api.GatewayServiceName(root.Name)}
			if in.Service, err = ctl.Optional(ctx, r, service, &corev1.Service{}); err != nil || in.Service != nil {
				return in, err
			}
			var all corev1.ServiceList
			err = list(ctx, r, &all)
			for _, s := range all.Items {
				for _, p := range s.Spec.Ports {
					in.Taken = append(in.Taken, p.NodePort)
				}
			}
			return in, err
		},
		Plan: plan.WgGatewayServer,
	}
}

// wgGatewayClient runs the gateways of clients.
func (o Options) wgGatewayClient() ctl.Registrar {
	return ctl.Controller[*netv1beta1.WgGatewayClient, plan.WgClientInput]{
		Name: "wg-gateway-client", Finalizer: api.FinalizerWgGateway, Owns: wgOwns(), Creates: wgCreates(),
		Unreferenced: wgUnreferenced(), EndsWithNamespace: wgEnds(), Workers: wgWorkers,
		Watches: wgWatches(&netv1beta1.WgGatewayClientList{}),
		Gather: func(ctx context.Context, r ctl.Reader, root *netv1beta1.WgGatewayClient) (plan.WgClientInput, error) {
			if root.DeletionTimestamp != nil {
				return plan.WgClientInput{Root: root}, nil
			}
			in, err := o.wgInput(ctx, r, root, root.Spec.SecretRef)
			return plan.WgClientInput{Root: root, WgGatewayInput: in}, err
		},
		Plan: plan.WgGatewayClient,
	}
}

func wgOwns() []client.Object {
	return []client.Object{
		&corev1.Secret{}, &corev1.ServiceAccount{}, &corev1.Service{}, &appsv1.Deployment{},
		&rbacv1.RoleBinding{}, &rbacv1.ClusterRoleBinding{},
	}
}

// wgUnreferenced returns the kinds that the finalizer is for.
func wgUnreferenced() []client.Object { return []client.Object{&rbacv1.ClusterRoleBinding{}} }

// wgEnds returns the kinds that delay the deletion of the namespace: the one with pods, and the one that
// the finalizer is for.
func wgEnds() []client.Object { return append(wgUnreferenced(), &appsv1.Deployment{}) }

// wgWorkers is how many gateways of each kind are reconciled concurrently: each takes a dozen requests
// to create or delete, and a hundred may leave at once.
const wgWorkers = 4

// wgCreates returns the kinds whose objects have the gateway's own name. An existing object of that
// name would otherwise get the gateway's rights, and be deleted with it.
func wgCreates() []client.Object { return []client.Object{&corev1.ServiceAccount{}} }

// wgWatches maps a gateway pod to its gateway, and a Secret or the deletion of a namespace to the
// gateways of the namespace.
func wgWatches(all client.ObjectList) []ctl.Watch {
	inside := func(ctx context.Context, r client.Reader, namespace client.Object) []reconcile.Request {
		return ctl.Roots(ctx, r, all, client.InNamespace(namespace.GetName()))
	}
	return []ctl.Watch{
		{Kind: &corev1.Namespace{}, Relevant: ctl.Endings, Map: inside},
		{Kind: &corev1.Secret{}, Map: ctl.SameNamespace(all)},
		{Kind: &corev1.Pod{}, Map: func(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
			return request(obj.GetNamespace(), obj.GetLabels()[api.LabelGatewayName])
		}},
		{Kind: &appsv1.DaemonSet{}, Relevant: ctl.Differs(rolledOn), Map: ctl.All(all)},
	}
}

// rolledOn reports whether a rollout of a DaemonSet began or ended, or the last pod became ready.
func rolledOn(before, after *appsv1.DaemonSet) bool {
	rolled, lacked := plan.Rollout(before)
	rolls, lacks := plan.Rollout(after)
	return rolls != rolled || lacks != lacked
}

// CachedDaemonSets returns the DaemonSets that the controllers of this room may read: the fabric.
func (o Options) CachedDaemonSets() cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{
		o.LiqoNamespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", api.FabricName)},
	}}
}

// isAt reports whether a server runs on a node, or is reached by one of its addresses.
func isAt(node client.Object, server *netv1beta1.WgGatewayServer) bool {
	s, addresses := server.Status, node.(*corev1.Node).Status.Addresses
	runs := s.InternalEndpoint != nil && s.InternalEndpoint.Node == node.GetName()
	return runs || s.Endpoint != nil && slices.ContainsFunc(addresses, func(a corev1.NodeAddress) bool {
		return slices.Contains(s.Endpoint.Addresses, a.Address)
	})
}

// wgInput reads the common input of servers and clients. It reads keys from the API server: with a
// stale cache new ones would be made.
func (o Options) wgInput(ctx context.Context, r ctl.Reader, root client.Object,
	user *corev1.LocalObjectReference) (plan.WgGatewayInput, error) {
	in := plan.WgGatewayInput{Image: o.GatewayImage, Now: time.Now()}
	var pods corev1.PodList
	err := list(ctx, r, &pods, client.InNamespace(root.GetNamespace()),
		client.MatchingLabels{api.LabelGatewayName: root.GetName()})
	if err != nil {
		return in, err
	}
	in.Pods = pods.Items
	deployment := client.ObjectKey{Namespace: root.GetNamespace(), Name: api.GatewayResourceName(root.GetName())}
	if in.Deployment, err = ctl.Optional(ctx, r, deployment, &appsv1.Deployment{}); err != nil {
		return in, err
	}
	fabric := client.ObjectKey{Namespace: o.LiqoNamespace, Name: api.FabricName}
	if in.Fabric, err = ctl.Optional(ctx, r, fabric, &appsv1.DaemonSet{}); err != nil {
		return in, err
	}
	key := client.ObjectKey{Namespace: root.GetNamespace(), Name: plan.KeySecretName(root.GetName(), user)}
	if in.Keys, err = ctl.Optional(ctx, r.Live, key, &corev1.Secret{}); err == nil && in.Keys == nil {
		in.NewKey, err = newKey()
	}
	return in, err
}

// newKey makes an X25519 private key in the form in which WireGuard returns it: clamped (RFC 7748
// §5).
func newKey() ([]byte, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make gateway key: %w", err)
	}
	key[0] &= 248
	key[31] = key[31]&127 | 64
	return key, nil
}

// replicasBeside maps a replica of a gateway to all replicas of it. It lists pods only for a replica:
// of the pods that change, nearly all are no gateways.
func replicasBeside(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
	if pod, ok := obj.(*corev1.Pod); !ok || !plan.IsReplica(pod) {
		return nil
	}
	return ctl.Roots(ctx, r, &corev1.PodList{}, client.InNamespace(obj.GetNamespace()),
		client.MatchingLabels{api.LabelGatewayName: obj.GetLabels()[api.LabelGatewayName]})
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch

// replica marks the active pod of a gateway with several pods: the holder of their lease. Gateways
// do not mark themselves, because a right to patch one pod of a namespace is a right to patch all,
// and gateways receive packets of other clusters.
func (o Options) replica() ctl.Registrar {
	return ctl.Controller[*corev1.Pod, plan.ReplicaInput]{
		Name: "gateway-replica", Quiet: true, Only: plan.IsReplica,
		Watches: []ctl.Watch{
			{Kind: &coordinationv1.Lease{}, Map: holderOf, Relevant: ctl.Differs(hasMoved)},
			{Kind: &corev1.Pod{}, Map: replicasBeside},
		},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Pod) (plan.ReplicaInput, error) {
			in := plan.ReplicaInput{Root: root}
			var pods corev1.PodList
			err := list(ctx, r, &pods, client.InNamespace(root.Namespace),
				client.MatchingLabels{api.LabelGatewayName: root.Labels[api.LabelGatewayName]})
			if err != nil {
				return in, err
			}
			in.Pods = pods.Items
			name := api.GatewayResourceName(root.Labels[api.LabelGatewayName])
			lease := client.ObjectKey{Namespace: root.Namespace, Name: name}
			in.Lease, err = ctl.Optional(ctx, r, lease, &coordinationv1.Lease{})
			return in, err
		},
		Plan: plan.Replica,
	}
}

// hasMoved reports whether a lease has another holder. Leases are renewed twice a second.
func hasMoved(before, after *coordinationv1.Lease) bool {
	return !equality.Semantic.DeepEqual(before.Spec.HolderIdentity, after.Spec.HolderIdentity)
}

// holderOf maps a gateway's lease to the pod that holds it. The mark of that pod enqueues the others.
func holderOf(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	if obj.GetLabels()[api.LabelGatewayName] == "" {
		return nil
	}
	return request(obj.GetNamespace(), ptr.Deref(obj.(*coordinationv1.Lease).Spec.HolderIdentity, ""))
}

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;patch

// secretLabel marks the key Secrets that users provide.
func (o Options) secretLabel() ctl.Registrar {
	return ctl.Controller[*corev1.Secret, plan.SecretLabelInput]{
		Name: "gateway-secret",
		Watches: []ctl.Watch{
			{Kind: &netv1beta1.WgGatewayServer{}, Map: keySecretOf},
			{Kind: &netv1beta1.WgGatewayClient{}, Map: keySecretOf},
		},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Secret) (plan.SecretLabelInput, error) {
			in := plan.SecretLabelInput{Root: root}
			var servers netv1beta1.WgGatewayServerList
			var clients netv1beta1.WgGatewayClientList
			for _, l := range []client.ObjectList{&servers, &clients} {
				if err := list(ctx, r, l, client.InNamespace(root.Namespace)); err != nil {
					return in, err
				}
				err := meta.EachListItem(l, func(item runtime.Object) error {
					if gateway := item.(client.Object); userKeys(gateway) == root.Name {
						in.Gateway = gateway
					}
					return nil
				})
				if err != nil {
					return in, err
				}
			}
			return in, nil
		},
		Plan: plan.SecretLabel,
	}
}

// keySecretOf maps a gateway to the key Secret that its user provides, if any.
func keySecretOf(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	return request(obj.GetNamespace(), userKeys(obj))
}

// userKeys returns the name of the key Secret that the user of a gateway provides; empty if there
// is none.
func userKeys(gateway client.Object) string {
	var ref *corev1.LocalObjectReference
	switch g := gateway.(type) {
	case *netv1beta1.WgGatewayServer:
		ref = g.Spec.SecretRef
	case *netv1beta1.WgGatewayClient:
		ref = g.Spec.SecretRef
	}
	return ptr.Deref(ref, corev1.LocalObjectReference{}).Name
}
