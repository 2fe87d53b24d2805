// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	identityplan "github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// PeerObjects holds the objects of this cluster that concern one peer.
type PeerObjects struct {
	Configurations netv1beta1.ConfigurationList
	Servers        netv1beta1.GatewayServerList
	Clients        netv1beta1.GatewayClientList
	Fabrics        netv1beta1.InternalFabricList
	Connections    netv1beta1.ConnectionList
	Tenants        authv1beta1.TenantList
	Identities     authv1beta1.IdentityList
	VirtualNodes   offv1beta1.VirtualNodeList
	Slices         authv1beta1.ResourceSliceList
	// Kubeconfigs holds the Secrets with control-plane kubeconfigs for the peer. It is empty if the
	// user may not list Secrets.
	Kubeconfigs corev1.SecretList
	// SharedKey is the Secret with the key that former versions used for all peers. It is empty if
	// there is none, or if the user may not read it.
	SharedKey corev1.Secret
}

// problems lists what the conditions of objects report as wrong.
func problems(lists ...runtime.Object) []string {
	var out []string
	for _, list := range lists {
		_ = meta.EachListItem(list, func(item runtime.Object) error { // fails on no typed list
			if object := item.(Object); Problem(object) != "" {
				out = append(out, nameOf(object)+": "+Problem(object))
			}
			return nil
		})
	}
	return out
}

// ranges returns the peer's ranges as its oldest Configuration names them.
func (o *PeerObjects) ranges() CIDRs {
	info := CIDRs{Remote: CIDRPair{Pod: []string{}, External: []string{}}}
	item := api.Oldest(o.Configurations.Items)
	if item == nil {
		return info
	}
	if r := item.Spec.Remote; r != nil {
		info.Remote = CIDRPair{Pod: r.CIDR.Pod, External: r.CIDR.External}
	}
	if r := item.Status.Remote; r != nil {
		info.Remapped = &CIDRPair{Pod: r.CIDR.Pod, External: r.CIDR.External}
	}
	info.Unapproved = plan.UnapprovedCIDRs(item) // no condition lists them
	return info
}

// gateway returns where the tunnel's server is. A client, which may dial another address than its
// server announces, takes precedence.
func (o *PeerObjects) gateway() Gateway {
	info := Gateway{Address: []string{}}
	if g := api.Oldest(o.Servers.Items); g != nil && g.Status.Endpoint != nil {
		info = GatewayAt(*g.Status.Endpoint, netv1beta1.ConnectionTypeClient)
	}
	if g := api.Oldest(o.Clients.Items); g != nil && g.Spec.Endpoint != nil {
		info = GatewayAt(*g.Spec.Endpoint, netv1beta1.ConnectionTypeServer)
		info.Announced, info.Client = plan.UnfollowedEndpoint(g), g // no condition reports it
	}
	return info
}

// GatewayAt describes a gateway of this role at an endpoint.
func GatewayAt(e netv1beta1.EndpointStatus, role netv1beta1.ConnectionType) Gateway {
	info := Gateway{Address: e.Addresses, Port: e.Port, Ports: e.Ports, Role: string(role)}
	if len(e.Ports) > 0 {
		info.Port = e.Ports[0]
	}
	return info
}

