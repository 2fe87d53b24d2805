// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// tunnelEnd is one end of the tunnel.
type tunnelEnd struct {
	*cluster
	// kind is "server" or "client".
	kind string
	// object is the gateway as it was applied or read; nil before.
	object client.Object
}

// connection creates the gateways and exchanges their keys. It does not wait for the ranges: the
// tunnel comes up while they are allocated.
func (n *network) connection() []step {
	server, client := &n.server, &n.client
	steps := []step{{name: "gateways", after: []string{"namespaces"}, doing: "Looking for gateways",
		do: n.findGateways}}
	for _, c := range n.pair() {
		steps = append(steps, step{after: []string{"in force at " + c.id}, at: &c,
			doing: "Initializing network", done: "Network correctly initialized"})
	}
	steps = append(steps,
		step{name: "server", after: []string{"gateways"}, at: &server.cluster, skip: n.isReversed,
			doing: "Setting up gateway server", report: n.reportServer, do: n.setServer},
		n.pod(server),
		step{name: "endpoint", after: []string{"server"}, at: &server.cluster, skip: n.isReversed,
			doing: "Waiting for gateway server Service", done: "Gateway server Service created successfully",
			do: n.awaitEndpoint},
		step{name: "client", after: []string{"endpoint"}, at: &client.cluster, skip: n.isReversed,
			doing: "Setting up gateway client", done: "Gateway client correctly set up", do: n.setClient},
		n.pod(client))
	if !n.keepKeys {
		steps = slices.Concat(steps, n.keys(server, client), n.keys(client, server))
	}
	if n.networkOptions.wait {
		steps = append(steps, awaitConnection(server), awaitConnection(client),
			awaitEstablished(client), awaitEstablished(server))
	}
	return steps
}

// isReversed reports that an existing tunnel runs in the other direction, so that the steps only
// wait for it.
func (n *network) isReversed() bool { return n.reversed }

// pod waits for the pod of a gateway.
func (n *network) pod(e *tunnelEnd) step {
	return step{name: e.kind + " pod", after: []string{e.kind}, at: &e.cluster, skip: n.isReversed,
		doing: "Waiting for gateway pod", report: func(took string) {
			n.info(e.side, "Gateway pod %s is ready%s", api.GatewayResourceName(e.gateway), took)
		},
		do: func(ctx context.Context) error {
			return e.awaitGateway(ctx, e.network, e.gateway, e.object.DeepCopyObject().(client.Object))
		}}
}

// keys copies the public key of a gateway to the other end as soon as it exists.
func (n *network) keys(from, to *tunnelEnd) []step {
	var secret string
	return []step{
		{name: from.kind + " keys", after: []string{from.kind}, at: &from.cluster, skip: n.isReversed,
			doing: "Waiting for gateway " + from.kind + " Secret",
			done:  "Gateway " + from.kind + " Secret created successfully",
			do: func(ctx context.Context) (err error) {
				secret, err = from.awaitKeys(ctx, from.object.DeepCopyObject().(client.Object))
				return err
			}},
		{after: []string{from.kind + " keys"}, at: &to.cluster, skip: n.isReversed,
			doing: "Creating public key", done: "Public key correctly created", do: func(ctx context.Context) error {
				key, err := from.awaitField(ctx, from.network, secret, api.PublicKeyField)
				if err != nil {
					return err
				}
				name, err := to.publicKeyOf(ctx, from.id)
				if err != nil {
					return err
				}
				return to.apply(ctx, publicKey(to.network, name, from.id, key))
			}},
	}
}

// awaitConnection waits for the Connection of an end.
func awaitConnection(e *tunnelEnd) step {
	return step{name: e.kind + " connection", after: []string{e.kind + " pod"}, at: &e.cluster,
		doing: "Waiting for the connection", done: "Connection created successfully",
		do: func(ctx context.Context) error {
			connection, deployment := e.tunnel()
			return e.await(ctx, connection, func() bool { return true }, deployment)
		}}
}

