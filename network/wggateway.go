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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayservers;wggatewayclients,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayservers/status;wggatewayclients/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=secrets;serviceaccounts;services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods;nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings;clusterrolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=liqo-gateway;liqo-gateway-namespaced,verbs=bind

// wgGatewayServer runs the gateways of servers. Its finalizer is there for the ClusterRoleBinding,
// which no namespaced object can own.
func (o Options) wgGatewayServer() ctl.Registrar {
	return ctl.Controller[*netv1beta1.WgGatewayServer, plan.WgServerInput]{
		Name: "wg-gateway-server", Finalizer: api.FinalizerWgGateway, Owns: wgOwns(), Creates: wgCreates(),
		Watches: append(wgWatches(&netv1beta1.WgGatewayServerList{}), ctl.Watch{Kind: &corev1.Node{}, Map: serversAt}),
		Gather: func(ctx context.Context, r ctl.Reader, root *netv1beta1.WgGatewayServer) (plan.WgServerInput, error) {
			in := plan.WgServerInput{Root: root}
			var err error
			if in.WgGatewayInput, err = o.wgInput(ctx, r, root, root.Spec.SecretRef); err != nil {
				return in, err
			}
			var nodes corev1.NodeList
			if err := list(ctx, r, &nodes); err != nil {
				return in, err
			}
			in.Nodes = nodes.Items
			var service corev1.Service
			found, err := get(ctx, r, root.Namespace, api.GatewayServiceName(root.Name), &service)
			if found {
				in.Service = &service
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
		Watches: wgWatches(&netv1beta1.WgGatewayClientList{}),
		Gather: func(ctx context.Context, r ctl.Reader, root *netv1beta1.WgGatewayClient) (plan.WgClientInput, error) {
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

// wgCreates is what has the gateway's own name. Another's of that name would get the gateway's rights, and go with it.
func wgCreates() []client.Object { return []client.Object{&corev1.ServiceAccount{}} }

// wgWatches: a gateway pod leads to its gateway, a Secret to the gateways of its namespace.
func wgWatches(all client.ObjectList) []ctl.Watch {
	return []ctl.Watch{
		{Kind: &corev1.Secret{}, Map: ctl.SameNamespace(all)},
		{Kind: &corev1.Pod{}, Map: func(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
			name := obj.GetLabels()[api.LabelGatewayName]
			if name == "" {
				return nil
			}
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: name}}}
		}},
	}
}

// serversAt leads from a node to the servers that run there or are reached by its addresses, before
// the change or after it.
func serversAt(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
	var servers netv1beta1.WgGatewayServerList
	if err := list(ctx, r, &servers); err != nil {
		log.FromContext(ctx).Error(err, "find the servers of a node")
		return nil
	}
	var out []reconcile.Request
	for i := range servers.Items {
		if s := &servers.Items[i]; at(s.Status, obj.(*corev1.Node)) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		}
	}
	return out
}

func at(s netv1beta1.WgGatewayServerStatus, node *corev1.Node) bool {
	runs := s.InternalEndpoint != nil && s.InternalEndpoint.Node == node.Name
	return runs || s.Endpoint != nil && slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
		return slices.Contains(s.Endpoint.Addresses, a.Address)
	})
}

// wgInput reads what both sides need. The keys come from the API server: a cache that is late would
// make new ones.
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
	var keys corev1.Secret
	found, err := get(ctx, r.Live, root.GetNamespace(), plan.KeySecretName(root.GetName(), user), &keys)
	switch {
	case err != nil:
		return in, err
	case found:
		in.Keys = &keys
	default:
		in.NewKey, err = newKey()
	}
	return in, err
}

// newKey makes an X25519 private key in the form WireGuard gives it back: clamped, RFC 7748 §5.
func newKey() ([]byte, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("make gateway key: %w", err)
	}
	key[0] &= 248
	key[31] = key[31]&127 | 64
	return key, nil
}

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch

