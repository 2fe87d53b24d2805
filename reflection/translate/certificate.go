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

// certificateRefreshAnnotation is on the Secret of a pod's tokens. It holds the times at which the
// renewal of its certificates begins: a JSON object from CertificateSource.ID to RFC 3339.
const certificateRefreshAnnotation = "offloading.liqo.io/certificate-refresh"

// certificateFiles lists the files that a podCertificate projection can write. A prefix marks their keys
// in the Secret; no other key begins with it.
var certificateFiles = []struct {
	prefix string
	path   func(*corev1.PodCertificateProjection) string
}{
	{"-bundle.", func(p *corev1.PodCertificateProjection) string { return p.CredentialBundlePath }},
	{"-key.", func(p *corev1.PodCertificateProjection) string { return p.KeyPath }},
	{"-chain.", func(p *corev1.PodCertificateProjection) string { return p.CertificateChainPath }},
}

// CertificateSource is a podCertificate projection of a pod.
type CertificateSource struct {
	*corev1.PodCertificateProjection
	// items holds the Secret keys of bundle, private key and chain; empty = not projected.
	items [3]string
}

// ID returns the Secret key of the first file, which is unique within the pod.
func (s CertificateSource) ID() string { return cmp.Or(s.items[:]...) }

// Files returns the projected files of a private key and a certificate chain in PEM, by Secret key.
func (s CertificateSource) Files(key []byte, chain string) map[string][]byte {
	certificates := blocks(chain)
	files := map[string][]byte{
		s.items[0]: slices.Concat(key, certificates), s.items[1]: key, s.items[2]: certificates,
	}
	delete(files, "")
	return files
}

// blocks returns the PEM blocks of a text, without their headers and the text between them.
func blocks(text string) (out []byte) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	return out
}

// CertificateSources returns the certificates that a pod needs from signers of the home cluster,
// sorted by ID.
func CertificateSources(home *corev1.Pod) []CertificateSource {
	if !readsHome(home) {
		return nil
	}
	return slices.SortedFunc(maps.Values(certificateSources(home.Spec.Volumes)), func(a, b CertificateSource) int {
		return strings.Compare(a.ID(), b.ID())
	})
}

// certificateSources returns the podCertificate projections of volumes.
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

// readCertificatesFrom replaces podCertificate projections, which the remote kubelet would request, by
// projections of a Secret.
func readCertificatesFrom(volumes []corev1.Volume, secret string, mode *int32) {
	for source, of := range certificateSources(volumes) {
		var items []corev1.KeyToPath
		for i, file := range certificateFiles {
			if of.items[i] != "" {
				items = append(items, corev1.KeyToPath{
					Key: of.items[i], Path: file.path(of.PodCertificateProjection), Mode: mode, User: of.User,
				})
			}
		}
		*source = fromSecret(secret, items...)
	}
}

// CertificateRefresh returns the times at which the renewal of the certificates in a Secret begins, by ID.
// Certificates that the Secret lacks have no time.
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

// refreshTimes parses certificateRefreshAnnotation; it returns no times if the provider broke it.
func refreshTimes(remote *corev1.Secret) map[string]time.Time {
	times := map[string]time.Time{}
	if json.Unmarshal([]byte(remote.Annotations[certificateRefreshAnnotation]), &times) != nil {
		return map[string]time.Time{}
	}
	return times
}

// LacksCertificates reports whether the View holds no new certificate for some source of a pod.
func LacksCertificates(home *corev1.Pod, v View) bool {
	for _, source := range CertificateSources(home) {
		if _, ok := v.CertificateRefresh[source.ID()]; !ok {
			return true
		}
	}
	return false
}

// Uncertified returns why certificates of a pod are not issued or renewed; nil = nothing is wrong. It
// returns nil while the Secret belongs to a former pod of the same name, because an error would keep
// that Secret from being deleted.
func Uncertified(home *corev1.Pod, remote *corev1.Secret, v View) error {
	if remote != nil && !HasTokens(home, remote) {
		return nil
	}
	return v.Uncertified
}

// bringCertificates sets new certificates in a Secret, and the times at which their renewal begins.
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
	if err == nil { // it fails only for years above 9999, which API servers refuse
		out.Annotations[certificateRefreshAnnotation] = string(text)
	}
}

// isCertificate reports whether a Secret key holds a certificate or its private key.
func isCertificate(key string) bool { return strings.HasPrefix(key, "-") }
