// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// networkOptions are the flags of a connection.
type networkOptions struct {
	serverTemplate, clientTemplate template
	service                        serverService
	// location is the side that serves in the words of a peering; empty means the remote one.
	location string
	// address and port are dialled instead of the server's own; empty means its own.
	address string
	port    ports
	mtu     int
	// asked tells whether the user gave a flag: what he did not name stays as it is.
	asked          func(flag string) bool
	skipValidation bool
	keepKeys       bool
	wait           bool
}

// networkFlags are the common flags of the network verbs.
type networkFlags struct {
	pair    *pair
	timeout time.Duration
	options networkOptions
}

func (e *env) networkCommand() *cobra.Command {
	cmd := group("network", "Join or part the networks of two clusters", "net")
	f := &networkFlags{pair: &pair{remote: addRemoteFlags(cmd)}}
	flags := cmd.PersistentFlags()
	flags.StringVarP(&f.pair.objectNamespace, "namespace", "n", "", "Tenant namespace (default: found by its labels)")
	flags.StringVar(&f.pair.remoteNamespace, "remote-namespace", "", "Tenant namespace in the remote cluster (default: found by its labels)")
	f.pair.liqo = addLiqoFlag(flags, "liqo-namespace", "", "")
	f.pair.remoteLiqo = addLiqoFlag(flags, "remote-liqo-namespace", "", ofRemote)
	flags.DurationVar(&f.timeout, "timeout", 2*time.Minute, "How long to wait in all")
	flags.BoolVar(&f.options.wait, "wait", false, "Wait until what the command asked for is done; connect does unless this is false")
	flags.BoolVar(&f.options.skipValidation, "skip-validation", false, "Do not check that the gateway templates exist")
	cmd.AddCommand(e.networkInitCommand(f), e.networkConnectCommand(f), e.networkDisconnectCommand(f), e.networkResetCommand(f))
	return cmd
}

func (e *env) networkInitCommand(f *networkFlags) *cobra.Command {
	return &cobra.Command{Use: "init", Short: "Exchange the address ranges of two clusters", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, stop := e.newScript(cmd.Context(), f.timeout)
			defer stop()
			n, err := e.networkOf(s, f)
			if err != nil {
				return err
			}
			n.configure(n.homes(false))
			return n.reportConfiguration()
		}}
}

func (e *env) networkConnectCommand(f *networkFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "connect", Short: "Connect two clusters by a tunnel, the remote one serving", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, stop := e.newScript(cmd.Context(), f.timeout)
			defer stop()
			// The connection is part of what the command does, unless it is told not to wait. Without
			// keys there is none to wait for.
			if !cmd.Flags().Changed("wait") {
				f.options.wait = !f.options.keepKeys
			}
			n, err := e.networkOf(s, f)
			if err != nil {
				return err
			}
			initialised, err := n.initialised()
			if err != nil {
				return err
			}
			n.start()
			if !initialised {
				if err := n.reportConfiguration(); err != nil {
					return err
				}
			}
			return n.reportConnection()
		}}
	o, flags := &f.options, cmd.Flags()
	addGatewayFlags(flags, o)
	renameFlags(flags, networkConnectNames)
	o.serverTemplate.addFlags(flags, "gw-server-", o.serverTemplate)
	o.clientTemplate.addFlags(flags, "gw-client-", o.clientTemplate)
	flags.BoolVar(&o.keepKeys, "disable-sharing-keys", false, "Do not exchange the public keys")
	return cmd
}

