// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// Options of a gateway. Flags of the same names describe them.
type Options struct {
	Name, Namespace, RemoteClusterID string
	// UID is that of the GatewayServer or GatewayClient.
	UID               types.UID
	NodeName, PodName string
	// PodIP is the pod's own address; invalid = that of the device of the default route.
	PodIP  netip.Addr
	Server bool
	// MTU of the tunnel and ListenPort of its UDP socket; ListenPort 0 = any.
	MTU, ListenPort int
	// InterfaceIP is the local address in the tunnel; invalid = the default of the mode.
	InterfaceIP netip.Prefix
	// EndpointAddresses are IP addresses or DNS names of the server. A client tries the next one
	// while it gets no answer.
	EndpointAddresses []string
	EndpointPort      int
	// MoreListenPorts of a server and MoreEndpointPorts of a client add a tunnel each.
	MoreListenPorts, MoreEndpointPorts []int
	DNSCheckInterval                   time.Duration
	KeysDir                            string
	// Userspace forces WireGuard inside this process, and TCP its packets over TCP.
	Userspace, TCP bool
	// OverlayPort is a UDP port.
	OverlayPort int
	// OverlaySources are further source addresses of the overlay's frames.
	OverlaySources []netip.Prefix
	// PingEnabled, if false, ends pings with the first answer.
	PingEnabled                   bool
	PingPort                      int
	Ping                          PingPolicy
	LatencyInterval               time.Duration
	MetricsAddress, HealthAddress string
	// LeaderElection elects one of several replicas; without it there is one replica.
	LeaderElection bool
	Lease          LeaseTimes
}

// LeaseTimes are the times of the election between the replicas of a gateway.
type LeaseTimes struct {
	// Duration is the time without a renewal after which another replica takes over.
	Duration time.Duration
	// RenewDeadline bounds one attempt.
	RenewDeadline time.Duration
	// RetryPeriod is the time between two attempts of the holder, and after one that failed.
	RetryPeriod time.Duration
}

// Addresses returns the local address in the tunnel and the peer's.
func (o Options) Addresses() (netip.Prefix, netip.Addr) {
	own, peer := kernel.TunnelAddresses(o.Server)
	if o.InterfaceIP.IsValid() && o.InterfaceIP != own {
		own, peer = o.InterfaceIP, o.InterfaceIP.Addr().Next()
		if !o.Server {
			peer = o.InterfaceIP.Addr().Prev()
		}
	}
	return own, peer
}

// Devices returns the devices of all tunnels.
func (o Options) Devices() []string {
	out := []string{api.TunnelInterface(0)}
	for range max(len(o.MoreListenPorts), len(o.MoreEndpointPorts)) {
		out = append(out, api.TunnelInterface(len(out)))
	}
	return out
}

// Ports returns the server's ports, as this side knows them: one for each tunnel.
func (o Options) Ports() []int {
	if o.Server {
		return append([]int{o.ListenPort}, o.MoreListenPorts...)
	}
	return append([]int{o.EndpointPort}, o.MoreEndpointPorts...)
}
