// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	identityplan "github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// peerObjects holds the objects of this cluster that concern one peer.
type peerObjects struct {
	configurations netv1beta1.ConfigurationList
	servers        netv1beta1.GatewayServerList
	clients        netv1beta1.GatewayClientList
	fabrics        netv1beta1.InternalFabricList
	connections    netv1beta1.ConnectionList
	tenants        authv1beta1.TenantList
	identities     authv1beta1.IdentityList
	nodes          offv1beta1.VirtualNodeList
	slices         authv1beta1.ResourceSliceList
	// kubeconfigs holds the Secrets with control-plane kubeconfigs for the peer. It is empty if the
	// user may not list Secrets.
	kubeconfigs corev1.SecretList
	// sharedKey is the Secret with the key that former versions used for all peers. It is empty if
	// there is none, or if the user may not read it.
	sharedKey corev1.Secret
}

// everywhere: networks joined by hand need no tenant namespace; the peer's label is what counts.
const everywhere = metav1.NamespaceAll

// objectsOfPeer reads the objects that concern a peer, from all namespaces.
func (c *cluster) objectsOfPeer(ctx context.Context, peer string) (*peerObjects, error) {
	o := &peerObjects{}
	lists := []client.ObjectList{&o.configurations, &o.servers, &o.clients, &o.fabrics, &o.connections, &o.tenants,
		&o.identities, &o.nodes, &o.slices}
	return o, inParallel(func() error {
		return onEach(lists, func(list client.ObjectList) error {
			err := c.listOf(ctx, everywhere, peer, list)
			if meta.IsNoMatchError(err) { // of a kind that another version of Liqo lacks there are none
				return nil
			}
			return err
		})
	}, func() error {
		o.sharedKey.ObjectMeta = metaOf(c.namespace, api.AuthenticationKeysSecret)
		err := c.Get(ctx, client.ObjectKeyFromObject(&o.sharedKey), &o.sharedKey)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return c.describe("read", &o.sharedKey, err)
	}, func() error {
		err := c.List(ctx, &o.kubeconfigs, ofPeer(peer),
			client.MatchingLabels{api.LabelIdentityType: string(authv1beta1.IdentityControlPlane)})
		if apierrors.IsForbidden(err) {
			return nil
		}
		return c.listing(&o.kubeconfigs, err)
	})
}

// problems lists what the conditions of objects report as wrong.
func (c *cluster) problems(lists ...client.ObjectList) []string {
	var out []string
	for _, list := range lists {
		_ = meta.EachListItem(list, func(item runtime.Object) error { // fails on no typed list
			if object := item.(client.Object); problemOf(object) != "" {
				out = append(out, c.remark(object))
			}
			return nil
		})
	}
	return out
}

// ranges returns the peer's ranges as its oldest Configuration names them.
func (o *peerObjects) ranges() cidrInfo {
	info := cidrInfo{Remote: cidrPair{Pod: []string{}, External: []string{}}}
	item := api.Oldest(o.configurations.Items)
	if item == nil {
		return info
	}
	if r := item.Spec.Remote; r != nil {
		info.Remote = cidrPair{Pod: r.CIDR.Pod, External: r.CIDR.External}
	}
	if r := item.Status.Remote; r != nil {
		info.Remapped = &cidrPair{Pod: r.CIDR.Pod, External: r.CIDR.External}
	}
	info.Unapproved = plan.UnapprovedCIDRs(item) // no condition lists them
	return info
}

// gateway returns where the tunnel's server is. A client, which may dial another address than its
// server announces, takes precedence.
func (o *peerObjects) gateway() gatewayInfo {
	info := gatewayInfo{Address: []string{}}
	if g := api.Oldest(o.servers.Items); g != nil && g.Status.Endpoint != nil {
		info = gatewayAt(*g.Status.Endpoint, netv1beta1.ConnectionTypeClient)
	}
	if g := api.Oldest(o.clients.Items); g != nil && g.Spec.Endpoint != nil {
		info = gatewayAt(*g.Spec.Endpoint, netv1beta1.ConnectionTypeServer)
		info.Announced, info.client = plan.UnfollowedEndpoint(g), g // no condition reports it
	}
	return info
}

