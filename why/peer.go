// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"fmt"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/view"
)

// Reasons of peers.
const (
	// NotPeered: no module is in use with the peer.
	NotPeered = "NotPeered"
	// NetworkFails: a part of the network to the peer is not ready.
	NetworkFails = "NetworkFails"
	// AccessFails: a part of the access to the peer, or of the peer to this cluster, is not ready.
	AccessFails = "AccessFails"
	// TenantCordoned: an administrator of this cluster has limited what the peer gets.
	TenantCordoned = "TenantCordoned"
)

// roles says what a peer is that is anything.
var roles = map[corev1beta1.Role]string{corev1beta1.RoleConsumer: "a consumer", corev1beta1.RoleProvider: "a provider",
	corev1beta1.RoleConsumerAndProvider: "a consumer and a provider"}

// explainPeer explains the peering with a cluster.
func explainPeer(in *Input) Answer {
	c := &in.Local
	f := c.peer(in.Name)
	a := Answer{State: "no peer", Where: "unknown"}
	if f != nil {
		a.State = cmp.Or(roles[f.Status.Role], "neither consumer nor provider")
		a.Where = cmp.Or(f.Status.APIServerURL, "API server unknown")
		if m := f.Status.Modules; m != nil {
			a.Decisions = []string{"network: " + moduleState(m.Networking), "authentication: " +
				moduleState(m.Authentication), "offloading: " + moduleState(m.Offloading)}
		}
	}
	a.Cause = *peerCause(in, f)
	if a.Cause.Reason == Nothing && in.Remote == nil {
		a.Unknown = append(a.Unknown,
			"what "+in.Name+" reports: give its kubeconfig with --remote-kubeconfig")
	}
	return a
}

// moduleState returns the first fact about a module that is not as it should be.
func moduleState(m corev1beta1.Module) string {
	if !m.Enabled {
		return "not in use"
	}
	for _, c := range m.Conditions {
		if c.Status != corev1beta1.ConditionReady && c.Status != corev1beta1.ConditionEstablished {
			return fmt.Sprintf("%s is %s", c.Type, c.Status)
		}
	}
	return "works"
}

// peerCause returns the first part of a peering that does not work, in the order in which a peering
// is made.
func peerCause(in *Input, f *corev1beta1.ForeignCluster) *Cause {
	c, peer := &in.Local, in.Name
	if f == nil && !c.mayRead("foreignclusters") {
		return cause(Unexplained, c, "the user may not read the peers")
	}
	if f == nil || !view.IsActive(f) {
		return cause(NotPeered, c, "no module is in use with %s; its kubeconfig is PROVIDER", peer).
			typed("liqoctl peer --remote-kubeconfig PROVIDER")
	}
	if problem := unreachable(f); problem != "" {
		return cause(ProviderUnreachable, c, "the API server of %s does not answer: %s", peer, problem).
			typed("liqoctl info peer %s", peer)
	}
	found := networkCause(c, peer)
	if found == nil {
		found = accessCause(c, peer)
	}
	if remote := in.at(peer); remote != nil && found == nil {
		if found = networkCause(remote, c.ID); found == nil {
			found = accessCause(remote, c.ID)
		}
	}
	if found != nil {
		return found
	}
	for _, v := range ofPeer[*offv1beta1.VirtualNode](c, peer) {
		if found := cmp.Or(nodeCause(in, v.Name), sliceCordoned(c, c.slice(v))); found != nil {
			return found
		}
	}
	for _, m := range []corev1beta1.Module{f.Status.Modules.Networking, f.Status.Modules.Authentication,
		f.Status.Modules.Offloading} {
		if state := moduleState(m); m.Enabled && state != "works" {
			return cause(Unexplained, c, "%s", state).typed("kubectl get foreigncluster %s -o yaml", peer)
		}
	}
	return cause(Nothing, c, "all modules in use work")
}

// networkCause returns the first object of the network to a peer that is not ready; nil = none.
func networkCause(c *Cluster, peer string) *Cause {
	for _, o := range ofPeer[*netv1beta1.Configuration](c, peer) {
		if problem := unmet(o.Status.Conditions, "Ready"); problem != "" {
			return networkFails(c, peer, "configuration", o.Namespace, o.Name, problem)
		}
	}
	for _, o := range ofPeer[*netv1beta1.GatewayServer](c, peer) {
		if problem := unmet(o.Status.Conditions, "Ready"); problem != "" {
			return networkFails(c, peer, "gatewayserver", o.Namespace, o.Name, problem)
		}
	}
	for _, o := range ofPeer[*netv1beta1.GatewayClient](c, peer) {
		if problem := unmet(o.Status.Conditions, "Ready"); problem != "" {
			return networkFails(c, peer, "gatewayclient", o.Namespace, o.Name, problem)
		}
	}
	if problem := c.tunnelProblem(peer); problem != "" {
		return cause(TunnelDown, c, "there is no tunnel to %s: %s", peer, problem).typed("liqoctl info peer %s", peer).
			typedAt(peer, "liqoctl info peer %s", c.ID)
	}
	return nil
}

func networkFails(c *Cluster, peer, kind, namespace, name, problem string) *Cause {
	return cause(NetworkFails, c, "%s %s/%s: %s", kind, namespace, name, problem).
		typed("liqoctl info peer %s", peer).
		typed("kubectl -n %s describe %s.%s %s", namespace, kind, netv1beta1.GroupVersion.Group, name)
}

// accessCause returns the first object of the access between this cluster and a peer that is not
// ready; nil = none.
func accessCause(c *Cluster, peer string) *Cause {
	fails := func(kind, namespace, name, problem string) *Cause {
		return cause(AccessFails, c, "%s %s/%s: %s", kind, namespace, name, problem).
			typed("liqoctl info peer %s", peer).
			typed("kubectl -n %s describe %s.%s %s", namespace, kind, authv1beta1.GroupVersion.Group, name)
	}
	for _, o := range ofPeer[*authv1beta1.Tenant](c, peer) {
		if problem := unmet(o.Status.Conditions, "Ready"); problem != "" {
			return fails("tenant", o.Namespace, o.Name, problem)
		}
		if state := o.Spec.TenantCondition; state != "" && state != authv1beta1.TenantActive {
			return cause(TenantCordoned, c, "an administrator has set tenant %s to %s", o.Name, state).
				typed("liqoctl activate tenant %s", o.Name)
		}
	}
	for _, o := range ofPeer[*authv1beta1.Identity](c, peer) {
		if problem := unmet(o.Status.Conditions, "Ready"); problem != "" {
			return fails("identity", o.Namespace, o.Name, problem)
		}
	}
	for _, o := range ofPeer[*authv1beta1.ResourceSlice](c, peer) {
		if problem := sliceProblem(o); problem != "" && o.Labels[api.LabelReplicated] != api.True {
			return cause(SliceNotGranted, c, "%s does not grant the resources of ResourceSlice %s: %s", peer, o.Name,
				problem).
				typed("kubectl -n %s describe %s %s", o.Namespace, "resourceslices.authentication.liqo.io", o.Name).
				typedAt(peer, "liqoctl info peer %s", c.ID)
		}
	}
	return nil
}
