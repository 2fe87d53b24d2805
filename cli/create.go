// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

func (e *env) createCommand() *cobra.Command {
	cmd := group("create", "Create one of the objects of a peering")
	e.createConfiguration(cmd)
	e.createGatewayServer(cmd)
	e.createGatewayClient(cmd)
	e.createPublicKey(cmd)
	e.createNonce(cmd)
	e.createResourceSlice(cmd)
	e.createVirtualNode(cmd)
	return cmd
}

const usageOutput = "Print the object as json or yaml and create nothing"

func (e *env) createConfiguration(parent *cobra.Command) {
	cmd, o := e.noun(parent, "configuration NAME", "Tell the cluster the address ranges of a peer", "config", "configurations")
	var pods, external cidrs
	o.networkObject(cmd)
	cmd.Flags().Var(&pods, "pod-cidr", "Address ranges of the peer's pods")
	cmd.Flags().Var(&external, "external-cidr", "External address range of the peer")
	cmd.Flags().BoolVar(&o.wait, "wait", false, "Wait until it is in force")
	require(cmd, "pod-cidr", "external-cidr")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r := ranges{pod: pods, external: external}
		return o.run(cmd, maker{build: func(_ context.Context, c *cluster) (client.Object, error) {
			return configuration(c.tenant, args[0], string(o.peer), r), nil
		}, said: "Configuration created", done: func(s *script, c *cluster, object client.Object) error {
			conf := object.(*netv1beta1.Configuration)
			return s.ready(o.wait, "Configuration is ready", func(ctx context.Context) error {
				return c.await(ctx, conf, func() bool { return configured(conf, r) })
			})
		}})
	}
}

// ready waits if asked to and then prints the line.
func (s *script) ready(wait bool, line string, work func(context.Context) error) error {
	if !wait {
		return nil
	}
	return s.say(row{s.start(work), nowhere, "Waiting until it is ready", line})
}

// fitsLabels refuses names that are too long for labels, which carry the names of gateways, slices
// and virtual nodes.
func fitsLabels(_ *cobra.Command, args []string) error {
	if length, longest := len(args[0]), validation.LabelValueMaxLength; length > longest {
		return fmt.Errorf("name %q has %d characters, use at most %d", args[0], length, longest)
	}
	return nil
}

func (e *env) createGatewayServer(parent *cobra.Command) {
	cmd, o := e.noun(parent, "gatewayserver NAME", "Create the server end of a tunnel", "gatewayservers", "server", "servers", "gws")
	cmd.Args = cobra.MatchAll(cmd.Args, fitsLabels)
	var t template
	var mtu int
	service, kind := serverService{ports: ports{api.WireGuardPort}}, choice("LoadBalancer", "NodePort", "ClusterIP")
	o.networkObject(cmd)
	flags := cmd.Flags()
	t.addFlags(flags, "", template{resource: serverTemplates, name: api.WgGatewayServerTemplateName})
	flags.Var(kind, "service-type", "Type of the Service")
	flags.Var(&service.ports, "port", "Port of the Service; several make parallel tunnels")
	flags.Var(&service.nodePorts, "node-port", "Node port of the Service, one for each port; 0 = any")
	flags.StringVar(&service.loadBalancerIP, "load-balancer-ip", "", "Address of the load balancer; empty = any")
	flags.IntVar(&mtu, "mtu", api.TunnelMTU, "MTU of the tunnel in bytes, the same on both sides")
	flags.Var(kindFlag{choice("UDP", "TCP"), &service.protocol}, "protocol", "Transport of the tunnel; TCP is for networks that block UDP")
	flags.BoolVar(&o.wait, "wait", false, "Wait until clients can connect")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		service.kind = kind.value
		return o.run(cmd, maker{build: func(_ context.Context, c *cluster) (client.Object, error) {
			if err := c.resolve(&t); err != nil {
				return nil, err
			}
			return gatewayServer(metaFor(c.tenant, args[0], string(o.peer)), t, service, mtu), nil
		}, said: "Gatewayserver created", done: func(s *script, c *cluster, object client.Object) error {
			server := object.(*netv1beta1.GatewayServer)
			return s.ready(o.wait, "gatewayserver is ready", func(ctx context.Context) error {
				return c.await(ctx, server, func() bool { return dialable(server.Status.Endpoint) })
			})
		}})
	}
}

