// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// ObjectsReflected on a pod is false while the provider has an object of its own under the name
	// of one that the pod uses. There is no such condition otherwise.
	ObjectsReflected corev1.PodConditionType = "offloading.liqo.io/ObjectsReflected"
	// reasonForeignObjects: delete the objects at the provider, or give those here other names.
	reasonForeignObjects = "ForeignObjects"
)

// Reference identifies an object that a pod uses, in the pod's namespace.
type Reference struct{ Kind, Name string }

// String returns the reference as messages show it.
func (r Reference) String() string { return fmt.Sprintf("%s %q", strings.ToLower(r.Kind), r.Name) }

// ForeignObjects returns the message of the condition ObjectsReflected; empty if the pod has no
// such condition.
func ForeignObjects(pod *corev1.Pod) string {
	if c := condition(pod.Status.Conditions, ObjectsReflected); c != nil {
		return c.Message
	}
	return ""
}

// withForeign returns the conditions of a pod with ObjectsReflected set or removed.
func withForeign(pod *corev1.Pod, v View) []corev1.PodCondition {
	was := condition(pod.Status.Conditions, ObjectsReflected)
	if v.Namespaces[pod.Namespace] == "" || was == nil && len(v.Foreign) == 0 {
		return pod.Status.Conditions
	}
	ours := func(c corev1.PodCondition) bool { return c.Type == ObjectsReflected }
	out := slices.DeleteFunc(slices.Clone(pod.Status.Conditions), ours)
	if len(v.Foreign) == 0 {
		return out
	}
	names := slices.Sorted(maps.Keys(v.Foreign))
	now := corev1.PodCondition{
		Type: ObjectsReflected, Status: corev1.ConditionFalse, LastTransitionTime: v.Foreign[names[0]],
		Reason: reasonForeignObjects,
		Message: fmt.Sprintf("namespace %q of %s has its own %s, which the pod uses instead of the local one; "+
			"delete it there, or use another name", v.Namespaces[pod.Namespace], v.Provider, strings.Join(names, ", ")),
	}
	if was != nil {
		now.LastTransitionTime = was.LastTransitionTime
	}
	return append(out, now)
}

// References returns the objects that a pod uses, some of them more than once.
func References(pod *corev1.PodSpec) (out []Reference) {
	eachReference(pod, func(kind string, name *string) {
		if *name != "" && *name != rootCA { // the provider has its own CA under another name
			out = append(out, Reference{kind, *name})
		}
	})
	return out
}

// referencesOf returns volumes that stand for the objects that a pod uses.
func referencesOf(pod *corev1.PodSpec) (out []corev1.Volume) {
	seen := map[Reference]bool{}
	for _, r := range References(pod) {
		if seen[r] {
			continue
		}
		seen[r] = true
		var v corev1.Volume
		switch r.Kind {
		case kindConfigMap:
			v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: r.Name}}
		case kindSecret:
			v.Secret = &corev1.SecretVolumeSource{SecretName: r.Name}
		default:
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: r.Name}
		}
		out = append(out, v)
	}
	return out
}

// These are the kinds of the objects that a pod uses.
const (
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
	kindClaim     = "PersistentVolumeClaim"
)

// eachReference visits the names of the ConfigMaps, Secrets and claims that a pod uses, some of
// them more than once. visit may change them.
func eachReference(pod *corev1.PodSpec, visit func(kind string, name *string)) {
	for i := range pod.Volumes {
		v := &pod.Volumes[i]
		if v.ConfigMap != nil {
			visit(kindConfigMap, &v.ConfigMap.Name)
		}
		if v.Secret != nil {
			visit(kindSecret, &v.Secret.SecretName)
		}
		if v.PersistentVolumeClaim != nil {
			visit(kindClaim, &v.PersistentVolumeClaim.ClaimName)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				visit(kindConfigMap, &s.ConfigMap.Name)
			}
			if s.Secret != nil {
				visit(kindSecret, &s.Secret.Name)
			}
		}
	}
	for i := range pod.ImagePullSecrets {
		visit(kindSecret, &pod.ImagePullSecrets[i].Name)
	}
	eachContainer(pod, func(c *corev1.Container) {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				visit(kindConfigMap, &from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				visit(kindSecret, &from.SecretRef.Name)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if from := e.ValueFrom.ConfigMapKeyRef; from != nil {
				visit(kindConfigMap, &from.Name)
			}
			if from := e.ValueFrom.SecretKeyRef; from != nil {
				visit(kindSecret, &from.Name)
			}
		}
	})
}
