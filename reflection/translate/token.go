// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// TokenSource describes a token that a pod requests.
type TokenSource struct {
	// Key is the token's key in the Secret.
	Key string
	// Audience is the token's audience; empty = the API server.
	Audience string
	// Seconds is the token's lifetime; never extendedTokenSeconds.
	Seconds int64
}

// tokenSecondsAnnotation holds, on the Secret of a pod's tokens, the shortest lifetime in seconds
// for which one of them was made.
const tokenSecondsAnnotation = "offloading.liqo.io/service-account-token-seconds"

const (
	// defaultTokenSeconds is the API server's default for a projection without expiration.
	defaultTokenSeconds = 3600
	// extendedTokenSeconds is the lifetime that the default volume of every pod requests. API
	// servers extend it to a year, for clients that never read their token again (kube-apiserver
	// --service-account-extend-token-expiration, on by default). A provider gets no such token.
	extendedTokenSeconds = 3607
)

// TokenSources returns the tokens that a pod needs from the consumer; none if it does not use the
// home API server.
func TokenSources(home *corev1.Pod, v View) []TokenSource {
	if !usesHomeAPIServer(home, v) || api.Finished(home.Status.Phase) {
		return nil
	}
	var out []TokenSource
	for key, source := range tokenSources(home.Spec.Volumes) {
		t := source.ServiceAccountToken
		seconds := int64(defaultTokenSeconds)
		if t.ExpirationSeconds != nil && *t.ExpirationSeconds != extendedTokenSeconds {
			seconds = *t.ExpirationSeconds
		}
		out = append(out, TokenSource{Key: key, Audience: t.Audience, Seconds: seconds})
	}
	return out
}

// HasTokens reports whether a Secret is of this pod, and not of a former one of its name.
func HasTokens(home *corev1.Pod, remote *corev1.Secret) bool {
	return remote != nil && remote.Annotations[api.AnnotationServiceAccountForPodUID] == string(home.UID)
}

// TokenRefresh returns when the tokens of a Secret are to be requested again: after 80 % of the
// shortest lifetime, which the home API server may have shortened. The zero time means immediately.
func TokenRefresh(home *corev1.Pod, remote *corev1.Secret, sources []TokenSource) time.Time {
	if !HasTokens(home, remote) {
		return time.Time{}
	}
	expires, err := time.Parse(time.RFC3339, remote.Annotations[api.AnnotationServiceAccountExpiration])
	if err != nil {
		return time.Time{}
	}
	shortest := sources[0].Seconds
	for _, s := range sources {
		if _, ok := remote.Data[s.Key]; !ok {
			return time.Time{}
		}
		shortest = min(shortest, s.Seconds)
	}
	if granted, err := strconv.ParseInt(remote.Annotations[tokenSecondsAnnotation], 10, 64); err == nil {
		shortest = min(shortest, granted)
	}
	return expires.Add(-time.Duration(shortest) * time.Second / 5)
}

// PodOfTokens returns the name of the pod of a Secret of tokens. An uncut name of the Secret is
// preferred to the annotation, which the provider may change.
func PodOfTokens(secret desired.Object) string {
	name := secret.GetName()
	if i := strings.LastIndex(name, "-token"); i >= 0 && (name == api.FormerServiceAccountTokenSecretName(name[:i]) ||
		name == api.ServiceAccountTokenSecretName(name[:i])) {
		return name[:i]
	}
	return secret.GetAnnotations()[api.AnnotationServiceAccountForPodName]
}

// TokenSecretName returns the name of the Secret from which the ShadowPod of a local pod mounts its
// tokens. A ShadowPod made before names had digits mounts the former name as long as it exists.
func TokenSecretName(home *corev1.Pod, shadow *offv1beta1.ShadowPod) string {
	if shadow != nil && madeFor(home, shadow.Annotations) && len(formerTokens(shadow)) > 0 {
		return api.FormerServiceAccountTokenSecretName(home.Name)
	}
	return api.ServiceAccountTokenSecretName(home.Name)
}

// formerTokens returns the volumes by which a ShadowPod mounts the Secret of the former name. It
// returns none if the ShadowPod mounts tokens by the present name: the other Secret is a user's.
func formerTokens(shadow *offv1beta1.ShadowPod) []corev1.Volume {
	mounts := func(v corev1.Volume, secret string) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.Secret != nil && s.Secret.Name == secret
		})
	}
	var former []corev1.Volume
	for _, v := range shadow.Spec.Pod.Volumes {
		switch {
		case mounts(v, api.ServiceAccountTokenSecretName(shadow.Name)):
			return nil
		case mounts(v, api.FormerServiceAccountTokenSecretName(shadow.Name)):
			former = append(former, v)
		}
	}
	return former
}

