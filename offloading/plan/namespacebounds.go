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

// NamespaceBounds holds the limits in each namespace of a consumer. It is the chart value
// offloading.namespaceBounds.
type NamespaceBounds struct {
	// Quota holds the hard limits of a ResourceQuota; empty = no ResourceQuota.
	Quota corev1.ResourceList `json:"quota,omitempty"`
	// Secrets is the maximum number of Secrets; 0 = no limit. A ResourceQuota does not count them,
	// because every pod brings one, and the API server would update the ResourceQuota for each pod
	// of a burst.
	Secrets int `json:"secrets,omitempty"`
	// ClaimSize is the maximum storage request of one PersistentVolumeClaim; 0 = no limit.
	ClaimSize resource.Quantity `json:"claimSize,omitempty"`
}

// boundsName is the name of the ResourceQuota and the LimitRange in a namespace made for a
// consumer.
const boundsName = "liqo-bounds"

// objects returns the ResourceQuota and the LimitRange of a namespace. They apply to all clients,
// so that claims created for ephemeral volumes count as well.
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

// SecretCountInput holds a consumer's namespace, the number of Secrets in it, and the maximum.
type SecretCountInput struct {
	Root          *corev1.Namespace
	Secrets, Most int
}

// SecretCount labels a namespace that has reached the maximum number of Secrets. An admission
// policy selects the label and refuses further Secrets.
func SecretCount(in SecretCountInput) desired.Plan {
	labelled := in.Root.DeepCopy()
	if !setLabel(labelled, api.LabelTooManySecrets, in.Secrets >= in.Most) {
		return desired.Plan{}
	}
	return desired.Plan{Fill: labelled}
}

// MadeForConsumer reports whether a namespace was created for a consumer's NamespaceMap.
func MadeForConsumer(namespace metav1.Object) bool {
	return namespace.GetAnnotations()[api.AnnotationManagedByNamespaceMap] != ""
}