func gatewayAt(e netv1beta1.EndpointStatus, role netv1beta1.ConnectionType) gatewayInfo {
	info := gatewayInfo{Address: e.Addresses, Port: e.Port, Ports: e.Ports, Role: string(role)}
	if len(e.Ports) > 0 {
		info.Port = e.Ports[0]
	}
	return info
}

// connection returns the state of the tunnel; nil if there is none.
func (o *peerObjects) connection() *connectionInfo {
	connection := api.Oldest(o.connections.Items)
	if connection == nil {
		return nil
	}
	status := connection.Status
	info := &connectionInfo{Status: string(status.Value)}
	if status.Latency != nil {
		info.Latency = status.Latency.Value
	}
	if ready := meta.FindStatusCondition(status.Conditions, "Ready"); ready != nil {
		info.Since = ready.LastTransitionTime
	}
	if running := meta.FindStatusCondition(status.Conditions, netv1beta1.ConnectionGatewayRunning); running != nil &&
		running.Status == metav1.ConditionFalse {
		info.Since = running.LastTransitionTime
	}
	return info
}

// sharesKey reports whether this cluster authenticates to the peer with the shared key.
func (o *peerObjects) sharesKey() bool {
	return slices.ContainsFunc(o.identities.Items, func(i authv1beta1.Identity) bool {
		return identityplan.IssuedFor(i.Spec.AuthParams, o.sharedKey.Data[api.PublicKeyField])
	})
}

// userSecrets returns the Secrets that objects of the peer refer to, and this cluster's
// control-plane kubeconfigs for it, without those that Liqo made for Identities.
func (o *peerObjects) userSecrets() []string {
	var made, used []string
	for _, i := range o.identities.Items {
		made = append(made, i.Namespace+"/"+api.KubeconfigSecretName(i.Name))
	}
	add := func(namespace string, ref *corev1.LocalObjectReference) {
		if ref != nil && ref.Name != "" {
			used = append(used, namespace+"/"+ref.Name)
		}
	}
	for _, s := range o.servers.Items {
		add(s.Namespace, s.Spec.SecretRef)
	}
	for _, g := range o.clients.Items {
		add(g.Namespace, g.Spec.SecretRef)
	}
	for _, v := range o.nodes.Items {
		add(v.Namespace, v.Spec.KubeconfigSecretRef)
	}
	for _, s := range o.kubeconfigs.Items {
		used = append(used, s.Namespace+"/"+s.Name)
	}
	slices.Sort(used)
	return slices.DeleteFunc(slices.Compact(used), func(name string) bool { return slices.Contains(made, name) })
}

// accessProblems lists what is wrong with the access of a peer to this cluster and of this one to
// the peer, and what an administrator has taken from the peer.
func (c *cluster) accessProblems(o *peerObjects) []string {
	out := c.problems(&o.tenants, &o.identities)
	for i := range o.tenants.Items {
		tenant := &o.tenants.Items[i]
		if state := stateOfTenant(tenant); state != authv1beta1.TenantActive {
			out = append(out, fmt.Sprintf("%s: %s by an administrator here; '%s activate tenant %s' undoes it",
				c.nameOf(tenant), strings.ToLower(string(state)), c.env.name, tenant.Name))
		}
	}
	return out
}

// apiServerStatus returns whether the peer's API server answers; empty if nothing probes it.
func apiServerStatus(f *corev1beta1.ForeignCluster) moduleStatus {
	for _, condition := range f.Status.Conditions {
		if condition.Type != corev1beta1.APIServerStatusCondition {
			continue
		}
		if condition.Status == corev1beta1.ConditionEstablished {
			return healthy
		}
		return unhealthy
	}
	return ""
}

