// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides how peers are authenticated, and which rights they get. It is pure: keys,
// nonces and the time are fields of the inputs, and the same input gives the same plan.
//
// At the provider, Nonce creates the challenge. Tenant checks the answer, and issues the
// control-plane certificate and its bindings. Slice (of a replicated ResourceSlice) issues the
// certificate of one slice and grants resources. Renew gives new credentials to the consumer.
//
// At the consumer, Nonce answers the challenge. Identity plans a kubeconfig Secret with the
// credentials. Slice (of a local ResourceSlice) fills the request, and plans Identity and
// VirtualNode from the answer.
//
// Start reading at Tenant. The cryptography and formats are in keys.go, csr.go, certificate.go and
// kubeconfig.go.
package plan

// Reasons of verdicts. Users know those of the first group as reasons of events.
const (
	// ReasonNonceNotFound: create the nonce, or sign with the one that exists.
	ReasonNonceNotFound = "NonceNotFound"
	// ReasonSignatureVerificationFailed: create a new Tenant with the key that signed the nonce.
	ReasonSignatureVerificationFailed = "SignatureVerificationFailed"
	// ReasonInvalidCSR: create a new request with the expected subject and key.
	ReasonInvalidCSR = "InvalidCSR"
	// ReasonAuthParamsFailed: configure the address by which peers reach the API server.
	ReasonAuthParamsFailed = "AuthParamsFailed"
	// ReasonWrongNamespace: move the object to the tenant namespace of its peer.
	ReasonWrongNamespace = "WrongNamespace"
	// ReasonInvalid: the message names what contradicts and what to change.
	ReasonInvalid = "Invalid"
	// ReasonMissingClusterID: name the peer in the label or in the spec.
	ReasonMissingClusterID = "MissingClusterID"
	// ReasonTenantNotFound: create a Tenant for the consumer, or correct the existing one.
	ReasonTenantNotFound = "TenantNotFound"
	// ReasonRemoteCertificateFailed: look at the CertificateSigningRequest and its signer.
	ReasonRemoteCertificateFailed = "RemoteCertificateFailed"

	// ReasonKeysNotFound: the cluster key pair is not there yet.
	ReasonKeysNotFound = "KeysNotFound"
	// ReasonCertificatePending: the signer has not answered yet.
	ReasonCertificatePending = "CertificatePending"
	// ReasonCertificateNotRenewed: check the signer at the provider; the consumer asks the
	// provider.
	ReasonCertificateNotRenewed = "CertificateNotRenewed"
	// ReasonCertificateUntrusted: let signer and API server use one CA, then authenticate again.
	ReasonCertificateUntrusted = "CertificateUntrusted"
	// ReasonForeignBinding: remove the binding, or give the consumer another cluster ID.
	ReasonForeignBinding = "ForeignBinding"
	// ReasonAddressNotApproved: approve the provider's other API server as the message says.
	ReasonAddressNotApproved = "AddressNotApproved"
	// ReasonUserTaken: choose another name for the slice or the cluster; the user name is in use.
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