// addGatewayFlags adds the flags of a tunnel, under the names of peer.
func addGatewayFlags(flags *pflag.FlagSet, o *networkOptions) {
	o.serverTemplate = template{resource: serverTemplates, name: api.WgGatewayServerTemplateName}
	o.clientTemplate = template{resource: clientTemplates, name: api.WgGatewayClientTemplateName}
	o.asked = flags.Changed
	kind := choice("LoadBalancer", "NodePort", "ClusterIP")
	o.service.kind, o.service.ports = kind.value, ports{api.WireGuardPort}
	flags.Var(kindFlag{choice("Provider", "Consumer"), &o.location}, "gw-server-service-location", "Which side runs the tunnel's server: Provider is the remote cluster, Consumer the local one")
	flags.Var(kindFlag{kind, &o.service.kind}, "gw-server-service-type", "Type of the server's Service")
	flags.Var(&o.service.ports, "gw-server-service-port", "Port of the server's Service; several make parallel tunnels")
	flags.Var(&o.service.nodePorts, "gw-server-service-nodeport", "Node port of the server's Service, one for each port; 0 = any")
	flags.StringVar(&o.service.loadBalancerIP, "gw-server-service-loadbalancerip", "", "Address of the server's load balancer; empty = any")
	flags.StringVar(&o.address, "gw-client-address", "", "Address or name the client dials instead of the server's own")
	flags.Var(&o.port, "gw-client-port", "Port the client dials instead of the server's own, one for each port")
	flags.Var(kindFlag{choice("UDP", "TCP"), &o.service.protocol}, "gw-protocol", "Transport of the tunnel; TCP is for networks that block UDP")
	flags.IntVar(&o.mtu, "mtu", api.TunnelMTU, "MTU of the tunnel in bytes, the same on both sides")
	renameFlags(flags, peerNames)
}

// peerNames lead from every other name of a flag to that in the help of peer.
var peerNames = map[string]string{
	"server-service-type": "gw-server-service-type", "server-port": "gw-server-service-port", "server-service-port": "gw-server-service-port",
	"node-port": "gw-server-service-nodeport", "server-service-nodeport": "gw-server-service-nodeport",
	"load-balancer-ip": "gw-server-service-loadbalancerip", "server-service-loadbalancerip": "gw-server-service-loadbalancerip",
	"protocol": "gw-protocol",
}

// networkConnectNames lead from every other name of a flag to that in the help of network connect.
var networkConnectNames = map[string]string{
	"gw-server-service-type": "server-service-type",
	"gw-server-service-port": "server-port", "server-service-port": "server-port",
	"gw-server-service-nodeport": "node-port", "server-service-nodeport": "node-port",
	"gw-server-service-loadbalancerip": "load-balancer-ip", "server-service-loadbalancerip": "load-balancer-ip",
	"protocol": "gw-protocol",
}

// renameFlags gives flags the names they have in the help; the others go on working.
func renameFlags(flags *pflag.FlagSet, names map[string]string) {
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(cmp.Or(names[name], name))
	})
}

// kindFlag stores a choice in a plain string.
type kindFlag struct {
	*oneOf
	into *string
}

func (k kindFlag) Set(text string) error {
	err := k.oneOf.Set(text)
	*k.into = k.value
	return err
}

// network is the work of joining two networks.
type network struct {
	*script
	here, there    *cluster
	server, client *cluster
	networkOptions

	// What the tasks find out.
	herePods, therePods ranges
	gateway             map[side]string
	reversed            bool
	dropped             []dropped
	// disconnected: gateways that do not exist are said to be deleted, because the clusters still know each
	// other's ranges, so disconnect has removed them. The documents show this for reset after disconnect.
	disconnected bool

	looked                          *task
	rangesHere, rangesThere         *task
	configuredHere, configuredThere *task
	readyHere, readyThere           *task
	serverSet, serverPod, endpoint  *task
	clientSet, clientPod            *task
	serverKey, clientKey            *task
	serverKeyGiven, clientKeyGiven  *task
	serverConnection                *task
	clientConnection                *task
	serverUp, clientUp              *task
}

// networkOf connects to the clusters and prints that it did, as the network verbs do.
func (e *env) networkOf(s *script, f *networkFlags) (*network, error) {
	here, there, err := e.connect(s.ctx, f.pair)
	if err != nil {
		return nil, err
	}
	s.info(local, "Cluster identity correctly retrieved")
	s.info(remote, "Cluster identity correctly retrieved")
	return newNetwork(s, here, there, f.options), nil
}

// newNetwork makes the remote cluster the server, unless the options say otherwise.
func newNetwork(s *script, here, there *cluster, o networkOptions) *network {
	n := &network{script: s, here: here, there: there, server: there, client: here, networkOptions: o, gateway: map[side]string{}}
	if o.location == "Consumer" {
		n.server, n.client = here, there
	}
	return n
}

