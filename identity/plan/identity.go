// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto"
	"crypto/x509"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// IdentityInput is the input for the kubeconfig of an Identity.
type IdentityInput struct {
	Root *authv1beta1.Identity
	// ClusterID is this cluster, the consumer.
	ClusterID string
	// NamespacePeer is the peer Root's namespace belongs to; empty = not a tenant namespace.
	NamespacePeer string
	// Keys holds the private keys for NamespacePeer.
	Keys Keys
	// Renew is the Renew of Root, whose status has the credentials that replace those of Root; nil
	// = none.
	Renew *authv1beta1.Renew
	// ControlPlane is the control plane's Identity for the same provider; nil = none. Its
	// annotation says whether the provider is reached in band.
	ControlPlane *authv1beta1.Identity
	// ControlPlaneSecrets are the Secrets with a kubeconfig of the control plane for the provider:
	// that of ControlPlane, or one made by hand.
	ControlPlaneSecrets []corev1.Secret
	// Kubeconfig is the current Secret of Root; nil = none.
	Kubeconfig *corev1.Secret
	// Configurations hold the ranges to which the provider's are remapped. They matter only in
	// band.
	Configurations []netv1beta1.Configuration
	Now            time.Time
}

// Identity plans the kubeconfig Secret of an Identity and, for a control plane, the permanent
// Renew by which the provider replaces the certificate in time. The Secret changes in place.
func Identity(in IdentityInput) desired.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	private := in.Keys.inUse(root.Spec.AuthParams, appendSecret(in.ControlPlaneSecrets, in.Kubeconfig))
	if len(private) == 0 {
		return withoutKey()
	}
	key, err := ParsePrivateKey(private)
	if err != nil {
		return unreadable(err, root.Namespace)
	}
	params, own := root.Spec.AuthParams, certificateFor(root.Spec.AuthParams, key)
	switch {
	case root.Spec.ClusterID == "":
		return desired.Block(ReasonMissingClusterID, "spec.clusterID is empty; set it to the ID of the provider")
	case in.NamespacePeer != "" && in.NamespacePeer != root.Spec.ClusterID:
		return desired.Block(ReasonWrongNamespace,
			"this tenant namespace belongs to %q, not %q, and what is in it is read by peering users of its peer; "+
				"create the Identity in the tenant namespace of its provider", in.NamespacePeer, root.Spec.ClusterID)
	case params == nil:
		return desired.Wait(ReasonAuthParamsFailed,
			"spec.authParams is empty; run 'liqoctl generate identity' on the provider when its Tenant is ready")
	case params.AWSConfig != nil:
		return desired.Block(ReasonAuthParamsFailed,
			"AWS credentials are not supported; use a provider that signs certificates")
	case own == nil && root.Spec.Type == authv1beta1.IdentityResourceSlice:
		return desired.Wait(ReasonAuthParamsFailed,
			"the certificate is not for this cluster's key for this peer; if the ResourceSlice does not ask the "+
				"provider for another one, delete it and make it again")
	case own == nil:
		return desired.Block(ReasonAuthParamsFailed,
			"spec.authParams.signedCRT is not a certificate for this cluster's key for this peer; run 'liqoctl "+
				"authenticate' again, "+
				"or generate a Tenant here and an Identity from it on the provider")
	}
	leading, unapproved := in.leading(params)
	if leading == nil {
		return desired.Plan{Verdict: unapproved}
	}
	config, err := in.kubeconfig(leading, private)
	if err != nil {
		return desired.Block(ReasonAuthParamsFailed, "%v; correct spec.authParams", err)
	}
	plan := desired.Plan{Degraded: unapproved, Objects: []desired.Object{in.secret(config)},
		Status: &authv1beta1.Identity{
			Status: authv1beta1.IdentityStatus{
				KubeconfigSecretRef: &corev1.LocalObjectReference{Name: api.KubeconfigSecretName(root.Name)}},
		}}
	if root.Spec.Type == authv1beta1.IdentityControlPlane {
		plan.Fill, plan.Degraded = in.renewed(key, own)
		plan = in.withRenew(plan, key)
	}
	if plan.RequeueAfter = untilLate(own, in.Now); plan.RequeueAfter == 0 && plan.Fill == nil &&
		plan.Degraded.State == desired.Ready {
		plan.Degraded = notRenewed(own)
	}
	return plan
}

