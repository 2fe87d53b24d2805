// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// Who names a peer and its role.
type Who struct {
	ClusterID string           `json:"clusterID"`
	Role      corev1beta1.Role `json:"role"`
}

// CIDRPair holds ranges of a cluster.
type CIDRPair struct {
	Pod      []string `json:"pod"`
	External []string `json:"external"`
}

// CIDRs holds the ranges of a peer. Remapped holds those by which this cluster knows it; nil before they are known.
type CIDRs struct {
	Remote   CIDRPair  `json:"remote"`
	Remapped *CIDRPair `json:"remapped,omitempty"`
	// Unapproved lists the CIDRs announced after the peering was agreed. They are remapped until an
	// administrator approves them.
	Unapproved []string `json:"unapproved,omitempty"`
}

// Gateway describes the server of the tunnel. Role is the role of the peer's gateway. Port is
// the first port.
type Gateway struct {
	Address []string `json:"address"`
	Port    int32    `json:"port"`
	Ports   []int32  `json:"ports,omitempty"`
	Role    string   `json:"role"`
	// Announced is the endpoint the server announced last; nil if the client dials it, or nothing
	// was announced.
	Announced *netv1beta1.EndpointStatus `json:"announced,omitempty"`
	// Client is the GatewayClient of this cluster; nil if the peer dials this one.
	Client *netv1beta1.GatewayClient `json:"-"`
}

// Connection is the state of the tunnel, and since when. Latency is the last one measured.
type Connection struct {
	Status  string      `json:"status"`
	Latency string      `json:"latency,omitempty"`
	Since   metav1.Time `json:"since,omitzero"`
}

// PeerNetwork is the state of the network module.
type PeerNetwork struct {
	Status  ModuleStatus `json:"status"`
	Alerts  []string     `json:"alerts"`
	CIDRs   CIDRs        `json:"CIDRs"`
	Gateway Gateway      `json:"gateway"`
	// Connection is nil before the gateway knows the peer's key.
	Connection *Connection `json:"connection,omitempty"`
}

// Consuming is the action of a slice that this cluster requested.
const Consuming = "Consuming"

// Slice describes a slice that this cluster consumes or provides.
type Slice struct {
	Name      string              `json:"name"`
	Action    string              `json:"action"`
	Accepted  bool                `json:"accepted"`
	Alerts    []string            `json:"alerts"`
	Resources corev1.ResourceList `json:"resources"`
}

// PeerAccess is the state of the authentication module.
type PeerAccess struct {
	Status        ModuleStatus `json:"status"`
	Alerts        []string     `json:"alerts"`
	APIServerAddr string       `json:"APIServerAddr"`
	// APIServerStatus is empty if the peer's API server is not probed.
	APIServerStatus ModuleStatus `json:"APIServerStatus,omitempty"`
	ResourceSlices  []Slice      `json:"resourceSlices"`
	// SharedKey reports that this cluster authenticates with the key that former versions used for
	// all peers.
	SharedKey bool `json:"sharedKey,omitempty"`
	// UserSecrets lists Secrets with keys or kubeconfigs that users supplied, as "namespace/name".
	// A peering user of the peer can read the ones in the tenant namespace.
	UserSecrets []string `json:"userSecrets,omitempty"`
}

// VirtualNode describes a virtual node. Resources are its capacity.
type VirtualNode struct {
	Name          string              `json:"name"`
	Status        ModuleStatus        `json:"status"`
	Secret        string              `json:"secret"`
	ResourceSlice string              `json:"resourceSlice,omitempty"`
	Resources     corev1.ResourceList `json:"resources"`
}

// PeerOffloading is the state of the offloading module.
type PeerOffloading struct {
	Status       ModuleStatus  `json:"status"`
	Alerts       []string      `json:"alerts"`
	VirtualNodes []VirtualNode `json:"virtualNodes"`
}

// Peer is the state of one peering.
type Peer struct {
	Info           Who            `json:"info"`
	Network        PeerNetwork    `json:"network"`
	Authentication PeerAccess     `json:"authentication"`
	Offloading     PeerOffloading `json:"offloading"`
}

// InspectPeer sums up the peering with the cluster of a ForeignCluster that IsActive holds for.
func InspectPeer(f *corev1beta1.ForeignCluster, objects *PeerObjects, source Source) *Peer {
	modules, into := f.Status.Modules, &Peer{}
	into.Info = Who{ClusterID: f.Spec.ClusterID, Role: f.Status.Role}
	into.Network = PeerNetwork{
		Status: statusOf(modules.Networking),
		Alerts: append(alertsOf(modules.Networking), problems(&objects.Configurations, &objects.Servers,
			&objects.Clients, &objects.Fabrics, &objects.Connections)...),
		CIDRs: objects.ranges(), Gateway: objects.gateway(), Connection: objects.connection(),
	}
	into.Authentication = PeerAccess{
		Status: authenticationStatus(f), Alerts: append(authenticationAlerts(f), objects.accessProblems(source)...),
		APIServerAddr: f.Status.APIServerURL, APIServerStatus: apiServerStatus(f),
		SharedKey: objects.sharesKey(), UserSecrets: objects.userSecrets(), ResourceSlices: []Slice{},
	}
	for i := range objects.Slices.Items {
		into.Authentication.ResourceSlices = append(into.Authentication.ResourceSlices,
			source.slice(&objects.Slices.Items[i], f.Spec.ClusterID))
	}
	into.Offloading = PeerOffloading{
		Status: statusOf(modules.Offloading), Alerts: alertsOf(modules.Offloading), VirtualNodes: []VirtualNode{}}
	for i := range objects.VirtualNodes.Items {
		node := &objects.VirtualNodes.Items[i]
		into.Offloading.VirtualNodes = append(into.Offloading.VirtualNodes, virtualNode(node))
		into.Offloading.Alerts = append(into.Offloading.Alerts, source.nodeProblems(node)...)
	}
	return into
}