// other is the other cluster of the pair.
func (n *network) other(c *cluster) *cluster {
	if c == n.here {
		return n.there
	}
	return n.here
}

// homes finds or makes the namespaces of the network's objects. A tenant namespace is made where there
// are none yet, and where something else than the network needs it.
func (n *network) homes(tenant bool) *task {
	here, there := n.both(n.here, n.there, func(ctx context.Context, c *cluster) error {
		peer := n.other(c).id
		if tenant {
			if err := c.ensureTenant(ctx, peer); err != nil {
				return err
			}
		}
		if err := c.findNetwork(ctx, peer); err != nil || c.network != "" {
			return err
		}
		err := c.ensureTenant(ctx, peer)
		c.network = c.tenant
		return err
	})
	return n.joined(here, there)
}

// joined is done when all tasks are.
func (s *script) joined(before ...*task) *task {
	return s.start(func(context.Context) error { return nil }, before...)
}

// start begins all work; the report functions print it.
func (n *network) start() {
	ready := n.homes(false)
	n.configure(ready)
	n.connect(ready)
}

// configure tells each cluster the ranges of the other.
func (n *network) configure(ready *task) {
	read := func(c *cluster, into *ranges) *task {
		return n.script.start(func(ctx context.Context) (err error) { *into, err = c.readRanges(ctx); return err })
	}
	n.rangesHere, n.rangesThere = read(n.here, &n.herePods), read(n.there, &n.therePods)
	set := func(c *cluster, of *ranges, known *task) (*task, *task) {
		var object *netv1beta1.Configuration
		set := n.script.start(func(ctx context.Context) error {
			var err error
			if object, err = c.configurationOf(ctx, n.other(c).id, *of); err != nil {
				return err
			}
			return c.apply(ctx, object)
		}, ready, known)
		done := n.script.start(func(ctx context.Context) error {
			return c.await(ctx, object, func() bool { return configured(object, *of) })
		}, set)
		return set, done
	}
	n.configuredHere, n.readyHere = set(n.here, &n.therePods, n.rangesThere)
	n.configuredThere, n.readyThere = set(n.there, &n.herePods, n.rangesHere)
}

// configurationOf is the peer's Configuration with these ranges. It may have been made by hand, under another name,
// or the peer's controller may have told the same ranges in another order: that stays.
func (c *cluster) configurationOf(ctx context.Context, peer string, r ranges) (*netv1beta1.Configuration, error) {
	list := &netv1beta1.ConfigurationList{}
	if err := c.listOf(ctx, c.network, peer, list); err != nil {
		return nil, err
	}
	have := api.Oldest(list.Items)
	if have == nil {
		return configuration(c.network, peer, peer, r), nil
	}
	if r.are(have.Spec.Remote) {
		r = ranges{have.Spec.Remote.CIDR.Pod, have.Spec.Remote.CIDR.External}
	}
	return configuration(c.network, have.Name, peer, r), nil
}

// configured reports whether a Configuration for these ranges is in force.
func configured(c *netv1beta1.Configuration, r ranges) bool {
	told := meta.FindStatusCondition(c.Status.Conditions, netv1beta1.NetworkCIDRsConfigured)
	return r.are(c.Spec.Remote) && told != nil && told.Status == metav1.ConditionTrue &&
		(told.ObservedGeneration == 0 || told.ObservedGeneration == c.Generation) // 0: it does not say
}

// readRanges waits until the installation's Networks have their addresses and returns them.
func (c *cluster) readRanges(ctx context.Context) (ranges, error) {
	var out ranges
	list := &ipamv1alpha1.NetworkList{}
	err := c.follow(ctx, list, func(have items) bool {
		out = ranges{}
		for _, item := range have {
			n, ok := item.(*ipamv1alpha1.Network)
			if !ok || n.Status.CIDR == "" {
				return false
			}
			switch n.Labels[api.LabelNetworkType] {
			case api.NetworkTypePodCIDR:
				out.pod = append(out.pod, n.Status.CIDR)
			case api.NetworkTypeExternalCIDR:
				out.external = append(out.external, n.Status.CIDR)
			}
		}
		slices.Sort(out.pod)
		return len(out.pod) > 0 && len(out.external) > 0
	}, client.InNamespace(c.namespace), hasNetworkType)
	return out, c.timedOut(err, &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: api.NetworkExternalCIDR}})
}

