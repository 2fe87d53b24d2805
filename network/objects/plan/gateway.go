// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// GatewayInput holds the common input of GatewayServer and GatewayClient.
type GatewayInput struct {
	// Refused is the kind, of the template or of the rendered object, that the controller may not
	// read; empty when it may read both.
	Refused string
	// Template is the object the gateway references; nil when absent.
	Template *unstructured.Unstructured
	// Rendered is the current object made from the template; without a template, the one it made
	// last. Nil when absent.
	Rendered *unstructured.Unstructured
	// Former is the current object of another kind that the template made before; nil when absent.
	Former *unstructured.Unstructured
	// Servers and Clients are the gateways for the peer, and the one of the other kind that has the
	// gateway's name; others are ignored.
	Servers []netv1beta1.GatewayServer
	Clients []netv1beta1.GatewayClient
	// Configurations and PublicKeys are the peer's; others are ignored.
	Configurations []netv1beta1.Configuration
	PublicKeys     []netv1beta1.PublicKey
	// Networks are this cluster's own, including that of the internal CIDR.
	Networks []ipamv1alpha1.Network
	// Overlay is no older than the last assigned address, unless the gateway keeps its own.
	Overlay
	// LiqoNamespace holds the default templates and the internal CIDR's Network.
	LiqoNamespace string
}

// GatewayServerInput holds the input of GatewayServer.
type GatewayServerInput struct {
	Root *netv1beta1.GatewayServer
	GatewayInput
}

// GatewayClientInput holds the input of GatewayClient.
type GatewayClientInput struct {
	Root *netv1beta1.GatewayClient
	GatewayInput
}

// GatewayServer plans the object rendered from a server's template and the InternalFabric by which
// this cluster's nodes route to it. It copies the rendered object's status.
func GatewayServer(in GatewayServerInput) desired.Plan {
	if in.Root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	spec := in.Root.Spec.DeepCopy()
	spec.MTU = cmp.Or(spec.MTU, api.TunnelMTU)
	spec.Endpoint = cmp.Or(spec.Endpoint, &netv1beta1.Endpoint{Port: api.WireGuardPort,
		ServiceType: corev1.ServiceTypeClusterIP})
	spec.SecretRef = cmp.Or(spec.SecretRef, &corev1.LocalObjectReference{})
	g := gateway{
		GatewayInput: in.GatewayInput, root: in.Root, kind: "GatewayServer", mtu: spec.MTU, part: overlayServers,
		template: ServerTemplate(in.Root, in.LiqoNamespace), secret: spec.SecretRef.Name, spec: spec,
		serviceLabels: spec.ServiceLabels, serviceAnnotations: spec.ServiceAnnotations,
		ports: spec.Endpoint.Ports, nodePorts: spec.Endpoint.NodePorts, protocol: spec.Endpoint.Protocol,
	}
	plan, rendered := g.plan()
	if rendered != nil {
		plan.Status = &netv1beta1.GatewayServer{Status: netv1beta1.GatewayServerStatus{
			ServerRef: rendered.ref, SecretRef: rendered.SecretRef, PublicKey: rendered.PublicKey,
			InternalEndpoint: rendered.InternalEndpoint, Endpoint: rendered.Endpoint,
			Conditions: g.reduced(rendered),
		}}
		if plan.State == desired.Ready && rendered.Endpoint == nil {
			plan.Verdict = g.notUp(rendered, "EndpointPending", "the Service has no address to reach the server by",
				"status.endpoint has no address to reach the server by")
		}
	}
	return plan
}

