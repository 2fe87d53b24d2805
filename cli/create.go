// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// creation describes what create prints about an object that it applied, and what it waits for.
type creation struct {
	done string
	// ready waits until the object can be used, then readyLine is printed; only if wait.
	wait      bool
	readyLine string
	ready     func(ctx context.Context) error
}

// create applies an object, or prints it with -o.
func (o *single) create(s *script, c *cluster, object client.Object, then creation) error {
	if o.printsOnly() {
		return o.print(object)
	}
	s.busy(noCluster, "Creating the object")
	applied, err := c.applied(s.ctx, object)
	if err != nil {
		return err
	}
	s.info(noCluster, "%s", then.done)
	if err := s.env.printStored(o.output, applied); err != nil || !then.wait || s.env.dry() {
		return err
	}
	return s.run(step{doing: "Waiting until it is ready", done: then.readyLine, do: then.ready})
}

// labelArgument refuses names that are too long for a label value: labels hold the names of
// gateways, slices and virtual nodes.
func (o *single) labelArgument() {
	o.Args = cobra.MatchAll(o.Args, func(_ *cobra.Command, args []string) error {
		if length, longest := len(args[0]), validation.LabelValueMaxLength; length > longest {
			return fmt.Errorf("name %q has %d characters, use at most %d", args[0], length, longest)
		}
		return nil
	})
}

func createConfiguration(o *single) work {
	var r netv1beta1.ClusterCIDR
	o.networkObject()
	o.Flags().Var((*cidrs)(&r.Pod), "pod-cidr", "Address ranges of the peer's pods")
	o.Flags().Var((*cidrs)(&r.External), "external-cidr", "External address range of the peer")
	o.Flags().BoolVar(&o.wait, "wait", false, "Wait until it is in force")
	require(o.Command, "pod-cidr", "external-cidr")
	return func(s *script, c *cluster) error {
		object := configuration(c.tenant, o.name, o.peer, r)
		return o.create(s, c, object, creation{"Configuration created", o.wait, "Configuration is ready",
			func(ctx context.Context) error {
				return c.await(ctx, object, func() bool { return isConfigured(object, r) })
			}})
	}
}

func createGatewayServer(o *single) work {
	o.labelArgument()
	var t template
	var mtu int
	service := serverService{ports: ports{api.WireGuardPort}}
	o.networkObject()
	flags := o.Flags()
	t.addFlags(flags, "", template{resource: serverTemplates, name: api.WgGatewayServerTemplateName})
	flags.Var(choice(&service.ServiceType, serviceTypes[0], serviceTypes[1:]...), "service-type", "Type of the Service")
	flags.Var(&service.ports, "port", "Port of the Service; several make parallel tunnels")
	flags.Var(&service.nodePorts, "node-port", "Node port of the Service, one for each port; 0 = any")
	flags.StringVar(&service.LoadBalancerIP, "load-balancer-ip", "", "Address of the load balancer; empty = any")
	flags.IntVar(&mtu, "mtu", api.TunnelMTU, "MTU of the tunnel in bytes, the same on both sides")
	service.addProtocolFlag(flags, "protocol")
	flags.BoolVar(&o.wait, "wait", false, "Wait until clients can connect")
	return func(s *script, c *cluster) error {
		if err := c.resolve(&t); err != nil {
			return err
		}
		server := gatewayServer(metaFor(c.tenant, o.name, o.peer), t, service, mtu)
		return o.create(s, c, server, creation{"Gatewayserver created", o.wait, "gatewayserver is ready",
			func(ctx context.Context) error {
				return c.await(ctx, server, func() bool { return isDialable(server.Status.Endpoint) })
			}})
	}
}

