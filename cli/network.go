// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// networkOptions are the flags of a connection.
type networkOptions struct {
	serverTemplate, clientTemplate template
	service                        serverService
	// address and port are dialled instead of the server's own; empty and 0 mean its own.
	address        string
	port           int32
	mtu            int
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
	flags.StringVar(&f.pair.liqoNamespace, "liqo-namespace", api.Namespace, "Namespace Liqo is installed in")
	flags.StringVar(&f.pair.remoteLiqo, "remote-liqo-namespace", api.Namespace, "Namespace Liqo is installed in (remote cluster)")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Minute, "How long to wait in all")
	flags.BoolVar(&f.options.wait, "wait", false, "Wait until what the command asked for is done")
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
			n.configure(n.tenants())
			return n.reportConfiguration()
		}}
}

func (e *env) networkConnectCommand(f *networkFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "connect", Short: "Connect two clusters by a tunnel, the remote one serving", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, stop := e.newScript(cmd.Context(), f.timeout)
			defer stop()
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
	o.serverTemplate.addFlags(flags, "gw-server-", o.serverTemplate)
	o.clientTemplate.addFlags(flags, "gw-client-", o.clientTemplate)
	flags.BoolVar(&o.keepKeys, "disable-sharing-keys", false, "Do not exchange the public keys")
	return cmd
}

// addGatewayFlags adds the flags of a tunnel; the short names older documents use work too.
func addGatewayFlags(flags *pflag.FlagSet, o *networkOptions) {
	o.serverTemplate = template{resource: serverTemplates, name: api.WgGatewayServerTemplateName}
	o.clientTemplate = template{resource: clientTemplates, name: api.WgGatewayClientTemplateName}
	kind := choice("LoadBalancer", "NodePort", "ClusterIP")
	flags.Var(kindFlag{kind, &o.service.kind}, "gw-server-service-type", "Type of the server's Service")
	o.service.kind = kind.value
	flags.Int32Var(&o.service.port, "gw-server-service-port", api.WireGuardPort, "Port of the server's Service")
	flags.Int32Var(&o.service.nodePort, "gw-server-service-nodeport", 0, "Node port of the server's Service; 0 = any")
	flags.StringVar(&o.service.loadBalancerIP, "gw-server-service-loadbalancerip", "", "Address of the server's load balancer; empty = any")
	flags.StringVar(&o.address, "gw-client-address", "", "Address the client dials instead of the server's own")
	flags.Int32Var(&o.port, "gw-client-port", 0, "Port the client dials instead of the server's own")
	flags.IntVar(&o.mtu, "mtu", api.TunnelMTU, "MTU of the tunnel in bytes, the same on both sides")
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		switch name {
		case "server-service-type":
			name = "gw-server-service-type"
		case "server-port", "server-service-port":
			name = "gw-server-service-port"
		case "node-port", "server-service-nodeport":
			name = "gw-server-service-nodeport"
		case "load-balancer-ip", "server-service-loadbalancerip":
			name = "gw-server-service-loadbalancerip"
		}
		return pflag.NormalizedName(name)
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
	reversed, replaced  bool

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

// newNetwork makes the remote cluster the server; swap it with serveHere.
func newNetwork(s *script, here, there *cluster, o networkOptions) *network {
	return &network{script: s, here: here, there: there, server: there, client: here, networkOptions: o, gateway: map[side]string{}}
}

func (n *network) serveHere() { n.server, n.client = n.here, n.there }

// other is the other cluster of the pair.
func (n *network) other(c *cluster) *cluster {
	if c == n.here {
		return n.there
	}
	return n.here
}

// tenants ensures the tenant namespaces.
func (n *network) tenants() *task {
	here, there := n.both(n.here, n.there, func(ctx context.Context, c *cluster) error { return c.ensureTenant(ctx, n.other(c).id) })
	return n.joined(here, there)
}

// joined is done when all tasks are.
func (s *script) joined(before ...*task) *task {
	return s.start(func(context.Context) error { return nil }, before...)
}

// start begins all work; the report functions print it.
func (n *network) start() {
	ready := n.tenants()
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
			object = configuration(c.tenant, n.other(c).id, n.other(c).id, *of)
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

// configured reports whether a Configuration for these ranges is in force.
func configured(c *netv1beta1.Configuration, r ranges) bool {
	return c.Spec.Remote != nil && slices.Equal(c.Spec.Remote.CIDR.Pod, r.pod) &&
		c.Status.Remote != nil && len(c.Status.Remote.CIDR.Pod) == len(r.pod) &&
		meta.IsStatusConditionTrue(c.Status.Conditions, netv1beta1.NetworkCIDRsConfigured)
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
	have := [2]bool{}
	err := together(
		func() (err error) {
			have[0], err = n.here.hasAny(n.ctx, n.there.id, &netv1beta1.ConfigurationList{})
			return err
		},
		func() (err error) {
			have[1], err = n.there.hasAny(n.ctx, n.here.id, &netv1beta1.ConfigurationList{})
			return err
		},
	)
	return have[0] && have[1], err
}

// hasAny reports whether objects of the list concern the peer.
func (c *cluster) hasAny(ctx context.Context, peer string, list client.ObjectList) (bool, error) {
	namespace := c.tenant
	if namespace == "" {
		found, err := c.findTenant(ctx, peer)
		if err != nil || found == "" {
			return false, err
		}
		namespace = found
	}
	if err := c.listOf(ctx, namespace, peer, list); err != nil {
		return false, err
	}
	return meta.LenList(list) > 0, nil
}

// listOf lists the objects of a tenant namespace that concern the peer.
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
	looked := n.script.start(n.look, ready)
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
	n.serverSet = begin(func(ctx context.Context) (err error) { server, err = n.setServer(ctx); return err }, looked)
	n.endpoint = begin(func(ctx context.Context) error {
		return n.server.await(ctx, server, func() bool { return dialable(server.Status.Endpoint) })
	}, n.serverSet)
	n.clientSet = begin(func(ctx context.Context) (err error) { dialer, err = n.setClient(ctx, server); return err }, n.endpoint)
	n.serverPod = begin(func(ctx context.Context) error {
		return n.server.awaitGateway(ctx, n.server.tenant, n.gateway[n.server.side], server.DeepCopy())
	}, n.serverSet)
	n.clientPod = begin(func(ctx context.Context) error {
		return n.client.awaitGateway(ctx, n.client.tenant, n.gateway[n.client.side], dialer.DeepCopy())
	}, n.clientSet)
	n.exchangeKeys(begin, &server, &dialer)
	up := func(c *cluster, of *task) (*task, *task) {
		object := func() *netv1beta1.Connection {
			return &netv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: c.tenant, Name: api.GatewayResourceName(n.gateway[c.side])}}
		}
		made := begin(func(ctx context.Context) error {
			return c.await(ctx, object(), func() bool { return true }, n.gatewayDeployment(c))
		}, of)
		up := begin(func(ctx context.Context) error {
			o := object()
			return c.await(ctx, o, func() bool { return o.Status.Value == netv1beta1.Connected }, n.gatewayDeployment(c))
		}, made)
		return made, up
	}
	if n.wait {
		n.serverConnection, n.serverUp = up(n.server, n.serverPod)
		n.clientConnection, n.clientUp = up(n.client, n.clientPod)
	}
}