// ofFormerPod reports whether a Secret has the name that was used when a former pod of this name
// was made. The pod reads its tokens from another Secret.
func ofFormerPod(home *corev1.Pod, remote *corev1.Secret) bool {
	return remote != nil && remote.Name != api.ServiceAccountTokenSecretName(home.Name) &&
		remote.Annotations[api.AnnotationServiceAccountForPodUID] != string(home.UID)
}

// ChangesTokens reports whether an update of a home pod may change its tokens. Kubernetes lets
// nobody change its volumes and service account.
func ChangesTokens(before, after *corev1.Pod) bool {
	const mode = api.AnnotationAPIServerSupport
	return before.UID != after.UID || before.Annotations[mode] != after.Annotations[mode] ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
		api.Finished(before.Status.Phase) != api.Finished(after.Status.Phase)
}

// Tokens pushes the service account tokens of a pod, its namespace, its certificates, and what it
// reads of ClusterTrustBundles, as a Secret that the remote pod mounts. Without new tokens or
// certificates in the View, the Secret keeps its own.
func Tokens(home *corev1.Pod, remote *corev1.Secret, v View) *corev1.Secret {
	tokens, trust, certified := len(TokenSources(home, v)) > 0, ReadsTrust(home), len(CertificateSources(home)) > 0
	isNew := !HasTokens(home, remote)
	lacks := tokens && len(v.Tokens) == 0 || LacksCertificates(home, v)
	if !tokens && !trust && !certified || isNew && lacks || ofFormerPod(home, remote) {
		return nil
	}
	out := copyOf(remote)
	if out.Data == nil { // of a new Secret, or by the provider
		out.Data = map[string][]byte{}
	}
	out.Type = cmp.Or(out.Type, corev1.SecretTypeOpaque)
	meta := home.ObjectMeta
	meta.Labels, meta.Annotations = nil, nil
	out.ObjectMeta = v.metadata(meta, out.ObjectMeta,
		cmp.Or(v.TokenSecret, api.ServiceAccountTokenSecretName(home.Name)))
	out.Labels[api.LabelServiceAccountName] = api.LabelValue(home.Spec.ServiceAccountName)
	out.Annotations[api.AnnotationServiceAccountForPodName] = home.Name
	out.Annotations[api.AnnotationServiceAccountForPodUID] = string(home.UID)
	if isNew {
		out.Data = map[string][]byte{}
	} else {
		keepTimes(out, remote)
	}
	if isNew || len(v.Tokens) > 0 {
		maps.DeleteFunc(out.Data, func(key string, _ []byte) bool {
			return !strings.HasPrefix(key, trustPrefix) && !isCertificate(key)
		})
		bringTokens(out, home.Namespace, v.Tokens)
		remote = nil
	}
	if trust && v.Trust != nil {
		bringTrust(out, remote, trustAnchors(home, v.Trust))
	}
	bringCertificates(out, v)
	return out
}

// keepTimes copies the annotations with the times at which tokens expire and renewal begins.
func keepTimes(out, remote *corev1.Secret) {
	for _, key := range []string{
		api.AnnotationServiceAccountExpiration, tokenSecondsAnnotation, certificateRefreshAnnotation,
	} {
		if value, ok := remote.Annotations[key]; ok {
			out.Annotations[key] = value
		}
	}
}

// bringTokens sets the namespace and new tokens in a Secret, and the time at which the first expires.
func bringTokens(out *corev1.Secret, namespace string, tokens map[string]Token) {
	out.Data[namespaceKey] = []byte(namespace)
	first, seconds := time.Time{}, int64(math.MaxInt64)
	for key, token := range tokens {
		out.Data[key] = []byte(token.Value)
		seconds = min(seconds, token.Seconds)
		if first.IsZero() || token.Expires.Before(first) {
			first = token.Expires
		}
	}
	if len(tokens) > 0 {
		out.Annotations[api.AnnotationServiceAccountExpiration] = first.UTC().Format(time.RFC3339)
		out.Annotations[tokenSecondsAnnotation] = strconv.FormatInt(seconds, 10)
	}
}
