// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection_test

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
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/reflection"
	"github.com/liqo-go/liqo/reflection/translate"
)

// newerField names a field that newerServer sets in an object, in the first elements of lists.
const newerField = "example.com/newer-field"

// newerServer makes an API server of this version look like a later one, once upgraded: its OpenAPI and
// its JSON have fields that our types lack.
type newerServer struct {
	http.RoundTripper
	upgraded *atomic.Bool
}

func (n newerServer) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := n.RoundTripper.RoundTrip(r)
	isJSON := err == nil && strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json")
	if !isJSON || !n.upgraded.Load() || r.Method != http.MethodGet || r.URL.Query().Has("watch") {
		return answer, err
	}
	defer answer.Body.Close()
	content := map[string]any{}
	if err := json.NewDecoder(answer.Body).Decode(&content); err != nil {
		return nil, err
	}
	below := func(content any, name string) map[string]any {
		out, _ := content.(map[string]any)[name].(map[string]any)
		return out
	}
	if strings.HasPrefix(r.URL.Path, "/openapi/v3/") {
		for name, schema := range below(content["components"], "schemas") {
			for _, newer := range []string{
				"core.v1.Container", "core.v1.Volume", "core.v1.VolumeProjection", "core.v1.ServiceSpec",
				"core.v1.PersistentVolumeClaimSpec", "networking.v1.IngressSpec",
			} {
				if strings.HasSuffix(name, ".api."+newer) {
					below(schema, "properties")["newer"] = map[string]any{"type": "string"}
				}
			}
		}
	} else if path, _ := below(content["metadata"], "annotations")[newerField].(string); path != "" {
		at := any(content)
		names := strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			if at = at.(map[string]any)[name]; at != nil {
				if list, ok := at.([]any); ok {
					at = list[0]
				}
			}
		}
		at.(map[string]any)[names[len(names)-1]] = "yes"
	}
	text, err := json.Marshal(content)
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return answer, err
}

// fieldsThatAreNewerThanOurTypesAreNamed: after an upgrade of home, a field that is set and does not
// reach the provider is named by one event in the namespace and by the condition of the pod; a volume
// of an unknown kind is not taken for an emptyDir.
func fieldsThatAreNewerThanOurTypesAreNamed(t *testing.T, w *world) {
	here := *w
	here.options.Home = rest.CopyConfig(w.options.Home)
	var upgraded atomic.Bool
	here.options.Home.Wrap(func(next http.RoundTripper) http.RoundTripper { return newerServer{next, &upgraded} })
	upgrades := make(chan struct{}, 1)
	here.options.Upgraded = upgrades
	here.offerStorage()
	defer here.reflect()()

	with := func(name, field string) *corev1.Pod {
		p := pod(name)
		p.Annotations = map[string]string{newerField: field}
		return p
	}
	here.create(here.home, with("newer-1", "spec.containers.newer"))
	here.exists(here.remote, &offv1beta1.ShadowPod{}, remoteNS, "newer-1")
	here.told("Pod", "spec.containers.newer", 0)
	upgraded.Store(true)
	upgrades <- struct{}{}
	says := func(name string, reason, text string) {
		t.Helper()
		var p corev1.Pod
		here.exists(here.home, &p, homeNS, name, func() error {
			for _, c := range p.Status.Conditions {
				if c.Type == translate.FieldsReflected && c.Reason == reason && strings.Contains(c.Message, text) {
					return nil
				}
			}
			return fmt.Errorf("conditions %v", p.Status.Conditions)
		})
	}
	says("newer-1", "UnknownFields", "spec.containers.newer")
	here.create(here.home, with("newer-2", "spec.containers.newer"))
	says("newer-2", "UnknownFields", "spec.containers.newer")
	here.exists(here.remote, &offv1beta1.ShadowPod{}, remoteNS, "newer-2")

	here.create(here.home, with("tape", "spec.volumes.newer"))
	here.create(here.home, with("dream", "spec.volumes.projected.sources.newer"))
	for name, field := range map[string]string{"tape": "spec.volumes.newer", "dream": "spec.volumes.projected.sources.newer"} {
		says(name, "UnknownVolume", field)
		here.event(name, "FailedReflection", field)
		err := here.remote.Get(t.Context(), types.NamespacedName{Namespace: remoteNS, Name: name}, &offv1beta1.ShadowPod{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("pod %s with an unknown volume is at the provider (%v)", name, err)
		}
	}
	var refused corev1.Pod
	here.exists(here.home, &refused, homeNS, "tape", func() error {
		for _, c := range refused.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "spec.volumes.newer") {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", refused.Status.Conditions)
	})

	meta := metav1.ObjectMeta{Name: "newer", Namespace: homeNS, Annotations: map[string]string{newerField: "spec.newer"}}
	here.create(here.home, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	here.create(here.home, &networkingv1.Ingress{ObjectMeta: meta, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "shop.example.com"}}}})
	stored := claim("newer", "")
	stored.Annotations[newerField] = "spec.newer"
	here.create(here.home, stored)
	for kind, obj := range map[string]client.Object{
		"Service": &corev1.Service{}, "Ingress": &networkingv1.Ingress{}, "PersistentVolumeClaim": &corev1.PersistentVolumeClaim{},
	} {
		here.exists(here.remote, obj, remoteNS, "newer")
		here.told(kind, "spec.newer", 1)
	}
	here.told("Pod", "spec.containers.newer", 1)
}

