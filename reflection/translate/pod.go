// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// HomeUIDAnnotation is the UID of a ShadowPod's home pod, so that a recreated home pod of the same
// name is not confused with the former one.
const HomeUIDAnnotation = "offloading.liqo.io/home-pod-uid"

// These are the values of the annotation api-server-support.
const (
	apiServerRemote   = "remote"
	apiServerDisabled = "disabled"
)

// Pod pushes a pod as ShadowPod. After the creation it updates labels, annotations, and the fields
// that Kubernetes allows to change in the spec of a running pod. A finished pod is not started
// again, nor is one that runs to its end and has started. The ShadowPod of a former pod of the same
// name is deleted first. While the provider is unreachable, nothing changes.
//
// The provider makes a pod of it in offloading/plan/shadowpod.go: ShadowPod; PodStatus brings its
// status back.
func Pod(home *corev1.Pod, remote *offv1beta1.ShadowPod, v View) *offv1beta1.ShadowPod {
	if remote == nil {
		if api.Finished(home.Status.Phase) || ranOnce(home) || v.rejection(home) != "" {
			return nil
		}
		out := &offv1beta1.ShadowPod{ObjectMeta: v.podMetadata(home, metav1.ObjectMeta{})}
		out.Spec.Pod = podSpec(home, v)
		return out
	}
	if !madeFor(home, remote.Annotations) {
		return nil
	}
	if _, unavailable := home.Labels[api.LabelRemoteUnavailable]; unavailable {
		return remote
	}
	out := remote.DeepCopy()
	out.ObjectMeta = v.podMetadata(home, out.ObjectMeta)
	amend(&out.Spec.Pod, &home.Spec, v.Patch.Tolerations)
	if n := len(out.Spec.Pod.EphemeralContainers); n < len(home.Spec.EphemeralContainers) {
		out.Spec.Pod.EphemeralContainers = append(out.Spec.Pod.EphemeralContainers,
			podSpec(home, v).EphemeralContainers[n:]...)
	}
	return out
}

// amend copies the fields that Kubernetes allows to change in the spec of a running pod, except
// ephemeral containers: images, resources, the deadline and tolerations. patch holds the virtual
// node's tolerations.
func amend(out, home *corev1.PodSpec, patch []corev1.Toleration) {
	for _, each := range [][2][]corev1.Container{{out.Containers, home.Containers},
		{out.InitContainers, home.InitContainers}} {
		for i := range min(len(each[0]), len(each[1])) {
			has, asked := &each[0][i], &each[1][i]
			has.Image = asked.Image
			if !equality.Semantic.DeepEqual(has.Resources, asked.Resources) {
				has.Resources = *asked.Resources.DeepCopy()
			}
		}
	}
	if !equality.Semantic.DeepEqual(out.Resources, home.Resources) {
		out.Resources = home.Resources.DeepCopy()
	}
	out.ActiveDeadlineSeconds = home.ActiveDeadlineSeconds
	out.Tolerations = tolerate(out.Tolerations, home.Tolerations, patch)
}

// tolerate returns a pod's tolerations, and those that the local pod got later. A toleration that
// differs only in seconds replaces the former one, but none of the virtual node's patch.
func tolerate(has, home, patch []corev1.Toleration) []corev1.Toleration {
	out := slices.Clone(has)
	among := func(all []corev1.Toleration, t corev1.Toleration) bool {
		return slices.ContainsFunc(all, func(o corev1.Toleration) bool { return equality.Semantic.DeepEqual(o, t) })
	}
	for _, t := range home {
		former := func(o corev1.Toleration) bool { return o.MatchToleration(&t) && !among(home, o) && !among(patch, o) }
		switch i := slices.IndexFunc(out, former); {
		case ofVirtualNode(t) || among(out, t):
		case i >= 0:
			out[i] = t
		default:
			out = append(out, t)
		}
	}
	return out
}

