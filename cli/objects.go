// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// The functions of this file build every object that liqoctl creates, from values only, so that a
// verb applies what it prints with -o.

// metaOf returns the metadata of an object with this name.
func metaOf(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// ofPeer selects the objects that concern a peer.
func ofPeer(id string) client.MatchingLabels {
	return client.MatchingLabels{api.LabelRemoteClusterID: id}
}

// metaFor returns the metadata of an object that concerns a peer. It sets the labels in marks to
// "true".
func metaFor(namespace, name, peer string, marks ...string) metav1.ObjectMeta {
	out := metaOf(namespace, name)
	out.Labels = ofPeer(peer)
	for _, label := range marks {
		out.Labels[label] = api.True
	}
	return out
}

// tenantNamespace returns the namespace for the objects of one peering. Pod Security must allow
// privileged pods for the gateways.
func tenantNamespace(name, peer string) *corev1.Namespace {
	return privilegedNamespace(metaFor("", name, peer, api.LabelTenantNamespace))
}

// privilegedNamespace returns a namespace in which Pod Security allows privileged pods.
func privilegedNamespace(meta metav1.ObjectMeta) *corev1.Namespace {
	for _, mode := range []string{"enforce", "audit", "warn"} {
		meta.Labels["pod-security.kubernetes.io/"+mode] = "privileged"
	}
	return &corev1.Namespace{ObjectMeta: meta}
}

// hasRanges reports whether a Configuration has these ranges of the peer, in any order.
func hasRanges(c *netv1beta1.Configuration, r netv1beta1.ClusterCIDR) bool {
	return c.Spec.Remote != nil && sets.New(r.Pod...).Equal(sets.New(c.Spec.Remote.CIDR.Pod...)) &&
		sets.New(r.External...).Equal(sets.New(c.Spec.Remote.CIDR.External...))
}

// configuration returns the Configuration that gives a cluster the ranges of its peer.
func configuration(namespace, name, peer string, r netv1beta1.ClusterCIDR) *netv1beta1.Configuration {
	return &netv1beta1.Configuration{ObjectMeta: metaFor(namespace, name, peer),
		Spec: netv1beta1.ConfigurationSpec{Remote: &netv1beta1.ClusterConfig{CIDR: r}}}
}

// template names a gateway template by group/version/plural, name and namespace.
type template struct {
	resource, name, namespace string
	// kind is the kind of the resource; empty if it was not looked up or the cluster does not know
	// it.
	kind string
}

// addFlags adds the flags that name a template, with their defaults.
func (t *template) addFlags(flags *pflag.FlagSet, prefix string, d template) {
	flags.StringVar(&t.resource, prefix+"type", d.resource, "Kind of the gateway's template: group/version/resource")
	flags.StringVar(&t.name, prefix+"template-name", d.name, "Template of the gateway")
	flags.StringVar(&t.namespace, prefix+"template-namespace", d.namespace,
		"Namespace of the template (default: Liqo's)")
}

const (
	serverTemplates = "networking.liqo.io/v1beta1/wggatewayservertemplates"
	clientTemplates = "networking.liqo.io/v1beta1/wggatewayclienttemplates"
)

// parts returns group/version and plural.
func (t template) parts() (version, plural string) {
	i := strings.LastIndex(t.resource, "/")
	return t.resource[:max(0, i)], t.resource[i+1:]
}

// resolve sets the namespace to Liqo's if the user named none, and looks up the kind: users name
// the plural.
func (c *cluster) resolve(t *template) error {
	t.namespace = cmp.Or(t.namespace, c.namespace)
	version, plural := t.parts()
	gv, err := schema.ParseGroupVersion(version)
	if err != nil {
		return fmt.Errorf("template %q: %w", t.resource, err)
	}
	found, err := c.RESTMapper().KindFor(gv.WithResource(plural))
	if err != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("look up %s in the %scluster: %w", t.resource, c.side.clusterPrefix(), err)
	}
	t.kind = found.Kind
	return nil
}

