// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import "fmt"

// Ports.
const (
	WireGuardPort = 51840 // UDP, gateway server
	PingPort      = 12345 // UDP, inside the tunnel
	OverlayPort   = 6091  // UDP, node and gateway; value key networking.genevePort
	KubeletPort   = 10250 // virtual kubelet's API
	WebhookPort   = 9443
	ProxyPort     = 8118
)

// The tunnel.
const (
	// TunnelMTU is the default MTU of the tunnel in bytes.
	TunnelMTU = 1340
	// MaxTunnels bounds the parallel tunnels of one gateway, as the schema's list of ports does.
	MaxTunnels = 64
	// TunnelServerAddress is the server's address in the first tunnel; each further tunnel adds 4.
	TunnelServerAddress = "169.254.18.1"
	// TunnelClientAddress is the client's address in the first tunnel; each further tunnel adds 4.
	TunnelClientAddress = "169.254.18.2"
	// TunnelPrefixLength is the prefix length of both addresses.
	TunnelPrefixLength = 30
	// GatewayKeysDir is where a gateway finds its keys.
	GatewayKeysDir = "/etc/wireguard/keys"
)

// Address ranges used unless the user says otherwise.
const (
	ExternalCIDR = "10.70.0.0/16"
	InternalCIDR = "10.80.0.0/16"
)

// InterfacePrefix begins the names of all network devices of Liqo. Users exclude them in their CNI by it.
const InterfacePrefix = "liqo"

// OverlayInterface is the device between nodes and gateways.
const OverlayInterface = "liqo.ovl"

// Pools returns the default ranges from which remapped CIDRs are allocated.
func Pools() []string { return []string{"10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12"} }

// TunnelInterface names the device of the n-th tunnel, from 0: liqo-tunnel, liqo-tunnel1, …
func TunnelInterface(n int) string {
	if n == 0 {
		return "liqo-tunnel"
	}
	return fmt.Sprintf("liqo-tunnel%d", n)
}