func (v View) podMetadata(home *corev1.Pod, remote metav1.ObjectMeta) metav1.ObjectMeta {
	v.LabelsDropped = slices.Concat(v.LabelsDropped, v.Patch.LabelsNotReflected)
	v.AnnotationsDropped = slices.Concat(v.AnnotationsDropped, v.Patch.AnnotationsNotReflected)
	out := v.metadata(home.ObjectMeta, remote, home.Name)
	out.Annotations[HomeUIDAnnotation] = string(home.UID)
	return out
}

// These are kubelets' reasons for which the virtual node rejects a pod. The scheduler would have
// chosen another node.
const (
	// reasonOtherSystem is set if the pod is for another operating system than the virtual node's.
	reasonOtherSystem = "PodOSNotSupported"
	// reasonNodePorts is set if an earlier pod of the virtual node has a host port of the pod.
	reasonNodePorts = "NodePorts"
)

// rejection returns the reason for which the virtual node rejects a pod; empty = it admits the pod.
func (v View) rejection(pod *corev1.Pod) string {
	switch {
	case pod.Spec.OS != nil && string(pod.Spec.OS.Name) != cmp.Or(v.System, string(corev1.Linux)):
		return reasonOtherSystem
	case v.TakenPort != "":
		return reasonNodePorts
	}
	return ""
}

// TakenPort returns the first host port of a pod that an earlier pod on its node has, like
// "80/TCP"; empty = none. Ports of pods in the host's network do not count: these pods have a
// network of their own at the provider.
func TakenPort(pod *corev1.Pod, others []corev1.Pod) string {
	for port := range hostPorts(&pod.Spec) {
		for i := range others {
			other := &others[i]
			first := other.CreationTimestamp.Before(&pod.CreationTimestamp) || other.Status.StartTime != nil
			if other.UID == pod.UID || api.Finished(other.Status.Phase) || !first {
				continue
			}
			for taken := range hostPorts(&other.Spec) {
				if taken.HostPort == port.HostPort && taken.Protocol == port.Protocol &&
					sameAddress(taken.HostIP, port.HostIP) {
					return fmt.Sprintf("%d/%s", port.HostPort, port.Protocol)
				}
			}
		}
	}
	return ""
}

// hostPorts returns the node ports that a pod requests.
func hostPorts(spec *corev1.PodSpec) iter.Seq[corev1.ContainerPort] {
	return func(yield func(corev1.ContainerPort) bool) {
		for _, c := range spec.Containers {
			for _, port := range c.Ports {
				if port.HostPort != 0 && !spec.HostNetwork && !yield(port) {
					return
				}
			}
		}
	}
}

// HasHostPort reports whether a pod requests a port of its node.
func HasHostPort(pod *corev1.Pod) bool {
	for range hostPorts(&pod.Spec) {
		return true
	}
	return false
}

// sameAddress reports whether two addresses of a node overlap; empty = all addresses.
func sameAddress(a, b string) bool {
	all := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return a == b || all(a) || all(b)
}

// podSpec keeps the fields that describe the workload, and drops those that describe its place in
// the home cluster.
func podSpec(home *corev1.Pod, v View) corev1.PodSpec {
	in := home.Spec.DeepCopy()
	out := corev1.PodSpec{
		Volumes:                       in.Volumes,
		InitContainers:                in.InitContainers,
		Containers:                    in.Containers,
		EphemeralContainers:           in.EphemeralContainers,
		RestartPolicy:                 in.RestartPolicy,
		TerminationGracePeriodSeconds: in.TerminationGracePeriodSeconds,
		ActiveDeadlineSeconds:         in.ActiveDeadlineSeconds,
		DNSPolicy:                     in.DNSPolicy,
		DNSConfig:                     in.DNSConfig,
		AutomountServiceAccountToken:  new(false),
		ShareProcessNamespace:         in.ShareProcessNamespace,
		SecurityContext:               in.SecurityContext,
		ImagePullSecrets:              in.ImagePullSecrets,
		Hostname:                      in.Hostname,
		HostnameOverride:              in.HostnameOverride,
		Subdomain:                     in.Subdomain,
		SetHostnameAsFQDN:             in.SetHostnameAsFQDN,
		HostAliases:                   in.HostAliases,
		EnableServiceLinks:            in.EnableServiceLinks,
		TopologySpreadConstraints:     spread(in),
		Resources:                     in.Resources,
		Tolerations:                   slices.DeleteFunc(in.Tolerations, ofVirtualNode),
		RuntimeClassName:              v.runtimeClass(home),
		Affinity:                      v.affinity(home),
		ResourceClaims:                in.ResourceClaims,
	}
	if in.HostUsers != nil && !*in.HostUsers { // true is the default
		out.HostUsers = in.HostUsers
	}
	if in.HostNetwork {
		eachContainer(&out, leaveHostNetwork)
	}
	for i := range out.TopologySpreadConstraints {
		c := &out.TopologySpreadConstraints[i]
		selectOwn(c.LabelSelector, &c.MatchLabelKeys, metav1.LabelSelectorOpIn, home.Labels)
	}
	if out.DNSConfig != nil {
		for i, domain := range out.DNSConfig.Searches {
			out.DNSConfig.Searches[i] = v.dnsName(domain)
		}
	}
	v.nameHost(&out, home)
	patchPod(&out, v.Patch)
	supportAPIServer(&out, home, v)
	return out
}

