// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"

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

// TestAttackObjectsWithoutBound: a consumer fills its namespace with Secrets, with and without the labels of reflection,
// and with ConfigMaps, to use up the provider's etcd. It claims a volume larger than the provider has.
//
// Outcome: a ResourceQuota bounds what does not come with every pod, and a LimitRange what one claim requests. The
// namespace is labelled when it has as many Secrets as it may have, upon which an admission policy refuses more, until
// there is room again.
func TestAttackObjectsWithoutBound(t *testing.T) {
	t.Parallel()
	k := start(t)
	nsmap := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Name: "milan", Namespace: "tenant-turin", Labels: map[string]string{api.LabelReplicated: api.True},
	}}
	nsmap.Spec.DesiredMapping = map[string]string{"demo": "demo-turin"}
	k.create(t, namespace("tenant-turin", map[string]string{api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: "turin"}), nsmap)
	quota := &corev1.ResourceQuota{}
	k.until(t, "the ResourceQuota", func(ctx context.Context) error { return k.Get(ctx, key("demo-turin", "liqo-bounds"), quota) })
	k.says(t, quota, func() { // as the controller manager does
		quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{"count/configmaps": resource.MustParse("0")}
	})
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "demo-turin", Name: name} }
	refuses := func(says string, make func(name string) client.Object) {
		t.Helper()
		n := 0
		k.until(t, says, func(ctx context.Context) error {
			n++
			err := k.Create(ctx, make(fmt.Sprintf("further-%d", n)))
			if err == nil || !strings.Contains(err.Error(), says) {
				return fmt.Errorf("%d: %w", n, cmp.Or(err, errors.New("is accepted")))
			}
			return nil
		})
	}
	refuses("exceeded quota: liqo-bounds", func(name string) client.Object { return &corev1.ConfigMap{ObjectMeta: meta(name)} })
	refuses("maximum storage usage per PersistentVolumeClaim is 1Ti", func(name string) client.Object {
		return &corev1.PersistentVolumeClaim{ObjectMeta: meta(name), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Ti")}},
		}}
	})
	labelled := func(want bool) {
		t.Helper()
		k.until(t, fmt.Sprintf("the label of too many Secrets: %v", want), func(ctx context.Context) error {
			ns := &corev1.Namespace{}
			err := k.Get(ctx, key("", "demo-turin"), ns)
			if _, has := ns.Labels[api.LabelTooManySecrets]; err == nil && has != want {
				err = fmt.Errorf("labels %v", ns.Labels)
			}
			return err
		})
	}
	secrets := make([]client.Object, 10)
	for i := range secrets {
		secret := &corev1.Secret{ObjectMeta: meta(fmt.Sprintf("secret-%d", i))}
		if i%2 == 0 {
			secret.Labels = map[string]string{api.LabelOrigin: "turin"}
		}
		secrets[i] = secret
	}
	k.create(t, secrets[:9]...)
	labelled(false)
	k.create(t, secrets[9])
	labelled(true)
	if err := k.Delete(t.Context(), secrets[0]); err != nil {
		t.Fatal(err)
	}
	labelled(false)
}

// TestAttackAccountOfVirtualKubelet: a provider, as peering user, names its GatewayServer vk-milan, so that the gateway's
// ServiceAccount is the one that the virtual kubelet of node milan will have. The gateway comes first.
//
// Outcome: the account gets none of the virtual kubelet's rights, no virtual kubelet runs with it, and the condition of
// the virtual node names it. Once the gateway is gone the virtual node gets an account of its own.
func TestAttackAccountOfVirtualKubelet(t *testing.T) {
	t.Parallel()
	k := start(t)
	options := &offloadingv1beta1.VkOptionsTemplate{ObjectMeta: metav1.ObjectMeta{Name: api.VkOptionsTemplateName, Namespace: "liqo"}}
	options.Spec.ContainerImage, options.Spec.CreateNode = "liqo:v1", true
	ofGateway := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: "tenant-milan", Name: "vk-milan",
		Labels:      map[string]string{"ctl.liqo.io/controller": "wg-gateway-server", "ctl.liqo.io/owner-uid": "gateway", api.LabelManaged: api.True},
		Annotations: map[string]string{"ctl.liqo.io/owner": "tenant-milan/vk-milan"},
	}}
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: "milan", Namespace: "tenant-milan"}}
	vn.Spec.ClusterID, vn.Spec.KubeconfigSecretRef = "milan", &corev1.LocalObjectReference{Name: "kubeconfig"}
	k.create(t, namespace("tenant-milan", map[string]string{api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: "milan"}), options, ofGateway, vn)
	k.until(t, "the condition", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(vn), vn)
		for _, c := range vn.Status.Conditions {
			if c.Reason == "ServiceAccountExists" && strings.Contains(c.Message, "tenant-milan/vk-milan was made by somebody else") {
				return err
			}
		}
		return cmp.Or(err, fmt.Errorf("conditions %v", vn.Status.Conditions))
	})
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: api.VirtualNodeBindingName("milan")}}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-milan", Name: "vk-milan"}}
	for _, obj := range []client.Object{binding, deployment} {
		if err := k.gone(obj)(t.Context()); err != nil {
			t.Errorf("made for the account of the gateway: %v", err)
		}
	}
	account := &corev1.ServiceAccount{}
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(ofGateway), account); err != nil || account.ResourceVersion != ofGateway.ResourceVersion {
		t.Errorf("the account of the gateway was changed: %v %v", account.ObjectMeta, err)
	}
	if err := k.Delete(t.Context(), ofGateway); err != nil {
		t.Fatal(err)
	}
	k.until(t, "the virtual kubelet", func(ctx context.Context) error {
		return errors.Join(k.Get(ctx, client.ObjectKeyFromObject(binding), binding), k.Get(ctx, client.ObjectKeyFromObject(deployment), deployment))
	})
}