// GatewayClient plans the object rendered from a client's template and the InternalFabric by which
// this cluster's nodes route to it. It copies the rendered object's status.
func GatewayClient(in GatewayClientInput) desired.Plan {
	if in.Root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	spec := in.Root.Spec.DeepCopy()
	spec.MTU = cmp.Or(spec.MTU, api.TunnelMTU)
	spec.Endpoint = cmp.Or(spec.Endpoint, &netv1beta1.EndpointStatus{})
	spec.SecretRef = cmp.Or(spec.SecretRef, &corev1.LocalObjectReference{})
	if len(spec.Endpoint.Addresses) == 0 {
		return desired.Block("EndpointMissing",
			"spec.endpoint.addresses names no server to dial; add the addresses of the peer's GatewayServer")
	}
	g := gateway{
		GatewayInput: in.GatewayInput, root: in.Root, kind: "GatewayClient", mtu: spec.MTU, part: overlayClients,
		template: ClientTemplate(in.Root, in.LiqoNamespace), secret: spec.SecretRef.Name, spec: spec,
		protocol: spec.Endpoint.Protocol, endpointPorts: spec.Endpoint.Ports,
	}
	plan, rendered := g.plan()
	if rendered != nil {
		plan.Status = &netv1beta1.GatewayClient{Status: netv1beta1.GatewayClientStatus{
			ClientRef: rendered.ref, SecretRef: rendered.SecretRef, PublicKey: rendered.PublicKey,
			InternalEndpoint: rendered.InternalEndpoint, Conditions: g.reduced(rendered),
		}}
	}
	if address, cidr := g.inTunnel(spec.Endpoint.Addresses); address != "" && plan.State == desired.Ready {
		plan.Verdict = desired.Block("EndpointInTunnel",
			"spec.endpoint.addresses: %s lies in %s, by which this cluster calls what is behind the tunnel, so "+
				"nothing can be dialled there; use what 'kubectl get gatewayservers -A' shows in the peer's cluster",
			address, cidr).Verdict
	}
	return plan
}

// inTunnel returns the first address that lies in a range the peer is remapped to, and the range;
// empty when there is none. Ranges that are not remapped may contain the peer's nodes, too.
func (g gateway) inTunnel(addresses []string) (address, cidr string) {
	configurations, _ := split(g, g.Configurations)
	for _, c := range configurations {
		if c.Status.Remote == nil || c.Spec.Remote == nil {
			continue
		}
		remote := slices.Concat(c.Spec.Remote.CIDR.Pod, c.Spec.Remote.CIDR.External)
		for _, local := range slices.Concat(c.Status.Remote.CIDR.Pod, c.Status.Remote.CIDR.External) {
			p, err := netip.ParsePrefix(local)
			if err != nil || slices.Contains(remote, local) {
				continue
			}
			for _, text := range addresses {
				if a, err := netip.ParseAddr(text); err == nil && p.Contains(a) {
					return text, local
				}
			}
		}
	}
	return "", ""
}

// reasonPublicKeyMissing is reported while the peer's public key is missing, which users apply last.
const reasonPublicKeyMissing = "PublicKeyMissing"

// foreignPeriod is the interval at which objects of third parties' kinds, which are not watched,
// are read.
const foreignPeriod = 10 * time.Second

// gateway is the common part of a server and a client.
type gateway struct {
	GatewayInput
	root     desired.Object
	kind     string
	template corev1.ObjectReference
	// spec is the spec that template actions can use.
	spec any
	// secret is the user's key Secret; empty when keys are generated.
	secret string
	mtu    int
	// part is the share of the internal CIDR overlay addresses are taken from.
	part overlayPart
	// serviceLabels and serviceAnnotations override the template's.
	serviceLabels, serviceAnnotations map[string]string
	// ports and nodePorts are those of a server with several tunnels; nil with one.
	ports, nodePorts []int32
	// endpointPorts are those that a client with several tunnels dials; nil with one.
	endpointPorts []int32
	// protocol is the transport; empty = the template's.
	protocol netv1beta1.Protocol
}

// renderedObject identifies the rendered object and holds its status.
type renderedObject struct {
	ref *corev1.ObjectReference
	renderedStatus
}

// renderedStatus is the part of the status every rendered kind offers.
type renderedStatus struct {
	Endpoint         *netv1beta1.EndpointStatus          `json:"endpoint"`
	InternalEndpoint *netv1beta1.InternalGatewayEndpoint `json:"internalEndpoint"`
	SecretRef        *corev1.ObjectReference             `json:"secretRef"`
	PublicKey        []byte                              `json:"publicKey"`
	Conditions       []metav1.Condition                  `json:"conditions"`
}

func (g gateway) peer() string { return g.root.GetLabels()[api.LabelRemoteClusterID] }