// leaveHostNetwork removes host ports, and the loopback address in probes and hooks, from a
// container of a pod in the host's network. The API server sets each host port to the container's
// port for such pods. Without a host, kubelets use the pod's address.
func leaveHostNetwork(c *corev1.Container) {
	for i := range c.Ports {
		c.Ports[i].HostPort, c.Ports[i].HostIP = 0, ""
	}
	leave := func(get *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction) {
		if get != nil && isLoopback(get.Host) {
			get.Host = ""
		}
		if tcp != nil && isLoopback(tcp.Host) {
			tcp.Host = ""
		}
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil {
			leave(p.HTTPGet, p.TCPSocket)
		}
	}
	if c.Lifecycle == nil {
		return
	}
	for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if h != nil {
			leave(h.HTTPGet, h.TCPSocket)
		}
	}
}

// isLoopback reports whether a host is a loopback address or the unspecified one.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && (addr.IsLoopback() || addr.IsUnspecified())
}

// spread returns the topology spread constraints for the provider's scheduler. DoNotSchedule
// becomes ScheduleAnyway except over nodes: the home scheduler has decided already, and the
// provider's nodes may lack the topology label. A pod may have one constraint for each key and
// whenUnsatisfiable, so its own ScheduleAnyway has precedence.
func spread(home *corev1.PodSpec) []corev1.TopologySpreadConstraint {
	var out []corev1.TopologySpreadConstraint
	for _, c := range home.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule && c.TopologyKey != corev1.LabelHostname {
			preferred := func(o corev1.TopologySpreadConstraint) bool {
				return o.TopologyKey == c.TopologyKey && o.WhenUnsatisfiable == corev1.ScheduleAnyway
			}
			if slices.ContainsFunc(home.TopologySpreadConstraints, preferred) {
				continue
			}
			c.WhenUnsatisfiable, c.MinDomains = corev1.ScheduleAnyway, nil // minDomains needs DoNotSchedule
		}
		out = append(out, c)
	}
	return out
}

func ofVirtualNode(t corev1.Toleration) bool { return t.Key == api.VirtualNodeTaintKey }

// runtimeClass returns the class in the annotation, else the pod's own unless it sends pods to
// virtual nodes, else the virtual node's.
func (v View) runtimeClass(home *corev1.Pod) *string {
	if name := home.Annotations[api.AnnotationRemoteRuntimeClassName]; name != "" {
		return new(name)
	}
	if own := home.Spec.RuntimeClassName; own != nil && *own != v.RuntimeClass {
		return own
	}
	return v.Patch.RuntimeClassName
}

func patchPod(out *corev1.PodSpec, patch offv1beta1.OffloadingPatch) {
	if len(patch.NodeSelector) > 0 {
		out.NodeSelector = maps.Clone(patch.NodeSelector)
	}
	out.Tolerations = append(out.Tolerations, patch.Tolerations...)
	if patch.Affinity != nil && patch.Affinity.NodeAffinity != nil {
		if out.Affinity == nil {
			out.Affinity = &corev1.Affinity{}
		}
		out.Affinity.NodeAffinity = patch.Affinity.NodeAffinity.DeepCopy()
	}
}