// connection returns the state of the tunnel; nil if there is none.
func (o *PeerObjects) connection() *Connection {
	connection := api.Oldest(o.Connections.Items)
	if connection == nil {
		return nil
	}
	status := connection.Status
	info := &Connection{Status: string(status.Value)}
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
func (o *PeerObjects) sharesKey() bool {
	return slices.ContainsFunc(o.Identities.Items, func(i authv1beta1.Identity) bool {
		return identityplan.IssuedFor(i.Spec.AuthParams, o.SharedKey.Data[api.PublicKeyField])
	})
}

// userSecrets returns the Secrets that objects of the peer refer to, and this cluster's
// control-plane kubeconfigs for it, without those that Liqo made for Identities.
func (o *PeerObjects) userSecrets() []string {
	var made, used []string
	for _, i := range o.Identities.Items {
		made = append(made, i.Namespace+"/"+api.KubeconfigSecretName(i.Name))
	}
	add := func(namespace string, ref *corev1.LocalObjectReference) {
		if ref != nil && ref.Name != "" {
			used = append(used, namespace+"/"+ref.Name)
		}
	}
	for _, s := range o.Servers.Items {
		add(s.Namespace, s.Spec.SecretRef)
	}
	for _, g := range o.Clients.Items {
		add(g.Namespace, g.Spec.SecretRef)
	}
	for _, v := range o.VirtualNodes.Items {
		add(v.Namespace, v.Spec.KubeconfigSecretRef)
	}
	for _, s := range o.Kubeconfigs.Items {
		used = append(used, s.Namespace+"/"+s.Name)
	}
	slices.Sort(used)
	return slices.DeleteFunc(slices.Compact(used), func(name string) bool { return slices.Contains(made, name) })
}

// accessProblems lists what is wrong with the access of a peer to this cluster and of this one to
// the peer, and what an administrator has taken from the peer.
func (o *PeerObjects) accessProblems(source Source) []string {
	out := problems(&o.Tenants, &o.Identities)
	for i := range o.Tenants.Items {
		tenant := &o.Tenants.Items[i]
		if state := cmp.Or(tenant.Spec.TenantCondition, authv1beta1.TenantActive); state != authv1beta1.TenantActive {
			out = append(out, fmt.Sprintf("%s: %s by an administrator here; '%s activate tenant %s' undoes it",
				nameOf(tenant), strings.ToLower(string(state)), source.Command, tenant.Name))
		}
	}
	return out
}

// apiServerStatus returns whether the peer's API server answers; empty if nothing probes it.
func apiServerStatus(f *corev1beta1.ForeignCluster) ModuleStatus {
	for _, condition := range f.Status.Conditions {
		if condition.Type != corev1beta1.APIServerStatusCondition {
			continue
		}
		if condition.Status == corev1beta1.ConditionEstablished {
			return Healthy
		}
		return Unhealthy
	}
	return ""
}

// slice describes a slice that this cluster consumes or provides.
func (s Source) slice(slice *authv1beta1.ResourceSlice, peer string) Slice {
	info := Slice{Name: slice.Name, Action: "Providing", Alerts: []string{}, Resources: slice.Status.Resources}
	if slice.Labels[api.LabelReplication] == api.True {
		info.Action = Consuming
	}
	accepted, denied := 0, 0
	for _, condition := range slice.Status.Conditions {
		bad := condition.Type == authv1beta1.ResourceSliceReplicated
		switch condition.Status {
		case authv1beta1.ResourceSliceAccepted:
			if identityplan.Outdated(slice, condition) {
				bad, condition.Message = true, "the changed request is not answered; "+condition.Message
			} else {
				accepted++
				bad = condition.Reason == authv1beta1.ReasonSliceCordoned && info.Action == Consuming
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
			strings.TrimSuffix("not answered yet; "+cmp.Or(Problem(slice), s.Warning(slice)), "; "))
	}
	if slice.Annotations[api.AnnotationCordon] == api.True {
		info.Alerts = append(info.Alerts, fmt.Sprintf("cordoned by an administrator here; '%s uncordon "+
			"resourceslice %s --remote-cluster-id %s' undoes it", s.Command, slice.Name, peer))
	}
	return info
}

// virtualNode describes a virtual node, whose status is what its conditions report.
func virtualNode(v *offv1beta1.VirtualNode) VirtualNode {
	info := VirtualNode{Name: v.Name, Status: Unhealthy, ResourceSlice: v.Labels[api.LabelResourceSliceName],
		Resources: v.Spec.ResourceQuota.Hard}
	if v.Spec.KubeconfigSecretRef != nil {
		info.Secret = v.Spec.KubeconfigSecretRef.Name
	}
	if isRunning(v) {
		info.Status = Healthy
	}
	return info
}

// isRunning reports whether the kubelet of a virtual node runs and its Node, if it is to have one,
// is Ready.
func isRunning(v *offv1beta1.VirtualNode) bool {
	return len(v.Status.Conditions) > 0 && Problem(v) == ""
}

// nodeProblems lists what is wrong with a virtual node that does not run, down to the pods of its
// kubelet: its conditions name the part that is not ready, but not why.
func (s Source) nodeProblems(v *offv1beta1.VirtualNode) []string {
	if isRunning(v) {
		return nil
	}
	var out []string
	if problem := Problem(v); problem != "" {
		out = append(out, nameOf(v)+": "+problem)
	}
	kubelet := &appsv1.Deployment{ObjectMeta: metaOf(v.Namespace, api.VirtualKubeletName(v.Name))}
	if problem := s.problemIn(kubelet); kubelet.Status.ReadyReplicas == 0 {
		out = append(out, problem)
	}
	if !WantsNode(v) {
		return out
	}
	node := &corev1.Node{ObjectMeta: metaOf("", v.Name)}
	if problem := s.problemIn(node); !api.NodeReady(node) {
		out = append(out, problem)
	}
	return out
}

// problemIn reads an object that is not ready and returns why, as far as that is known.
func (s Source) problemIn(object Object) string {
	reason, found := s.Reason(object)
	switch {
	case reason != "":
		return nameOf(object) + ": " + reason
	case !found:
		return nameOf(object) + " does not exist"
	}
	return nameOf(object) + " is not ready"
}