// replica marks which of several pods of a gateway is active, by the lease over which they agree.
// Gateways do not mark themselves: they face other clusters, and who may patch one pod of a
// namespace may patch all.
func (o Options) replica() ctl.Registrar {
	return ctl.Controller[*corev1.Pod, plan.ReplicaInput]{
		Name: "gateway-replica", Quiet: true, Only: plan.IsReplica,
		Watches: []ctl.Watch{{Kind: &coordinationv1.Lease{}, Map: holderOf, Relevant: ctl.Differs(moved)},
			{Kind: &corev1.Pod{}, Map: replicasBeside}},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Pod) (plan.ReplicaInput, error) {
			in := plan.ReplicaInput{Root: root}
			var pods corev1.PodList
			if err := list(ctx, r, &pods, replicasOf(root)...); err != nil {
				return in, err
			}
			in.Pods = pods.Items
			var lease coordinationv1.Lease
			found, err := get(ctx, r, root.Namespace,
				api.GatewayResourceName(root.Labels[api.LabelGatewayName]), &lease)
			if found {
				in.Lease = &lease
			}
			return in, err
		},
		Plan: plan.Replica,
	}
}

// moved tells whether a lease has another holder: one is renewed twice a second.
func moved(before, after *coordinationv1.Lease) bool {
	return !equality.Semantic.DeepEqual(before.Spec.HolderIdentity, after.Spec.HolderIdentity)
}

// holderOf leads from a gateway's lease to the pod that holds it; the others follow when that is
// marked.
func holderOf(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	holder := obj.(*coordinationv1.Lease).Spec.HolderIdentity
	if obj.GetLabels()[api.LabelGatewayName] == "" || holder == nil || *holder == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: *holder}}}
}

// replicasBeside leads from a gateway pod to all of its gateway.
func replicasBeside(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
	if pod, ok := obj.(*corev1.Pod); !ok || !plan.IsReplica(pod) {
		return nil
	}
	var pods corev1.PodList
	if err := list(ctx, r, &pods, append(replicasOf(obj), client.UnsafeDisableDeepCopy)...); err != nil {
		log.FromContext(ctx).Error(err, "find the replicas of a gateway")
	}
	var out []reconcile.Request
	for i := range pods.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])})
	}
	return out
}

// replicasOf selects the pods of the gateway one belongs to.
func replicasOf(pod client.Object) []client.ListOption {
	return []client.ListOption{client.InNamespace(pod.GetNamespace()),
		client.MatchingLabels{api.LabelGatewayName: pod.GetLabels()[api.LabelGatewayName]}}
}

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;patch

// secretLabel marks the key Secrets users bring.
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
			if err := list(ctx, r, &servers, client.InNamespace(root.Namespace)); err != nil {
				return in, err
			}
			var clients netv1beta1.WgGatewayClientList
			if err := list(ctx, r, &clients, client.InNamespace(root.Namespace)); err != nil {
				return in, err
			}
			for i := range servers.Items {
				if brings(servers.Items[i].Spec.SecretRef, root) {
					in.Gateway = &servers.Items[i]
				}
			}
			for i := range clients.Items {
				if brings(clients.Items[i].Spec.SecretRef, root) {
					in.Gateway = &clients.Items[i]
				}
			}
			return in, nil
		},
		Plan: plan.SecretLabel,
	}
}

func brings(ref *corev1.LocalObjectReference, secret *corev1.Secret) bool {
	return ref != nil && ref.Name != "" && ref.Name == secret.Name
}

// keySecretOf leads from a gateway to the Secret the user brings, if any.
func keySecretOf(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	var ref *corev1.LocalObjectReference
	switch g := obj.(type) {
	case *netv1beta1.WgGatewayServer:
		ref = g.Spec.SecretRef
	case *netv1beta1.WgGatewayClient:
		ref = g.Spec.SecretRef
	}
	if ref == nil || ref.Name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(), Name: ref.Name}}}
}
