// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// Reasons shown in the status of a home pod.
const (
	// reasonAborted: it ran, and its namespace is no longer offloaded there; its controller
	// makes a new pod.
	reasonAborted = "OffloadingAborted"
	// reasonRemoteTerminated: it had finished when the provider removed it, or was deleted and nothing of it is
	// there.
	reasonRemoteTerminated = "RemotePodTerminated"
	// reasonUnavailable: the provider cannot be reached; wait, or delete the pod.
	reasonUnavailable = "RemoteUnavailable"
	// reasonReplaced: the provider removes the remote pod and makes another; wait.
	reasonReplaced = "RemotePodReplaced"
)

// EarlierRestartsAnnotation on a home pod holds the restarts of former remote pods, once the
// provider has made the remote pod anew. See earlierRestarts.
const EarlierRestartsAnnotation = "offloading.liqo.io/earlier-restarts"

// PodStatus pulls the status of a remote pod into the home pod:
//
//	home pod        namespace   remote pod      ShadowPod says   home status
//	finished        –           –               –                stays
//	of another OS   –           none            none             Failed, PodOSNotSupported
//	had started     not known   –               –                stays
//	being deleted   –           none            none             Failed, RemotePodTerminated
//	waiting         not mapped  –               –                Pending, OffloadingBackOff
//	had started     not mapped  –               –                Failed, OffloadingAborted
//	any             mapped      removed there   –                stays, not ready: another will be made
//	any             mapped      kubelet spoke   –                the remote status, translated, unless too large
//	any             mapped      none            finished         that phase, RemotePodTerminated
//	ran to its end  mapped      none            is gone          Failed, RemotePodTerminated
//	any             mapped      none            is refused       Pending, without a place
//	any             mapped      none or silent  anything else    stays
//
// remote is the pod made from shadow, by offloading/plan/shadowpod.go: ShadowPod at the provider; either may be nil.
func PodStatus(home *corev1.Pod, shadow *offv1beta1.ShadowPod, remote *corev1.Pod, v View) *corev1.Pod {
	if api.Finished(home.Status.Phase) {
		return home
	}
	if shadow != nil && !madeFor(home, shadow.Annotations) {
		shadow = nil
	}
	if remote != nil && !madeFor(home, remote.Annotations) {
		remote = nil
	}
	out := &corev1.Pod{TypeMeta: home.TypeMeta, ObjectMeta: home.ObjectMeta, Spec: home.Spec,
		Status: *home.Status.DeepCopy()}
	out.Labels = maps.Clone(home.Labels)
	nothing := shadow == nil && remote == nil
	switch {
	case MayRun(home, v):
	case nothing && v.rejection(home) != "" && home.Status.StartTime == nil:
		rejected(&out.Status, v.rejection(home), v)
	case nothing && home.DeletionTimestamp != nil:
		terminated(&out.Status, corev1.PodFailed)
	case v.Namespaces[home.Namespace] == "":
		notOffloaded(&out.Status)
	case remote == nil:
		statusWithoutRemote(out, shadow, v)
	case replaced(home, shadow, remote):
		negateReady(out.Status.Conditions, reasonReplaced, "the provider removes the pod and makes it anew")
	case told(home, remote):
		pullStatus(out, shadow, remote, v)
	case out.Status.Reason == api.ReasonBackOff:
		out.Status.Reason = ""
	}
	if _, unavailable := home.Labels[api.LabelRemoteUnavailable]; unavailable {
		negateReady(out.Status.Conditions, reasonUnavailable, "the provider cannot be reached")
	}
	out.Status.Conditions = withForeign(out, v)
	return out
}

// statusWithoutRemote shows of a pod that does not exist at the provider how it ended there, or why it is not made.
func statusWithoutRemote(out *corev1.Pod, shadow *offv1beta1.ShadowPod, v View) {
	switch {
	case shadow != nil && api.Finished(shadow.Status.Phase):
		terminated(&out.Status, shadow.Status.Phase)
	case shadow == nil && ranOnce(out):
		terminated(&out.Status, corev1.PodFailed)
	case refusal(shadow, v) != nil:
		refused(&out.Status, refusal(shadow, v))
	case out.Status.Reason == api.ReasonBackOff:
		out.Status.Reason = ""
	}
}

// rejected fails a pod that the virtual node does not take.
func rejected(status *corev1.PodStatus, reason string, v View) {
	status.Phase, status.Reason = corev1.PodFailed, reason
	status.Message = "the operating system of the pod is not that of the virtual node"
	if reason == reasonNodePorts {
		status.Message = "another pod of the virtual node has host port " + v.TakenPort
	}
}

// MayRun reports whether home is a pod that was started while nobody says whether its namespace exists at the
// provider: nothing is concluded about it then.
func MayRun(home desired.Object, v View) bool {
	pod, ok := home.(*corev1.Pod)
	return ok && v.Namespaces[pod.Namespace] == "" && (v.NoMap || v.Unanswered[pod.Namespace]) &&
		pod.Status.StartTime != nil
}