// hasNetworkType selects the Networks of the installation that peers are told.
var hasNetworkType = client.HasLabels{api.LabelNetworkType}

func (n *network) reportConfiguration() error {
	return n.say(
		row{n.rangesHere, local, "Retrieving network configuration", "Network configuration correctly retrieved"},
		row{n.rangesThere, remote, "Retrieving network configuration", "Network configuration correctly retrieved"},
		row{n.configuredHere, local, "Setting up network configuration", "Network configuration correctly set up"},
		row{n.configuredThere, remote, "Setting up network configuration", "Network configuration correctly set up"},
		row{n.readyHere, local, "Applying configuration", "Configuration applied successfully"},
		row{n.readyThere, remote, "Applying configuration", "Configuration applied successfully"},
	)
}

// initialised reports whether both clusters have a Configuration already.
func (n *network) initialised() (bool, error) {
	have := map[side]bool{}
	for _, c := range []*cluster{n.here, n.there} {
		if err := c.findNetwork(n.ctx, n.other(c).id); err != nil {
			return false, err
		}
		list := &netv1beta1.ConfigurationList{}
		if c.network != "" {
			if err := c.listOf(n.ctx, c.network, n.other(c).id, list); err != nil {
				return false, err
			}
		}
		have[c.side] = len(list.Items) > 0
	}
	return have[local] && have[remote], nil
}

// listOf lists the objects of a namespace that concern the peer.
func (c *cluster) listOf(ctx context.Context, namespace, peer string, list client.ObjectList) error {
	err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{api.LabelRemoteClusterID: peer})
	if err != nil {
		return fmt.Errorf("list %s of the %scluster: %w", c.kindsOf(list), c.side.named(), err)
	}
	return nil
}

// connect makes the gateways and lets them know each other. Nothing in it waits for the ranges:
// the tunnel comes up while they are allocated.
func (n *network) connect(ready *task) {
	n.looked = n.script.start(n.look, ready)
	var server *netv1beta1.GatewayServer
	var dialer *netv1beta1.GatewayClient
	begin := func(work func(ctx context.Context) error, before ...*task) *task {
		return n.script.start(func(ctx context.Context) error {
			if n.reversed {
				return nil
			}
			return work(ctx)
		}, before...)
	}
	n.serverSet = begin(func(ctx context.Context) (err error) { server, err = n.setServer(ctx); return err }, n.looked)
	n.endpoint = begin(func(ctx context.Context) error {
		return n.server.await(ctx, server, func() bool { return announced(server, n.asked("gw-server-service-port")) })
	}, n.serverSet)
	n.clientSet = begin(func(ctx context.Context) (err error) { dialer, err = n.setClient(ctx, server); return err }, n.endpoint)
	n.serverPod = begin(func(ctx context.Context) error {
		return n.server.awaitGateway(ctx, n.server.network, n.gateway[n.server.side], server.DeepCopy())
	}, n.serverSet)
	n.clientPod = begin(func(ctx context.Context) error {
		return n.client.awaitGateway(ctx, n.client.network, n.gateway[n.client.side], dialer.DeepCopy())
	}, n.clientSet)
	n.exchangeKeys(begin, &server, &dialer)
	// Of a pair built the other way round only this concerns us: whether it connects.
	up := func(end **cluster, of *task) (*task, *task) {
		object := func() *netv1beta1.Connection {
			c := *end
			return &netv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: c.network, Name: api.GatewayResourceName(n.gateway[c.side])}}
		}
		made := n.script.start(func(ctx context.Context) error {
			return (*end).await(ctx, object(), func() bool { return true }, n.gatewayDeployment(*end))
		}, of)
		up := n.script.start(func(ctx context.Context) error {
			c, o := *end, object()
			return n.otherSays(c.await(ctx, o, func() bool { return o.Status.Value == netv1beta1.Connected }, n.gatewayDeployment(c)), c)
		}, made)
		return made, up
	}
	if n.wait {
		n.serverConnection, n.serverUp = up(&n.server, n.serverPod)
		n.clientConnection, n.clientUp = up(&n.client, n.clientPod)
	}
}