// plan returns the plan without its status, and the status of the rendered object; nil when nothing
// is rendered.
func (g gateway) plan() (desired.Plan, *renderedObject) {
	if refused := g.refused(); refused.State != desired.Ready {
		return refused, nil
	}
	if lacks := g.templateProblem(); lacks.State != desired.Ready {
		return g.keepLast(lacks)
	}
	rendered, err := g.render()
	if err != nil {
		plan := desired.Block("TemplateInvalid", "%s %s/%s, spec.template.%v; correct the template", g.template.Kind,
			g.template.Namespace, g.template.Name, err)
		plan.RequeueAfter = g.period(g.template.GroupVersionKind())
		return g.keepLast(plan)
	}
	status := g.observe(rendered)
	plan := desired.Plan{Objects: []desired.Object{rendered}}
	fabric, verdict := g.fabric(status)
	if fabric != nil {
		plan.Objects = append(plan.Objects, fabric)
	}
	plan.Verdict = verdict
	// The user gives the key last, so a gateway that cannot start is reported first.
	if why, failing := status.failing(); failing &&
		(plan.State == desired.Ready || plan.Reason == reasonPublicKeyMissing) {
		plan.Verdict = why
	}
	plan.RequeueAfter = cmp.Or(g.period(g.template.GroupVersionKind()), g.period(rendered.GroupVersionKind()))
	if plan.RequeueAfter == 0 && verdict.Reason == reasonInternalCIDRFull {
		plan.RequeueAfter = retryFullCIDR
	}
	if g.Former != nil && metav1.IsControlledBy(g.Former, g.root) {
		plan.Actions = desired.Deletes(g.Former)
		status.ref.APIVersion, status.ref.Kind = g.Former.GetAPIVersion(), g.Former.GetKind() // until it is gone
		plan.RequeueAfter = foreignPeriod
	}
	return plan, status
}

// keepLast adds to the plan of a gateway with an unusable template the InternalFabric for the object
// rendered last. That object keeps running, and its pod may be replaced.
func (g gateway) keepLast(plan desired.Plan) (desired.Plan, *renderedObject) {
	if g.Rendered == nil {
		return plan, nil
	}
	status := g.observe(g.Rendered)
	if fabric, _ := g.fabric(status); fabric != nil {
		plan.Objects = append(plan.Objects, fabric)
	}
	return plan, status
}

// period returns the interval at which objects of a kind are read: those of third parties are not
// watched.
func (g gateway) period(kind schema.GroupVersionKind) time.Duration {
	if kind.Group == netv1beta1.GroupVersion.Group {
		return 0
	}
	return foreignPeriod
}

// rival returns the older gateway for the same peer or with the same name, as "Kind
// namespace/name", and whether it is for the same peer. It returns "" if there is none.
func (g gateway) rival() (name string, ofPeer bool) {
	for i := range g.Servers {
		if s := &g.Servers[i]; g.loses(s, "GatewayServer") {
			return "GatewayServer " + s.Namespace + "/" + s.Name, samePeer(s, g.root)
		}
	}
	for i := range g.Clients {
		if c := &g.Clients[i]; g.loses(c, "GatewayClient") {
			return "GatewayClient " + c.Namespace + "/" + c.Name, samePeer(c, g.root)
		}
	}
	return "", false
}

// loses reports whether other serves the same peer or has the same name, and is older. If a server
// and a client have the same name and age, the server is treated as older.
func (g gateway) loses(other desired.Object, kind string) bool {
	sameName := sameKey(other, g.root)
	if itself := kind == g.kind && sameName; itself || !samePeer(other, g.root) && !sameName {
		return false
	}
	return api.Older(other, g.root) || !api.Older(g.root, other) && kind == "GatewayServer"
}

// observe reads the status of the rendered object; it is zero if the object does not exist.
func (g gateway) observe(rendered *unstructured.Unstructured) *renderedObject {
	var live struct {
		Status renderedStatus `json:"status"`
	}
	if g.Rendered != nil {
		// A status of a third party's kind that does not parse counts as not written yet.
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(g.Rendered.Object, &live); err != nil {
			live.Status = renderedStatus{}
		}
	}
	return &renderedObject{renderedStatus: live.Status, ref: &corev1.ObjectReference{
		APIVersion: rendered.GetAPIVersion(), Kind: rendered.GetKind(), Namespace: rendered.GetNamespace(),
		Name: rendered.GetName(),
	}}
}