// olderServer answers a Service as JSON like an API server that does not know spec.trafficDistribution.
// One as protobuf would lose the field without a warning.
type olderServer struct{ http.RoundTripper }

func (o olderServer) RoundTrip(r *http.Request) (*http.Response, error) {
	isJSON := r.Header.Get("Content-Type") == "application/json"
	if r.Method != http.MethodPost || !isJSON || !strings.HasSuffix(r.URL.Path, "/services") {
		return o.RoundTripper.RoundTrip(r)
	}
	service := &corev1.Service{}
	if err := json.NewDecoder(r.Body).Decode(service); err != nil {
		return nil, err
	}
	known := service.Spec.TrafficDistribution == nil
	service.Spec.TrafficDistribution = nil
	text, err := json.Marshal(service)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	answer, err := o.RoundTripper.RoundTrip(r)
	if err == nil && !known {
		answer.Header.Add("Warning", `299 - "unknown field \"spec.trafficDistribution\""`)
		answer.Header.Add("Warning", `299 - "unknown field \"spec.neverSet\""`)
	}
	return answer, err
}

// fieldsThatAProviderDoesNotKnowAreNamed: an API server of the provider with an older version of a kind
// drops a field with a warning, which becomes one event in the namespace, for new objects and for changes.
func fieldsThatAProviderDoesNotKnowAreNamed(t *testing.T, w *world) {
	here := *w
	custom, err := reflection.ParseCustomResource("plates.v1.example.com", "Plate:2:DenyList")
	here.must("parse", err)
	here.options.Custom = []reflection.CustomResource{custom}
	object := func(properties ...string) apiextensionsv1.JSONSchemaProps {
		out := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
		for _, name := range properties {
			out.Properties[name] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}
		return out
	}
	here.options.Remote = rest.CopyConfig(w.options.Remote)
	here.options.Remote.Wrap(func(next http.RoundTripper) http.RoundTripper { return olderServer{next} })
	newer, older := object(), object()
	newer.Properties["spec"], older.Properties["spec"] = object("size", "colour", "glaze"), object("size")
	here.serve(here.home, "Plate", newer, "virtual-kubelet", rbacv1.UserKind)
	here.serve(here.remote, "Plate", older, consumer, rbacv1.GroupKind)
	defer here.reflect()()

	plate := func(name string, spec map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		u.SetGroupVersionKind(custom.Resource.GroupVersion().WithKind("Plate"))
		u.SetNamespace(homeNS)
		u.SetName(name)
		return u
	}
	first := plate("first", map[string]any{"size": "big", "colour": "red"})
	here.eventually("create a plate", func(ctx context.Context) error { return here.home.Create(ctx, first) })
	here.create(here.home, plate("second", map[string]any{"colour": "red"}))
	remote := plate("", nil)
	here.exists(here.remote, remote, remoteNS, "second")
	here.exists(here.remote, remote, remoteNS, "first", func() error { return equal(any(map[string]any{"size": "big"}), remote.Object["spec"]) })
	here.told("Plate", "spec.colour", 1)
	here.told("Plate", "spec.glaze", 0)
	first.Object["spec"] = map[string]any{"size": "big", "glaze": "matt"}
	here.must("change a plate", here.home.Update(t.Context(), first))
	here.told("Plate", "spec.glaze", 1)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "near", Namespace: homeNS}}
	service.Spec.Ports, service.Spec.TrafficDistribution = []corev1.ServicePort{{Port: 80}}, new(corev1.ServiceTrafficDistributionPreferSameZone)
	here.create(here.home, service)
	here.told("Service", "spec.trafficDistribution", 1)
	here.told("Service", "spec.neverSet", 0) // only the peer says that it is there
	here.told("Plate", "spec.colour", 1)

	named := pod("named")
	named.Spec.Subdomain = "web"
	here.create(here.home, named)
	var shadow offv1beta1.ShadowPod
	here.exists(here.remote, &shadow, remoteNS, named.Name)
	here.must("set a condition", retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := here.remote.Get(t.Context(), client.ObjectKeyFromObject(&shadow), &shadow); err != nil {
			return err
		}
		meta.SetStatusCondition(&shadow.Status.Conditions, metav1.Condition{
			Type: "Ready", Status: metav1.ConditionFalse, Reason: api.ReasonFieldsDropped,
			Message: "the API server does not know spec.neverSet, spec.subdomain",
		})
		return here.remote.Status().Update(t.Context(), &shadow)
	}))
	here.told("Pod", "spec.subdomain", 1)
	here.told("Pod", "spec.neverSet", 0)
}

// told waits until as many events name a field of a kind.
func (w *world) told(kind, field string, want int) {
	w.Helper()
	w.eventually(fmt.Sprintf("%d events about %s of a %s", want, field, kind), func(ctx context.Context) error {
		var events corev1.EventList
		if err := w.home.List(ctx, &events, client.InNamespace(homeNS)); err != nil {
			return err
		}
		found := 0
		for _, e := range events.Items {
			if e.Reason == "FieldNotReflected" && e.InvolvedObject.Kind == kind && strings.Contains(e.Message, `"`+field+`"`) {
				found++
			}
		}
		if found != want {
			return errors.New(fmt.Sprint(found))
		}
		return nil
	})
}