func (n *network) gatewayDeployment(c *cluster) client.Object {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.tenant, Name: api.GatewayResourceName(n.gateway[c.side])}}
}

// look finds the gateways that exist: those keep their names, and a pair built the other way round
// serves both directions. It also checks the templates.
func (n *network) look(ctx context.Context) error {
	n.gateway[n.server.side], n.gateway[n.client.side] = n.client.id, n.server.id
	servers, clients := &netv1beta1.GatewayServerList{}, &netv1beta1.GatewayClientList{}
	backServers, backClients := &netv1beta1.GatewayServerList{}, &netv1beta1.GatewayClientList{}
	err := together(
		func() error { return n.server.listOf(ctx, n.server.tenant, n.client.id, servers) },
		func() error { return n.client.listOf(ctx, n.client.tenant, n.server.id, clients) },
		func() error { return n.client.listOf(ctx, n.client.tenant, n.server.id, backServers) },
		func() error { return n.server.listOf(ctx, n.server.tenant, n.client.id, backClients) },
		func() error { return n.checkTemplates(ctx) },
	)
	if err != nil {
		return err
	}
	if len(servers.Items) > 0 {
		n.gateway[n.server.side] = servers.Items[0].Name
	}
	if len(clients.Items) > 0 {
		n.gateway[n.client.side] = clients.Items[0].Name
	}
	n.reversed = len(backServers.Items)+len(backClients.Items) > 0
	return nil
}