// sliceInfo describes a slice that this cluster consumes or provides.
func (c *cluster) sliceInfo(ctx context.Context, s *authv1beta1.ResourceSlice, peer string) sliceInfo {
	info := sliceInfo{Name: s.Name, Action: "Providing", Alerts: []string{}, Resources: s.Status.Resources}
	if s.Labels[api.LabelReplication] == api.True {
		info.Action = consuming
	}
	accepted, denied := 0, 0
	for _, condition := range s.Status.Conditions {
		bad := condition.Type == authv1beta1.ResourceSliceReplicated
		switch condition.Status {
		case authv1beta1.ResourceSliceAccepted:
			if identityplan.Outdated(s, condition) {
				bad, condition.Message = true, "the changed request is not answered; "+condition.Message
			} else {
				accepted++
				bad = condition.Reason == authv1beta1.ReasonSliceCordoned && info.Action == consuming
			}
		case authv1beta1.ResourceSliceDenied:
			denied++
			bad = true
		}
		if bad {
			info.Alerts = append(info.Alerts, fmt.Sprintf("%s: %s", condition.Type, condition.Message))
		}
	}
	info.Accepted = accepted > 1
	if accepted+denied == 0 && len(info.Alerts) == 0 {
		info.Alerts = append(info.Alerts,
			strings.TrimSuffix("not answered yet; "+cmp.Or(problemOf(s), c.latestWarning(ctx, s)), "; "))
	}
	if s.Annotations[api.AnnotationCordon] == api.True {
		info.Alerts = append(info.Alerts, fmt.Sprintf("cordoned by an administrator here; '%s uncordon "+
			"resourceslice %s --remote-cluster-id %s' undoes it", c.env.name, s.Name, peer))
	}
	return info
}

// nodeInfoOf describes a virtual node, whose status is what its conditions report.
func nodeInfoOf(v *offv1beta1.VirtualNode) nodeInfo {
	info := nodeInfo{Name: v.Name, Status: unhealthy, ResourceSlice: v.Labels[api.LabelResourceSliceName],
		Resources: v.Spec.ResourceQuota.Hard}
	if v.Spec.KubeconfigSecretRef != nil {
		info.Secret = v.Spec.KubeconfigSecretRef.Name
	}
	if isRunning(v) {
		info.Status = healthy
	}
	return info
}

// isRunning reports whether the kubelet of a virtual node runs and its Node, if it is to have one,
// is Ready.
func isRunning(v *offv1beta1.VirtualNode) bool {
	return len(v.Status.Conditions) > 0 && problemOf(v) == ""
}

// nodeProblems lists what is wrong with a virtual node that does not run, down to the pods of its
// kubelet: its conditions name the part that is not ready, but not why.
func (c *cluster) nodeProblems(ctx context.Context, v *offv1beta1.VirtualNode) []string {
	if isRunning(v) {
		return nil
	}
	var out []string
	if problemOf(v) != "" {
		out = append(out, c.remark(v))
	}
	kubelet := virtualKubelet(v.Namespace, v.Name)
	if problem := c.problemIn(ctx, kubelet); kubelet.Status.ReadyReplicas == 0 {
		out = append(out, problem)
	}
	if !wantsNode(v) {
		return out
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: v.Name}}
	if problem := c.problemIn(ctx, node); !api.NodeReady(node) {
		out = append(out, problem)
	}
	return out
}

// problemIn reads an object that is not ready and returns why, as far as that is known.
func (c *cluster) problemIn(ctx context.Context, object client.Object) string {
	reason, found := c.reason(ctx, object)
	switch {
	case reason != "":
		return c.nameOf(object) + ": " + reason
	case !found:
		return c.nameOf(object) + " does not exist"
	}
	return c.nameOf(object) + " is not ready"
}
