// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/liqo-go/liqo/api"
)

// defaultExpiration is the default of maxExpirationSeconds in the API of projections and requests.
const defaultExpiration = 24 * 60 * 60

// PodCertificateRefusal returns why a virtual kubelet's request for a certificate is refused; empty =
// it is allowed. Signers trust the fields of a request, so each must match the pod, its service account
// and its node. The NodeRestriction plugin checks the same for kubelets, except the phase of the pod,
// the expiration and the annotations (Kubernetes 1.37.2).
func PodCertificateRefusal(
	asks certificatesv1.PodCertificateRequestSpec, pod *corev1.Pod, account *corev1.ServiceAccount, node *corev1.Node,
) string {
	switch {
	case asks.PodUID != pod.UID:
		return fmt.Sprintf("pod %s has the UID %q, not %q", pod.Name, pod.UID, asks.PodUID)
	case api.Finished(pod.Status.Phase):
		return fmt.Sprintf("pod %s has ended", pod.Name)
	case string(asks.NodeName) != pod.Spec.NodeName:
		return fmt.Sprintf("pod %s is on node %q, not %q", pod.Name, pod.Spec.NodeName, asks.NodeName)
	case asks.NodeUID != node.UID:
		return fmt.Sprintf("node %s has the UID %q, not %q", node.Name, node.UID, asks.NodeUID)
	case asks.ServiceAccountName != pod.Spec.ServiceAccountName:
		return fmt.Sprintf("pod %s runs as service account %q, not %q",
			pod.Name, pod.Spec.ServiceAccountName, asks.ServiceAccountName)
	case asks.ServiceAccountUID != account.UID:
		return fmt.Sprintf("service account %s has the UID %q, not %q",
			account.Name, account.UID, asks.ServiceAccountUID)
	}
	projects := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.PodCertificate != nil && matches(asks, s.PodCertificate)
		})
	})
	if !projects {
		return fmt.Sprintf("no volume of pod %s projects a certificate of signer %s with this expiration and these "+
			"annotations", pod.Name, asks.SignerName)
	}
	return ""
}

// matches reports whether a request has the signer, expiration and annotations of a projection.
func matches(asks certificatesv1.PodCertificateRequestSpec, p *corev1.PodCertificateProjection) bool {
	return p.SignerName == asks.SignerName && maps.Equal(p.UserAnnotations, asks.UnverifiedUserAnnotations) &&
		ptr.Deref(p.MaxExpirationSeconds, defaultExpiration) == ptr.Deref(asks.MaxExpirationSeconds, defaultExpiration)
}