// checkTemplates fills the templates' namespaces in and sees that they exist.
func (n *network) checkTemplates(ctx context.Context) error {
	check := func(c *cluster, t *template) error {
		if t.namespace == "" {
			t.namespace = c.namespace
		}
		if n.skipValidation {
			return nil
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

// setServer makes the server; one that is exposed differently is replaced.
func (n *network) setServer(ctx context.Context) (*netv1beta1.GatewayServer, error) {
	server := gatewayServer(metaFor(n.server.tenant, n.gateway[n.server.side], n.client.id), n.serverTemplate, n.service, n.mtu)
	have := &netv1beta1.GatewayServer{}
	err := n.server.Get(ctx, client.ObjectKeyFromObject(server), have)
	if err == nil && have.Spec.Endpoint != nil && exposedElsewhere(*have.Spec.Endpoint, *server.Spec.Endpoint) {
		n.replaced = true
		if _, err := n.server.remove(ctx, have); err != nil {
			return nil, err
		}
		if err := n.server.awaitGone(ctx, have); err != nil {
			return nil, err
		}
	}
	return server, n.server.apply(ctx, server)
}

// exposedElsewhere reports whether clients would find the server at another place. A wish for any
// node port or address is met by each.
func exposedElsewhere(have, want netv1beta1.Endpoint) bool {
	return have.ServiceType != want.ServiceType || have.Port != want.Port ||
		(want.NodePort != 0 && have.NodePort != want.NodePort) ||
		(want.LoadBalancerIP != "" && have.LoadBalancerIP != want.LoadBalancerIP)
}

func dialable(e *netv1beta1.EndpointStatus) bool {
	return e != nil && len(e.Addresses) > 0 && (e.Port != 0 || len(e.Ports) > 0)
}

// setClient makes the client towards the server's endpoint or what the user gave instead.
func (n *network) setClient(ctx context.Context, server *netv1beta1.GatewayServer) (*netv1beta1.GatewayClient, error) {
	endpoint := *server.Status.Endpoint.DeepCopy()
	if n.address != "" {
		endpoint.Addresses = []string{n.address}
	}
	if n.port != 0 {
		endpoint.Port, endpoint.Ports = n.port, nil
	}
	object := gatewayClient(metaFor(n.client.tenant, n.gateway[n.client.side], n.server.id), n.clientTemplate, endpoint, n.mtu)
	return object, n.client.apply(ctx, object)
}

// awaitGateway waits for the pod of a gateway.
func (c *cluster) awaitGateway(ctx context.Context, namespace, gateway string, owner client.Object) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: api.GatewayResourceName(gateway)}}
	return c.await(ctx, d, func() bool { return d.Status.ReadyReplicas > 0 && d.Status.ObservedGeneration >= d.Generation }, owner)
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
	give := func(from, to *cluster, secret *string, known *task) *task {
		return begin(func(ctx context.Context) error {
			if n.keepKeys {
				return nil
			}
			key, err := from.gatewayKey(ctx, *secret)
			if err != nil {
				return err
			}
			return to.apply(ctx, publicKey(to.tenant, from.id, from.id, key))
		}, known)
	}
	n.serverKeyGiven = give(n.server, n.client, &serverSecret, n.serverKey)
	n.clientKeyGiven = give(n.client, n.server, &clientSecret, n.clientKey)
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
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.tenant, Name: name}}
	err := c.await(ctx, secret, func() bool { return len(secret.Data[api.PublicKeyField]) > 0 })
	return secret.Data[api.PublicKeyField], err
}

func (n *network) reportConnection() error {
	if err := n.say(
		row{n.readyHere, local, "Initializing network", "Network correctly initialized"},
		row{n.readyThere, remote, "Initializing network", "Network correctly initialized"},
	); err != nil {
		return err
	}
	if err := n.await(n.serverSet, n.server.side, "Setting up gateway server"); err != nil || n.reversed {
		return err
	}
	if n.replaced {
		n.info(n.server.side, "Deleted existing gateway server")
	}
	at, from := n.server.side, n.client.side
	rows := []row{
		{n.serverSet, at, "Setting up gateway server", "Gateway server correctly set up"},
		{n.serverPod, at, "Waiting for gateway pod", fmt.Sprintf("Gateway pod %s is ready", api.GatewayResourceName(n.gateway[at]))},
		{n.endpoint, at, "Waiting for gateway server Service", "Gateway server Service created successfully"},
		{n.clientSet, from, "Setting up gateway client", "Gateway client correctly set up"},
		{n.clientPod, from, "Waiting for gateway pod", fmt.Sprintf("Gateway pod %s is ready", api.GatewayResourceName(n.gateway[from]))},
	}
	if !n.keepKeys {
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