func (n *network) gatewayDeployment(c *cluster) client.Object {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.network, Name: api.GatewayResourceName(n.gateway[c.side])}}
}

// look finds the gateways that exist and decides which side serves; whoever reads that waits for it. Gateways
// that exist keep their names. It also checks the templates.
func (n *network) look(ctx context.Context) error {
	servers, clients := &netv1beta1.GatewayServerList{}, &netv1beta1.GatewayClientList{}
	backServers, backClients := &netv1beta1.GatewayServerList{}, &netv1beta1.GatewayClientList{}
	err := together(
		func() error { return n.server.listOf(ctx, n.server.network, n.client.id, servers) },
		func() error { return n.client.listOf(ctx, n.client.network, n.server.id, clients) },
		func() error { return n.client.listOf(ctx, n.client.network, n.server.id, backServers) },
		func() error { return n.server.listOf(ctx, n.server.network, n.client.id, backClients) },
	)
	if err != nil {
		return err
	}
	n.gateway[n.server.side], n.gateway[n.client.side] = n.client.id, n.server.id
	server, dialer := api.Oldest(servers.Items), api.Oldest(clients.Items)
	if server != nil {
		n.gateway[n.server.side] = server.Name
	}
	if dialer != nil {
		n.gateway[n.client.side] = dialer.Name
	}
	back, backDialer := api.Oldest(backServers.Items), api.Oldest(backClients.Items)
	if err := n.turn(ctx, back, backDialer, server != nil, dialer != nil); err != nil {
		return err
	}
	return n.checkTemplates(ctx)
}

// turn decides about the ends of a pair the other way round:
//
//	both ends   it serves both directions, and nothing is built
//	one         its other end is built, for somebody has begun so; it goes where the user says which side serves.
//	            Beside one of our way none would connect, for a cluster takes one gateway for a peer.
func (n *network) turn(ctx context.Context, server *netv1beta1.GatewayServer, dialer *netv1beta1.GatewayClient, served, dialled bool) error {
	name := func(c *cluster, end client.Object) { n.gateway[c.side] = end.GetName() }
	asked := n.asked("gw-server-service-location")
	switch {
	case server == nil && dialer == nil:
	case server != nil && dialer != nil:
		n.reversed = true
		name(n.client, server)
		name(n.server, dialer)
	case asked && server != nil:
		return n.drop(ctx, n.client, server)
	case asked:
		return n.drop(ctx, n.server, dialer)
	case served && dialled:
	case served || dialled:
		return errors.New("both clusters have begun a tunnel, each its own way round; say which side serves with --gw-server-service-location")
	case server != nil:
		n.server, n.client = n.client, n.server
		name(n.server, server)
	default:
		n.server, n.client = n.client, n.server
		name(n.client, dialer)
	}
	return nil
}

// dropped is an end of a pair that was deleted: server or client.
type dropped struct {
	at  side
	end string
}

// drop deletes one end of a pair and waits until it is gone.
func (n *network) drop(ctx context.Context, c *cluster, end client.Object) error {
	what := "server"
	if _, dials := end.(*netv1beta1.GatewayClient); dials {
		what = "client"
	}
	n.dropped = append(n.dropped, dropped{c.side, what})
	if _, err := c.remove(ctx, end); err != nil {
		return err
	}
	return c.awaitGone(ctx, end)
}

// checkTemplates resolves the templates and sees that they exist.
func (n *network) checkTemplates(ctx context.Context) error {
	check := func(c *cluster, t *template) error {
		if err := c.resolve(t); err != nil || n.skipValidation {
			return err
		}
		ref, object := t.ref(), &unstructured.Unstructured{}
		object.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		object.SetNamespace(ref.Namespace)
		object.SetName(ref.Name)
		if err := c.read(ctx, object); err != nil {
			return hint(err, "choose an existing gateway template, or use --skip-validation")
		}
		return nil
	}
	return together(
		func() error { return check(n.server, &n.serverTemplate) },
		func() error { return check(n.client, &n.clientTemplate) },
	)
}