// fabric returns the InternalFabric of the gateway, once its pod runs, and the verdict on the
// gateway.
func (g gateway) fabric(s *renderedObject) (*netv1beta1.InternalFabric, desired.Verdict) {
	if s.InternalEndpoint == nil || s.InternalEndpoint.IP == "" {
		return g.vacated(s), g.notUp(s, "GatewayPending", "no gateway pod is running yet",
			"status.internalEndpoint has no pod that carries the traffic")
	}
	addr, pending := g.Overlay.address(FabricOf(g.root), g.part, g.Networks, g.LiqoNamespace)
	if pending.State != desired.Ready {
		return nil, pending.Verdict
	}
	fabric := g.fabricAt(s.InternalEndpoint.IP, addr.String())
	fabric.Spec.StandbyIPs = s.InternalEndpoint.StandbyIPs
	return fabric, g.verdict(s, fabric)
}

// fabricAt returns the InternalFabric of a gateway with these addresses of its pod and in the
// overlay.
func (g gateway) fabricAt(pod, overlay string) *netv1beta1.InternalFabric {
	return &netv1beta1.InternalFabric{
		ObjectMeta: metav1.ObjectMeta{
			Name: g.root.GetName(), Namespace: g.root.GetNamespace(),
			Labels: map[string]string{
				api.LabelRemoteClusterID: g.peer(), api.LabelGatewayName: g.root.GetName(),
				api.LabelGatewayNamespace: g.root.GetNamespace(),
			},
		},
		Spec: netv1beta1.InternalFabricSpec{
			MTU: g.mtu, GatewayIP: pod, RemoteCIDRs: g.remoteCIDRs(),
			Interface: netv1beta1.InternalFabricInterface{
				Node:    netv1beta1.InternalFabricNodeInterface{Name: api.OverlayInterface},
				Gateway: netv1beta1.InternalFabricGatewayInterface{IP: overlay},
			},
		},
	}
}

// nowhere is the address in an InternalFabric whose gateway has no pod.
const nowhere = "0.0.0.0"

// vacated returns the existing InternalFabric without the address of a pod. The pod is gone, and
// another pod may get its address, to which nodes would send the peer's traffic. It returns nil if
// there is no InternalFabric, or the rendered object does not report that the pod is missing.
func (g gateway) vacated(s *renderedObject) *netv1beta1.InternalFabric {
	current, _ := g.Overlay.inUse(FabricOf(g.root))
	if _, failing := s.failing(); !failing || current == "" {
		return nil
	}
	return g.fabricAt(nowhere, current)
}

// verdict reports what is missing for traffic once the gateway pod runs.
func (g gateway) verdict(s *renderedObject, fabric *netv1beta1.InternalFabric) desired.Verdict {
	peer, namespace := g.peer(), g.root.GetNamespace()
	configurations, configuration := split(g, g.Configurations)
	keys, key := split(g, g.PublicKeys)
	if configuration != nil && len(configurations) == 0 {
		return desired.Wait("ConfigurationElsewhere",
			"Configuration %s/%s is not in the namespace of the gateway, which looks nowhere else; apply it in %s "+
				"and delete it there", configuration.Namespace, configuration.Name, namespace).Verdict
	}
	if len(fabric.Spec.RemoteCIDRs) == 0 {
		return desired.Wait("ConfigurationPending",
			"the peer's CIDRs are not known; apply its Configuration, labelled %s=%s, or see the conditions of the "+
				"one that is there", api.LabelRemoteClusterID, peer).Verdict
	}
	keys = slices.DeleteFunc(keys,
		func(k *netv1beta1.PublicKey) bool { return k.Labels[api.LabelGatewayResource] != api.True })
	if key != nil && len(keys) == 0 {
		return desired.Wait("PublicKeyElsewhere",
			"PublicKey %s/%s is not in the namespace of the gateway, which looks nowhere else; apply it in %s and "+
				"delete it there", key.Namespace, key.Name, namespace).Verdict
	}
	if len(keys) == 0 {
		return desired.Wait(reasonPublicKeyMissing,
			"the peer's public key is missing; apply its PublicKey, labelled %s=%s and %s=true",
			api.LabelRemoteClusterID, peer, api.LabelGatewayResource).Verdict
	}
	wireguard := s.ref.APIVersion == netv1beta1.GroupVersion.String() // the form of other keys is not known
	if n := len(keys[0].Spec.PublicKey); wireguard && n != keyLength {
		return desired.Block("PublicKeyInvalid",
			"PublicKey %s holds %d bytes, and a key of WireGuard has %d; apply what 'liqoctl generate publickey' "+
				"prints in the other cluster", keys[0].Name, n, keyLength).Verdict
	}
	for _, k := range keys[1:] {
		if !bytes.Equal(k.Spec.PublicKey, keys[0].Spec.PublicKey) {
			return desired.Block("DuplicatePublicKey",
				"PublicKeys %s and %s hold different keys of the peer and the older one, %s, is used; delete the "+
					"wrong one", keys[0].Name, k.Name, keys[0].Name).Verdict
		}
	}
	return desired.Verdict{}
}