// awaitEstablished waits until an end is connected.
func awaitEstablished(e *tunnelEnd) step {
	return step{name: e.kind + " up", after: []string{e.kind + " connection"}, at: &e.cluster,
		doing: "Waiting for the connection to be established", done: "Connection is established",
		do: func(ctx context.Context) error {
			connection, deployment := e.tunnel()
			up := func() bool { return connection.Status.Value == netv1beta1.Connected }
			return e.withRemoteReason(e.await(ctx, connection, up, deployment))
		}}
}

// tunnel returns the Connection of the gateway for the other cluster, and its Deployment, without
// contents.
func (c *cluster) tunnel() (*netv1beta1.Connection, *appsv1.Deployment) {
	at := metaOf(c.network, api.GatewayResourceName(c.gateway))
	return &netv1beta1.Connection{ObjectMeta: at}, &appsv1.Deployment{ObjectMeta: at}
}

// findGateways reads the existing gateways, decides which side serves and checks the templates.
// Existing gateways keep their names. Steps that depend on the sides come after it.
func (n *network) findGateways(ctx context.Context) error {
	servers, clients := &netv1beta1.GatewayServerList{}, &netv1beta1.GatewayClientList{}
	backServers, backClients := &netv1beta1.GatewayServerList{}, &netv1beta1.GatewayClientList{}
	err := inParallel(
		func() error { return n.server.listOf(ctx, n.server.network, n.client.id, servers) },
		func() error { return n.client.listOf(ctx, n.client.network, n.server.id, clients) },
		func() error { return n.client.listOf(ctx, n.client.network, n.server.id, backServers) },
		func() error { return n.server.listOf(ctx, n.server.network, n.client.id, backClients) },
	)
	if err != nil {
		return err
	}
	n.server.gateway, n.client.gateway = n.client.id, n.server.id
	server, dialer := api.Oldest(servers.Items), api.Oldest(clients.Items)
	if server != nil {
		n.server.gateway = server.Name
	}
	if dialer != nil {
		n.client.gateway = dialer.Name
	}
	if err := n.chooseSides(ctx, api.Oldest(backServers.Items), api.Oldest(backClients.Items), server != nil,
		dialer != nil); err != nil {
		return err
	}
	return n.checkTemplates(ctx)
}

// chooseSides decides what to do if gateways of the opposite direction exist:
//
//	both ends   the tunnel carries both directions, and nothing is created
//	one end     its other end is created. It is deleted instead if the user named the side that serves. It is an error
//	            if an end of the requested direction exists too: a cluster uses one gateway for a peer.
func (n *network) chooseSides(
	ctx context.Context, server *netv1beta1.GatewayServer, dialer *netv1beta1.GatewayClient, served, dialled bool,
) error {
	locationSet := n.isSet("gw-server-service-location")
	switch {
	case server == nil && dialer == nil:
	case server != nil && dialer != nil:
		n.reversed = true
		n.client.gateway = server.Name
		n.server.gateway = dialer.Name
	case locationSet && server != nil:
		return n.deleteGateway(ctx, tunnelEnd{n.client.cluster, "server", server})
	case locationSet:
		return n.deleteGateway(ctx, tunnelEnd{n.server.cluster, "client", dialer})
	case served && dialled:
	case served || dialled:
		return errors.New("both clusters have begun a tunnel, each its own way round; say which side serves with " +
			"--gw-server-service-location")
	case server != nil:
		n.server.cluster, n.client.cluster = n.client.cluster, n.server.cluster
		n.server.gateway = server.Name
	default:
		n.server.cluster, n.client.cluster = n.client.cluster, n.server.cluster
		n.client.gateway = dialer.Name
	}
	return nil
}

// deleteGateway deletes the gateway of an end and waits until it is gone.
func (n *network) deleteGateway(ctx context.Context, e tunnelEnd) error {
	n.deletedGateways = append(n.deletedGateways, e)
	return e.removeAndAwait(ctx, e.object)
}

// checkTemplates resolves the templates and checks that they exist.
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
	return inParallel(
		func() error { return check(n.server.cluster, &n.serverTemplate) },
		func() error { return check(n.client.cluster, &n.clientTemplate) },
	)
}

