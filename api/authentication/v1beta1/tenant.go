// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AuthzPolicy says how a tenant proves who it is.
// +kubebuilder:validation:Enum=KeysExchange;TolerateNoHandshake
type AuthzPolicy string

// Ways to prove who one is.
const (
	// AuthzKeysExchange: the tenant signs the nonce with its key.
	AuthzKeysExchange AuthzPolicy = "KeysExchange"
	// AuthzTolerateNoHandshake: nothing is proved, and no control-plane identity is issued.
	AuthzTolerateNoHandshake AuthzPolicy = "TolerateNoHandshake"
)

// TenantCondition is the admission state of a tenant.
// +kubebuilder:validation:Enum=Active;Cordoned;Drained
type TenantCondition string

// Admission states.
const (
	// TenantActive: new and existing slices are served.
	TenantActive TenantCondition = "Active"
	// TenantCordoned: no new slices, existing ones stay.
	TenantCordoned TenantCondition = "Cordoned"
	// TenantDrained: what runs for the tenant is taken away.
	TenantDrained TenantCondition = "Drained"
)

// TenantSpec describes a consumer; written by liqoctl or a user.
type TenantSpec struct {
	// ClusterID is the ID of the consumer. It never changes.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ClusterID is immutable"
	ClusterID string `json:"clusterID,omitempty"`
	// PublicKey is the consumer's key (PEM PKIX, or raw ed25519).
	// +optional
	PublicKey []byte `json:"publicKey,omitempty"`
	// CSR is the signing request (PEM) of the consumer's control plane.
	// +optional
	CSR []byte `json:"csr,omitempty"`
	// Signature is the nonce signed with the consumer's key.
	// +optional
	Signature []byte `json:"signature,omitempty"`
	// ProxyURL is the proxy the consumer must use to reach the API server; empty = none.
	// +optional
	ProxyURL string `json:"proxyURL,omitempty"`
	// AuthzPolicy says how the consumer proves who it is.
	// +optional
	// +kubebuilder:default=KeysExchange
	AuthzPolicy AuthzPolicy `json:"authzPolicy,omitempty"`
	// TenantCondition is the admission state of the tenant.
	// +optional
	// +kubebuilder:default=Active
	TenantCondition TenantCondition `json:"tenantCondition,omitempty"`
}

// TenantStatus is written by the controller.
type TenantStatus struct {
	// TenantNamespace is the namespace of the tenant in this cluster.
	// +optional
	TenantNamespace string `json:"tenantNamespace,omitempty"`
	// AuthParams are the credentials for the consumer's control plane.
	// +optional
	AuthParams *AuthParams `json:"authParams,omitempty"`
	// Copies is how many objects the consumer has copied into the tenant namespace: ResourceSlices, Renews
	// and NamespaceMaps. The API server refuses further ones beyond the value authentication.maxCopies.
	// +optional
	Copies int32 `json:"copies,omitempty"`
	// Conditions say whether the tenant is admitted and, if not, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Tenant is a consumer admitted by this cluster (provider).
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=tenants,singular=tenant,categories=liqo,shortName=tn
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.spec) || !has(oldSelf.spec.clusterID) || has(self.spec) && has(self.spec.clusterID)",message="ClusterID is immutable"
// +kubebuilder:printcolumn:name="Condition",type=string,JSONPath=`.spec.tenantCondition`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Tenant struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec describes the consumer.
	// +optional
	Spec TenantSpec `json:"spec,omitzero"`
	// Status holds what the provider granted.
	// +optional
	Status TenantStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions for reading and writing.
func (t *Tenant) GetConditions() *[]metav1.Condition { return &t.Status.Conditions }

// TenantList is a list of Tenant.
// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Tenant `json:"items"`
}