// notRenewed reports at the consumer that the provider has not renewed a certificate in time.
func notRenewed(c *x509.Certificate) desired.Verdict {
	return desired.Wait(ReasonCertificateNotRenewed,
		"the certificate is valid until %s and the provider has not renewed it; its Tenant and ResourceSlices say "+
			"why. "+
			"If it refuses this cluster already, run 'liqoctl authenticate' again", validUntil(c)).Verdict
}

// certificateFor returns the certificate in p if it was issued for the key, else nil.
func certificateFor(p *authv1beta1.AuthParams, key crypto.Signer) *x509.Certificate {
	certificate, err := ParseCertificate(Held(p))
	if err != nil || !sameKey(key.Public(), certificate.PublicKey) {
		return nil
	}
	return certificate
}

// withoutKey waits for the key pair of a tenant namespace.
func withoutKey() desired.Plan {
	return desired.Wait(ReasonKeysNotFound, "the key pair for this peer is not there yet; check that the namespace "+
		"is a tenant namespace and the controller runs in the Liqo namespace")
}

func (in IdentityInput) kubeconfig(p *authv1beta1.AuthParams, key []byte) ([]byte, error) {
	return Kubeconfig{
		Cluster: in.Root.Spec.ClusterID, User: in.Root.Name, Namespace: in.Root.Spec.Namespace,
		Server: p.APIServer, Proxy: in.proxy(p.ProxyURL), CA: p.CA, Certificate: p.SignedCRT, Key: key,
	}.Encode()
}

func (in IdentityInput) secret(config []byte) *corev1.Secret {
	root := in.Root
	labels := map[string]string{
		api.LabelIdentityType: string(root.Spec.Type), api.LabelRemoteClusterID: root.Spec.ClusterID,
	}
	if slice, ok := root.Labels[api.LabelResourceSliceName]; ok {
		labels[api.LabelResourceSliceName] = slice
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: root.Namespace, Name: api.KubeconfigSecretName(root.Name), Labels: labels,
			Annotations: map[string]string{api.AnnotationRemoteTenantNamespace: root.Spec.Namespace},
		},
		Data: map[string][]byte{api.KubeconfigField: config},
	}
}

// renewed returns Root with the credentials of its Renew; nil if they are not newer. The
// certificate issued later wins. So an old Renew or manifest has no effect, and a rebuilt provider
// may issue shorter lifetimes. If the endpoint is not approved, only the certificate is used, and
// the verdict reports it.
func (in IdentityInput) renewed(key crypto.Signer, own *x509.Certificate) (desired.Object, desired.Verdict) {
	if in.Renew == nil {
		return nil, desired.Verdict{}
	}
	given := in.Renew.Status.AuthParams
	fresh := certificateFor(given, key)
	if fresh == nil || fresh.NotBefore.Before(own.NotBefore) {
		return nil, desired.Verdict{}
	}
	filled := in.Root.DeepCopy()
	if !in.approves(endpointOf(given)) {
		filled.Spec.AuthParams.SignedCRT = given.SignedCRT
		return filled, in.unapproved(given)
	}
	filled.Spec.AuthParams = given.DeepCopy()
	return filled, desired.Verdict{}
}

// withRenew adds the Renew to the plan.
func (in IdentityInput) withRenew(plan desired.Plan, key crypto.Signer) desired.Plan {
	request, err := NewRequest(key, ControlPlaneSubject(in.ClusterID))
	if err != nil {
		return desired.Block(ReasonInvalid, "%v; check the cluster ID", err)
	}
	public, err := EncodePublicKey(key.Public())
	if err != nil {
		return unreadable(err, in.Root.Namespace)
	}
	root := in.Root
	plan.Objects = append(plan.Objects, &authv1beta1.Renew{
		ObjectMeta: metav1.ObjectMeta{Namespace: root.Namespace, Name: root.Name,
			Labels: replicationLabels(root.Spec.ClusterID)},
		Spec: authv1beta1.RenewSpec{
			ConsumerClusterID: in.ClusterID, PublicKey: public, CSR: request, IdentityType: string(root.Spec.Type),
		},
	})
	return plan
}

// replicationLabels returns the labels by which an object is replicated to the peer.
func replicationLabels(peer string) map[string]string {
	return map[string]string{api.LabelRemoteClusterID: peer, api.LabelReplication: "true", api.LabelRemoteID: peer}
}