// setServer creates or updates the server. It replaces a server that is to be exposed differently.
func (n *network) setServer(ctx context.Context) error {
	server := gatewayServer(metaFor(n.server.network, n.server.gateway, n.client.id), n.serverTemplate, n.service,
		n.mtu)
	have := &netv1beta1.GatewayServer{}
	err := n.server.Get(ctx, client.ObjectKeyFromObject(server), have)
	if err == nil && have.Spec.Endpoint != nil {
		server.Spec = n.adjusted(have.Spec, server.Spec)
		if exposedElsewhere(*have.Spec.Endpoint, *server.Spec.Endpoint) {
			if err := n.deleteGateway(ctx, tunnelEnd{n.server.cluster, "server", have}); err != nil {
				return err
			}
		}
	}
	n.server.object = server
	return n.server.apply(ctx, server)
}

// adjusted returns the spec of an existing server with what the user set by flags.
func (n *network) adjusted(have, want netv1beta1.GatewayServerSpec) netv1beta1.GatewayServerSpec {
	out := *have.DeepCopy()
	to, from := out.Endpoint, want.Endpoint
	for flag, adopt := range map[string]func(){
		"gw-server-service-type":           func() { to.ServiceType = from.ServiceType },
		"gw-server-service-port":           func() { to.Port, to.Ports = from.Port, from.Ports },
		"gw-server-service-nodeport":       func() { to.NodePort, to.NodePorts = from.NodePort, from.NodePorts },
		"gw-server-service-loadbalancerip": func() { to.LoadBalancerIP = from.LoadBalancerIP },
		"gw-protocol":                      func() { to.Protocol = from.Protocol },
		"mtu":                              func() { out.MTU = want.MTU },
	} {
		if n.isSet(flag) {
			adopt()
		}
	}
	if n.isTemplateSet("gw-server-") {
		out.ServerTemplateRef = want.ServerTemplateRef
	}
	return out
}

// isTemplateSet reports whether a flag names a template.
func (n *network) isTemplateSet(prefix string) bool {
	return n.isSet(prefix+"type") || n.isSet(prefix+"template-name") || n.isSet(prefix+"template-namespace")
}

// exposedElsewhere reports whether the server's address, port or protocol would change. A request
// that names no node port or address matches any.
func exposedElsewhere(have, want netv1beta1.Endpoint) bool {
	return have.ServiceType != want.ServiceType || have.Port != want.Port || !slices.Equal(have.Ports, want.Ports) ||
		(want.NodePort != 0 && have.NodePort != want.NodePort) ||
		(len(want.NodePorts) > 0 && !slices.Equal(have.NodePorts, want.NodePorts)) ||
		(want.LoadBalancerIP != "" && have.LoadBalancerIP != want.LoadBalancerIP) ||
		(have.Protocol == netv1beta1.ProtocolTCP) != (want.Protocol == netv1beta1.ProtocolTCP)
}

func isDialable(e *netv1beta1.EndpointStatus) bool {
	return e != nil && len(e.Addresses) > 0 && (e.Port != 0 || len(e.Ports) > 0)
}