// madeFor reports whether what has these annotations at the provider was made for this home pod,
// not for a former one of its name.
func madeFor(home *corev1.Pod, annotations map[string]string) bool {
	uid := annotations[HomeUIDAnnotation]
	return uid == "" || uid == string(home.UID)
}

// replaced reports whether the remote pod is removed though home wants it: by a drain, a deletion,
// a preemption, the garbage collector. It is made anew, so the end its kubelet reports is not
// that of the workload. A pod that runs to its end is not made anew.
func replaced(home *corev1.Pod, shadow *offv1beta1.ShadowPod, remote *corev1.Pod) bool {
	if home.DeletionTimestamp != nil || runsToEnd(home) || shadow != nil && api.Finished(shadow.Status.Phase) {
		return false
	}
	disrupted := condition(remote.Status.Conditions, corev1.DisruptionTarget)
	return remote.DeletionTimestamp != nil || disrupted != nil && disrupted.Status == corev1.ConditionTrue &&
		disrupted.Reason != corev1.PodReasonTerminationByKubelet
}

func runsToEnd(pod *corev1.Pod) bool {
	return pod.Spec.RestartPolicy == corev1.RestartPolicyNever ||
		pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
}

// Grace is how many seconds the remote pod has to end when home gives its pod others than their spec
// says ('kubectl delete pod --grace-period'), or fewer than before; nil = those it has. A pod deleted
// by force has those of its spec, as with any kubelet.
func Grace(home, remote *corev1.Pod) *int64 {
	if home == nil || remote == nil || !madeFor(home, remote.Annotations) || remote.Spec.NodeName == "" ||
		api.Finished(remote.Status.Phase) {
		return nil
	}
	given, has := home.DeletionGracePeriodSeconds, remote.Spec.TerminationGracePeriodSeconds
	if remote.DeletionTimestamp != nil {
		has = remote.DeletionGracePeriodSeconds
	}
	switch {
	case given == nil || *given == 0 || has == nil || *given == *has:
		return nil
	case remote.DeletionTimestamp != nil && *given > *has:
		return nil // what ends is not given more time
	}
	return given
}

// ranOnce reports whether a pod has started that must not run a second time.
func ranOnce(home *corev1.Pod) bool { return runsToEnd(home) && home.Status.StartTime != nil }

// terminated is the end of a pod whose remote pod is no more.
func terminated(s *corev1.PodStatus, phase corev1.PodPhase) {
	s.Phase, s.Reason = phase, reasonRemoteTerminated
	negate(s.Conditions, reasonRemoteTerminated)
}

// refusal is what the provider says against the ShadowPod, or of what it refuses to make of it; nil is
// nothing.
func refusal(shadow *offv1beta1.ShadowPod, v View) *metav1.Condition {
	if v.Refusal != nil || shadow == nil {
		return v.Refusal
	}
	return meta.FindStatusCondition(shadow.Status.Conditions, desired.ConditionStalled)
}

// refused is the status of a pod that has no place at the provider, whoever there says so: a quota, a
// policy, a webhook. What becomes of it is decided as if the scheduler there had said it.
func refused(s *corev1.PodStatus, why *metav1.Condition) {
	s.Phase = corev1.PodPending
	negate(s.Conditions, corev1.PodReasonUnschedulable)
	scheduled := condition(s.Conditions, corev1.PodScheduled)
	if scheduled == nil {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.PodScheduled})
		scheduled = &s.Conditions[len(s.Conditions)-1]
	}
	if scheduled.Status != corev1.ConditionFalse {
		scheduled.Status, scheduled.LastTransitionTime = corev1.ConditionFalse, why.LastTransitionTime
	}
	scheduled.Reason, scheduled.Message = corev1.PodReasonUnschedulable, cut(why.Message)
}

// told says whether a remote status holds more than that the pod exists and has a node, which
// the home pod shows already.
func told(home, remote *corev1.Pod) bool {
	if remote.Status.StartTime != nil || remote.Status.Phase != corev1.PodPending {
		return remote.Status.Phase != ""
	}
	return placeless(remote) || placeless(home) && condition(remote.Status.Conditions, corev1.PodScheduled) != nil
}

// placeless reports whether a pod is said to have no place. That it is about to be noted at the provider says nothing.
func placeless(pod *corev1.Pod) bool {
	scheduled, gates := condition(pod.Status.Conditions, corev1.PodScheduled), pod.Spec.SchedulingGates
	return scheduled != nil && scheduled.Status == corev1.ConditionFalse &&
		!(len(gates) == 1 && gates[0].Name == api.GateNoted)
}

