// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Names of the installation.
const (
	// Namespace is where Liqo is installed unless the user says otherwise.
	Namespace = "liqo"
	// ReleaseName is the Helm release.
	ReleaseName = "liqo"
	// StorageNamespace holds volumes of the virtual storage class.
	StorageNamespace = "liqo-storage"
	// LabelStorageProvisioner ("true") marks StorageNamespace.
	LabelStorageProvisioner = "liqo.io/storage-provisioner"
	// ClusterIDConfigMap holds the cluster's own ID, in the install namespace.
	ClusterIDConfigMap = "liqo-clusterid-configmap"
	// ClusterIDConfigMapKey is the key in ClusterIDConfigMap.
	ClusterIDConfigMapKey = "CLUSTER_ID"
	// ClusterIDConfigMapAppName is the value of LabelAppName on ClusterIDConfigMap.
	ClusterIDConfigMapAppName = "clusterid-configmap"
	// StorageClassName is the virtual storage class.
	StorageClassName = "liqo"
	// StorageProvisioner is its provisioner.
	StorageProvisioner = "liqo.io/storage"
	// LabelStorageAvailable ("true", "false") on a virtual Node says whether its provider offers
	// storage.
	LabelStorageAvailable = "storage.liqo.io/available"
	// LabelVirtualPVCNamespace and LabelVirtualPVCName, on a claim in StorageNamespace, name the
	// claim it backs. A name that is too long for a label is left out.
	LabelVirtualPVCNamespace = "storage.liqo.io/virtual-pvc-namespace"
	LabelVirtualPVCName      = "storage.liqo.io/virtual-pvc-name"
	// RuntimeClassName sends a pod to virtual nodes.
	RuntimeClassName = "liqo"
	// DefaultResourceSliceClass is the class of slices this implementation grants itself;
	// the empty class means the same.
	DefaultResourceSliceClass = "default"
	// NamespaceOffloadingName is the only legal name of a NamespaceOffloading.
	NamespaceOffloadingName = "offloading"
	// VkOptionsTemplateName is the default VkOptionsTemplate, in the install namespace.
	VkOptionsTemplateName = "virtual-kubelet-default"
	// WgGatewayServerTemplateName is the default server template, in the install namespace.
	WgGatewayServerTemplateName = "wireguard-server"
	// WgGatewayClientTemplateName is the default client template, in the install namespace.
	WgGatewayClientTemplateName = "wireguard-client"
	// VirtualKubeletLeaderLease elects the virtual kubelet that reflects what all virtual
	// nodes of a provider share, in the tenant namespace.
	VirtualKubeletLeaderLease = "virtual-kubelet-leader-election"
	// ControllerManagerName is the Deployment of the controller.
	ControllerManagerName = "liqo-controller-manager"
	// DefaultsConfigMap holds the objects that the controller makes for an installation, in YAML.
	DefaultsConfigMap = "liqo-defaults"
	// FabricName is the DaemonSet of the nodes' network.
	FabricName = "liqo-fabric"
	// ProxyName is the Deployment and Service of the API server proxy.
	ProxyName = "liqo-proxy"
	// WebhookName is both webhook configurations and their Service.
	WebhookName = "liqo-webhook"
	// WebhookCertsSecret holds the webhook's certificate: keys ca, tls.crt, tls.key.
	WebhookCertsSecret = "liqo-webhook-certs"
)

// Networks and IPs made at install, in the install namespace.
const (
	NetworkPodCIDR      = "pod-cidr"
	NetworkServiceCIDR  = "service-cidr"
	NetworkExternalCIDR = "external-cidr"
	NetworkInternalCIDR = "internal-cidr"
	IPAPIServer         = "api-server"
	IPAPIServerProxy    = "api-server-proxy"
)

// TenantNamespacePrefix begins the names of tenant namespaces.
const TenantNamespacePrefix = "liqo-tenant-"

// maxClusterIDLength keeps TenantNamespace a DNS label: 51 = 63 − len("liqo-tenant-").
const maxClusterIDLength = 63 - len(TenantNamespacePrefix)

// ClusterIDPattern matches valid cluster IDs, which are DNS labels.
const ClusterIDPattern = `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`

var clusterID = regexp.MustCompile(ClusterIDPattern)