// announced reports whether the server's status holds an endpoint with the requested ports. The
// status is stale for a moment after the request changes, and a client with a custom address does
// not follow it: it would keep the old port. Only WireGuard templates are compared; other
// technologies may have no Service. A template may give the Service another port than the server's,
// so that is compared only if a flag names it.
func announced(server *netv1beta1.GatewayServer, askedPort bool) bool {
	status, request, template := server.Status.Endpoint, server.Spec.Endpoint, server.Spec.ServerTemplateRef
	if !isDialable(status) {
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

// reportServer prints that the server is set up, and which gateways were deleted before.
func (n *network) reportServer(took string) {
	for _, d := range n.deletedGateways {
		n.info(d.side, "Deleted existing gateway %s", d.kind)
	}
	n.info(n.server.side, "Gateway server correctly set up%s", took)
}

// awaitEndpoint waits until clients can reach the server.
func (n *network) awaitEndpoint(ctx context.Context) error {
	n.announced = n.server.object.(*netv1beta1.GatewayServer).DeepCopy()
	return n.server.await(ctx, n.announced,
		func() bool { return announced(n.announced, n.isSet("gw-server-service-port")) })
}

// setClient creates or updates the client. It dials the server's endpoint unless the user named
// another, with the server's MTU and protocol.
func (n *network) setClient(ctx context.Context) error {
	server := n.announced
	endpoint := *server.Status.Endpoint.DeepCopy()
	if n.address != "" {
		endpoint.Addresses = []string{n.address}
	}
	if len(n.port) > 0 {
		endpoint.Port, endpoint.Ports = n.port.split()
	}
	object := gatewayClient(metaFor(n.client.network, n.client.gateway, n.server.id), n.clientTemplate, endpoint,
		server.Spec.MTU)
	plan.Note(object, server.Status.Endpoint)
	n.client.object = object
	return retry.RetryOnConflict(retry.DefaultRetry,
		func() error { return n.writeClient(ctx, object, server.Status.Endpoint) })
}

// writeClient creates a client or updates the existing one. It replaces the endpoint as a whole,
// since a remaining port of the old one would contradict it. An endpoint that the server never
// announced was set by a user, for a NAT for example: it stays if no flag names another and the
// number of its ports still fits.
func (n *network) writeClient(
	ctx context.Context, want *netv1beta1.GatewayClient, announced *netv1beta1.EndpointStatus,
) error {
	have := &netv1beta1.GatewayClient{ObjectMeta: metaOf(want.Namespace, want.Name)}
	err := n.client.read(ctx, have)
	if apierrors.IsNotFound(err) {
		return n.client.apply(ctx, want)
	}
	if err != nil {
		return err
	}
	before := have.DeepCopy()
	have.Spec.MTU = want.Spec.MTU
	if n.address == "" && len(n.port) == 0 && plan.Chosen(have, announced) &&
		len(have.Spec.Endpoint.Ports) == len(announced.Ports) {
		have.Spec.Endpoint.Protocol = announced.Protocol
	} else {
		have.Spec.Endpoint = want.Spec.Endpoint
	}
	plan.Note(have, announced)
	if have.Spec.ClientTemplateRef == nil || n.isTemplateSet("gw-client-") {
		have.Spec.ClientTemplateRef = want.Spec.ClientTemplateRef
	}
	if equality.Semantic.DeepEqual(before, have) {
		return nil
	}
	return n.client.describe("update", want, n.client.Update(ctx, have))
}

// awaitGateway waits for the pod of a gateway. A gateway of another technology has no known
// Deployment: its own status reports that it runs.
func (c *cluster) awaitGateway(ctx context.Context, namespace, gateway string, owner client.Object) error {
	either, stop := context.WithCancel(ctx)
	defer stop()
	elsewhere := make(chan bool, 1)
	go func() {
		own := owner.DeepCopyObject().(interface {
			client.Object
			OtherTechnology() (other, runs bool)
		})
		hidden, _ := withProgress(either) // the wait for the Deployment shows progress
		runs := c.await(hidden, own, func() bool { _, runs := own.OtherTechnology(); return runs }) == nil
		if elsewhere <- runs; runs {
			stop()
		}
	}()
	d := &appsv1.Deployment{ObjectMeta: metaOf(namespace, api.GatewayResourceName(gateway))}
	err := c.await(either, d,
		func() bool { return d.Status.ReadyReplicas > 0 && d.Status.ObservedGeneration >= d.Generation }, owner)
	if stop(); <-elsewhere {
		return nil
	}
	return err
}

// publicKeyOf returns the name of the peer's PublicKey, which may have been created by hand.
func (c *cluster) publicKeyOf(ctx context.Context, peer string) (string, error) {
	list := &netv1beta1.PublicKeyList{}
	if err := c.listOf(ctx, c.network, peer, list); err != nil || len(list.Items) == 0 {
		return peer, err
	}
	return api.Oldest(list.Items).Name, nil
}

// awaitKeys waits until a gateway's status names the Secret with its keys, and returns the name.
func (c *cluster) awaitKeys(ctx context.Context, gateway client.Object) (string, error) {
	if err := c.await(ctx, gateway, func() bool { return keysOf(gateway) != nil }); err != nil {
		return "", err
	}
	return keysOf(gateway).Name, nil
}

// keysOf returns the Secret with the keys of a gateway; nil while there is none.
func keysOf(gateway client.Object) *corev1.ObjectReference {
	switch g := gateway.(type) {
	case *netv1beta1.GatewayServer:
		return g.Status.SecretRef
	case *netv1beta1.GatewayClient:
		return g.Status.SecretRef
	}
	return nil
}
