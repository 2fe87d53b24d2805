// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// Flags are those of the role "gateway": the documented ones of the containers it replaces. The
// process parses them, and the controller checks with them what a template says.
type Flags struct {
	// options holds the flags that are options as they are.
	options                          Options
	uid, mode, implementation, podIP string
	protocol                         string
	listenPorts, endpointPorts       []int
}

// Add adds the flags to a set. env reads the variables NODE_NAME, POD_NAME and POD_IP; empty = unset.
func (f *Flags) Add(fs *pflag.FlagSet, env func(string) string) {
	o := &f.options
	f.podIP, f.implementation, f.protocol = env("POD_IP"), "kernel", "UDP"
	fs.StringVar(&o.Name, "name", "", "name of the gateway")
	fs.StringVar(&o.Namespace, "namespace", "", "namespace of the gateway")
	fs.StringVar(&o.RemoteClusterID, "remote-cluster-id", "", "cluster ID of the peer")
	fs.StringVar(&f.uid, "gateway-uid", "", "UID of the GatewayServer or GatewayClient")
	fs.StringVar(&o.NodeName, "node-name", env("NODE_NAME"), "node this pod runs on")
	fs.StringVar(&o.PodName, "pod-name", env("POD_NAME"), "name of this pod")
	fs.Var(choice{&f.mode, []string{"server", "client"}}, "mode", "server or client")
	o.MTU, o.OverlayPort = api.TunnelMTU, api.OverlayPort
	fs.Var(number{&o.MTU, 576, 65455}, "mtu", "MTU of the tunnel") // bounds: GatewayServerSpec.MTU
	fs.Var(ports{&f.listenPorts}, "listen-ports", "port of the tunnel; each further port adds a tunnel")
	fs.Func("interface-ip", "address in the tunnel with its prefix length; empty means the default of the mode",
		func(text string) (err error) {
			if text != "" {
				o.InterfaceIP, err = netip.ParsePrefix(text)
			}
			return err
		})
	fs.StringSliceVar(&o.EndpointAddresses, "endpoint-address", nil,
		"addresses or names of the server, tried in turn while it does not answer")
	fs.Var(ports{&f.endpointPorts}, "endpoint-ports", "port of the server; each further port adds a tunnel")
	fs.DurationVar(&o.DNSCheckInterval, "dns-check-interval", 5*time.Minute,
		"time between two questions for the server's name")
	fs.StringVar(&o.KeysDir, "keys-dir", api.GatewayKeysDir, "directory of the key pair")
	fs.Var(choice{&f.implementation, []string{"kernel", "userspace"}}, "implementation",
		"kernel takes WireGuard of the kernel where there is one, userspace never does")
	fs.Var(choice{&f.protocol, []string{"TCP", "UDP"}}, "protocol",
		"transport of the tunnel, UDP or TCP; TCP takes WireGuard in this process")
	fs.Var(port(&o.OverlayPort), "geneve-port", "UDP port of the links to nodes")
	kernel.AddOverlaySources(fs, &o.OverlaySources)
	f.addHealth(fs)
	kernel.AddIgnored(fs,
		"container-name", "concurrent-containers-names", "reconcile-timeout", "global-labels", "global-annotations",
		"enable-connection-controller", "ping-buffer-size", "enable-nft-monitor", "enable-route-monitor",
		"enable-multipath-hash-policy", "disable-kernel-version-check", "minimum-kernel-version",
		"preserve-client-endpoint", "geneve-cleanup-interval", "disable-arp")
}

// addHealth adds the flags of pings, metrics, probes and leader election.
func (f *Flags) addHealth(fs *pflag.FlagSet) {
	o := &f.options
	fs.BoolVar(&o.PingEnabled, "ping-enabled", true, "ping the peer's gateway")
	o.PingPort, o.MetricsAddress, o.HealthAddress = api.PingPort, ":8082", ":8083"
	fs.Var(port(&o.PingPort), "ping-port", "UDP port of pings inside the tunnel")
	fs.IntVar(&o.Ping.Threshold, "ping-loss-threshold", 5, "pings lost in a row until the connection counts as broken")
	fs.DurationVar(&o.Ping.Interval, "ping-interval", 2*time.Second, "time between two pings")
	fs.DurationVar(&o.LatencyInterval, "ping-update-status-interval", 10*time.Second,
		"least time between two writes of the latency")
	fs.Var(address{&o.MetricsAddress}, "metrics-address", "address of /metrics; 0 disables")
	fs.Var(address{&o.HealthAddress}, "health-probe-bind-address", "address of /healthz and /readyz; 0 disables")
	fs.BoolVar(&o.LeaderElection, "leader-election", false, "let one of several replicas act")
	fs.DurationVar(&o.Lease.Duration, "leader-election-lease-duration", 1500*time.Millisecond,
		"time after which another replica may take over")
	fs.DurationVar(&o.Lease.RenewDeadline, "leader-election-renew-deadline", time.Second,
		"time the active replica tries to renew the lease")
	fs.DurationVar(&o.Lease.RetryPeriod, "leader-election-retry-period", 500*time.Millisecond,
		"time between two attempts")
}

// Options returns the options that the flags say. The error names the flags with which no gateway
// can run.
func (f *Flags) Options() (Options, error) {
	o := f.options
	o.UID, o.Server, o.Userspace = types.UID(f.uid), f.mode == "server", f.implementation == "userspace"
	o.TCP = f.protocol == "TCP"
	if f.mode == "" {
		return o, errors.New("flag --mode is needed: server or client")
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
	if o.LeaderElection && min(o.Lease.Duration, o.Lease.RenewDeadline, o.Lease.RetryPeriod) <= 0 {
		return o, errors.New("the times of flags --leader-election-… must be positive")
	}
	if f.podIP != "" {
		var err error
		if o.PodIP, err = netip.ParseAddr(f.podIP); err != nil {
			return o, fmt.Errorf("environment POD_IP: %w", err)
		}
	}
	err := f.endpoints(&o)
	return o, err
}

// endpoints sets where a gateway listens, or which server it dials.
func (f *Flags) endpoints(o *Options) error {
	listenPorts := f.listenPorts
	if o.Server && len(listenPorts) == 0 {
		listenPorts = []int{api.WireGuardPort}
	}
	if len(listenPorts) > 0 {
		o.ListenPort = listenPorts[0]
	}
	if o.Server {
		o.EndpointAddresses, o.MoreListenPorts = nil, listenPorts[1:]
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