// ref returns the reference for the spec of a gateway. It guesses a kind that the cluster does not
// know from the plural, as Kubernetes does by default, except for the templates of Liqo.
func (t template) ref() *corev1.ObjectReference {
	version, plural := t.parts()
	kind := t.kind
	switch {
	case kind != "":
	case t.resource == serverTemplates:
		kind = "WgGatewayServerTemplate"
	case t.resource == clientTemplates:
		kind = "WgGatewayClientTemplate"
	default:
		kind = strings.TrimSuffix(plural, "s")
	}
	return &corev1.ObjectReference{APIVersion: version, Kind: kind, Namespace: t.namespace, Name: t.name}
}

// serverService describes how a gateway server is exposed.
type serverService struct {
	// Endpoint is without ports. An empty protocol means that of the template, by default UDP.
	netv1beta1.Endpoint
	ports, nodePorts ports
}

// serviceTypes lists the types of Services for gateway servers; the first is the default.
var serviceTypes = [...]string{"LoadBalancer", "NodePort", "ClusterIP"}

// addProtocolFlag adds the flag for the transport. Its help shows the default of Liqo's templates.
func (s *serverService) addProtocolFlag(flags *pflag.FlagSet, name string) {
	flags.Var(choice(&s.Protocol, "UDP", "TCP"), name, "Transport of the tunnel; TCP is for networks that block UDP")
	s.Protocol = ""
}

// endpoint returns the endpoint for the spec of a gateway server.
func (s serverService) endpoint() *netv1beta1.Endpoint {
	out := s.Endpoint
	out.Port, out.Ports = s.ports.split()
	out.NodePort, out.NodePorts = s.nodePorts.split()
	return &out
}

func gatewayServer(at metav1.ObjectMeta, t template, s serverService, mtu int) *netv1beta1.GatewayServer {
	return &netv1beta1.GatewayServer{
		ObjectMeta: at,
		Spec: netv1beta1.GatewayServerSpec{
			ServerTemplateRef: t.ref(),
			MTU:               mtu,
			Endpoint:          s.endpoint(),
		},
	}
}

func gatewayClient(at metav1.ObjectMeta, t template, e netv1beta1.EndpointStatus, mtu int) *netv1beta1.GatewayClient {
	return &netv1beta1.GatewayClient{
		ObjectMeta: at,
		Spec:       netv1beta1.GatewayClientSpec{ClientTemplateRef: t.ref(), MTU: mtu, Endpoint: &e},
	}
}

func publicKey(namespace, name, peer string, key []byte) *netv1beta1.PublicKey {
	return &netv1beta1.PublicKey{ObjectMeta: metaFor(namespace, name, peer, api.LabelGatewayResource),
		Spec: netv1beta1.PublicKeySpec{PublicKey: key}}
}

// nonce returns the Secret that asks the provider's controller for a nonce.
func nonce(namespace, consumer string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metaFor(namespace, api.NonceSecret, consumer, api.LabelNonce),
		Type: corev1.SecretTypeOpaque}
}

// signedNonce returns the Secret that asks the consumer's controller to sign the nonce.
func signedNonce(namespace, provider string, challenge []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metaFor(namespace, api.SignedNonceSecret, provider, api.LabelSignedNonce),
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{api.NonceField: challenge},
	}
}

// tenant returns the Tenant that asks a provider to admit a consumer. The namespace is one of the
// provider.
func tenant(namespace string, spec authv1beta1.TenantSpec) *authv1beta1.Tenant {
	return &authv1beta1.Tenant{ObjectMeta: metaFor(namespace, spec.ClusterID, spec.ClusterID), Spec: spec}
}

// admission returns the objects that admit a consumer whose credentials the user creates: its
// tenant namespace, the rights of the user with its name, and its Tenant.
func admission(namespace, consumer, proxyURL string) []client.Object {
	admitted := tenant(namespace, authv1beta1.TenantSpec{
		ClusterID: consumer, ProxyURL: proxyURL, AuthzPolicy: authv1beta1.AuthzTolerateNoHandshake})
	return []client.Object{tenantNamespace(namespace, consumer), &rbacv1.RoleBinding{
		ObjectMeta: metaFor(namespace, api.BindingRemoteControlPlane, consumer),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: api.ClusterRoleRemoteControlPlane},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: consumer}},
	}, admitted}
}