// setServer makes the server; one that is to be exposed differently is replaced.
func (n *network) setServer(ctx context.Context) (*netv1beta1.GatewayServer, error) {
	server := gatewayServer(metaFor(n.server.network, n.gateway[n.server.side], n.client.id), n.serverTemplate, n.service, n.mtu)
	have := &netv1beta1.GatewayServer{}
	err := n.server.Get(ctx, client.ObjectKeyFromObject(server), have)
	if err == nil && have.Spec.Endpoint != nil {
		server.Spec = n.adjusted(have.Spec, server.Spec)
	}
	if err == nil && have.Spec.Endpoint != nil && exposedElsewhere(*have.Spec.Endpoint, *server.Spec.Endpoint) {
		if err := n.drop(ctx, n.server, have); err != nil {
			return nil, err
		}
	}
	return server, n.server.apply(ctx, server)
}

// adjusted is an existing server with what the user asked for.
func (n *network) adjusted(have, want netv1beta1.GatewayServerSpec) netv1beta1.GatewayServerSpec {
	out := *have.DeepCopy()
	if n.asked("gw-server-service-type") {
		out.Endpoint.ServiceType = want.Endpoint.ServiceType
	}
	if n.asked("gw-server-service-port") {
		out.Endpoint.Port, out.Endpoint.Ports = want.Endpoint.Port, want.Endpoint.Ports
	}
	if n.asked("gw-server-service-nodeport") {
		out.Endpoint.NodePort, out.Endpoint.NodePorts = want.Endpoint.NodePort, want.Endpoint.NodePorts
	}
	if n.asked("gw-server-service-loadbalancerip") {
		out.Endpoint.LoadBalancerIP = want.Endpoint.LoadBalancerIP
	}
	if n.asked("gw-protocol") {
		out.Endpoint.Protocol = want.Endpoint.Protocol
	}
	if n.asked("mtu") {
		out.MTU = want.MTU
	}
	if n.askedTemplate("gw-server-") {
		out.ServerTemplateRef = want.ServerTemplateRef
	}
	return out
}

// askedTemplate tells whether the user chose a template.
func (n *network) askedTemplate(prefix string) bool {
	return n.asked(prefix+"type") || n.asked(prefix+"template-name") || n.asked(prefix+"template-namespace")
}

// exposedElsewhere reports whether clients would find the server at another place. A wish for any
// node port or address is met by each.
func exposedElsewhere(have, want netv1beta1.Endpoint) bool {
	return have.ServiceType != want.ServiceType || have.Port != want.Port || !slices.Equal(have.Ports, want.Ports) ||
		(want.NodePort != 0 && have.NodePort != want.NodePort) ||
		(len(want.NodePorts) > 0 && !slices.Equal(have.NodePorts, want.NodePorts)) ||
		(want.LoadBalancerIP != "" && have.LoadBalancerIP != want.LoadBalancerIP) ||
		(have.Protocol == netv1beta1.ProtocolTCP) != (want.Protocol == netv1beta1.ProtocolTCP)
}

func dialable(e *netv1beta1.EndpointStatus) bool {
	return e != nil && len(e.Addresses) > 0 && (e.Port != 0 || len(e.Ports) > 0)
}

// announced reports whether the server's status holds an endpoint with the requested ports. The status is
// stale for a moment after the request changes, and a client with a custom address does not follow it: it would
// keep the old port. Only WireGuard templates are compared; other technologies may have no Service. A template may
// give the Service another port than the server's, so that is compared only if the user asked for it.
func announced(server *netv1beta1.GatewayServer, askedPort bool) bool {
	status, request, template := server.Status.Endpoint, server.Spec.Endpoint, server.Spec.ServerTemplateRef
	if !dialable(status) {
		return false
	}
	if request == nil || template == nil || template.Kind != "WgGatewayServerTemplate" {
		return true
	}
	var port int32
	var ports []int32
	switch {
	case request.ServiceType == corev1.ServiceTypeNodePort:
		port, ports = request.NodePort, request.NodePorts
	case askedPort:
		port, ports = request.Port, request.Ports
	}
	if len(ports) == 1 {
		port, ports = ports[0], nil
	}
	return (port == 0 || status.Port == port) && (len(ports) == 0 || slices.Equal(status.Ports, ports))
}