func createGatewayClient(o *single) work {
	o.labelArgument()
	var t template
	var mtu int
	var port ports
	var endpoint netv1beta1.EndpointStatus
	o.networkObject()
	flags := o.Flags()
	flags.StringSliceVar(&endpoint.Addresses, "addresses", nil, "Addresses or names of the server")
	flags.Var(&port, "port", "Port of the server, or all of its ports")
	flags.Var(choice(&endpoint.Protocol, "UDP", "TCP"), "protocol", "Transport of the tunnel, that of the server")
	t.addFlags(flags, "", template{resource: clientTemplates, name: api.WgGatewayClientTemplateName})
	flags.IntVar(&mtu, "mtu", api.TunnelMTU, "MTU of the tunnel in bytes, the same on both sides")
	flags.BoolVar(&o.wait, "wait", false, "Wait until its pod runs")
	require(o.Command, "addresses", "port")
	return func(s *script, c *cluster) error {
		endpoint.Port, endpoint.Ports = port.split()
		if err := c.resolve(&t); err != nil {
			return err
		}
		object := gatewayClient(metaFor(c.tenant, o.name, o.peer), t, endpoint, mtu)
		return o.create(s, c, object, creation{"Gatewayclient created", o.wait, "gatewayclient is ready",
			func(ctx context.Context) error { return c.awaitGateway(ctx, object.Namespace, o.name, object) }})
	}
}

func createPublicKey(o *single) work {
	var key base64Bytes
	o.networkObject()
	o.Flags().Var(&key, "public-key", "The key, 32 bytes in base64")
	require(o.Command, "public-key")
	return func(s *script, c *cluster) error {
		return o.create(s, c, publicKey(c.tenant, o.name, o.peer, key), creation{done: "Publickey created"})
	}
}

func createNonce(o *single) work {
	o.ownTenant = true
	o.needPeer("Cluster ID of the consumer")
	o.manifestFlag()
	o.before = func() (bool, error) {
		if !o.printsOnly() {
			return false, nil
		}
		namespace := cmp.Or(o.namespace, api.TenantNamespace(o.peer))
		return true, o.print(tenantNamespace(namespace, o.peer), nonce(namespace, o.peer))
	}
	return func(s *script, c *cluster) error {
		if err := c.ensureTenant(s.ctx, o.peer); err != nil {
			return err
		}
		err := o.create(s, c, nonce(c.tenant, o.peer), creation{done: "Nonce created"})
		if err != nil || s.env.dry() {
			return err
		}
		return s.awaitNonce(c, o.output == "")
	}
}

// awaitNonce waits until the nonce is generated, and prints it if it is shown.
func (s *script) awaitNonce(c *cluster, shown bool) error {
	s.busy(noCluster, "Waiting for nonce to be generated")
	challenge, err := c.awaitField(s.ctx, c.tenant, api.NonceSecret, api.NonceField)
	if err != nil {
		return err
	}
	s.info(noCluster, "Nonce generated successfully")
	if shown {
		s.info(noCluster, "Nonce retrieved: %s", challenge)
	}
	return nil
}

// deleteNonce deletes the nonce, so that nobody can sign it any more.
func deleteNonce(o *single) work {
	o.needPeer("Cluster ID of the consumer")
	o.deletedFlag()
	return func(s *script, c *cluster) error {
		object := nonce(c.tenant, o.peer)
		if found, err := c.remove(s.ctx, object); err != nil || !found {
			return cmp.Or(err, fmt.Errorf("%s not found", c.nameOf(object)))
		}
		s.info(noCluster, "Nonce deleted")
		return s.env.printStored(o.output, object)
	}
}

func createResourceSlice(o *single) work {
	o.labelArgument()
	var q quantities
	var noNode bool
	var wanted sliceOptions
	o.needPeer("Cluster ID of the provider")
	o.manifestFlag()
	addQuantityFlags(o.Flags(), &q, quantities{})
	o.Flags().StringVar(&wanted.class, "class", api.DefaultResourceSliceClass, "Class of the resources")
	o.Flags().BoolVar(&noNode, "no-virtual-node", false, "Make no virtual node from the resources")
	o.before = func() (_ bool, err error) {
		wanted.resources, err = q.list()
		return false, err
	}
	return func(s *script, c *cluster) error {
		wanted.name, wanted.virtualNode = o.name, !noNode
		wanted.keepsClass, wanted.keepsNode = !o.Flags().Changed("class"), !o.Flags().Changed("no-virtual-node")
		if o.printsOnly() {
			return o.print(resourceSlice(c.tenant, o.peer, wanted))
		}
		w := &sliceRequest{script: s, consumer: c, provider: o.peer, sliceOptions: wanted}
		if err := w.prepare(s.ctx); err != nil {
			return err
		}
		if err := o.create(s, c, w.object, creation{done: "ResourceSlice created"}); err != nil || s.env.dry() {
			return err
		}
		return s.run(w.answers()...)
	}
}

