// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// Tunnel is a gateway of this cluster to a peer. Only the name and the replicas are known of one whose GatewayServer
// or GatewayClient the user may not read.
type Tunnel struct {
	Name string
	// Role is that of this cluster's gateway: Server or Client.
	Role string
	// Server is where the server is reached, and Protocol how: UDP or TCP. Addresses are empty before they are known.
	Server   Gateway
	Protocol string
	// MTU is in bytes; 0 = the default.
	MTU int
	// Pod is the address of the active gateway pod, Node its node, Standby the addresses of its other pods. They are
	// empty while there is none.
	Pod, Node string
	Standby   []string
	// Replicas says how many are ready, such as "1 of 2"; empty if that is not known.
	Replicas string
}

// Keys are the public keys of WireGuard at both ends, in base64; empty if they are not known.
type Keys struct {
	Own, Peer string
	// PeerSince is when the peer's key was written here last; zero if that is not known. How old the own key is, only
	// its Secret would tell, which is not read.
	PeerSince time.Time
	// PeerMissing says why the peer's key is not known; empty if there is none.
	PeerMissing string
}

// MappedRange is a range of addresses as its own cluster knows it, and as the other one does.
type MappedRange struct {
	// Whose is the ID of the cluster that the range is of. Kind says what has the addresses.
	Whose, Kind string
	// Real is the range there. Seen is the one that stands for it in the other cluster; empty if that is not known.
	// Of the ranges of this cluster only the peer knows it.
	Real, Seen string
}

// Same reports whether both clusters know the addresses as the same.
func (m MappedRange) Same() bool { return m.Real == m.Seen }

// tunnels returns the gateways to a peer: those of its GatewayServers and GatewayClients, then further Deployments of
// gateways in its namespaces.
func (s *Snapshot) tunnels(objects *PeerObjects, namespaces map[string]bool) []Tunnel {
	deployments := map[string]*appsv1.Deployment{}
	for i := range s.Deployments.Items {
		d := &s.Deployments.Items[i]
		if namespaces[d.Namespace] && d.Labels[api.LabelNetworkingComponent] == api.GatewayComponent {
			deployments[d.Name] = d
		}
	}
	var out []Tunnel
	add := func(name string, role netv1beta1.ConnectionType, mtu int, at *netv1beta1.EndpointStatus,
		pod *netv1beta1.InternalGatewayEndpoint) {
		t := Tunnel{Name: name, Role: string(role), MTU: mtu}
		if at != nil {
			t.Server, t.Protocol = GatewayAt(*at, role), string(at.Protocol)
		}
		if pod != nil {
			t.Pod, t.Node, t.Standby = pod.IP, pod.Node, pod.StandbyIPs
		}
		if d := deployments[api.GatewayResourceName(name)]; d != nil {
			t.Replicas = replicas(d)
			delete(deployments, d.Name)
		}
		out = append(out, t)
	}
	for _, g := range objects.Servers.Items {
		add(g.Name, netv1beta1.ConnectionTypeServer, g.Spec.MTU, g.Status.Endpoint, g.Status.InternalEndpoint)
	}
	for _, g := range objects.Clients.Items {
		add(g.Name, netv1beta1.ConnectionTypeClient, g.Spec.MTU, g.Spec.Endpoint, g.Status.InternalEndpoint)
	}
	for i := range s.Deployments.Items {
		if d := &s.Deployments.Items[i]; deployments[d.Name] == d {
			out = append(out, Tunnel{Name: d.Name, Replicas: replicas(d)})
		}
	}
	return out
}

func replicas(d *appsv1.Deployment) string {
	return fmt.Sprintf("%d of %d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 1)) // 1 is Kubernetes' default
}

// keys returns the keys that gateways to a peer announce and use.
func (s *Snapshot) keys(peer string, objects *PeerObjects) Keys {
	out := Keys{PeerMissing: s.Hidden["PublicKey"]}
	for _, g := range objects.Servers.Items {
		out.Own = base64.StdEncoding.EncodeToString(g.Status.PublicKey)
	}
	for _, g := range objects.Clients.Items {
		out.Own = base64.StdEncoding.EncodeToString(g.Status.PublicKey)
	}
	used := slices.DeleteFunc(ofPeer(s.PublicKeys.Items, peer), func(k netv1beta1.PublicKey) bool {
		return k.DeletionTimestamp != nil || k.Labels[api.LabelGatewayResource] != api.True
	})
	if k := api.Oldest(used); k != nil { // gateways use that one
		out.Peer, out.PeerSince = base64.StdEncoding.EncodeToString(k.Spec.PublicKey), writtenAt(k)
	}
	return out
}

// writtenAt returns when the key of a PublicKey was written last, as its managed fields say; zero without them.
func writtenAt(k *netv1beta1.PublicKey) time.Time {
	var latest time.Time
	for _, entry := range k.ManagedFields {
		var owned struct {
			Spec map[string]json.RawMessage `json:"f:spec"`
		}
		if entry.FieldsV1 == nil || entry.Time == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil ||
			owned.Spec["f:publicKey"] == nil || entry.Time.Time.Before(latest) {
			continue
		}
		latest = entry.Time.Time
	}
	return latest
}

// Kinds of ranges.
const (
	kindPods     = "pods"
	kindExternal = "external addresses"
)

// mappedRanges returns the ranges of a peer and of this cluster, as the Configuration of the peer has them.
func (s *Snapshot) mappedRanges(peer string, objects *PeerObjects) []MappedRange {
	c := api.Oldest(objects.Configurations.Items)
	if c == nil {
		return nil
	}
	seen := map[string]string{}
	for _, m := range c.Mappings() {
		seen[m.Remote.String()] = m.Local.String()
	}
	var out []MappedRange
	add := func(whose, kind string, ranges []string) {
		for _, r := range ranges {
			row := MappedRange{Whose: whose, Kind: kind, Real: r}
			if parsed := netv1beta1.ParseRanges(r); whose == peer && len(parsed) == 1 {
				row.Seen = seen[parsed[0].String()]
			}
			out = append(out, row)
		}
	}
	if r := c.Spec.Remote; r != nil {
		add(peer, kindPods, r.CIDR.Pod)
		add(peer, kindExternal, r.CIDR.External)
	}
	if l := c.Spec.Local; l != nil {
		add(s.ClusterID, kindPods, l.CIDR.Pod)
		add(s.ClusterID, kindExternal, l.CIDR.External)
	}
	return out
}
