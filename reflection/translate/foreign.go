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
	eachReference(pod, func(kind, name string) { out = append(out, Reference{kind, name}) })
	return out
}

// referencesOf leaves of a pod, as volumes, the objects that it uses.
func referencesOf(pod *corev1.PodSpec) (out []corev1.Volume) {
	seen := map[Reference]bool{}
	eachReference(pod, func(kind, name string) {
		var v corev1.Volume
		switch kind {
		case "ConfigMap":
			v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
		case "Secret":
			v.Secret = &corev1.SecretVolumeSource{SecretName: name}
		default:
			v.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}
		}
		if r := (Reference{kind, name}); !seen[r] {
			seen[r] = true
			out = append(out, v)
		}
	})
	return out
}

// eachReference names the ConfigMaps, Secrets and claims that a pod uses, some of them more than
// once. The CA of the cluster is never among them: its name at the provider is another.
func eachReference(pod *corev1.PodSpec, see func(kind, name string)) {
	const config, secret, claim = "ConfigMap", "Secret", "PersistentVolumeClaim"
	add := func(kind, name string) {
		if name != "" && name != rootCA {
			see(kind, name)
		}
	}
	for i := range pod.Volumes {
		v := &pod.Volumes[i]
		if v.ConfigMap != nil {
			add(config, v.ConfigMap.Name)
		}
		if v.Secret != nil {
			add(secret, v.Secret.SecretName)
		}
		if v.PersistentVolumeClaim != nil {
			add(claim, v.PersistentVolumeClaim.ClaimName)
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				add(config, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				add(secret, s.Secret.Name)
			}
		}
	}
	for _, s := range pod.ImagePullSecrets {
		add(secret, s.Name)
	}
	eachContainer(pod, func(c *corev1.Container) {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				add(config, from.ConfigMapRef.Name)
			}
			if from.SecretRef != nil {
				add(secret, from.SecretRef.Name)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if from := e.ValueFrom.ConfigMapKeyRef; from != nil {
				add(config, from.Name)
			}
			if from := e.ValueFrom.SecretKeyRef; from != nil {
				add(secret, from.Name)
			}
		}
	})
}