// ValidateClusterID returns what is wrong with a cluster ID; nil if it is valid.
func ValidateClusterID(id string) error {
	if !clusterID.MatchString(id) {
		return fmt.Errorf("cluster ID %q: use lower-case letters, digits and '-', starting and ending with a letter "+
			"or digit", id)
	}
	if len(id) > maxClusterIDLength {
		return fmt.Errorf("cluster ID %q: %d characters, use at most %d", id, len(id), maxClusterIDLength)
	}
	return nil
}

// TenantNamespace names the namespace of the peering with a cluster. Users may choose
// another name: find it by LabelTenantNamespace and LabelRemoteClusterID first.
func TenantNamespace(remoteClusterID string) string { return TenantNamespacePrefix + remoteClusterID }

// RemoteNamespaceName names the remote namespace with the strategy DefaultName. It is not
// shortened: a name over 63 characters cannot be created.
func RemoteNamespaceName(localNamespace, consumerClusterID string) string {
	return localNamespace + "-" + consumerClusterID
}

// ManagedByNamespaceMap is the value of AnnotationManagedByNamespaceMap.
func ManagedByNamespaceMap(tenantNamespace, namespaceMap string) string {
	return tenantNamespace + "/" + namespaceMap
}

// ClaimFinalizerPrefix begins the finalizers of claims whose volumes are at providers.
const ClaimFinalizerPrefix = "storage.liqo.io/"

// ClaimFinalizer returns the finalizer of a claim whose volume at a provider must be released first.
func ClaimFinalizer(provider string) string { return ClaimFinalizerPrefix + provider }

// GatewayResourceName names Deployment, key Secret and Connection of a gateway.
func GatewayResourceName(gateway string) string { return "gw-" + gateway }

// GatewayServiceName names the Service of a gateway server.
func GatewayServiceName(gateway string) string { return serviceName(GatewayResourceName(gateway)) }

// GatewayMetricsName names the metrics Service and ServiceMonitor of a gateway.
func GatewayMetricsName(gateway string) string { return serviceName(gateway + "-metrics") }

// serviceName returns text as the name of a Service: text itself if it is legal, else a legal name
// that ends in digits of its hash. Names of Services have no dots, at most 63 characters, and begin
// with a letter.
func serviceName(text string) string {
	if len(validation.IsDNS1035Label(text)) == 0 {
		return text
	}
	legal := strings.ReplaceAll(text, ".", "-")
	if legal[0] < 'a' {
		legal = "gw-" + legal
	}
	return derived(legal, validation.DNS1035LabelMaxLength, Digits(text))
}

// VirtualKubeletName names the Deployment of a virtual node's virtual kubelet.
func VirtualKubeletName(virtualNode string) string { return "vk-" + virtualNode }

// ServiceAccountTokenSecretName names the remote Secret with the tokens of a pod. The digits keep
// it apart from Secrets of users, which have the same names at the provider as at the consumer.
func ServiceAccountTokenSecretName(pod string) string {
	return derived(pod+"-token", validation.DNS1123SubdomainMaxLength, Digits(pod))
}

// FormerServiceAccountTokenSecretName returns the name that versions without digits, and the
// original, give to the Secret with the tokens of a pod.
func FormerServiceAccountTokenSecretName(pod string) string { return pod + "-token" }

// LabelValue returns text as the value of a label: text itself if it is legal, else its legal
// characters and digits of its hash.
func LabelValue(text string) string {
	if len(validation.IsValidLabelValue(text)) == 0 {
		return text
	}
	legal := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, text)
	return strings.TrimLeft(derived(legal, validation.LabelValueMaxLength, Digits(text)), "-_.")
}

// derived appends digits to a name, and cuts the name so that the result has at most longest
// characters.
func derived(name string, longest int, digits string) string {
	return strings.TrimRight(name[:min(len(name), longest-len(digits)-1)], "-_.") + "-" + digits
}

// Digits returns 40 bits of the SHA-256 of a name, in hexadecimal digits. They make names unique that
// were shortened or had characters replaced.
func Digits(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:5])
}

// RootCAConfigMapName names the remote copy of the consumer's root CA. It takes the first
// 5 characters of the ID, or all of a shorter one.
func RootCAConfigMapName(consumerClusterID string) string {
	return "kube-root-ca.crt." + consumerClusterID[:min(5, len(consumerClusterID))]
}

// UnknownSourceIPName names the IP whose address replaces sources that have no address of their own.
func UnknownSourceIPName(configuration string) string { return configuration + "-unknown-source" }