func orDefault(value, other string) string {
	if value == "" {
		return other
	}
	return value
}

func (e *env) createGatewayClient(parent *cobra.Command) {
	cmd, o := e.noun(parent, "gatewayclient NAME", "Create the client end of a tunnel", "gatewayclients", "client", "clients", "gwc")
	cmd.Args = cobra.MatchAll(cmd.Args, fitsLabels)
	var t template
	var mtu int
	var port ports
	endpoint, protocol := netv1beta1.EndpointStatus{}, choice("UDP", "TCP")
	o.networkObject(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&endpoint.Addresses, "addresses", nil, "Addresses or names of the server")
	flags.Var(&port, "port", "Port of the server, or all of its ports")
	flags.Var(protocol, "protocol", "Transport of the tunnel, that of the server")
	t.addFlags(flags, "", template{resource: clientTemplates, name: api.WgGatewayClientTemplateName})
	flags.IntVar(&mtu, "mtu", api.TunnelMTU, "MTU of the tunnel in bytes, the same on both sides")
	flags.BoolVar(&o.wait, "wait", false, "Wait until its pod runs")
	require(cmd, "addresses", "port")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		endpoint.Protocol = netv1beta1.Protocol(protocol.value)
		endpoint.Port, endpoint.Ports = port.split()
		return o.run(cmd, maker{build: func(_ context.Context, c *cluster) (client.Object, error) {
			if err := c.resolve(&t); err != nil {
				return nil, err
			}
			return gatewayClient(metaFor(c.tenant, args[0], string(o.peer)), t, endpoint, mtu), nil
		}, said: "Gatewayclient created", done: func(s *script, c *cluster, object client.Object) error {
			return s.ready(o.wait, "gatewayclient is ready", func(ctx context.Context) error {
				return c.awaitGateway(ctx, object.GetNamespace(), args[0], object)
			})
		}})
	}
}

func (e *env) createPublicKey(parent *cobra.Command) {
	cmd, o := e.noun(parent, "publickey NAME", "Give the gateway the public key of a peer", "publickeys", "publickeies")
	var key base64Bytes
	o.networkObject(cmd)
	cmd.Flags().Var(&key, "public-key", "The key, 32 bytes in base64")
	require(cmd, "public-key")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return o.run(cmd, maker{build: func(_ context.Context, c *cluster) (client.Object, error) {
			return publicKey(c.tenant, args[0], string(o.peer), key), nil
		}, said: "Publickey created"})
	}
}

func (e *env) createNonce(parent *cobra.Command) {
	cmd, o := e.noun(parent, "nonce", "Create the challenge a consumer must sign")
	o.ownTenant = true
	o.needPeer(cmd, "Cluster ID of the consumer")
	o.outputFlag(cmd, "", usageOutput)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		peer := string(o.peer)
		if o.output != "" {
			namespace := orDefault(o.namespace, api.TenantNamespace(peer))
			return e.print(o.output, tenantNamespace(namespace, peer), nonce(namespace, peer))
		}
		return o.act(cmd, func(s *script, c *cluster) error { return s.newNonce(c, peer) })
	}
}

// newNonce makes the challenge and prints it.
func (s *script) newNonce(c *cluster, peer string) error {
	if err := c.ensureTenant(s.ctx, peer); err != nil {
		return err
	}
	if err := c.apply(s.ctx, nonce(c.tenant, peer)); err != nil {
		return err
	}
	s.info(nowhere, "Nonce created")
	s.busy(nowhere, "Waiting for nonce to be generated")
	challenge, err := c.awaitField(s.ctx, c.tenant, api.NonceSecret, api.NonceField)
	if err != nil {
		return err
	}
	s.info(nowhere, "Nonce generated successfully")
	s.info(nowhere, "Nonce retrieved: %s", challenge)
	return nil
}

