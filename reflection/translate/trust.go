// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqo-go/liqo/api"
)

// trustDigestAnnotation holds, on the Secret of a pod's tokens, the SHA-256 of the trust anchors in it. Caches
// hold only the keys of such Secrets.
const trustDigestAnnotation = "offloading.liqo.io/trust-digest"

// ReadsTrust reports whether a pod reads ClusterTrustBundles of the home cluster.
func ReadsTrust(home *corev1.Pod) bool {
	for range trustSources(home.Spec.Volumes) {
		return readsHome(home)
	}
	return false
}

// readsHome reports whether a pod has not finished, and its volumes project data of the home cluster
// rather than the provider's.
func readsHome(home *corev1.Pod) bool {
	return home.Annotations[api.AnnotationAPIServerSupport] != apiServerRemote && !api.Finished(home.Status.Phase)
}

// trustAnchors returns the files that a pod makes of ClusterTrustBundles, by key of the Secret. One that
// is required and has no bundle is left out: the remote pod waits for it, as a local one would.
func trustAnchors(home *corev1.Pod, bundles []certificatesv1.ClusterTrustBundle) map[string][]byte {
	out := map[string][]byte{}
	for key, source := range trustSources(home.Spec.Volumes) {
		selected := selectBundles(source.ClusterTrustBundle, bundles)
		if len(selected) > 0 || source.ClusterTrustBundle.Optional != nil && *source.ClusterTrustBundle.Optional {
			out[key] = certificates(selected)
		}
	}
	return out
}

// selectBundles returns the bundles that a projection selects. As for kubelets, no selector selects none.
func selectBundles(
	p *corev1.ClusterTrustBundleProjection, bundles []certificatesv1.ClusterTrustBundle,
) (out []certificatesv1.ClusterTrustBundle) {
	selector, err := metav1.LabelSelectorAsSelector(p.LabelSelector)
	if err != nil {
		return nil // API servers refuse it
	}
	for _, b := range bundles {
		byName := p.Name != nil && *p.Name == b.Name
		bySigner := p.SignerName != nil && *p.SignerName == b.Spec.SignerName && selector.Matches(labels.Set(b.Labels))
		if byName || bySigner {
			out = append(out, b)
		}
	}
	return out
}

// certificates returns the certificates of bundles in PEM, each once, in the order of their bytes.
func certificates(bundles []certificatesv1.ClusterTrustBundle) []byte {
	var all [][]byte
	for _, b := range bundles {
		for block, rest := pem.Decode([]byte(b.Spec.TrustBundle)); block != nil; block, rest = pem.Decode(rest) {
			all = append(all, block.Bytes)
		}
	}
	slices.SortFunc(all, bytes.Compare)
	out := []byte{}
	for _, certificate := range slices.CompactFunc(all, bytes.Equal) {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})...)
	}
	return out
}

// bringTrust sets the trust anchors in the Secret of a pod's tokens, unless remote has them already;
// nil = it has none.
func bringTrust(out, remote *corev1.Secret, anchors map[string][]byte) {
	hash := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(anchors)) {
		fmt.Fprintf(hash, "%s %d %s", key, len(anchors[key]), anchors[key])
	}
	digest := hex.EncodeToString(hash.Sum(nil))
	out.Annotations[trustDigestAnnotation] = digest
	if remote != nil && remote.Annotations[trustDigestAnnotation] == digest && hasKeys(remote, anchors) {
		return
	}
	maps.DeleteFunc(out.Data, func(key string, _ []byte) bool { return strings.HasPrefix(key, trustPrefix) })
	maps.Copy(out.Data, anchors)
}

func hasKeys(secret *corev1.Secret, wanted map[string][]byte) bool {
	for key := range wanted {
		if _, ok := secret.Data[key]; !ok {
			return false
		}
	}
	return true
}
