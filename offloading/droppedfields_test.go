// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// olderServer makes an API server of this version look like an earlier one, whose OpenAPI lacks a field
// of pods, a kind of volumes and a kind of projections. The first request for it fails.
type olderServer struct {
	http.RoundTripper
	asked *atomic.Bool
}

func (o olderServer) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := o.RoundTripper.RoundTrip(r)
	if err != nil || r.URL.Path != "/openapi/v3/api/v1" {
		return answer, err
	}
	defer answer.Body.Close()
	if !o.asked.Swap(true) {
		return nil, errors.New("the API server starts")
	}
	var document struct {
		Components struct {
			Schemas map[string]map[string]any `json:"schemas"`
		} `json:"components"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&document); err != nil {
		return nil, err
	}
	for kind, field := range map[string]string{"PodSpec": "subdomain", "Volume": "configMap", "VolumeProjection": "downwardAPI"} {
		delete(document.Components.Schemas["io.k8s.api.core.v1."+kind]["properties"].(map[string]any), field)
	}
	text, err := json.Marshal(document)
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return answer, err
}

// TestFieldsThatTheAPIServerDoesNotKnow: the condition of a ShadowPod names a field that the provider's
// API server drops. A volume that would become an emptyDir is refused.
func TestFieldsThatTheAPIServerDoesNotKnow(t *testing.T) {
	t.Parallel()
	var asked atomic.Bool
	k := start(t, func(next http.RoundTripper) http.RoundTripper { return olderServer{next, &asked} })
	quota := &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Name: "slice", Namespace: "tenant-turin"}}
	quota.Spec.User, quota.Spec.Resources = "slice", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10")}
	nsmap := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Name: "milan", Namespace: "tenant-turin", Labels: map[string]string{api.LabelReplicated: api.True},
	}}
	nsmap.Spec.DesiredMapping = map[string]string{"demo": "demo-turin"}
	k.create(t, namespace("tenant-turin", map[string]string{api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: "turin"}), quota, nsmap)
	consumer := k.as(t, "slice", "turin")
	k.answers(t, consumer)
	shadow := func(name string, change func(*corev1.PodSpec)) *offloadingv1beta1.ShadowPod {
		t.Helper()
		p := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "demo-turin", Labels: map[string]string{api.LabelOrigin: "turin"}}}
		p.Spec.Pod = container("1")
		change(&p.Spec.Pod)
		if err := consumer.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	says := func(p *offloadingv1beta1.ShadowPod, kind, reason, field string) {
		t.Helper()
		k.until(t, "the condition of "+p.Name, func(ctx context.Context) error {
			err := k.Get(ctx, client.ObjectKeyFromObject(p), p)
			c := meta.FindStatusCondition(p.Status.Conditions, kind)
			if err == nil && (c == nil || c.Reason != reason || !strings.Contains(c.Message, field)) {
				err = fmt.Errorf("conditions %v", p.Status.Conditions)
			}
			return err
		})
	}
	named := shadow("named", func(spec *corev1.PodSpec) { spec.Subdomain = "shop" })
	says(named, desired.ConditionReady, api.ReasonFieldsDropped, "spec.subdomain")
	k.until(t, "the pod without the field", func(ctx context.Context) error {
		return k.Get(ctx, client.ObjectKeyFromObject(named), &corev1.Pod{})
	})
	files := corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "files"}}
	labels := []corev1.DownwardAPIVolumeFile{{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}
	for field, source := range map[string]corev1.VolumeSource{
		"spec.volumes.configMap": {ConfigMap: &files},
		"spec.volumes.projected.sources.downwardAPI": {Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: labels}}},
		}},
	} {
		name := strings.ToLower(field[strings.LastIndex(field, ".")+1:])
		refused := shadow(name, func(spec *corev1.PodSpec) { spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: source}} })
		says(refused, desired.ConditionStalled, "PodForbidden", field)
		if err := k.Get(t.Context(), client.ObjectKeyFromObject(refused), &corev1.Pod{}); !apierrors.IsNotFound(err) {
			t.Errorf("there is a pod with an unknown volume (%v)", err)
		}
	}
	plain := shadow("plain", func(*corev1.PodSpec) {})
	k.until(t, "a pod without such fields", func(ctx context.Context) error {
		return k.Get(ctx, client.ObjectKeyFromObject(plain), &corev1.Pod{})
	})
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(plain), plain); err != nil || len(plain.Status.Conditions) > 0 {
		t.Errorf("a pod without such fields has conditions %v (%v)", plain.Status.Conditions, err)
	}
}
