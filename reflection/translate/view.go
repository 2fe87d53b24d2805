// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package translate computes, for each kind, the remote object of a home object, and the status
// that the home object gets back. It is pure: all its input is in the objects and the View, and the
// same input gives the same output.
//
// A function that pushes (ConfigMap, Pod, …) gets the home object and the observed remote object
// (nil if there is none), and returns the desired remote object. It returns nil if there should be
// none, and the same object if nothing is to be done. It starts from the remote object: fields set
// at the provider stay, and fields that flow from the consumer are replaced whole. If a remote
// object cannot be changed into the desired one, it returns nil; the caller pushes again when the
// object is gone. A function that pulls (PodStatus) is the reverse: it starts from the home object
// and sets its status. A field flows in one direction only.
//
// It does not decide who owns a remote object, and does not read or write anything. What a provider
// makes of a ShadowPod, a ShadowEndpointSlice or a NamespaceMap is decided in offloading/plan.
//
// Start reading at View, then ConfigMap, then Pod and PodStatus.
package translate

import (
	"net/netip"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// View holds all input of a translation besides the objects. It is immutable: a change of the
// clusters gives a new View.
type View struct {
	// Consumer and Provider are cluster IDs; Consumer is the home cluster.
	Consumer, Provider string
	// Node is the virtual node that reflects.
	Node string
	// Namespaces maps home namespaces to remote ones. It has only namespaces that exist at the
	// provider.
	Namespaces map[string]string
	// Ending holds those of Namespaces that are being deleted in the home cluster, and leave the provider
	// with it. Nothing is pushed to them; what ends there is pulled.
	Ending map[string]bool
	// NoMap is set if there is no NamespaceMap. Unanswered holds the namespaces that the provider
	// has not answered yet. Both are temporary: until then, a namespace missing in Namespaces may
	// exist at the provider.
	NoMap      bool
	Unanswered map[string]bool
	// ProviderNodes holds all virtual nodes of the provider.
	ProviderNodes map[string]bool
	// OtherNodes maps the virtual nodes of further providers to their cluster IDs. OtherPods maps
	// those cluster IDs to the pod ranges of the providers.
	OtherNodes map[string]string
	OtherPods  map[string]netv1beta1.Mappings
	// PeerPods maps the ranges of the provider's pods. If it is empty, the consumer reaches pods by
	// their own addresses, or, if Networked, the ranges are not known yet.
	PeerPods netv1beta1.Mappings
	// Networked is set if there is a Configuration of the provider. Then its pods are reached only
	// by the ranges in PeerPods.
	Networked bool
	// Own holds the addresses of the consumer's nodes, API server and Services, sorted, as far as
	// Nodes, EndpointSlices and Networks name them. No remote pod shows one of them. It is empty if
	// Networked or PeerPods decide which addresses are shown.
	Own netv1beta1.Ranges
	// HomePods holds the pod CIDRs of the home cluster; empty = every address is a home pod's.
	HomePods netv1beta1.Ranges
	// HideIPs shows no addresses of remote pods in the consumer, and reflects no endpoints.
	HideIPs bool
	// RuntimeClass is the class that sends pods to virtual nodes; it is not reflected.
	RuntimeClass string
	// HostIP is the address of the virtual kubelet, shown as that of the pods' host; zero = none.
	HostIP netip.Addr
	// APIServer is where remote pods find the API server of the home cluster.
	APIServer APIServer
	// Patch holds the changes that the virtual node makes to every pod.
	Patch offv1beta1.OffloadingPatch
	// System is the operating system that the VirtualNode names in its labels; empty = Linux.
	System string
	// LabelsDropped and AnnotationsDropped are keys that are never reflected.
	LabelsDropped, AnnotationsDropped []string
	// IngressClass and LoadBalancerClass are the provider's default classes; empty = the
	// provider offers none, and nothing is replaced.
	IngressClass, LoadBalancerClass string
	// StorageClass is the provider's class for volumes; empty = its default, nil = it offers no
	// storage.
	StorageClass *string
	// Trust holds the ClusterTrustBundles of the home cluster, sorted by name; nil = no pod has read one
	// yet, or the cluster serves none.
	Trust []certificatesv1.ClusterTrustBundle

	// AllowList reflects only objects marked for it; false = all but those marked against it.
	// It belongs to the kind being translated.
	AllowList bool
	// Service is the Service an EndpointSlice belongs to; nil = none. Set for that kind only,
	// together with ServiceAllowList, the AllowList of Services.
	Service          *corev1.Service
	ServiceAllowList bool
	// External maps addresses outside HomePods to the addresses by which peers reach them through
	// the home cluster. Set for EndpointSlices only.
	External map[netip.Addr]netip.Addr
	// Involved is the home object that an event of the provider is about; nil = none. Set for
	// events only.
	Involved *corev1.ObjectReference
	// EnvKeys holds the keys of ConfigMaps and Secrets, by the results of EnvSources. Set for pods
	// only.
	EnvKeys map[string][]string
	// TakenPort is a host port of the pod that an earlier pod of the virtual node has; empty =
	// none. Set for pods only.
	TakenPort string
	// Foreign holds the objects of the provider that have the names of objects that the pod uses,
	// by Reference, with the time since when. Set when the status of a pod is pulled.
	Foreign map[string]metav1.Time
	// Lost holds the fields that the home object sets and its type here lacks, by path, sorted.
	Lost []string
	// Refusal describes why the peer has just refused to create or change the remote object; nil =
	// it did not. Set when a status is pulled.
	Refusal *metav1.Condition
	// RefusalUnknown is set if it is unknown this time whether the peer refuses the remote object.
	RefusalUnknown bool
	// Tokens holds newly requested service account tokens by key of the Secret; nil = the remote
	// Secret keeps its own. Set for service accounts only.
	Tokens map[string]Token
	// Certificates holds newly issued certificates and their private keys by Secret key; nil = the
	// remote Secret keeps its own. CertificateRefresh holds the times at which their renewal begins,
	// by CertificateSource.ID. Uncertified says why other certificates are not issued or renewed; nil
	// = nothing is reported. Set for service accounts only.
	Certificates       map[string][]byte
	CertificateRefresh map[string]time.Time
	Uncertified        error
	// TokenSecret is the name of a new Secret of tokens; empty = the present one. Set for service
	// accounts only.
	TokenSecret string
}

// APIServer describes how a remote pod reaches the API server of the home cluster.
type APIServer struct {
	// Host and Port, if set, are used as they are.
	Host, Port string
	// Addrs are the API server's addresses for peers, used when Host is empty; none = it is not
	// reachable, and pods get no host name for it.
	Addrs []netip.Addr
	// ClusterDomain is the DNS domain of the home cluster; empty = not known.
	ClusterDomain string
	// Unsupported leaves remote pods without access to the home API server.
	Unsupported bool
}

// Token is one service account token.
type Token struct {
	Value   string
	Expires time.Time
	// Seconds is the lifetime the token was made for, which may be less than requested.
	Seconds int64
}

// reflects reports whether an object with these annotations is reflected.
func reflects(annotations map[string]string, allowList bool) bool {
	if allowList {
		return marked(annotations, api.AnnotationAllowReflection)
	}
	return !marked(annotations, api.AnnotationSkipReflection)
}

// marked reports whether an annotation exists with a value other than "false" (in any case).
func marked(annotations map[string]string, key string) bool {
	value, ok := annotations[key]
	return ok && !strings.EqualFold(value, "false")
}