// These are the values of the annotation anti-affinity-preset.
const (
	antiAffinityPropagate = "propagate"
	antiAffinitySoft      = "soft"
	antiAffinityHard      = "hard"
)

// affinity returns the affinity that the pod's preset requests; all other affinity concerns home
// nodes.
func (v View) affinity(home *corev1.Pod) *corev1.Affinity {
	var anti *corev1.PodAntiAffinity
	switch home.Annotations[api.AnnotationAntiAffinityPreset] {
	case antiAffinityPropagate:
		if home.Spec.Affinity != nil && home.Spec.Affinity.PodAntiAffinity != nil {
			anti = home.Spec.Affinity.PodAntiAffinity.DeepCopy()
			for i := range anti.RequiredDuringSchedulingIgnoredDuringExecution {
				v.translateTerm(&anti.RequiredDuringSchedulingIgnoredDuringExecution[i], home.Labels)
			}
			for i := range anti.PreferredDuringSchedulingIgnoredDuringExecution {
				v.translateTerm(&anti.PreferredDuringSchedulingIgnoredDuringExecution[i].PodAffinityTerm, home.Labels)
			}
		}
	case antiAffinitySoft:
		anti = &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				{Weight: 1, PodAffinityTerm: apart(home)},
			}}
	case antiAffinityHard:
		anti = &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{apart(home)}}
	}
	if anti == nil {
		return nil
	}
	return &corev1.Affinity{PodAntiAffinity: anti}
}

// translateTerm replaces the namespaces of a term by their remote namespaces, and its keys by
// requirements of a pod's labels. Namespaces without a remote one keep their names.
func (v View) translateTerm(term *corev1.PodAffinityTerm, labels map[string]string) {
	for i, home := range term.Namespaces {
		term.Namespaces[i] = cmp.Or(v.Namespaces[home], home)
	}
	selectOwn(term.LabelSelector, &term.MatchLabelKeys, metav1.LabelSelectorOpIn, labels)
	selectOwn(term.LabelSelector, &term.MismatchLabelKeys, metav1.LabelSelectorOpNotIn, labels)
}

// selectOwn replaces keys by a requirement of the pod's own values in a selector. The home API
// server has added these already, for spread constraints since 1.34, and left the keys. The
// provider's API server would add them again, and refuses duplicates. A nil selector selects
// nothing, whatever the keys.
func selectOwn(selector *metav1.LabelSelector, keys *[]string, operator metav1.LabelSelectorOperator,
	labels map[string]string) {
	for _, key := range *keys {
		value, labelled := labels[key]
		own := metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}}
		same := func(r metav1.LabelSelectorRequirement) bool { return equality.Semantic.DeepEqual(r, own) }
		if labelled && selector != nil && !slices.ContainsFunc(selector.MatchExpressions, same) {
			selector.MatchExpressions = append(selector.MatchExpressions, own)
		}
	}
	*keys = nil
}

// apart returns a term that keeps pods with the same labels (or the same chosen labels) on
// different nodes. Labels that distinguish replicas or revisions are not in the selector.
func apart(home *corev1.Pod) corev1.PodAffinityTerm {
	selector := maps.Clone(home.Labels)
	if chosen, ok := home.Annotations[api.AnnotationAntiAffinityLabels]; ok {
		keys := map[string]bool{}
		for key := range strings.SplitSeq(chosen, ",") {
			keys[strings.TrimSpace(key)] = true
		}
		maps.DeleteFunc(selector, func(key, _ string) bool { return !keys[key] })
	} else {
		maps.DeleteFunc(selector, func(key, _ string) bool { return stays(key) || perReplica(key) })
	}
	return corev1.PodAffinityTerm{
		LabelSelector: &metav1.LabelSelector{MatchLabels: selector},
		TopologyKey:   corev1.LabelHostname,
	}
}

func perReplica(key string) bool {
	switch key {
	case "controller-revision-hash", "pod-template-hash", "statefulset.kubernetes.io/pod-name",
		"apps.kubernetes.io/pod-index":
		return true
	}
	return false
}