func createVirtualNode(o *single) work {
	o.labelArgument()
	var v virtualNodeOptions
	var q quantities
	var sliceName, options string
	o.needPeer("Cluster ID of the provider")
	o.manifestFlag()
	v.addFlags(o.Flags())
	addQuantityFlags(o.Flags(), &q, quantities{cpu: "2", memory: "4Gi", pods: "110"})
	o.Flags().StringVar(&sliceName, "resource-slice-name", "", "Slice to take resources and credentials from")
	o.Flags().StringVar(&options, "vk-options-template", "", "Template of the virtual kubelet: namespace/name")
	o.MarkFlagsMutuallyExclusive("resource-slice-name", "kubeconfig-secret-name")
	o.MarkFlagsOneRequired("resource-slice-name", "kubeconfig-secret-name")
	o.before = func() (_ bool, err error) {
		if v.resources, err = q.list(); err == nil {
			v.optionsNamespace, v.options, err = namespacedName(options)
		}
		return false, err
	}
	return func(s *script, c *cluster) error {
		v.name = o.name
		if sliceName != "" {
			if err := c.useSlice(s.ctx, sliceName, &v); err != nil {
				return err
			}
		}
		object := virtualNode(c.tenant, o.peer, v)
		if !o.printsOnly() {
			if err := s.confirmNodeChange(c, object); err != nil {
				return err
			}
		}
		return o.create(s, c, object,
			creation{"Virtual node created", v.createNode, fmt.Sprintf("Node %s is Ready", v.name),
				func(ctx context.Context) error { return c.awaitNode(ctx, v.name) }})
	}
}

func (v *virtualNodeOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&v.secret, "kubeconfig-secret-name", "", "Secret with the kubeconfig for the provider")
	flags.BoolVar(&v.createNode, "create-node", true, "Make a Node; false: only reflect")
	flags.BoolVar(&v.skipNetworkCheck, "disable-network-check", false, "Be ready without a network")
	flags.StringToStringVar(&v.labels, "labels", nil, "Labels of the Node")
	flags.StringToStringVar(&v.nodeSelector, "node-selector", nil, "Node selector of the pods at the provider")
	flags.StringVar(&v.runtimeClass, "runtime-class-name", "", "Runtime class of the pods at the provider")
	const further = " at the provider, the default one first"
	flags.StringSliceVar(&v.storage, "storage-classes", nil, "Storage classes"+further)
	flags.StringSliceVar(&v.ingress, "ingress-classes", nil, "Ingress classes"+further)
	flags.StringSliceVar(&v.balancers, "load-balancer-classes", nil, "Load balancer classes"+further)
}

// useSlice gives a virtual node the resources and credentials that a slice was granted.
func (c *cluster) useSlice(ctx context.Context, sliceName string, v *virtualNodeOptions) error {
	from := &authv1beta1.ResourceSlice{ObjectMeta: metaOf(c.tenant, sliceName)}
	if err := c.read(ctx, from); err != nil {
		return err
	}
	if len(from.Status.Resources) == 0 {
		return fmt.Errorf("resourceslice %q was not granted resources yet; see 'kubectl -n %s describe rslice %s'",
			sliceName, c.tenant, sliceName)
	}
	v.secret = api.KubeconfigSecretName(api.ResourceSliceIdentityName(from.Name))
	v.resources = from.Status.Resources
	return nil
}

func namespacedName(text string) (namespace, name string, err error) {
	if text == "" {
		return "", "", nil
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" {
		return "", "", errors.New("--vk-options-template is not of the form namespace/name")
	}
	return namespace, name, nil
}
