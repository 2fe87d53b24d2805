// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/internal/apitest"
)

// TestAttackCertificateOfAnotherPod: a provider that took over a virtual kubelet requests a certificate for a pod that
// is on another node, does not exist or has finished, or with another service account, signer or expiration than the
// pod's.
//
// Outcome: a webhook reads the pod, its service account and its node, and refuses a request that does not match them.
func TestAttackCertificateOfAnotherPod(t *testing.T) {
	t.Parallel()
	k := start(t)
	web := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	dear := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "dear"}}
	milan, worker := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	pod := func(name, node string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: container("1")}
		p.Spec.NodeName, p.Spec.ServiceAccountName = node, web.Name
		p.Spec.Volumes = []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{
				SignerName: "example.com/pods", KeyType: "ED25519", CredentialBundlePath: "tls.pem",
			}}},
		}}}}
		return p
	}
	ours, elsewhere := pod("ours", milan.Name), pod("elsewhere", worker.Name)
	k.create(t, namespace("shop", nil), web, dear, milan, worker, ours, elsewhere)
	asks := func(change func(*certificatesv1.PodCertificateRequestSpec)) error {
		request := &certificatesv1.PodCertificateRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", GenerateName: "req-"},
			Spec: certificatesv1.PodCertificateRequestSpec{
				SignerName: "example.com/pods", PodName: ours.Name, PodUID: ours.UID, ServiceAccountName: web.Name,
				ServiceAccountUID: web.UID, NodeName: types.NodeName(milan.Name), NodeUID: milan.UID, StubPKCS10Request: apitest.CertificateRequest(t),
			},
		}
		change(&request.Spec)
		return k.Create(t.Context(), request, client.DryRunAll)
	}
	none := func(*certificatesv1.PodCertificateRequestSpec) {}
	k.until(t, "a request as the pod is, which passes", func(context.Context) error { return asks(none) })
	for says, change := range map[string]func(*certificatesv1.PodCertificateRequestSpec){
		`pod ours has the UID`:              func(s *certificatesv1.PodCertificateRequestSpec) { s.PodUID = "of-a-former-pod" },
		`pods "no-such" not found`:          func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName = "no-such" },
		`pod elsewhere is on node "worker"`: func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName, s.PodUID = elsewhere.Name, elsewhere.UID },
		`node milan has the UID`:            func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeUID = worker.UID },
		`pod ours runs as service account "web"`: func(s *certificatesv1.PodCertificateRequestSpec) {
			s.ServiceAccountName, s.ServiceAccountUID = dear.Name, dear.UID
		},
		`service account web has the UID`:             func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountUID = dear.UID },
		`certificate of signer example.com/dear with`: func(s *certificatesv1.PodCertificateRequestSpec) { s.SignerName = "example.com/dear" },
		`with this expiration`:                        func(s *certificatesv1.PodCertificateRequestSpec) { s.MaxExpirationSeconds = new(int32(90 * 86400)) },
		`and these annotations`: func(s *certificatesv1.PodCertificateRequestSpec) {
			s.UnverifiedUserAnnotations = map[string]string{"example.com/role": "admin"}
		},
	} {
		if err := asks(change); !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
	k.says(t, ours, func() { ours.Status.Phase = corev1.PodSucceeded })
	if err := asks(none); !strings.Contains(fmt.Sprint(err), "pod ours has ended") {
		t.Errorf("of a pod that has ended: %v", err)
	}
}
