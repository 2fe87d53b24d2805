// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package translate says, kind by kind, how an object of the home cluster looks at a provider
// and how what happens there is shown at home. It is pure: everything it needs to know is in
// the View, and the same input gives the same output.
//
// A function that pushes (ConfigMap, Pod, …) gets the home object and the remote object as it
// is (nil if there is none) and returns the remote object as it should be: nil when there
// should be none, the same when nothing is to be done. It starts from the remote object, so
// fields set at the provider stay, and fields that flow from home are replaced whole. A remote
// object that cannot be changed into what is wanted is given up (nil); the caller pushes again
// when it is gone. A function that pulls (PodStatus) is the reverse: it starts from the home
// object and fills in its status. A field flows in one direction only.
//
// It does not decide who owns a remote object, and does not read or write anything. What a provider makes of a
// ShadowPod, a ShadowEndpointSlice or a NamespaceMap is decided in offloading/plan.
//
// Start reading at View, then ConfigMap, then Pod and PodStatus.
package translate

import (
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// View is what a translation may know. It is never changed once made: a changed cluster gives
// a new View.
type View struct {
	// Consumer and Provider are cluster IDs; Consumer is the home cluster.
	Consumer, Provider string
	// Node is the virtual node that reflects.
	Node string
	// Namespaces maps a home namespace to its remote one. Only namespaces that exist at the
	// provider are in it.
	Namespaces map[string]string
	// NoMap: nobody says which namespaces exist at the provider, Unanswered: of these it has not said it yet.
	// Both pass; until then nothing is concluded from what Namespaces lacks.
	NoMap      bool
	Unanswered map[string]bool
	// ProviderNodes are all virtual nodes that stand for the provider.
	ProviderNodes map[string]bool
	// OtherNodes maps virtual nodes that stand for further providers to their cluster IDs, OtherPods
	// cluster IDs to the ranges of the pods there.
	OtherNodes map[string]string
	OtherPods  map[string]netv1beta1.Mappings
	// PeerPods are the ranges of the provider's pods; empty = pods are reached from home by the
	// addresses they have there, or the ranges are not known yet if Networked.
	PeerPods netv1beta1.Mappings
	// Networked: there is a Configuration of the provider, so its pods are reached by what PeerPods says
	// and by nothing else.
	Networked bool
	// Own are the addresses of the consumer's nodes, API server and Services, sorted, as far as Nodes, EndpointSlices
	// and Networks name them. No remote pod shows one of them. Empty if Networked or PeerPods decide which addresses
	// are shown.
	Own netv1beta1.Ranges
	// HomePods are the pod CIDRs of the home cluster; empty = every address is a home pod's.
	HomePods netv1beta1.Ranges
	// HideIPs leaves pods at the provider without addresses at home, and home endpoints
	// without reflection.
	HideIPs bool
	// RuntimeClass is the class that sends pods to virtual nodes; it does not travel with them.
	RuntimeClass string
	// HostIP is the address of the virtual kubelet, shown as that of the pods' host; zero = none.
	HostIP netip.Addr
	// APIServer is where remote pods find the API server of the home cluster.
	APIServer APIServer
	// Patch is what the virtual node changes in every pod.
	Patch offv1beta1.OffloadingPatch
	// System is the operating system that the VirtualNode names in its labels; empty = Linux.
	System string
	// LabelsDropped and AnnotationsDropped are keys that are never reflected.
	LabelsDropped, AnnotationsDropped map[string]bool
	// IngressClass and LoadBalancerClass are the provider's default classes; empty = the
	// provider offers none, and nothing is replaced.
	IngressClass, LoadBalancerClass string
	// StorageClass is the provider's class for volumes, empty = its own default; nil = it offers no
	// storage.
	StorageClass *string

	// AllowList reflects only objects marked for it; false = all but those marked against it.
	// It belongs to the kind being translated.
	AllowList bool
	// Service is the Service an EndpointSlice belongs to; nil = none. Set for that kind only,
	// together with ServiceAllowList, the AllowList of Services.
	Service          *corev1.Service
	ServiceAllowList bool
	// External leads from addresses outside HomePods to the addresses by which the home
	// cluster makes them reachable for its peers. Set for EndpointSlices only.
	External map[netip.Addr]netip.Addr
	// Involved is the home object an event of the provider is about; nil = none. Set for
	// events only.
	Involved *corev1.ObjectReference
	// EnvKeys are the keys of ConfigMaps and Secrets, by what EnvSources returns. Set for pods only.
	EnvKeys map[string][]string
	// TakenPort is a host port of the pod that an earlier pod of the virtual node has; empty = none. Set for pods only.
	TakenPort string
	// Foreign tells since when the provider has objects of its own under the names of objects that the pod uses, by
	// Reference. Set when the status of a pod is pulled.
	Foreign map[string]metav1.Time
	// Refusal is what the peer has just said that does not let the remote object be made or changed; nil =
	// it let. Set when a status is pulled.
	Refusal *metav1.Condition
	// Unsaid: whether the peer lets the remote object be made or changed is not known this time.
	Unsaid bool
	// Tokens are freshly requested service account tokens by key of the Secret; nil = go on
	// with those the remote Secret has. Set for service accounts only.
	Tokens map[string]Token
	// TokenSecret is the name of a new Secret of tokens; empty = the present one. Set for service accounts only.
	TokenSecret string
}

// APIServer says how a remote pod reaches the API server of the home cluster.
type APIServer struct {
	// Host and Port, if set, are used as they are.
	Host, Port string
	// Addrs are the addresses of the API server as peers see it, used when Host is empty;
	// none = it is not reachable and pods get no host name for it.
	Addrs []netip.Addr
	// ClusterDomain is the DNS domain of the home cluster; empty = not known.
	ClusterDomain string
	// Unsupported: remote pods know nothing of the home API server.
	Unsupported bool
}

// Token is one service account token.
type Token struct {
	Value   string
	Expires time.Time
	// Seconds it was made for, which may be less than were asked for.
	Seconds int64
}

// reflects says whether an object with these annotations is reflected.
func reflects(annotations map[string]string, allowList bool) bool {
	if allowList {
		return marked(annotations, api.AnnotationAllowReflection)
	}
	return !marked(annotations, api.AnnotationSkipReflection)
}

// marked says whether an annotation is there; only the value "false" (in any case) takes it back.
func marked(annotations map[string]string, key string) bool {
	value, ok := annotations[key]
	return ok && !strings.EqualFold(value, "false")
}
