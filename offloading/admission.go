// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// admissionServer serves the admission webhooks in every replica of the controller role. All
// replicas share one certificate.
type admissionServer struct {
	options Options
	quotas  *accounts
}

// Register adds the server to mgr.
func (s admissionServer) Register(mgr manager.Manager) error {
	secret := types.NamespacedName{Namespace: s.options.Kubelet.LiqoNamespace, Name: s.options.WebhookSecret}
	certificate := servingCertificate(mgr.GetClient(), secret)
	server := webhook.NewServer(webhook.Options{
		Port:    s.options.WebhookPort,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = certificate }},
	})
	decoder := admission.NewDecoder(mgr.GetScheme())
	reader := ctl.Reader{Reader: mgr.GetClient(), Live: mgr.GetAPIReader()}
	handle := func(path string, h admission.HandlerFunc) {
		server.Register(path, &admission.Webhook{Handler: h})
	}
	handle("/mutate/pod", func(ctx context.Context, req admission.Request) admission.Response {
		return s.mutatePod(ctx, reader, decoder, req)
	})
	handle("/mutate/tolerantpod", func(_ context.Context, req admission.Request) admission.Response {
		var pod corev1.Pod
		if err := decoder.Decode(req, &pod); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		return admitted(&pod, plan.KeepHome(&pod, s.options.Kubelet.RuntimeClass))
	})
	handle("/mutate/shadowpods", func(ctx context.Context, req admission.Request) admission.Response {
		return s.mutateShadowPod(ctx, mgr.GetClient(), decoder, req)
	})
	handle("/mutate/podcertificaterequests", func(ctx context.Context, req admission.Request) admission.Response {
		return checkPodCertificate(ctx, mgr.GetAPIReader(), decoder, req)
	})
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("add admission server: %w", err)
	}
	return nil
}

// servingCertificate returns a function that reads the certificate from a Secret at each handshake.
func servingCertificate(
	r client.Reader, key types.NamespacedName,
) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		var secret corev1.Secret
		if err := r.Get(hello.Context(), key, &secret); err != nil {
			return nil, fmt.Errorf("read serving certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			return nil, fmt.Errorf("parse serving certificate: %w", err)
		}
		return &pair, nil
	}
}

