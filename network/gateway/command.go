// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/gateway/plan"
)

// flags holds the flags that are not options as they are.
type flags struct {
	plan.Options
	uid, mode, implementation, interfaceIP, protocol string
	listenPorts, endpointPorts                       []int
}

// Command is the role "gateway" with the documented flags of the containers it replaces.
func Command() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Carries the traffic of one peer",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			cfg, err := daemon.Config()
			if err != nil {
				return err
			}
			return Run(cmd.Context(), cfg, o)
		},
	}
	f.add(cmd)
	cmd.AddCommand(daemon.ShowCommand("gateway"))
	return cmd
}

func (f *flags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.Name, "name", "", "name of the gateway")
	fs.StringVar(&f.Namespace, "namespace", "", "namespace of the gateway")
	fs.StringVar(&f.RemoteClusterID, "remote-cluster-id", "", "cluster ID of the peer")
	fs.StringVar(&f.uid, "gateway-uid", "", "UID of the GatewayServer or GatewayClient")
	fs.StringVar(&f.NodeName, "node-name", os.Getenv("NODE_NAME"), "node this pod runs on")
	fs.StringVar(&f.PodName, "pod-name", os.Getenv("POD_NAME"), "name of this pod")
	fs.StringVar(&f.mode, "mode", "", "server or client")
	fs.IntVar(&f.MTU, "mtu", api.TunnelMTU, "MTU of the tunnel")
	fs.IntSliceVar(&f.listenPorts, "listen-ports", nil, "port of the tunnel; each further port adds a tunnel")
	fs.StringVar(&f.interfaceIP, "interface-ip", "",
		"address in the tunnel with its prefix length; empty means the default of the mode")
	fs.StringSliceVar(&f.EndpointAddresses, "endpoint-address", nil,
		"addresses or names of the server, tried in turn while it does not answer")
	fs.IntSliceVar(&f.endpointPorts, "endpoint-ports", nil, "port of the server; each further port adds a tunnel")
	fs.DurationVar(&f.DNSCheckInterval, "dns-check-interval", 5*time.Minute,
		"time between two questions for the server's name")
	fs.StringVar(&f.KeysDir, "keys-dir", api.GatewayKeysDir, "directory of the key pair")
	fs.StringVar(&f.implementation, "implementation", "kernel",
		"kernel takes WireGuard of the kernel where there is one, userspace never does")
	fs.StringVar(&f.protocol, "protocol", "UDP",
		"transport of the tunnel, UDP or TCP; TCP takes WireGuard in this process")
	fs.IntVar(&f.OverlayPort, "geneve-port", api.OverlayPort, "UDP port of the links to nodes")
	fs.BoolVar(&f.PingEnabled, "ping-enabled", true, "ping the peer's gateway")
	fs.IntVar(&f.PingPort, "ping-port", api.PingPort, "UDP port of pings inside the tunnel")
	fs.IntVar(&f.Ping.Threshold, "ping-loss-threshold", 5, "pings lost in a row until the connection counts as broken")
	fs.DurationVar(&f.Ping.Interval, "ping-interval", 2*time.Second, "time between two pings")
	fs.DurationVar(&f.LatencyInterval, "ping-update-status-interval", 10*time.Second,
		"least time between two writes of the latency")
	fs.StringVar(&f.MetricsAddress, "metrics-address", ":8082", "address of /metrics; 0 disables")
	fs.StringVar(&f.HealthAddress, "health-probe-bind-address", ":8083", "address of /healthz and /readyz")
	fs.BoolVar(&f.LeaderElection, "leader-election", false, "let one of several replicas act")
	fs.DurationVar(&f.Lease.Duration, "leader-election-lease-duration", 1500*time.Millisecond,
		"time after which another replica may take over")
	fs.DurationVar(&f.Lease.RenewDeadline, "leader-election-renew-deadline", time.Second,
		"time the active replica tries to renew the lease")
	fs.DurationVar(&f.Lease.RetryPeriod, "leader-election-retry-period", 500*time.Millisecond,
		"time between two attempts")
	daemon.OverlaySources(cmd, &f.OverlaySources)
	daemon.Ignore(cmd,
		"container-name", "concurrent-containers-names", "reconcile-timeout", "global-labels", "global-annotations",
		"enable-connection-controller", "ping-buffer-size", "enable-nft-monitor", "enable-route-monitor",
		"enable-multipath-hash-policy", "disable-kernel-version-check", "minimum-kernel-version",
		"preserve-client-endpoint", "geneve-cleanup-interval", "disable-arp")
}

// options checks the flags.
func (f *flags) options() (plan.Options, error) {
	o := f.Options
	o.UID, o.Server, o.Userspace = types.UID(f.uid), f.mode == "server", f.implementation == "userspace"
	o.TCP = f.protocol == "TCP"
	for _, choice := range []struct{ flag, value, a, b string }{
		{"mode", f.mode, "server", "client"},
		{"implementation", f.implementation, "kernel", "userspace"},
		{"protocol", f.protocol, "TCP", "UDP"},
	} {
		if choice.value != choice.a && choice.value != choice.b {
			return o, fmt.Errorf("flag --%s: %q is none of %s, %s", choice.flag, choice.value, choice.a, choice.b)
		}
	}
	if o.Name == "" || o.Namespace == "" || o.RemoteClusterID == "" {
		return o, errors.New("flags --name, --namespace and --remote-cluster-id are needed")
	}
	if o.LeaderElection && o.PodName == "" {
		return o, errors.New("flag --pod-name is needed with --leader-election")
	}
	if o.Ping.Interval <= 0 || o.Ping.Threshold <= 0 {
		return o, errors.New("flags --ping-interval and --ping-loss-threshold must be positive")
	}
	var err error
	if f.interfaceIP != "" {
		if o.InterfaceIP, err = netip.ParsePrefix(f.interfaceIP); err != nil {
			return o, fmt.Errorf("flag --interface-ip: %w", err)
		}
	}
	if ip := os.Getenv("POD_IP"); ip != "" {
		if o.PodIP, err = netip.ParseAddr(ip); err != nil {
			return o, fmt.Errorf("environment POD_IP: %w", err)
		}
	}
	err = f.endpoints(&o)
	return o, err
}

// endpoints sets where a gateway listens, or which server it dials.
func (f *flags) endpoints(o *plan.Options) error {
	if o.Server && len(f.listenPorts) == 0 {
		f.listenPorts = []int{api.WireGuardPort}
	}
	if len(f.listenPorts) > 0 {
		o.ListenPort = f.listenPorts[0]
	}
	if o.Server {
		o.EndpointAddresses, o.MoreListenPorts = nil, f.listenPorts[1:]
		return nil
	}
	if len(o.EndpointAddresses) == 0 || slices.Contains(o.EndpointAddresses, "") || len(f.endpointPorts) == 0 {
		return errors.New("flags --endpoint-address and --endpoint-ports are needed by a client")
	}
	o.EndpointPort, o.MoreEndpointPorts = f.endpointPorts[0], f.endpointPorts[1:]
	if o.TCP {
		o.ListenPort = 0 // only servers listen
	}
	return nil
}
