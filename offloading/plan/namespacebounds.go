// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/desired"
)

// NamespaceBounds bound what a consumer may have in each namespace made for it. They are the chart value
// offloading.namespaceBounds.
type NamespaceBounds struct {
	// Quota is what a ResourceQuota bounds; empty makes none.
	Quota corev1.ResourceList `json:"quota,omitempty"`
	// Secrets is how many Secrets there may be; 0 bounds none. No ResourceQuota counts them, because one comes with
	// every pod: the API server would read and write the ResourceQuota for each pod of a burst.
	Secrets int `json:"secrets,omitempty"`
	// ClaimSize is the most storage that one PersistentVolumeClaim may request; 0 bounds none.
	ClaimSize resource.Quantity `json:"claimSize,omitempty"`
}

// boundsName is the name of the ResourceQuota and the LimitRange in a namespace made for a consumer.
const boundsName = "liqo-bounds"

// objects are the ResourceQuota and the LimitRange of a namespace. They bind everybody who makes something there, so
// that a claim that comes of a pod's ephemeral volume counts, too.
func (b NamespaceBounds) objects(namespace string) []desired.Object {
	var objects []desired.Object
	meta := metav1.ObjectMeta{Name: boundsName, Namespace: namespace}
	if len(b.Quota) > 0 {
		objects = append(objects, &corev1.ResourceQuota{ObjectMeta: meta,
			Spec: corev1.ResourceQuotaSpec{Hard: b.Quota}})
	}
	if !b.ClaimSize.IsZero() {
		objects = append(objects, &corev1.LimitRange{ObjectMeta: meta,
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypePersistentVolumeClaim,
				Max:  corev1.ResourceList{corev1.ResourceStorage: b.ClaimSize},
			}}}})
	}
	return objects
}

// SecretCountInput is a consumer's namespace, how many Secrets are in it, and how many there may be at most.
type SecretCountInput struct {
	Root          *corev1.Namespace
	Secrets, Most int
}

// SecretCount labels a namespace that has as many Secrets as it may have: by that label the API server refuses
// further ones of its consumer.
func SecretCount(in SecretCountInput) desired.Plan {
	labelled := in.Root.DeepCopy()
	if !mark(labelled, api.LabelTooManySecrets, in.Secrets >= in.Most) {
		return desired.Plan{}
	}
	return desired.Plan{Fill: labelled}
}

// MadeForConsumer reports whether a namespace was made for a consumer's map.
func MadeForConsumer(namespace metav1.Object) bool {
	return namespace.GetAnnotations()[api.AnnotationManagedByNamespaceMap] != ""
}
