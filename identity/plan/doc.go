// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides who the other cluster is and what it may do. Everything here is pure:
// keys, nonces and the time are fields of the inputs, and the same input gives the same plan.
//
// Provider side: Nonce makes the challenge, Tenant checks the answer and issues the
// control-plane certificate and its bindings, Slice (of a replicated ResourceSlice) issues the
// certificate of one slice and grants resources, Renew hands fresh credentials to the consumer.
// Consumer side: SignedNonce answers the challenge, Identity turns credentials into a
// kubeconfig Secret, Slice (of a local ResourceSlice) fills the request and makes Identity and
// VirtualNode out of the answer.
//
// Start reading at Tenant; keys.go, csr.go, certificate.go and kubeconfig.go hold the
// cryptography and formats the plans stand on.
package plan

// Reasons of verdicts. The first group are the events users know.
const (
	// ReasonNonceNotFound: create the nonce, or sign with the one that exists.
	ReasonNonceNotFound = "NonceNotFound"
	// ReasonSignatureVerificationFailed: create a new Tenant with the key that signed the nonce.
	ReasonSignatureVerificationFailed = "SignatureVerificationFailed"
	// ReasonInvalidCSR: create a new request with the expected subject and key.
	ReasonInvalidCSR = "InvalidCSR"
	// ReasonAuthParamsFailed: configure the address peers reach the API server at.
	ReasonAuthParamsFailed = "AuthParamsFailed"
	// ReasonWrongNamespace: move the object to the tenant namespace of its peer.
	ReasonWrongNamespace = "WrongNamespace"
	// ReasonInvalid: the message names what contradicts and what to change.
	ReasonInvalid = "Invalid"
	// ReasonMissingClusterID: name the peer in the label or in the spec.
	ReasonMissingClusterID = "MissingClusterID"
	// ReasonTenantNotFound: create a Tenant for the consumer, or repair the one there is.
	ReasonTenantNotFound = "TenantNotFound"
	// ReasonRemoteCertificateFailed: look at the CertificateSigningRequest and its signer.
	ReasonRemoteCertificateFailed = "RemoteCertificateFailed"

	// ReasonKeysNotFound: the cluster key pair is not there yet.
	ReasonKeysNotFound = "KeysNotFound"
	// ReasonCertificatePending: the signer has not answered yet.
	ReasonCertificatePending = "CertificatePending"
	// ReasonCertificateNotRenewed: at the provider look at the signer; at the consumer look at the provider.
	ReasonCertificateNotRenewed = "CertificateNotRenewed"
	// ReasonCertificateUntrusted: let signer and API server use one CA; the consumer then authenticates again.
	ReasonCertificateUntrusted = "CertificateUntrusted"
	// ReasonForeignBinding: remove the binding, or give the consumer another cluster ID.
	ReasonForeignBinding = "ForeignBinding"
	// ReasonAddressNotApproved: the provider names another API server; the message says how to approve it.
	ReasonAddressNotApproved = "AddressNotApproved"
	// ReasonUserTaken: the user name is already in use; choose another name for the slice or the cluster.
	ReasonUserTaken = "UserTaken"
	// ReasonDraining: what the tenant holds is being removed.
	ReasonDraining = "Draining"
	// ReasonNodePending: the virtual node is being made; look at its conditions.
	ReasonNodePending = "VirtualNodePending"
	// ReasonProviderPending: the provider has not answered yet.
	ReasonProviderPending = "ProviderPending"
	// ReasonProviderDenied: the provider refused; its conditions on the slice say why.
	ReasonProviderDenied = "ProviderDenied"
)
