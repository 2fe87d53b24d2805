// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
)

// Reach describes what a peer may reach in this cluster: by packets, and by requests to the API server.
// NetworkPolicies, which count in addition, may allow less.
type Reach struct {
	// ClusterID is that of this cluster.
	ClusterID string
	// Off reports that no packets pass, since the network module is off. OtherKind is the kind of a gateway that is not
	// Liqo's, and lets pass what it likes; empty if there is none. OtherMissing says why that is not known.
	Off          bool
	OtherKind    string
	OtherMissing string
	// Pods are the ranges of pods it reaches; empty if they are not known.
	Pods []string
	// Protected is how many pods it opens no connection to, and ProtectedIn are their namespaces, as far as the pods
	// are known. ProtectedMissing says why the number is not known; empty if it is.
	Protected        int
	ProtectedIn      []string
	ProtectedMissing string
	// Addresses are IP objects it reaches, at most mostAddresses; More is how many others there are. AddressesMissing
	// says why they are not known; empty if they are.
	Addresses        []ReachedAddress
	More             int
	AddressesMissing string
	// Tenant is the state of its Tenant: Active, Cordoned or Drained. It is empty without one: then no Tenant allows
	// requests, unless TenantMissing says why that is not known. Peering users and bindings by hand are not looked at.
	Tenant, TenantMissing string
	// TenantNamespace is where it copies its requests to. Namespaces are those made for it, unless NamespacesMissing
	// says why they are not known.
	TenantNamespace   string
	Namespaces        []ReachedNamespace
	NamespacesMissing string
}

// ReachedAddress is an IP object: its target, and the address of the external range that stands for it.
type ReachedAddress struct{ Name, Target, At string }

// ReachedNamespace is a namespace for pods of a peer, its name at the peer and its state.
type ReachedNamespace struct{ Name, Theirs, Phase string }

// mostAddresses bounds how many addresses a page lists.
const mostAddresses = 50

// reach decides as network/plan/objects.go: GatewayObjects does for addresses and protected pods.
func (s *Snapshot) reach(f *corev1beta1.ForeignCluster, objects *PeerObjects) Reach {
	peer := f.Spec.ClusterID
	out := Reach{ClusterID: s.ClusterID, Off: !f.Status.Modules.Networking.Enabled,
		ProtectedMissing: s.Hidden["InternalNode"], AddressesMissing: s.Hidden["IP"], TenantMissing: s.Hidden["Tenant"],
		NamespacesMissing: s.Hidden["NamespaceMap"]}
	if out.OtherKind = objects.otherKind(); out.OtherKind == "" {
		out.OtherMissing = cmp.Or(s.Hidden["GatewayServer"], s.Hidden["GatewayClient"])
	}
	if c := api.Oldest(objects.Configurations.Items); c != nil && c.Spec.Local != nil {
		out.Pods = c.Spec.Local.CIDR.Pod
	}
	out.Protected, out.ProtectedIn = s.protected()
	for i := range s.IPs.Items {
		ip := &s.IPs.Items[i]
		peers, limited := ip.Annotations[api.AnnotationPeers]
		switch {
		case ip.DeletionTimestamp != nil, ip.Status.IP == "",
			limited && !slices.Contains(strings.Split(peers, ","), peer):
		case len(out.Addresses) == mostAddresses:
			out.More++
		default:
			out.Addresses = append(out.Addresses,
				ReachedAddress{ip.Namespace + "/" + ip.Name, ip.Spec.IP, ip.Status.IP})
		}
	}
	if t := api.Oldest(objects.Tenants.Items); t != nil {
		out.Tenant = string(cmp.Or(t.Spec.TenantCondition, authv1beta1.TenantActive))
		out.TenantNamespace = cmp.Or(t.Status.TenantNamespace, t.Namespace)
	}
	for _, m := range ofPeer(s.NamespaceMaps.Items, peer) {
		if m.Labels[api.LabelReplicated] != api.True { // one of this cluster's own
			continue
		}
		for _, theirs := range slices.Sorted(maps.Keys(m.Status.CurrentMapping)) {
			n := m.Status.CurrentMapping[theirs]
			out.Namespaces = append(out.Namespaces, ReachedNamespace{n.RemoteNamespace, theirs, string(n.Phase)})
		}
	}
	return out
}

// otherKind returns the kind of a gateway that is not Liqo's; empty if there is none.
func (o *PeerObjects) otherKind() string {
	for i := range o.Servers.Items {
		if other, _ := o.Servers.Items[i].OtherTechnology(); other {
			return o.Servers.Items[i].Status.ServerRef.Kind
		}
	}
	for i := range o.Clients.Items {
		if other, _ := o.Clients.Items[i].OtherTechnology(); other {
			return o.Clients.Items[i].Status.ClientRef.Kind
		}
	}
	return ""
}

// protected returns how many pods no peer opens a connection to, and their namespaces.
func (s *Snapshot) protected() (int, []string) {
	addresses, namespaces := map[string]bool{}, map[string]bool{}
	for _, n := range s.InternalNodes.Items {
		for _, ip := range n.Spec.ProtectedIPs {
			addresses[ip] = true
		}
	}
	for i := range s.Pods.Items {
		if pod := &s.Pods.Items[i]; addresses[pod.Status.PodIP] && !pod.Spec.HostNetwork {
			namespaces[pod.Namespace] = true
		}
	}
	return len(addresses), slices.Sorted(maps.Keys(namespaces))
}