// setClient makes the client towards the server's endpoint, or what the user gave instead, with the
// server's MTU and protocol.
func (n *network) setClient(ctx context.Context, server *netv1beta1.GatewayServer) (*netv1beta1.GatewayClient, error) {
	endpoint := *server.Status.Endpoint.DeepCopy()
	if n.address != "" {
		endpoint.Addresses = []string{n.address}
	}
	if len(n.port) > 0 {
		endpoint.Port, endpoint.Ports = n.port.split()
	}
	object := gatewayClient(metaFor(n.client.network, n.gateway[n.client.side], n.server.id), n.clientTemplate, endpoint, server.Spec.MTU)
	plan.Note(object, server.Status.Endpoint)
	return object, retry.RetryOnConflict(retry.DefaultRetry, func() error { return n.writeClient(ctx, object, server.Status.Endpoint) })
}

// writeClient creates a client or changes the one there is. An endpoint is replaced as a whole: a port
// left over from another one would contradict it. One that the server never announced was chosen, for a
// NAT for example: without a flag that names another, it stays as long as it can fit.
func (n *network) writeClient(ctx context.Context, want *netv1beta1.GatewayClient, announced *netv1beta1.EndpointStatus) error {
	have := &netv1beta1.GatewayClient{}
	err := n.client.Get(ctx, client.ObjectKeyFromObject(want), have)
	if apierrors.IsNotFound(err) {
		return n.client.apply(ctx, want)
	}
	if err != nil {
		return n.client.describe("read", want, err)
	}
	before := have.DeepCopy()
	have.Spec.MTU = want.Spec.MTU
	if n.address == "" && len(n.port) == 0 && plan.Chosen(have, announced) && len(have.Spec.Endpoint.Ports) == len(announced.Ports) {
		have.Spec.Endpoint.Protocol = announced.Protocol
	} else {
		have.Spec.Endpoint = want.Spec.Endpoint
	}
	plan.Note(have, announced)
	if have.Spec.ClientTemplateRef == nil || n.askedTemplate("gw-client-") {
		have.Spec.ClientTemplateRef = want.Spec.ClientTemplateRef
	}
	if equality.Semantic.DeepEqual(before, have) {
		return nil
	}
	return n.client.describe("update", want, n.client.Update(ctx, have))
}

// awaitGateway waits for the pod of a gateway. One of another technology has no Deployment we know: it says itself
// that it runs.
func (c *cluster) awaitGateway(ctx context.Context, namespace, gateway string, owner client.Object) error {
	either, stop := context.WithCancel(ctx)
	defer stop()
	elsewhere := make(chan bool, 1)
	go func() {
		own := owner.DeepCopyObject().(interface {
			client.Object
			OtherTechnology() (other, runs bool)
		})
		quiet, _ := withProgress(either) // what is shown is the Deployment's
		runs := c.await(quiet, own, func() bool { _, runs := own.OtherTechnology(); return runs }) == nil
		if elsewhere <- runs; runs {
			stop()
		}
	}()
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: api.GatewayResourceName(gateway)}}
	err := c.await(either, d, func() bool { return d.Status.ReadyReplicas > 0 && d.Status.ObservedGeneration >= d.Generation }, owner)
	if stop(); <-elsewhere {
		return nil
	}
	return err
}

// exchangeKeys gives each side the other's public key as soon as it is there.
func (n *network) exchangeKeys(begin func(func(context.Context) error, ...*task) *task, server **netv1beta1.GatewayServer, dialer **netv1beta1.GatewayClient) {
	var serverSecret, clientSecret string
	n.serverKey = begin(func(ctx context.Context) (err error) {
		serverSecret, err = n.server.awaitKeys(ctx, (*server).DeepCopy())
		return err
	}, n.serverSet)
	n.clientKey = begin(func(ctx context.Context) (err error) {
		clientSecret, err = n.client.awaitKeys(ctx, (*dialer).DeepCopy())
		return err
	}, n.clientSet)
	give := func(one, other **cluster, secret *string, known *task) *task {
		return begin(func(ctx context.Context) error {
			if n.keepKeys {
				return nil
			}
			from, to := *one, *other
			key, err := from.gatewayKey(ctx, *secret)
			if err != nil {
				return err
			}
			name, err := to.publicKeyOf(ctx, from.id)
			if err != nil {
				return err
			}
			return to.apply(ctx, publicKey(to.network, name, from.id, key))
		}, known)
	}
	n.serverKeyGiven = give(&n.server, &n.client, &serverSecret, n.serverKey)
	n.clientKeyGiven = give(&n.client, &n.server, &clientSecret, n.clientKey)
}

