// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// GuestPods holds what a provider's administrator allows pods of consumers beyond ordinary
// workloads. It is the chart value offloading.guestPods. The zero value allows nothing more.
type GuestPods struct {
	// Fields are further fields of a pod's spec, like "priorityClassName".
	Fields []string `json:"fields"`
	// Volumes are further kinds of volumes, as a pod's spec names them, like "nfs".
	Volumes []string `json:"volumes"`
	// RuntimeClasses are the runtime classes on offer; "*" stands for all.
	RuntimeClasses []string `json:"runtimeClasses"`
	// Annotations are prefixes of annotations and labels that are denied otherwise.
	Annotations []string `json:"annotations"`
	// Tolerations are keys of taints that a toleration without a key covers. A taint of control planes that is listed
	// here may be tolerated.
	Tolerations []string `json:"tolerations"`
}

var (
	// guestFields are those that virtual kubelets copy, of this implementation and of the original. A provider's pod
	// gets no other: the host's namespaces, a node past the scheduler, precedence over pods of others, devices.
	guestFields = []string{
		"activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy",
		"enableServiceLinks",
		"ephemeralContainers", "hostAliases", "hostUsers", "hostname", "hostnameOverride", "imagePullSecrets",
		"initContainers",
		"nodeSelector", "overhead", "readinessGates", "resources", "restartPolicy", "runtimeClassName",
		"securityContext", "serviceAccount",
		"serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain",
		"terminationGracePeriodSeconds", "tolerations",
		"topologySpreadConstraints", "volumes",
	}
	// guestVolumes take nothing of a node's file system and mount nothing from a server that a consumer names.
	guestVolumes = []string{"configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
		"projected", "secret"}
	// guestProjections are the sources of projected volumes. A certificate of the provider's signers is none.
	guestProjections = []string{"clusterTrustBundle", "configMap", "downwardAPI", "secret", "serviceAccountToken"}
	// foreignPrefixes are those of annotations and labels by which controllers of clouds, CNIs and injectors give a pod
	// an identity or a network.
	foreignPrefixes = []string{
		"aadpodidbinding", "azure.workload.identity/", "eks.amazonaws.com/", "iam.amazonaws.com/",
		"iam.cloud.google.com/", "iam.gke.io/",
		"vault.hashicorp.com/", "vault.security.banzaicloud.io/", // secrets of the provider's vault
		"cni.projectcalico.org/", "cni.cilium.io/", "io.cilium", "k8s.ovn.org/", "ovn.kubernetes.io/",
		"k8s.v1.cni.cncf.io/", "v1.multus-cni.io/",
		"networking.gke.io/", "vpc.amazonaws.com/", "k8s.aliyun.com/", "network.harvesterhci.io/",
	}
	// nodeTaints are those that Kubernetes itself puts on nodes:
	// https://kubernetes.io/docs/reference/labels-annotations-taints/
	nodeTaints = []string{
		"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable",
		"node.kubernetes.io/memory-pressure", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/pid-pressure",
		"node.kubernetes.io/network-unavailable", "node.kubernetes.io/out-of-service",
	}
	// controlPlaneTaints keep workloads away from control planes, as Kubernetes and its distributions name them.
	controlPlaneTaints = []string{
		"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master",
		"node-role.kubernetes.io/controlplane", "node-role.kubernetes.io/etcd",
	}
)

// refused says what pods of consumers may not have, and which value would allow it.
func refused(what, key, value string) string {
	return fmt.Sprintf("%s is not granted to pods of consumers; make the pod without it, or have the provider add %q "+
		"to the value offloading.guestPods.%s", what, value, key)
}

// refuses returns why a ShadowPod gets no pod, with the value that would allow it, or empty.
func (g GuestPods) refuses(root *offloadingv1beta1.ShadowPod) string {
	if keys := g.foreign(root, nil); len(keys) > 0 {
		return refused(fmt.Sprintf("the label or annotation %q", keys[0]), "annotations", keys[0])
	}
	spec := &root.Spec.Pod
	fields, volumes := shape(spec)
	for _, field := range fields {
		if !slices.Contains(guestFields, field) && !slices.Contains(g.Fields, field) {
			return refused(field, "fields", field)
		}
	}
	for _, kind := range volumes {
		allowed := slices.Contains(guestVolumes, kind) || slices.Contains(g.Volumes, kind)
		if source, ok := strings.CutPrefix(kind, "projected."); ok {
			allowed = allowed || slices.Contains(guestProjections, source)
		}
		if !allowed {
			return refused("a volume of kind "+kind, "volumes", kind)
		}
	}
	if class := spec.RuntimeClassName; class != nil && *class != "" && !slices.Contains(g.RuntimeClasses, *class) &&
		!slices.Contains(g.RuntimeClasses, "*") {
		return refused(fmt.Sprintf("runtime class %q", *class), "runtimeClasses", *class)
	}
	return g.refusesTolerations(spec.Tolerations)
}