// identity returns the Identity with the credentials from a consumer's Tenant; remote is the tenant
// namespace at the provider.
func identity(namespace, provider, remote string, params *authv1beta1.AuthParams) *authv1beta1.Identity {
	return &authv1beta1.Identity{
		ObjectMeta: metaFor(namespace, api.ControlPlaneIdentityName(provider), provider),
		Spec: authv1beta1.IdentitySpec{
			ClusterID: provider, Type: authv1beta1.IdentityControlPlane, Namespace: remote, AuthParams: params,
		},
	}
}

// sliceOptions describes a ResourceSlice.
type sliceOptions struct {
	name, class string
	resources   corev1.ResourceList
	virtualNode bool
	// keepsClass and keepsNode report that an existing slice keeps its class or annotation, as no
	// flag names them.
	keepsClass, keepsNode bool
}

func resourceSlice(namespace, provider string, s sliceOptions) *authv1beta1.ResourceSlice {
	out := &authv1beta1.ResourceSlice{
		ObjectMeta: metaFor(namespace, s.name, provider, api.LabelReplication),
		Spec:       authv1beta1.ResourceSliceSpec{Class: s.class, ProviderClusterID: provider, Resources: s.resources},
	}
	out.Labels[api.LabelRemoteID] = provider
	out.Annotations = map[string]string{api.AnnotationCreateVirtualNode: api.True}
	if !s.virtualNode {
		out.Annotations[api.AnnotationCreateVirtualNode] = "false"
	}
	return out
}

// virtualNodeOptions describes a VirtualNode.
type virtualNodeOptions struct {
	name, secret                 string
	createNode, skipNetworkCheck bool
	resources                    corev1.ResourceList
	labels, nodeSelector         map[string]string
	runtimeClass                 string
	storage, ingress, balancers  []string
	// optionsNamespace and options name a VkOptionsTemplate; empty means the default one.
	optionsNamespace, options string
}

func virtualNode(namespace, provider string, v virtualNodeOptions) *offv1beta1.VirtualNode {
	out := &offv1beta1.VirtualNode{
		ObjectMeta: metaFor(namespace, v.name, provider),
		Spec: offv1beta1.VirtualNodeSpec{
			ClusterID:           provider,
			CreateNode:          &v.createNode,
			DisableNetworkCheck: &v.skipNetworkCheck,
			KubeconfigSecretRef: &corev1.LocalObjectReference{Name: v.secret},
			ResourceQuota:       corev1.ResourceQuotaSpec{Hard: v.resources},
			Labels:              v.labels,
		},
	}
	if v.options != "" {
		out.Spec.VkOptionsTemplateRef = &corev1.ObjectReference{
			APIVersion: offv1beta1.GroupVersion.String(), Kind: "VkOptionsTemplate", Namespace: v.optionsNamespace,
			Name: v.options,
		}
	}
	if len(v.nodeSelector) > 0 || v.runtimeClass != "" {
		out.Spec.OffloadingPatch = &offv1beta1.OffloadingPatch{NodeSelector: v.nodeSelector}
		if v.runtimeClass != "" {
			out.Spec.OffloadingPatch.RuntimeClassName = &v.runtimeClass
		}
	}
	for i, class := range v.storage {
		out.Spec.StorageClasses = append(out.Spec.StorageClasses,
			authv1beta1.StorageType{StorageClassName: class, Default: i == 0})
	}
	for i, class := range v.ingress {
		out.Spec.IngressClasses = append(out.Spec.IngressClasses,
			authv1beta1.IngressType{IngressClassName: class, Default: i == 0})
	}
	for i, class := range v.balancers {
		out.Spec.LoadBalancerClasses = append(out.Spec.LoadBalancerClasses,
			authv1beta1.LoadBalancerType{LoadBalancerClassName: class, Default: i == 0})
	}
	return out
}

// offloading returns the NamespaceOffloading of a namespace.
func offloading(namespace string, spec offv1beta1.NamespaceOffloadingSpec) *offv1beta1.NamespaceOffloading {
	return &offv1beta1.NamespaceOffloading{ObjectMeta: metaOf(namespace, api.NamespaceOffloadingName), Spec: spec}
}