// publicKeyOf is the name of the peer's PublicKey, which may have been made by hand.
func (c *cluster) publicKeyOf(ctx context.Context, peer string) (string, error) {
	list := &netv1beta1.PublicKeyList{}
	if err := c.listOf(ctx, c.network, peer, list); err != nil || len(list.Items) == 0 {
		return peer, err
	}
	return api.Oldest(list.Items).Name, nil
}

// awaitKeys waits until a gateway tells the name of the Secret with its keys.
func (c *cluster) awaitKeys(ctx context.Context, gateway client.Object) (string, error) {
	if err := c.await(ctx, gateway, func() bool { return keysOf(gateway) != nil }); err != nil {
		return "", err
	}
	return keysOf(gateway).Name, nil
}

// keysOf is the Secret with the keys of a gateway; nil while there is none.
func keysOf(gateway client.Object) *corev1.ObjectReference {
	switch g := gateway.(type) {
	case *netv1beta1.GatewayServer:
		return g.Status.SecretRef
	case *netv1beta1.GatewayClient:
		return g.Status.SecretRef
	}
	return nil
}

// gatewayKey waits for the public key in a gateway's Secret.
func (c *cluster) gatewayKey(ctx context.Context, name string) ([]byte, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.network, Name: name}}
	err := c.await(ctx, secret, func() bool { return len(secret.Data[api.PublicKeyField]) > 0 })
	return secret.Data[api.PublicKeyField], err
}

func (n *network) reportConnection() error {
	// What is wrong with the gateways that exist is told alone, whether or not the ranges are in force by then.
	if err := n.await(n.looked, nowhere, "Looking for gateways"); err != nil {
		return err
	}
	if err := n.say(
		row{n.readyHere, local, "Initializing network", "Network correctly initialized"},
		row{n.readyThere, remote, "Initializing network", "Network correctly initialized"},
	); err != nil {
		return err
	}
	if err := n.await(n.serverSet, n.server.side, "Setting up gateway server"); err != nil {
		return err
	}
	for _, d := range n.dropped {
		n.info(d.at, "Deleted existing gateway %s", d.end)
	}
	at, from := n.server.side, n.client.side
	var rows []row
	if !n.reversed {
		rows = append(rows,
			row{n.serverSet, at, "Setting up gateway server", "Gateway server correctly set up"},
			row{n.serverPod, at, "Waiting for gateway pod", fmt.Sprintf("Gateway pod %s is ready", api.GatewayResourceName(n.gateway[at]))},
			row{n.endpoint, at, "Waiting for gateway server Service", "Gateway server Service created successfully"},
			row{n.clientSet, from, "Setting up gateway client", "Gateway client correctly set up"},
			row{n.clientPod, from, "Waiting for gateway pod", fmt.Sprintf("Gateway pod %s is ready", api.GatewayResourceName(n.gateway[from]))},
		)
	}
	if !n.reversed && !n.keepKeys {
		rows = append(rows,
			row{n.serverKey, at, "Waiting for gateway server Secret", "Gateway server Secret created successfully"},
			row{n.serverKeyGiven, from, "Creating public key", "Public key correctly created"},
			row{n.clientKey, from, "Waiting for gateway client Secret", "Gateway client Secret created successfully"},
			row{n.clientKeyGiven, at, "Creating public key", "Public key correctly created"},
		)
	}
	if n.networkOptions.wait {
		rows = append(rows,
			row{n.serverConnection, at, "Waiting for the connection", "Connection created successfully"},
			row{n.clientConnection, from, "Waiting for the connection", "Connection created successfully"},
			row{n.clientUp, from, "Waiting for the connection to be established", "Connection is established"},
			row{n.serverUp, at, "Waiting for the connection to be established", "Connection is established"},
		)
	}
	return n.say(rows...)
}