func (e *env) createResourceSlice(parent *cobra.Command) {
	cmd, o := e.noun(parent, "resourceslice NAME", "Ask a provider for resources", "rs", "resourceslices")
	cmd.Args = cobra.MatchAll(cmd.Args, fitsLabels)
	var q quantities
	var class string
	var noNode bool
	o.needPeer(cmd, "Cluster ID of the provider")
	o.outputFlag(cmd, "", usageOutput)
	addQuantityFlags(cmd.Flags(), &q, quantities{})
	cmd.Flags().StringVar(&class, "class", api.DefaultResourceSliceClass, "Class of the resources")
	cmd.Flags().BoolVar(&noNode, "no-virtual-node", false, "Make no virtual node from the resources")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		resources, err := q.list()
		if err != nil {
			return err
		}
		wanted := slice{name: args[0], class: class, resources: resources, virtualNode: !noNode,
			keepsClass: !cmd.Flags().Changed("class"), keepsNode: !cmd.Flags().Changed("no-virtual-node")}
		return o.act(cmd, func(s *script, c *cluster) error {
			if o.output != "" {
				return e.print(o.output, resourceSlice(c.tenant, string(o.peer), wanted))
			}
			w := &wish{script: s, consumer: c, provider: string(o.peer), slice: wanted}
			w.start()
			return w.report()
		})
	}
}

func (e *env) createVirtualNode(parent *cobra.Command) {
	cmd, o := e.noun(parent, "virtualnode NAME", "Make a virtual node from resources of a provider", "vn", "virtualnodes")
	cmd.Args = cobra.MatchAll(cmd.Args, fitsLabels)
	var v virtual
	var q quantities
	var sliceName, options string
	o.needPeer(cmd, "Cluster ID of the provider")
	o.outputFlag(cmd, "", usageOutput)
	flags := cmd.Flags()
	flags.StringVar(&sliceName, "resource-slice-name", "", "Slice to take resources and credentials from")
	flags.StringVar(&v.secret, "kubeconfig-secret-name", "", "Secret with the kubeconfig for the provider")
	flags.BoolVar(&v.createNode, "create-node", true, "Make a Node; false: only reflect")
	flags.BoolVar(&v.skipNetworkCheck, "disable-network-check", false, "Be ready without a network")
	addQuantityFlags(flags, &q, quantities{cpu: "2", memory: "4Gi", pods: "110"})
	flags.StringToStringVar(&v.labels, "labels", nil, "Labels of the Node")
	flags.StringToStringVar(&v.nodeSelector, "node-selector", nil, "Node selector of the pods at the provider")
	flags.StringVar(&v.runtimeClass, "runtime-class-name", "", "Runtime class of the pods at the provider")
	flags.StringSliceVar(&v.storage, "storage-classes", nil, "Storage classes at the provider, the default one first")
	flags.StringSliceVar(&v.ingress, "ingress-classes", nil, "Ingress classes at the provider, the default one first")
	flags.StringSliceVar(&v.balancers, "load-balancer-classes", nil, "Load balancer classes at the provider, the default one first")
	flags.StringVar(&options, "vk-options-template", "", "Template of the virtual kubelet: namespace/name")
	cmd.MarkFlagsMutuallyExclusive("resource-slice-name", "kubeconfig-secret-name")
	cmd.MarkFlagsOneRequired("resource-slice-name", "kubeconfig-secret-name")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		v.name = args[0]
		if v.resources, err = q.list(); err != nil {
			return err
		}
		if v.optionsNamespace, v.options, err = namespacedName(options); err != nil {
			return err
		}
		return o.run(cmd, maker{build: func(ctx context.Context, c *cluster) (client.Object, error) {
			if sliceName == "" {
				return virtualNode(c.tenant, string(o.peer), v), nil
			}
			from := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: c.tenant, Name: sliceName}}
			if err := c.read(ctx, from); err != nil {
				return nil, err
			}
			if len(from.Status.Resources) == 0 {
				return nil, fmt.Errorf("resourceslice %q was not granted resources yet; see 'kubectl -n %s describe rslice %s'", sliceName, c.tenant, sliceName)
			}
			return virtualNode(c.tenant, string(o.peer), virtualNodeOf(v, from)), nil
		}, asks: func(s *script, c *cluster, object client.Object) error {
			return s.confirmNodeChange(c, object.(*offv1beta1.VirtualNode))
		}, said: "Virtual node created", done: func(s *script, c *cluster, _ client.Object) error {
			return s.ready(v.createNode, fmt.Sprintf("Node %s is Ready", v.name), func(ctx context.Context) error { return c.awaitNode(ctx, v.name) })
		}})
	}
}

var errTemplateName = errors.New("--vk-options-template is not of the form namespace/name")

func namespacedName(text string) (namespace, name string, err error) {
	if text == "" {
		return "", "", nil
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" {
		return "", "", errTemplateName
	}
	return namespace, name, nil
}
