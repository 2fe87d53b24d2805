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
	"k8s.io/utils/ptr"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// GuestPods lists what a provider's administrator allows to pods of consumers beyond ordinary
// workloads. It is the chart value offloading.guestPods. The zero value allows nothing more.
type GuestPods struct {
	// Fields are further fields of a pod's spec, like "priorityClassName".
	Fields []string `json:"fields"`
	// Volumes are further kinds of volumes, as a pod's spec names them, like "nfs".
	Volumes []string `json:"volumes"`
	// RuntimeClasses are the runtime classes on offer; "*" stands for all.
	RuntimeClasses []string `json:"runtimeClasses"`
	// Annotations are prefixes of annotations and labels that are left out otherwise.
	Annotations []string `json:"annotations"`
	// Tolerations are keys of taints that a toleration without a key covers. A taint of control
	// planes that is listed here may be tolerated.
	Tolerations []string `json:"tolerations"`
}

var (
	// guestFields are the fields that virtual kubelets copy, those of the original Liqo included.
	// The pod gets no other field, such as host namespaces, a node name that bypasses the
	// scheduler, a priority or devices.
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
	// guestVolumes are the kinds that use neither a node's file system nor a server that the
	// consumer chooses.
	guestVolumes = []string{"configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
		"projected", "secret"}
	// guestProjections are the sources of projected volumes. Certificates of the provider's signers
	// are not among them.
	guestProjections = []string{"clusterTrustBundle", "configMap", "downwardAPI", "secret", "serviceAccountToken"}
	// foreignPrefixes are prefixes of annotations and labels by which controllers of clouds, CNIs
	// and injectors give a pod an identity or a network.
	foreignPrefixes = []string{
		"aadpodidbinding", "azure.workload.identity/", "eks.amazonaws.com/", "iam.amazonaws.com/",
		"iam.cloud.google.com/", "iam.gke.io/",
		"vault.hashicorp.com/", "vault.security.banzaicloud.io/", // secrets of the provider's vault
		"cni.projectcalico.org/", "cni.cilium.io/", "io.cilium", "k8s.ovn.org/", "ovn.kubernetes.io/",
		"k8s.v1.cni.cncf.io/", "v1.multus-cni.io/",
		"networking.gke.io/", "vpc.amazonaws.com/", "k8s.aliyun.com/", "network.harvesterhci.io/",
	}
	// nodeTaints are the taints that Kubernetes itself sets:
	// https://kubernetes.io/docs/reference/labels-annotations-taints/
	nodeTaints = []string{
		"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable",
		"node.kubernetes.io/memory-pressure", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/pid-pressure",
		"node.kubernetes.io/network-unavailable", "node.kubernetes.io/out-of-service",
	}
	// controlPlaneTaints keep workloads away from control planes, as Kubernetes and its
	// distributions name them.
	controlPlaneTaints = []string{
		"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master",
		"node-role.kubernetes.io/controlplane", "node-role.kubernetes.io/etcd",
	}
)

// reasonForbidden reports that a pod uses a feature that pods of consumers may not use. Create it
// without, or ask the provider to allow it.
const reasonForbidden = "PodForbidden"

// refused returns the message that pods of consumers may not have something, with the chart value
// that would allow it.
func refused(what, key, value string) string {
	return fmt.Sprintf("%s is not granted to pods of consumers; make the pod without it, or have the provider add %q "+
		"to the value offloading.guestPods.%s", what, value, key)
}

// refuses returns why a ShadowPod gets no pod, with the chart value that would allow it, or empty.
func (g GuestPods) refuses(root *offloadingv1beta1.ShadowPod) string {
	spec := &root.Spec.Pod
	if i := slices.IndexFunc(spec.Volumes, unknown); i >= 0 {
		return fmt.Sprintf("volume %q is of a kind that Liqo does not know, here or in the consumer's cluster; "+
			"upgrade the older one, or make the pod without it", spec.Volumes[i].Name)
	}
	fields, volumes := used(spec)
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
	class := ptr.Deref(spec.RuntimeClassName, "")
	if class != "" && !slices.Contains(g.RuntimeClasses, class) && !slices.Contains(g.RuntimeClasses, "*") {
		return refused(fmt.Sprintf("runtime class %q", class), "runtimeClasses", class)
	}
	return g.refusesTolerations(spec.Tolerations)
}

// refusesChange returns which later change of a ShadowPod is not applied to its pod, and why, or
// empty.
func (g GuestPods) refusesChange(root *offloadingv1beta1.ShadowPod, pod *corev1.Pod) string {
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

// controlPlane reports whether a toleration is of a control plane's taint that the administrator
// has not allowed.
func (g GuestPods) controlPlane(t corev1.Toleration) bool {
	return slices.Contains(controlPlaneTaints, t.Key) && !slices.Contains(g.Tolerations, t.Key)
}

// tolerated reports whether t is among the tolerations.
func tolerated(tolerations []corev1.Toleration, t corev1.Toleration) bool {
	return slices.ContainsFunc(tolerations,
		func(has corev1.Toleration) bool { return equality.Semantic.DeepEqual(has, t) })
}

// used returns the fields of a pod's spec that differ from the API server's defaults, and the kinds
// of its volumes.
func used(spec *corev1.PodSpec) (fields, volumes []string) {
	top, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return nil, nil // a pod's spec always converts
	}
	defaults := map[string]any{
		"priority": int64(0), "schedulerName": corev1.DefaultSchedulerName,
		"preemptionPolicy": string(corev1.PreemptLowerPriority),
	}
	for _, field := range slices.Sorted(maps.Keys(top)) {
		if top[field] != nil && top[field] != defaults[field] {
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

// unknown reports whether the kind of a volume, or one of its projected sources, was lost on the way
// because a type has no field for it. The API server would make an emptyDir of it.
func unknown(v corev1.Volume) bool {
	return v.VolumeSource == (corev1.VolumeSource{}) ||
		v.Projected != nil && slices.Contains(v.Projected.Sources, corev1.VolumeProjection{})
}

// foreign returns the labels and annotations of a ShadowPod that its pod does not get, because controllers of
// the provider's cloud or network act on them. The pod itself is not refused, because the consumer's
// controllers may have acted on them before. pod may be nil. The result does not include a key that the pod
// has from its ShadowPod, with this value: the administrator granted it when the pod was created. A key that
// other controllers have set on the pod is never inherited.
func (g GuestPods) foreign(root *offloadingv1beta1.ShadowPod, pod *corev1.Pod) []string {
	if pod == nil {
		pod = &corev1.Pod{}
	}
	var paths []string
	for _, set := range []struct {
		wanted, has map[string]string
		inherited   string
		path        func(key string) string
	}{
		{root.Labels, pod.Labels, pod.Annotations[annotationLabels], api.LabelPath},
		{root.Annotations, pod.Annotations, pod.Annotations[annotationAnnotations], api.AnnotationPath},
	} {
		for key, value := range set.wanted {
			begins := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
			if !slices.ContainsFunc(foreignPrefixes, begins) || slices.ContainsFunc(g.Annotations, begins) {
				continue
			}
			if !slices.Contains(strings.Split(set.inherited, ","), key) || set.has[key] != value {
				paths = append(paths, set.path(key))
			}
		}
	}
	slices.Sort(paths)
	return paths
}

// narrowed replaces tolerations without a key, which cover every taint, by tolerations of
// Kubernetes' own taints and of those that the administrator allows. It reports whether there were
// any.
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
