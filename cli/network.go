// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/await"
)

// networkOptions holds the flags of a connection.
type networkOptions struct {
	serverTemplate, clientTemplate template
	service                        serverService
	// location is the side of the server: Provider, Consumer or empty, which means Provider.
	location string
	// address and port are dialled instead of what the server announces; empty means what it
	// announces.
	address string
	port    ports
	mtu     int
	// isSet reports whether the user set a flag: what no flag names stays unchanged.
	isSet          func(flag string) bool
	skipValidation bool
	keepKeys       bool
	wait           bool
}

// networkFlags holds the common flags of the network verbs.
type networkFlags struct {
	pair    *pair
	options networkOptions
}

func (e *env) networkCommand() *cobra.Command {
	cmd := group("network", "Connect or disconnect the networks of two clusters", "net")
	f := &networkFlags{pair: &pair{remote: addConnectionFlags(cmd.PersistentFlags(), remotePrefix)}}
	flags := cmd.PersistentFlags()
	flags.StringVarP(&f.pair.objectNamespace, "namespace", "n", "", "Tenant namespace (default: found by its labels)")
	flags.StringVar(&f.pair.remoteNamespace, "remote-namespace", "",
		"Tenant namespace in the remote cluster (default: found by its labels)")
	addLiqoFlag(flags, "liqo-namespace", "", "")
	addLiqoFlag(flags, "remote-liqo-namespace", "", ofRemote)
	addTimeoutFlag(flags, 2*time.Minute)
	flags.BoolVar(&f.options.wait, "wait", false,
		"Wait until what the command asked for is done; connect does unless this is false")
	flags.BoolVar(&f.options.skipValidation, "skip-validation", false, "Do not check that the gateway templates exist")
	cmd.AddCommand(e.networkInitCommand(f), e.networkConnectCommand(f), e.networkDisconnectCommand(f),
		e.networkResetCommand(f))
	return cmd
}

func (e *env) networkInitCommand(f *networkFlags) *cobra.Command {
	return &cobra.Command{Use: "init", Short: "Exchange the address ranges of two clusters",
		Example: "  liqoctl network init --remote-kubeconfig milan.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.onNetwork(cmd, f, func(n *network) error {
				return n.run(slices.Concat(n.namespaceSteps(false), n.configuration())...)
			})
		}}
}

func (e *env) networkConnectCommand(f *networkFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "connect", Short: "Connect two clusters by a tunnel, the remote one serving",
		Example: "  liqoctl network connect --remote-kubeconfig milan.yaml\n" +
			"  liqoctl network connect --remote-kubeconfig milan.yaml --server-service-type NodePort --mtu 1280",
		RunE: func(cmd *cobra.Command, _ []string) error {
			// Without keys there is no connection to wait for.
			if !cmd.Flags().Changed("wait") {
				f.options.wait = !f.options.keepKeys
			}
			return e.onNetwork(cmd, f, func(n *network) error {
				initialised, err := n.initialised()
				if err != nil {
					return err
				}
				configuration := n.configuration()
				for i := range configuration {
					if initialised { // the Configurations are updated without a line
						configuration[i].doing = ""
					}
				}
				return n.run(slices.Concat(n.namespaceSteps(false), configuration, n.connection())...)
			})
		}}
	o, flags := &f.options, cmd.Flags()
	addGatewayFlags(flags, o)
	renameFlags(flags, networkConnectNames)
	o.serverTemplate.addFlags(flags, "gw-server-", o.serverTemplate)
	o.clientTemplate.addFlags(flags, "gw-client-", o.clientTemplate)
	flags.BoolVar(&o.keepKeys, "disable-sharing-keys", false, "Do not exchange the public keys")
	return cmd
}

