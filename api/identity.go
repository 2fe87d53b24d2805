// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Secrets of the handshake and their keys.
const (
	// AuthenticationKeysSecret holds the key pair that former versions used for all peers, in the install namespace.
	AuthenticationKeysSecret = "authentication-keys"
	// PrivateKeyField is PKCS#8 PEM in the Secrets of AuthenticationKeysSecret and PeerKeysSecretName, 32 raw bytes
	// in a gateway's Secret.
	PrivateKeyField = "privateKey"
	// PublicKeyField is PKIX PEM beside a PKCS#8 private key, 32 raw bytes in a gateway's Secret.
	PublicKeyField = "publicKey"
	// NonceSecret holds the challenge, in the tenant namespace of the provider.
	NonceSecret = "liqo-nonce"
	// NonceField is 64 random bytes as base64 text.
	NonceField = "nonce"
	// SignedNonceSecret holds the answer, in the tenant namespace of the consumer.
	SignedNonceSecret = "liqo-signed-nonce"
	// SignedNonceField is the signature of the nonce.
	SignedNonceField = "signedNonce"
	// KubeconfigField is the key of a kubeconfig in its Secret.
	KubeconfigField = "kubeconfig"
	// KubeconfigContext is the only context of such a kubeconfig.
	KubeconfigContext = "default-context"
	// RemoteCertificateSecret holds the certificate issued to a consumer's control plane.
	RemoteCertificateSecret = "liqo-remote-certificate"
	// CSRField is the signing request in an issued certificate's Secret.
	CSRField = "csr"
	// CertificateField is the certificate in an issued certificate's Secret.
	CertificateField = "certificate"
)

// Certificates.
const (
	// CSRSigner signs the certificates of peers.
	CSRSigner = "kubernetes.io/kube-apiserver-client"
	// CSRGenerateName starts the names of CertificateSigningRequests.
	CSRGenerateName = "liqo-identity-"
	// ControlPlaneOrganization is the group of control planes and peering users.
	ControlPlaneOrganization = "liqo.io"
)

// PeersPriorityLevel is the PriorityLevelConfiguration of the requests of all peers, part of the chart.
const PeersPriorityLevel = "liqo-peers"

// Roles and bindings.
const (
	ClusterRoleRemoteControlPlane              = "liqo-remote-controlplane"
	ClusterRoleVirtualKubeletRemote            = "liqo-virtual-kubelet-remote"
	ClusterRoleVirtualKubeletRemoteClusterWide = "liqo-virtual-kubelet-remote-clusterwide"
	ClusterRoleVirtualKubeletLocal             = "liqo-virtual-kubelet-local"
	// ClusterRoleVirtualKubeletOffloaded is bound in the namespaces that are offloaded to the provider of a virtual
	// kubelet, and in its tenant namespace.
	ClusterRoleVirtualKubeletOffloaded    = "liqo-virtual-kubelet-offloaded"
	ClusterRoleGateway                    = "liqo-gateway"
	ClusterRolePeeringUserTenantNamespace = "liqo-peering-user-tenant-ns"
	// BindingRemoteControlPlane lets a consumer's control plane into its tenant namespace.
	BindingRemoteControlPlane = "liqo-binding-liqo-remote-controlplane"
)

// ControlPlaneIdentityName names the Identity of this cluster's control plane at a provider.
func ControlPlaneIdentityName(providerClusterID string) string {
	return "controlplane-" + providerClusterID
}

// ResourceSliceIdentityName names the Identity of a slice.
func ResourceSliceIdentityName(slice string) string { return "resourceslice-" + slice }

// PeerKeysSecretName names the Secret with the key pair for the peer of a tenant namespace. It is in the install
// namespace, where peering users read no Secrets.
func PeerKeysSecretName(tenantNamespace string) string {
	return AuthenticationKeysSecret + "-" + tenantNamespace
}

// KubeconfigSecretName names the Secret with the kubeconfig of an Identity.
func KubeconfigSecretName(identity string) string { return "kubeconfig-" + identity }

// RemoteCertificateSecretName names the Secret with the certificate issued to a slice.
func RemoteCertificateSecretName(slice string) string { return RemoteCertificateSecret + "-" + slice }

// ResourceSliceUserName is the user (certificate CN) of a slice and the name of its Quota:
// the slice and the first 12 hexadecimal digits of the consumer ID's SHA-256.
func ResourceSliceUserName(slice, consumerClusterID string) string {
	sum := sha256.Sum256([]byte(consumerClusterID))
	return slice + "-" + hex.EncodeToString(sum[:])[:12]
}

// PeeringUserName begins the name of a peering user, to which a dash and 32 hexadecimal digits are
// added.
func PeeringUserName(consumerClusterID string) string { return "liqo-peer-user-" + consumerClusterID }

// PeeringUserLabel is the value of LabelPeeringUserName.
func PeeringUserLabel(consumerClusterID string) string {
	return LabelValue(PeeringUserName(consumerClusterID))
}

// PeeringUserLiqoBindingName names a peering user's RoleBinding in the install namespace.
func PeeringUserLiqoBindingName(consumerClusterID string) string {
	return PeeringUserName(consumerClusterID) + "-liqo-ns-reader"
}

// PeeringUserTenantBindingName names a peering user's RoleBinding in the tenant namespace.
func PeeringUserTenantBindingName(consumerClusterID string) string {
	return PeeringUserName(consumerClusterID) + "-tenant-ns-writer"
}

// ClusterWideBindingName names the ClusterRoleBinding of a consumer's virtual kubelets.
func ClusterWideBindingName(clusterRole, consumerClusterID string) string {
	return "liqo-binding-" + clusterRole + "-" + consumerClusterID
}

// TenantFlowSchemaName names the FlowSchema of a consumer's requests.
func TenantFlowSchemaName(consumerClusterID string) string { return "liqo-tenant-" + consumerClusterID }

// VirtualNodeBindingName names the ClusterRoleBinding of a virtual kubelet in this cluster.
func VirtualNodeBindingName(virtualNode string) string { return "liqo-node-" + virtualNode }

// GatewayBindingName names the ClusterRoleBinding of a gateway. A dash in the gateway's name could as well be the
// namespace's: gateway b-c in namespace a is not gateway c in namespace a-b. No namespace has a colon.
func GatewayBindingName(namespace, gateway string) string {
	if strings.Contains(gateway, "-") {
		return "liqo-gateway-" + namespace + ":" + gateway
	}
	return "liqo-gateway-" + namespace + "-" + gateway
}
