// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"encoding/json"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// certificateRefreshAnnotation holds, on the Secret of a pod's tokens, when its certificates are to be requested
// again: a JSON object of times by ID.
const certificateRefreshAnnotation = "offloading.liqo.io/certificate-refresh"

// certificateFiles are the files that a projection of a pod certificate may write. Their prefixes begin the keys of
// certificates in the Secret, and no others.
var certificateFiles = []struct {
	prefix string
	path   func(*corev1.PodCertificateProjection) string
}{
	{"-bundle.", func(p *corev1.PodCertificateProjection) string { return p.CredentialBundlePath }},
	{"-key.", func(p *corev1.PodCertificateProjection) string { return p.KeyPath }},
	{"-chain.", func(p *corev1.PodCertificateProjection) string { return p.CertificateChainPath }},
}

// CertificateSource is a certificate that a pod requests.
type CertificateSource struct {
	*corev1.PodCertificateProjection
	// items names the keys of the bundle, the key and the chain in the Secret; empty = the pod has no such file.
	items [3]string
}

// ID identifies the certificate among those of its pod: the key of its first file.
func (s CertificateSource) ID() string { return cmp.Or(s.items[:]...) }

// Files returns the files of a certificate by key of the Secret.
func (s CertificateSource) Files(key []byte, chain string) map[string][]byte {
	certificates := blocks(chain)
	files := map[string][]byte{
		s.items[0]: slices.Concat(key, certificates), s.items[1]: key, s.items[2]: certificates,
	}
	delete(files, "")
	return files
}

// blocks returns the blocks of a text in PEM, without their headers and what is between them.
func blocks(text string) (out []byte) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	return out
}

// CertificateSources returns the certificates that a pod needs from signers of the home cluster, sorted by ID.
func CertificateSources(home *corev1.Pod) []CertificateSource {
	if !readsHome(home) {
		return nil
	}
	return slices.SortedFunc(maps.Values(certificateSources(home.Spec.Volumes)), func(a, b CertificateSource) int {
		return strings.Compare(a.ID(), b.ID())
	})
}

// certificateSources returns the projections of pod certificates.
func certificateSources(volumes []corev1.Volume) map[*corev1.VolumeProjection]CertificateSource {
	out := map[*corev1.VolumeProjection]CertificateSource{}
	for i, file := range certificateFiles {
		path := func(s *corev1.VolumeProjection) string {
			if s.PodCertificate == nil {
				return ""
			}
			return file.path(s.PodCertificate)
		}
		for key, source := range keyed(volumes, file.prefix, path) {
			of := out[source]
			of.PodCertificateProjection, of.items[i] = source.PodCertificate, key
			out[source] = of
		}
	}
	return out
}

// readCertificatesFrom replaces certificates the kubelet would request by those kept in a Secret.
func readCertificatesFrom(volumes []corev1.Volume, secret string) {
	for source, of := range certificateSources(volumes) {
		var items []corev1.KeyToPath
		for i, file := range certificateFiles {
			if of.items[i] != "" {
				items = append(items, corev1.KeyToPath{
					Key: of.items[i], Path: file.path(of.PodCertificateProjection), User: of.User,
				})
			}
		}
		*source = fromSecret(secret, items...)
	}
}

// CertificateRefresh returns when certificates of a Secret are to be requested again, by ID, as their signers have
// said. One that the Secret lacks has no time.
func CertificateRefresh(home *corev1.Pod, remote *corev1.Secret, sources []CertificateSource) map[string]time.Time {
	if !HasTokens(home, remote) {
		return nil
	}
	refresh := refreshTimes(remote)
	for _, source := range sources {
		if !hasKeys(remote, source.Files(nil, "")) {
			delete(refresh, source.ID())
		}
	}
	return refresh
}

// refreshTimes returns what the annotation says; none if it is not as we write it.
func refreshTimes(remote *corev1.Secret) map[string]time.Time {
	times := map[string]time.Time{}
	if json.Unmarshal([]byte(remote.Annotations[certificateRefreshAnnotation]), &times) != nil {
		return map[string]time.Time{}
	}
	return times
}

// LacksCertificates reports whether new certificates are only some of those that a pod needs.
func LacksCertificates(home *corev1.Pod, v View) bool {
	for _, source := range CertificateSources(home) {
		if _, ok := v.CertificateRefresh[source.ID()]; !ok {
			return true
		}
	}
	return false
}

// Uncertified returns why a pod lacks certificates, or newer ones. What a former pod of its name had goes first.
func Uncertified(home *corev1.Pod, remote *corev1.Secret, v View) error {
	if remote != nil && !HasTokens(home, remote) {
		return nil
	}
	return v.Uncertified
}

// bringCertificates sets new certificates in a Secret, and when to request the next ones.
func bringCertificates(out *corev1.Secret, v View) {
	if len(v.CertificateRefresh) == 0 {
		return
	}
	maps.Copy(out.Data, v.Certificates)
	times := refreshTimes(out)
	for id, at := range v.CertificateRefresh {
		times[id] = at.UTC()
	}
	text, err := json.Marshal(times)
	if err == nil { // a year has four digits: signers' times passed Kubernetes' validation
		out.Annotations[certificateRefreshAnnotation] = string(text)
	}
}

// isCertificate reports whether a key of the Secret is that of a certificate.
func isCertificate(key string) bool { return strings.HasPrefix(key, "-") }