// refusesChange returns what a ShadowPod asks for since it was changed that the pod made of it does not get, or empty.
func (g GuestPods) refusesChange(root *offloadingv1beta1.ShadowPod, pod *corev1.Pod) string {
	if keys := g.foreign(root, pod); len(keys) > 0 {
		return refused(fmt.Sprintf("the label or annotation %q", keys[0]), "annotations", keys[0])
	}
	if !changed(root) {
		return ""
	}
	added := slices.DeleteFunc(slices.Clone(root.Spec.Pod.Tolerations),
		func(t corev1.Toleration) bool { return tolerated(pod.Spec.Tolerations, t) })
	return g.refusesTolerations(added)
}

func (g GuestPods) refusesTolerations(tolerations []corev1.Toleration) string {
	if i := slices.IndexFunc(tolerations, g.controlPlane); i >= 0 {
		key := tolerations[i].Key
		return refused("a toleration of the taint "+key, "tolerations", key)
	}
	return ""
}

// controlPlane reports whether a toleration leads to control planes that are not on offer.
func (g GuestPods) controlPlane(t corev1.Toleration) bool {
	return slices.Contains(controlPlaneTaints, t.Key) && !slices.Contains(g.Tolerations, t.Key)
}

// tolerated reports whether t is among the tolerations.
func tolerated(tolerations []corev1.Toleration, t corev1.Toleration) bool {
	return slices.ContainsFunc(tolerations,
		func(has corev1.Toleration) bool { return equality.Semantic.DeepEqual(has, t) })
}

// shape returns the fields of a pod's spec that say something, and the kinds of its volumes.
func shape(spec *corev1.PodSpec) (fields, volumes []string) {
	top, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return nil, nil // a pod's spec always converts
	}
	silent := map[string]any{
		"priority": int64(0), "schedulerName": corev1.DefaultSchedulerName,
		"preemptionPolicy": string(corev1.PreemptLowerPriority),
	}
	for _, field := range slices.Sorted(maps.Keys(top)) {
		if top[field] != nil && top[field] != silent[field] {
			fields = append(fields, field)
		}
	}
	list, _ := top["volumes"].([]any)
	for _, volume := range list {
		kinds := volume.(map[string]any)
		delete(kinds, "name")
		volumes = append(volumes, slices.Sorted(maps.Keys(kinds))...)
		sources, _, _ := unstructured.NestedSlice(kinds, "projected", "sources")
		for _, source := range sources {
			for _, kind := range slices.Sorted(maps.Keys(source.(map[string]any))) {
				volumes = append(volumes, "projected."+kind)
			}
		}
	}
	return fields, volumes
}

// foreign returns which of a ShadowPod's labels and annotations its pod must not get: they mean something to
// controllers of the provider's cloud or network. Those that a pod has already stay.
func (g GuestPods) foreign(root *offloadingv1beta1.ShadowPod, pod *corev1.Pod) []string {
	var keys []string
	for i, set := range []map[string]string{root.Labels, root.Annotations} {
		for key, value := range set {
			begins := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
			if !slices.ContainsFunc(foreignPrefixes, begins) || slices.ContainsFunc(g.Annotations, begins) {
				continue
			}
			if pod != nil {
				if has, ok := []map[string]string{pod.Labels, pod.Annotations}[i][key]; ok && has == value {
					continue
				}
			}
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// narrowed returns tolerations in which those without a key, which cover every taint, cover only those that Kubernetes
// puts on nodes and those on offer. It reports whether there were such.
func (g GuestPods) narrowed(tolerations []corev1.Toleration) (out []corev1.Toleration, changed bool) {
	for _, t := range tolerations {
		if t.Key != "" {
			out = append(out, t)
			continue
		}
		changed = true
		for _, key := range slices.Concat(nodeTaints, g.Tolerations) {
			t.Key = key
			if !tolerated(out, t) {
				out = append(out, t)
			}
		}
	}
	return out, changed
}