// addGatewayFlags adds the flags of a tunnel, with the names that peer uses.
func addGatewayFlags(flags *pflag.FlagSet, o *networkOptions) {
	o.serverTemplate = template{resource: serverTemplates, name: api.WgGatewayServerTemplateName}
	o.clientTemplate = template{resource: clientTemplates, name: api.WgGatewayClientTemplateName}
	o.isSet = flags.Changed
	o.service.ports = ports{api.WireGuardPort}
	flags.Var(choice(&o.location, "Provider", "Consumer"), "gw-server-service-location",
		"Which side runs the tunnel's server: Provider is the remote cluster, Consumer the local one")
	flags.Var(choice(&o.service.ServiceType, serviceTypes[0], serviceTypes[1:]...), "gw-server-service-type",
		"Type of the server's Service")
	flags.Var(&o.service.ports, "gw-server-service-port", "Port of the server's Service; several make parallel tunnels")
	flags.Var(&o.service.nodePorts, "gw-server-service-nodeport",
		"Node port of the server's Service, one for each port; 0 = any")
	flags.StringVar(&o.service.LoadBalancerIP, "gw-server-service-loadbalancerip", "",
		"Address of the server's load balancer; empty = any")
	flags.StringVar(&o.address, "gw-client-address", "", "Address or name the client dials instead of the server's own")
	flags.Var(&o.port, "gw-client-port", "Port the client dials instead of the server's own, one for each port")
	o.service.addProtocolFlag(flags, "gw-protocol")
	flags.IntVar(&o.mtu, "mtu", api.TunnelMTU, "MTU of the tunnel in bytes, the same on both sides")
	renameFlags(flags, peerNames)
}

// peerNames maps other names of a flag to the name in the help of peer.
var peerNames = map[string]string{
	"server-service-type": "gw-server-service-type", "server-port": "gw-server-service-port",
	"server-service-port": "gw-server-service-port",
	"node-port":           "gw-server-service-nodeport", "server-service-nodeport": "gw-server-service-nodeport",
	"load-balancer-ip":              "gw-server-service-loadbalancerip",
	"server-service-loadbalancerip": "gw-server-service-loadbalancerip",
	"protocol":                      "gw-protocol",
}

// networkConnectNames maps other names of a flag to the name in the help of network connect.
var networkConnectNames = map[string]string{
	"gw-server-service-type": "server-service-type",
	"gw-server-service-port": "server-port", "server-service-port": "server-port",
	"gw-server-service-nodeport": "node-port", "server-service-nodeport": "node-port",
	"gw-server-service-loadbalancerip": "load-balancer-ip", "server-service-loadbalancerip": "load-balancer-ip",
	"protocol": "gw-protocol",
}

// renameFlags gives flags the names that they have in the help; the other names still work.
func renameFlags(flags *pflag.FlagSet, names map[string]string) {
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(names[name], name))
	})
}

// network connects or disconnects the networks of two clusters.
type network struct {
	*script
	localCluster, remoteCluster *cluster
	server, client              tunnelEnd
	networkOptions

	// What the steps find out.
	reversed        bool
	deletedGateways []tunnelEnd
	// announced is the server with its endpoint.
	announced *netv1beta1.GatewayServer
	// disconnected reports that gateways were deleted by disconnect, as the clusters still know
	// each other's ranges: missing gateways are then reported as deleted. The documents show this
	// for reset after disconnect.
	disconnected bool
}

// onNetwork runs do with a connection to both clusters.
func (e *env) onNetwork(cmd *cobra.Command, f *networkFlags, do func(*network) error) error {
	return e.onPair(cmd, f.pair, func(s *script, localCluster, remoteCluster *cluster) error {
		s.info(local, "Cluster identity correctly retrieved")
		s.info(remote, "Cluster identity correctly retrieved")
		return do(newNetwork(s, localCluster, remoteCluster, f.options))
	})
}

// newNetwork makes the remote cluster the server, unless the options say otherwise.
func newNetwork(s *script, localCluster, remoteCluster *cluster, o networkOptions) *network {
	n := &network{script: s, localCluster: localCluster, remoteCluster: remoteCluster, networkOptions: o,
		server: tunnelEnd{remoteCluster, "server", nil}, client: tunnelEnd{localCluster, "client", nil}}
	if o.location == "Consumer" {
		n.server.cluster, n.client.cluster = localCluster, remoteCluster
	}
	return n
}

// pair returns both clusters, the local one first.
func (n *network) pair() []*cluster { return []*cluster{n.localCluster, n.remoteCluster} }

// namespaceSteps find or create the namespaces of the network's objects. They create a tenant
// namespace if there are no such objects yet; with tenant, which says that authentication needs it,
// in any case.
func (n *network) namespaceSteps(tenant bool) []step {
	var steps []step
	for _, c := range n.pair() {
		steps = append(steps, step{name: "namespaces", do: func(ctx context.Context) error {
			if tenant {
				if err := c.ensureTenant(ctx, c.other.id); err != nil {
					return err
				}
			}
			if err := c.findNetwork(ctx, c.other.id); err != nil || c.network != "" {
				return err
			}
			err := c.ensureTenant(ctx, c.other.id)
			c.network = c.tenant
			return err
		}})
	}
	return steps
}

