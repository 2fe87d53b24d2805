// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/reflection/translate"
)

// +kubebuilder:rbac:groups="",resources=serviceaccounts/token,namespace=offloaded,verbs=create

// gatherTokens requests the tokens of a home pod when the remote Secret lacks them, or 80 % of
// their lifetime has passed, and gathers its certificates. Tokens are bound to the pod, and
// become invalid when it is deleted. For the first pod that reads ClusterTrustBundles, trust has
// them put into the View. A home cluster that serves none keeps new pods waiting, and not one that
// has tokens already: it was started by a version that left bundles to the provider.
func gatherTokens(home client.Client, certificates *certificates, trust func(context.Context) error) GatherFunc {
	return func(ctx context.Context, _ client.Reader, o Objects, v *translate.View) (time.Duration, error) {
		pod, secret := as[*corev1.Pod](o.Home), as[*corev1.Secret](o.Remote)
		if v.Trust == nil && translate.ReadsTrust(pod) {
			switch err := trust(ctx); {
			case err == nil:
				return 0, errNotOurs // the new View enqueues it again
			case !errors.Is(err, errNoTrust) || !translate.HasTokens(pod, secret):
				return 0, err
			}
		}
		v.TokenSecret = translate.TokenSecretName(pod, as[*offv1beta1.ShadowPod](o.Report))
		after := certificates.gather(ctx, pod, secret, v)
		sources := translate.TokenSources(pod, *v)
		if len(sources) == 0 || !translate.HasTokens(pod, secret) && translate.LacksCertificates(pod, *v) {
			return after, nil
		}
		if wait := time.Until(translate.TokenRefresh(pod, secret, sources)); wait > 0 {
			return sooner(after, wait), nil
		}
		v.Tokens = map[string]translate.Token{}
		for _, source := range sources {
			token, err := requestToken(ctx, home, pod, source)
			if err != nil {
				return 0, err
			}
			v.Tokens[source.Key] = token
		}
		return after, nil // the event of the written Secret plans the next request
	}
}

// sooner returns the shorter of two delays; 0 means that there is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func requestToken(
	ctx context.Context, home client.Client, pod *corev1.Pod, source translate.TokenSource,
) (token translate.Token, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	name := pod.Spec.ServiceAccountName
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: name}}
	request := &authnv1.TokenRequest{Spec: authnv1.TokenRequestSpec{
		ExpirationSeconds: new(source.Seconds),
		BoundObjectRef:    &authnv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	if err := home.SubResource("token").Create(ctx, account, request); err != nil {
		return token, fmt.Errorf("request token of service account %s/%s: %w", pod.Namespace, name, err)
	}
	return translate.Token{
		Value: request.Status.Token, Expires: request.Status.ExpirationTimestamp.Time,
		Seconds: *request.Spec.ExpirationSeconds, // as granted: the response replaces those requested
	}, nil
}
