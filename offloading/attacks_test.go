// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// TestAttackForgedAdmissionReview: a pod that reaches the port of the admission server sends it AdmissionReviews in
// the name of a tenant, to use up the tenant's quota.
//
// Outcome: an answer reserves nothing, as of a dry run. The tenant's own pods are created as if nobody had asked.
func TestAttackForgedAdmissionReview(t *testing.T) {
	t.Parallel()
	k := start(t)
	quota := &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Name: "slice", Namespace: "tenant-turin"}}
	quota.Spec.User, quota.Spec.Resources = "slice", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10")}
	nsmap := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Name: "milan", Namespace: "tenant-turin", Labels: map[string]string{api.LabelReplicated: api.True},
	}}
	nsmap.Spec.DesiredMapping = map[string]string{"demo": "demo-turin"}
	k.create(t, namespace("tenant-turin", map[string]string{api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: "turin"}), quota, nsmap)
	consumer := k.as(t, "slice", "turin")
	k.answers(t, consumer)
	shadow := func(name string) *offloadingv1beta1.ShadowPod {
		p := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "demo-turin", Labels: map[string]string{api.LabelOrigin: "turin"}}}
		p.Spec.Pod = container("10")
		return p
	}
	for i := range 20 {
		if !k.forge(t, shadow(fmt.Sprintf("forged-%d", i)), "slice", "turin") {
			t.Errorf("review %d is refused, so the ones before have used up the quota", i)
		}
	}
	for i := range 20 {
		if err := consumer.Create(t.Context(), shadow(fmt.Sprintf("dry-%d", i)), client.DryRunAll); err != nil {
			t.Errorf("dry run %d: %v", i, err)
		}
	}
	own := shadow("own")
	if err := consumer.Create(t.Context(), own); err != nil {
		t.Fatalf("the tenant's own pod: %v", err)
	}
	k.until(t, "the tenant's own pod", func(ctx context.Context) error {
		return k.Get(ctx, client.ObjectKeyFromObject(own), &corev1.Pod{})
	})
}

// forge asks the admission server itself about the creation of a ShadowPod, and returns whether it would be allowed.
func (k cluster) forge(t *testing.T, shadow *offloadingv1beta1.ShadowPod, user string, groups ...string) bool {
	t.Helper()
	object, err := json.Marshal(shadow)
	if err != nil {
		t.Fatal(err)
	}
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(shadow.Name), Operation: admissionv1.Create, Namespace: shadow.Namespace, Name: shadow.Name,
			UserInfo: authenticationv1.UserInfo{Username: user, Groups: groups}, Object: runtime.RawExtension{Raw: object},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	web := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := web.Post(fmt.Sprintf("https://127.0.0.1:%d/mutate/shadowpods", k.port), "application/json", bytes.NewReader(review))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &answer); err != nil || answer.Response == nil {
		t.Fatalf("answer %s: %v", body, err)
	}
	return answer.Response.Allowed
}