// notOffloaded is the status of a pod whose namespace does not exist at the provider.
func notOffloaded(s *corev1.PodStatus) {
	s.Phase, s.Reason = corev1.PodPending, api.ReasonBackOff
	if s.StartTime != nil {
		s.Phase, s.Reason = corev1.PodFailed, reasonAborted
	}
	negate(s.Conditions, s.Reason)
}

// negate makes the kubelet's true conditions false, for a pod that does not run. Those of other controllers stay:
// only they know when a readiness gate closes.
func negate(conditions []corev1.PodCondition, reason string) {
	for i := range conditions {
		if c := &conditions[i]; c.Status == corev1.ConditionTrue && ofKubelet(c.Type) {
			c.Status, c.Reason = corev1.ConditionFalse, reason
		}
	}
}

func negateReady(conditions []corev1.PodCondition, reason, message string) {
	for i := range conditions {
		c := &conditions[i]
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, message
		}
	}
}

// pullStatus copies what the kubelet at the provider reports. What the home cluster knows
// better (quality of service, nomination) stays.
func pullStatus(out *corev1.Pod, shadow *offv1beta1.ShadowPod, remote *corev1.Pod, v View) {
	home, in := out.Status, said(&remote.Status, &out.Spec)
	if in == nil {
		return
	}
	namePlacement(in.Conditions, shadow, v.Node)
	if pending := resizePending(out, shadow, remote, v); pending != nil {
		in.Conditions = append(slices.DeleteFunc(in.Conditions, ofResize), *pending)
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	out.Labels[api.LabelShadowPod] = api.True
	s := &out.Status
	s.Phase, s.Reason, s.Message, s.StartTime = in.Phase, in.Reason, in.Message, in.StartTime
	s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses = in.ContainerStatuses,
		in.InitContainerStatuses, in.EphemeralContainerStatuses
	s.Resources, s.AllocatedResources = in.Resources, in.AllocatedResources
	if specObserved(out, shadow, remote) {
		s.ObservedGeneration = out.Generation
	}
	s.Conditions = gated(out.Spec.ReadinessGates, mergeConditions(home.Conditions, in.Conditions, s.ObservedGeneration))
	s.HostIP, s.HostIPs = "", nil
	if v.HostIP.IsValid() {
		s.HostIP, s.HostIPs = v.HostIP.String(), []corev1.HostIP{{IP: v.HostIP.String()}}
	}
	s.PodIP, s.PodIPs = podIPs(&home, in, v)
	addRestarts(out, &home)
}

// specObserved reports whether the kubelet at the provider has seen the present generation of the home pod: its
// spec has reached the remote pod, and the kubelet has observed that one. Kubelets before Kubernetes 1.33 do not say.
func specObserved(home *corev1.Pod, shadow *offv1beta1.ShadowPod, remote *corev1.Pod) bool {
	if shadow == nil || remote.Status.ObservedGeneration == 0 || remote.Status.ObservedGeneration != remote.Generation {
		return false
	}
	ends := home.DeletionTimestamp == nil || remote.DeletionTimestamp != nil
	asked := shadow.Spec.Pod.DeepCopy()
	asked.Tolerations = nil // the provider narrows some, and kubelets need none
	return ends && amended(&shadow.Spec.Pod, &home.Spec) && amended(&remote.Spec, asked)
}

// amended reports whether has shows everything that Kubernetes lets change in the spec of a running pod. The
// provider may have added containers and resources.
func amended(has, asked *corev1.PodSpec) bool {
	if !equality.Semantic.DeepEqual(has.ActiveDeadlineSeconds, asked.ActiveDeadlineSeconds) || !sized(has, asked) {
		return false
	}
	images := map[string]string{}
	for _, c := range slices.Concat(has.InitContainers, has.Containers) {
		images[c.Name] = c.Image
	}
	for _, c := range has.EphemeralContainers {
		images[c.Name] = c.Image
	}
	for _, c := range slices.Concat(asked.InitContainers, asked.Containers) {
		if images[c.Name] != c.Image {
			return false
		}
	}
	for _, c := range asked.EphemeralContainers {
		if _, ok := images[c.Name]; !ok {
			return false
		}
	}
	return equality.Semantic.DeepEqual(tolerate(has.Tolerations, asked.Tolerations, nil), has.Tolerations)
}

// resizePending is why a pod has not the size home asks for, in the words of kubelets, where no kubelet
// was asked; nil is nothing. Schedulers count an infeasible pod with what its containers have.
//
//	the ShadowPod asks for  the remote pod has  condition
//	what home does not      –                   what the provider says against it; silence leaves it as it was
//	the same                something else      what the ShadowPod says of it
//	the same                the same            what the kubelet there says
func resizePending(home *corev1.Pod, shadow *offv1beta1.ShadowPod, remote *corev1.Pod, v View) *corev1.PodCondition {
	if shadow == nil {
		return nil
	}
	was, why := condition(home.Status.Conditions, corev1.PodResizePending), v.Refusal
	switch {
	case !sized(&shadow.Spec.Pod, &home.Spec):
		if why == nil {
			return was
		}
	case !sized(&remote.Spec, &shadow.Spec.Pod):
		why = refusal(shadow, v)
	default:
		return nil
	}
	if why == nil {
		return nil
	}
	out := &corev1.PodCondition{
		Type: corev1.PodResizePending, Status: corev1.ConditionTrue, LastTransitionTime: why.LastTransitionTime,
		Reason: corev1.PodReasonInfeasible, Message: cut(why.Message),
	}
	if was != nil {
		out.LastTransitionTime = was.LastTransitionTime
	}
	return out
}

func ofResize(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending }

// sized reports whether a pod and its containers have the resources others ask for. They may have more kinds of them,
// which the provider adds.
func sized(has, asked *corev1.PodSpec) bool {
	amounts := func(has, asked corev1.ResourceList) bool {
		for name, amount := range asked {
			if had, ok := has[name]; !ok || had.Cmp(amount) != 0 {
				return false
			}
		}
		return true
	}
	same := func(has, asked corev1.ResourceRequirements) bool {
		return amounts(has.Requests, asked.Requests) && amounts(has.Limits, asked.Limits)
	}
	for _, each := range [][2][]corev1.Container{{has.Containers, asked.Containers},
		{has.InitContainers, asked.InitContainers}} {
		for i := range min(len(each[0]), len(each[1])) {
			if !same(each[0][i].Resources, each[1][i].Resources) {
				return false
			}
		}
	}
	return asked.Resources == nil || has.Resources != nil && same(*has.Resources, *asked.Resources)
}

// podIPs returns the addresses by which the consumer reaches the pod. Services of the consumer
// route clients to them, and a provider must not choose where. With a network, addresses outside of
// the provider's ranges are left out; while these are not known yet, a pod keeps what it has.
// Without a network, the consumer's own addresses are left out. Those that are not routed, like
// loopback, always are.
func podIPs(home, in *corev1.PodStatus, v View) (string, []corev1.PodIP) {
	switch {
	case v.HideIPs || in.PodIP == "":
		return "", nil
	case v.Networked && len(v.PeerPods) == 0 && home.StartTime.Equal(in.StartTime):
		return home.PodIP, home.PodIPs
	case v.Networked && len(v.PeerPods) == 0:
		return "", nil // it was made anew
	}
	var all []corev1.PodIP
	for _, ip := range in.PodIPs {
		addr, err := netip.ParseAddr(ip.IP)
		addr = addr.Unmap().WithZone("")
		local, ofPeer := v.PeerPods.ToLocal(addr)
		if len(v.PeerPods) == 0 {
			local, ofPeer = addr, true
		}
		if err != nil || !addr.IsGlobalUnicast() || !ofPeer || v.Own.Contains(addr) {
			continue
		}
		all = append(all, corev1.PodIP{IP: local.String()})
	}
	if len(all) == 0 {
		return "", nil
	}
	return all[0].IP, all
}

// mergeConditions takes the conditions that kubelets and schedulers of the provider report and keeps all others,
// which controllers at home set: readiness gates and conditions of their own. The moment of scheduling is home's,
// as long as the pod is scheduled at the provider, too. A disruption that home has announced is not taken back.
// Generations are counted apart in each cluster.
func mergeConditions(home, remote []corev1.PodCondition, generation int64) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, c := range remote {
		if !ofKubelet(c.Type) && c.Type != corev1.PodScheduled && c.Type != corev1.DisruptionTarget ||
			condition(out, c.Type) != nil {
			continue
		}
		switch was := condition(home, c.Type); {
		case was == nil:
		case c.Type == corev1.PodScheduled && was.Status == c.Status:
			c.LastTransitionTime = was.LastTransitionTime
		case c.Type == corev1.DisruptionTarget && was.Status == corev1.ConditionTrue:
			c = *was
		}
		if c.ObservedGeneration != 0 {
			c.ObservedGeneration = generation
		}
		out = append(out, c)
	}
	for _, c := range home {
		if condition(out, c.Type) == nil && !ofKubelet(c.Type) {
			out = append(out, c)
		}
	}
	return out
}

// ofKubelet reports whether a condition exists only as long as the kubelet reports it. These are the types of
// PodConditionByKubelet in pkg/kubelet/types of Kubernetes, without PodScheduled. A readiness gate of such a type is
// the kubelet's on any node.
func ofKubelet(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodReadyToStartContainers,
		corev1.PodResizePending, corev1.PodResizeInProgress, corev1.AllContainersRestarting:
		return true
	}
	return false
}

func condition(all []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range all {
		if all[i].Type == t {
			return &all[i]
		}
	}
	return nil
}
