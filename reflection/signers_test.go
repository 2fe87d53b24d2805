// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/reflection/translate"
)

// TestSignersThatDelayOrRefuse runs on a fake clock: a silent signer is reported after 30 seconds, a request that
// Kubernetes deleted is created again, and so is one that a signer denied an hour ago.
func TestSignersThatDelayOrRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}}
		pod.Spec.ServiceAccountName = "default"
		pod.Spec.Volumes = []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{
				SignerName: "example.com/pods", KeyType: "ED25519", CredentialBundlePath: "tls.pem",
			}}},
		}}}}
		home := fake.NewClientBuilder().WithScheme(scheme.New()).WithStatusSubresource(&certificatesv1.PodCertificateRequest{}).WithObjects(
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default"}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}).Build()
		c := newCertificates(home, "milan")
		pending := func() certificatesv1.PodCertificateRequest {
			t.Helper()
			var list certificatesv1.PodCertificateRequestList
			if err := home.List(t.Context(), &list, client.InNamespace("shop")); err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != 1 {
				t.Fatalf("%d requests", len(list.Items))
			}
			return list.Items[0]
		}
		reports := func(want string) {
			t.Helper()
			var v translate.View
			after := c.gather(t.Context(), pod, nil, &v)
			if after <= 0 || after > mostWait {
				t.Errorf("called again after %s", after)
			}
			if got := v.Uncertified; (got == nil) != (want == "") || got != nil && !strings.Contains(got.Error(), want) {
				t.Errorf("want %q, got %v", want, got)
			}
		}
		reports("")
		time.Sleep(signTime - time.Second)
		reports("")
		time.Sleep(time.Second)
		reports("podCertificate of signer example.com/pods: the signer has not answered")

		deleted := pending()
		if err := home.Delete(t.Context(), &deleted); err != nil {
			t.Fatal(err)
		}
		time.Sleep(mostWait)
		reports("")
		again := pending()
		if again.Name == deleted.Name {
			t.Errorf("request %s was created twice", again.Name)
		}
		again.Status.Conditions = []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeDenied, Reason: "Refused", Message: "unknown team"}}
		if err := home.Status().Update(t.Context(), &again); err != nil {
			t.Fatal(err)
		}
		reports("Denied: Refused: unknown team")
		if err := home.Delete(t.Context(), &again); err != nil { // as Kubernetes does after 15 minutes
			t.Fatal(err)
		}
		time.Sleep(refusalTime - mostWait)
		reports("Denied: Refused: unknown team")
		time.Sleep(2 * mostWait)
		reports("")
		pending()
	})
}