// mutatePod adds toleration and node affinity to a new pod of an offloaded namespace, and keeps the
// toleration of an updated one.
func (s admissionServer) mutatePod(ctx context.Context, r ctl.Reader, decoder admission.Decoder,
	req admission.Request) admission.Response {
	var pod corev1.Pod
	if err := decoder.Decode(req, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if req.Operation == admissionv1.Update {
		var old corev1.Pod
		if err := decoder.DecodeRaw(req.OldObject, &old); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		return admitted(&pod, plan.ReadmitPod(&pod, &old))
	}
	offloading, err := offloadingOf(ctx, r, req.Namespace)
	if offloading == nil && err == nil { // the cache of this replica may be stale
		offloading, err = offloadingOf(ctx, r.Live, req.Namespace)
	}
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if offloading == nil {
		return admission.Denied(fmt.Sprintf("namespace %s is labelled %s but has no NamespaceOffloading %q; create "+
			"it or remove the label",
			req.Namespace, api.LabelSchedulingEnabled, api.NamespaceOffloadingName))
	}
	pod.Namespace = req.Namespace // the pod itself may lack it
	mayLeave, err := claimsAllowOffloading(ctx, r, &pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admitted(&pod, plan.AdmitPod(&pod, offloading.Spec, s.options.Kubelet.RuntimeClass, mayLeave))
}

// addition is an operation of a JSON patch.
type addition struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// admitted returns a response with what admission adds to a pod: tolerations, required node affinity
// and an annotation. To compare whole pods took a third of the time of a request.
func admitted(before, after *corev1.Pod) admission.Response {
	var patch []addition
	add := func(path string, value any) { patch = append(patch, addition{"add", path, value}) }
	had, tolerations := before.Spec.Tolerations, after.Spec.Tolerations
	if len(had) == 0 && len(tolerations) > 0 {
		add("/spec/tolerations", tolerations)
	} else {
		for _, t := range tolerations[len(had):] {
			add("/spec/tolerations/-", t)
		}
	}
	switch from, to := before.Spec.Affinity, after.Spec.Affinity; {
	case equality.Semantic.DeepEqual(from, to):
	case from == nil:
		add("/spec/affinity", to)
	case from.NodeAffinity == nil:
		add("/spec/affinity/nodeAffinity", to.NodeAffinity)
	default:
		add("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
			to.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	const key = api.AnnotationAdmitted
	switch value := after.Annotations[key]; {
	case value == before.Annotations[key]:
	case before.Annotations == nil:
		add("/metadata/annotations", map[string]string{key: value})
	default:
		add("/metadata/annotations/"+strings.ReplaceAll(key, "/", "~1"), value)
	}
	response := admission.Allowed("")
	if len(patch) == 0 {
		return response
	}
	var err error
	if response.Patch, err = json.Marshal(patch); err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	response.PatchType = new(admissionv1.PatchTypeJSONPatch)
	return response
}

// mutateShadowPod labels a ShadowPod with the user who created it, which nobody can choose or
// change. It also validates a new ShadowPod, because a second webhook would double the cost. Later
// mutations by others are checked when the pod is created. A request has no side effects, so
// anybody may send one.
func (s admissionServer) mutateShadowPod(ctx context.Context, r client.Reader, decoder admission.Decoder,
	req admission.Request) admission.Response {
	var pod offloadingv1beta1.ShadowPod
	if err := decoder.Decode(req, &pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	before := labelsOf(&pod)
	switch {
	case req.Operation == admissionv1.Create:
		metav1.SetMetaDataLabel(&pod.ObjectMeta, api.LabelCreatorUser, api.LabelValue(req.UserInfo.Username))
		if refusal := s.checkShadowPod(ctx, r, &pod); refusal != nil {
			return *refusal
		}
	case pod.Labels[api.LabelCreatorUser] == "":
		// A client that does not know the label must not remove it.
		var old offloadingv1beta1.ShadowPod
		if err := decoder.DecodeRaw(req.OldObject, &old); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		metav1.SetMetaDataLabel(&pod.ObjectMeta, api.LabelCreatorUser, old.Labels[api.LabelCreatorUser])
	}
	return patched(before, labelsOf(&pod))
}

// labelsOf returns an object with the labels of obj only: nothing else is changed, and encoding the
// rest would cost time.
func labelsOf(obj client.Object) client.Object {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(obj.GetLabels())}}
}

// checkShadowPod validates a new ShadowPod's origin and spec, and checks the quota of its creator.
// It returns nil if the ShadowPod is allowed.
func (s admissionServer) checkShadowPod(ctx context.Context, r client.Reader,
	pod *offloadingv1beta1.ShadowPod) *admission.Response {
	origin, err := originOf(ctx, r, pod.Namespace)
	if err != nil {
		return new(admission.Errored(http.StatusInternalServerError, err))
	}
	reason := plan.ShadowPodRefusal(pod, origin, s.options.GuestPods)
	if reason == "" && s.options.EnforceResources {
		var quota *plan.QuotaInput
		if quota, err = s.quotas.quota(ctx, r, pod); err == nil {
			reason = s.quotas.refuseShadowPod(quota, pod)
		}
	}
	switch {
	case err != nil:
		return new(admission.Errored(http.StatusInternalServerError,
			errors.Join(errors.New("initialization in progress"), err)))
	case reason != "":
		return new(admission.Denied(reason))
	}
	return nil
}

// +kubebuilder:rbac:groups="",resources=nodes;pods;serviceaccounts,verbs=get

// checkPodCertificate refuses a virtual kubelet's request for a certificate that does not match its
// pod. r must not be a cache, because caches hold only parts of pods.
func checkPodCertificate(ctx context.Context, r client.Reader, decoder admission.Decoder,
	req admission.Request) admission.Response {
	var asks certificatesv1.PodCertificateRequest
	if err := decoder.Decode(req, &asks); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	var pod corev1.Pod
	var account corev1.ServiceAccount
	var node corev1.Node
	err := errors.Join(
		r.Get(ctx, types.NamespacedName{Namespace: req.Namespace, Name: asks.Spec.PodName}, &pod),
		r.Get(ctx, types.NamespacedName{Namespace: req.Namespace, Name: asks.Spec.ServiceAccountName}, &account),
		r.Get(ctx, types.NamespacedName{Name: string(asks.Spec.NodeName)}, &node))
	switch {
	case apierrors.IsNotFound(err):
		return admission.Denied(err.Error())
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if reason := plan.PodCertificateRefusal(asks.Spec, &pod, &account, &node); reason != "" {
		return admission.Denied(reason)
	}
	return admission.Allowed("")
}

// patched returns a response with the patch between two states of an object. It does not compare
// with the request itself, which may have fields of a newer API that must not be lost.
func patched(before, after client.Object) admission.Response {
	from, err := json.Marshal(before)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	to, err := json.Marshal(after)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(from, to)
}
