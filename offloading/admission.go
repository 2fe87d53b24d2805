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

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
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

// admissionServer answers the API server in every replica of the controller role. It serves with
// the certificate all replicas share.
type admissionServer struct {
	options Options
	quotas  *accounts
}

// Register adds the server to mgr.
func (s admissionServer) Register(mgr manager.Manager) error {
	certificate := servingCertificate{
		reader: mgr.GetClient(), key: types.NamespacedName{Namespace: s.options.Kubelet.LiqoNamespace,
			Name: s.options.WebhookSecret},
	}
	server := webhook.NewServer(webhook.Options{
		Port:    s.options.WebhookPort,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = certificate.get }},
	})
	decoder := admission.NewDecoder(mgr.GetScheme())
	handle := func(path string, h admission.HandlerFunc) {
		server.Register(path, &admission.Webhook{Handler: h})
	}
	handle("/mutate/pod", func(ctx context.Context, req admission.Request) admission.Response {
		return s.mutatePod(ctx, readerOf(mgr), decoder, req)
	})
	handle("/mutate/shadowpods", func(ctx context.Context, req admission.Request) admission.Response {
		return s.mutateShadowPod(ctx, mgr.GetClient(), decoder, req)
	})
	if err := mgr.Add(server); err != nil {
		return fmt.Errorf("add admission server: %w", err)
	}
	return nil
}

// servingCertificate gives the certificate kept in a Secret, as it is at each handshake.
type servingCertificate struct {
	reader client.Reader
	key    types.NamespacedName
}

func (c servingCertificate) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	var secret corev1.Secret
	if err := c.reader.Get(hello.Context(), c.key, &secret); err != nil {
		return nil, fmt.Errorf("read serving certificate: %w", err)
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("parse serving certificate: %w", err)
	}
	return &pair, nil
}

// mutatePod leads a new pod of an extended namespace to where it may run, and keeps the toleration of one that is
// changed.
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
		return patched(&pod, plan.ReadmitPod(&pod, &old))
	}
	offloading, err := offloadingOf(ctx, r, req.Namespace)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	if offloading == nil {
		return admission.Denied(fmt.Sprintf("namespace %s is labelled %s but has no NamespaceOffloading %q; create "+
			"it or remove the label",
			req.Namespace, api.LabelSchedulingEnabled, api.NamespaceOffloadingName))
	}
	pod.Namespace = req.Namespace // which the pod itself may leave out
	claimed, err := travels(ctx, r, &pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return patched(&pod, plan.AdmitPod(&pod, offloading.Spec, s.options.Kubelet.RuntimeClass, claimed))
}

// mutateShadowPod stamps on a ShadowPod who created it. Nobody can choose or change that. A new
// one is checked in the same call: a second one would cost as much again, and what others may
// still change in it is checked again when its pod is made. An answer changes nothing here, whoever asks.
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
		// A writer that does not know the label must not lose it.
		var old offloadingv1beta1.ShadowPod
		if err := decoder.DecodeRaw(req.OldObject, &old); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		metav1.SetMetaDataLabel(&pod.ObjectMeta, api.LabelCreatorUser, old.Labels[api.LabelCreatorUser])
	}
	return patched(before, labelsOf(&pod))
}

// labelsOf is all of an object that is about to be changed, without the rest of it to encode.
func labelsOf(obj client.Object) client.Object {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(obj.GetLabels())}}
}

// checkShadowPod checks a new ShadowPod's origin, what it asks for and the quota of its creator; nil is no objection.
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

// patched answers with what changed between two states of one object. The request itself is not
// compared: it may hold fields of a newer API, which must not be lost here.
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