// notUp returns the reason of the rendered object for not being ready, or else a verdict that says
// what is missing. For another technology than WireGuard it names the rendered object, which may have
// no Deployment and no Service.
func (g gateway) notUp(s *renderedObject, reason, message, ofOthers string) desired.Verdict {
	if why, failing := s.failing(); failing {
		return why
	}
	if s.ref.GroupVersionKind().Group != netv1beta1.GroupVersion.Group {
		return desired.Wait(reason, "%s; see %s %s/%s", ofOthers, s.ref.Kind, s.ref.Namespace, s.ref.Name).Verdict
	}
	return desired.Wait(reason, "%s; see Deployment and Service %s", message,
		api.GatewayResourceName(g.root.GetName())).Verdict
}

// failing returns the reason in the rendered object's status why it is not ready, if there is one.
func (s *renderedObject) failing() (desired.Verdict, bool) {
	c := meta.FindStatusCondition(s.Conditions, desired.ConditionReady)
	if c == nil || c.Status == metav1.ConditionTrue {
		return desired.Verdict{}, false
	}
	return desired.Verdict{State: desired.Waiting, Reason: c.Reason, Message: c.Message}, true
}

// reduced returns the condition that names what of the template has no effect; nil if all has.
func (g gateway) reduced(s *renderedObject) []metav1.Condition {
	c := meta.FindStatusCondition(s.Conditions, netv1beta1.ConditionTemplateReduced)
	if c == nil {
		return nil
	}
	own := *c
	own.ObservedGeneration = g.root.GetGeneration()
	return []metav1.Condition{own}
}

// remoteCIDRs returns the ranges that the peer is remapped to, pods first.
func (g gateway) remoteCIDRs() []string {
	configurations, _ := split(g, g.Configurations)
	for _, c := range configurations {
		if c.Status.Remote != nil {
			return slices.Concat(c.Status.Remote.CIDR.Pod, c.Status.Remote.CIDR.External)
		}
	}
	return nil
}

// split returns the peer's objects in the namespace of the gateway, which reads no others. They are
// sorted by age, because the oldest is used. It also returns one of the peer's objects elsewhere.
func split[T any, P interface {
	*T
	desired.Object
}](g gateway, list []T) (mine []P, elsewhere P) {
	for i := range list {
		switch o := P(&list[i]); {
		case !samePeer(o, g.root) || o.GetDeletionTimestamp() != nil:
		case o.GetNamespace() == g.root.GetNamespace():
			mine = append(mine, o)
		default:
			elsewhere = o
		}
	}
	slices.SortFunc(mine, func(a, b P) int {
		if api.Older(a, b) {
			return -1
		}
		return 1
	})
	return mine, elsewhere
}

// stringMap reads a map of strings at a path; values of other types are left out.
func stringMap(content map[string]any, path ...string) map[string]string {
	m, _, _ := unstructured.NestedMap(content, path...)
	out := make(map[string]string, len(m))
	for k, v := range m {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out
}