// configuration gives each cluster the ranges of the other.
func (n *network) configuration() []step {
	var read, set, wait []step
	for _, c := range n.pair() {
		var object *netv1beta1.Configuration
		read = append(read, step{name: "ranges of " + c.id, at: &c,
			doing: "Retrieving network configuration", done: "Network configuration correctly retrieved",
			do: func(ctx context.Context) (err error) {
				c.ranges, err = c.readRanges(ctx)
				return err
			}})
		set = append(set, step{name: "configured " + c.id, after: []string{"namespaces", "ranges of " + c.other.id},
			at:    &c,
			doing: "Setting up network configuration", done: "Network configuration correctly set up",
			do: func(ctx context.Context) (err error) {
				if object, err = c.configurationOf(ctx, c.other.id, c.other.ranges); err != nil {
					return err
				}
				return c.apply(ctx, object)
			}})
		wait = append(wait, step{name: "in force at " + c.id, after: []string{"configured " + c.id}, at: &c,
			doing: "Applying configuration", done: "Configuration applied successfully",
			do: func(ctx context.Context) error {
				return c.await(ctx, object, func() bool { return isConfigured(object, c.other.ranges) })
			}})
	}
	return slices.Concat(read, set, wait)
}

// configurationOf returns the peer's Configuration with these ranges. It keeps the name of an
// existing one, which may have been created by hand, and the order of the same ranges.
func (c *cluster) configurationOf(
	ctx context.Context, peer string, r netv1beta1.ClusterCIDR,
) (*netv1beta1.Configuration, error) {
	list := &netv1beta1.ConfigurationList{}
	if err := c.listOf(ctx, c.network, peer, list); err != nil {
		return nil, err
	}
	have := api.Oldest(list.Items)
	if have == nil {
		return configuration(c.network, peer, peer, r), nil
	}
	if hasRanges(have, r) {
		r = have.Spec.Remote.CIDR
	}
	return configuration(c.network, have.Name, peer, r), nil
}

// isConfigured reports whether a Configuration for these ranges is in force.
func isConfigured(c *netv1beta1.Configuration, r netv1beta1.ClusterCIDR) bool {
	granted := meta.FindStatusCondition(c.Status.Conditions, netv1beta1.NetworkCIDRsConfigured)
	return hasRanges(c, r) && granted != nil && granted.Status == metav1.ConditionTrue &&
		(granted.ObservedGeneration == 0 || granted.ObservedGeneration == c.Generation) // 0 means unknown
}

// readRanges waits until the installation's Networks have their addresses and returns them.
func (c *cluster) readRanges(ctx context.Context) (out netv1beta1.ClusterCIDR, err error) {
	list := &ipamv1alpha1.NetworkList{}
	err = c.follow(ctx, list, func(have await.Objects) bool {
		out = netv1beta1.ClusterCIDR{}
		for _, item := range have {
			n, ok := item.(*ipamv1alpha1.Network)
			if !ok || n.Status.CIDR == "" {
				return false
			}
			switch n.Labels[api.LabelNetworkType] {
			case api.NetworkTypePodCIDR:
				out.Pod = append(out.Pod, n.Status.CIDR)
			case api.NetworkTypeExternalCIDR:
				out.External = append(out.External, n.Status.CIDR)
			}
		}
		slices.Sort(out.Pod)
		return len(out.Pod) > 0 && len(out.External) > 0
	}, client.InNamespace(c.namespace), hasNetworkType)
	return out, c.timedOut(err, &ipamv1alpha1.Network{ObjectMeta: metaOf(c.namespace, api.NetworkExternalCIDR)})
}

// hasNetworkType selects the Networks of the installation.
var hasNetworkType = client.HasLabels{api.LabelNetworkType}

// initialised reports whether both clusters have a Configuration.
func (n *network) initialised() (bool, error) {
	have := 0
	for _, c := range n.pair() {
		if err := c.findNetwork(n.ctx, c.other.id); err != nil {
			return false, err
		}
		list := &netv1beta1.ConfigurationList{}
		if c.network != "" {
			if err := c.listOf(n.ctx, c.network, c.other.id, list); err != nil {
				return false, err
			}
		}
		if len(list.Items) > 0 {
			have++
		}
	}
	return have == 2, nil
}

// listOf lists the objects of a namespace that concern the peer.
func (c *cluster) listOf(ctx context.Context, namespace, peer string, list client.ObjectList) error {
	return c.list(ctx, list, client.InNamespace(namespace), ofPeer(peer))
}
