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

// These reasons are shown in the status of a home pod.
const (
	// reasonAborted is set for a pod that has started, after its namespace is no longer offloaded
	// to the provider; its controller makes a new pod.
	reasonAborted = "OffloadingAborted"
	// reasonRemoteTerminated is set for a pod that had finished when the provider removed it, or
	// that is deleted and has no remote pod.
	reasonRemoteTerminated = "RemotePodTerminated"
	// reasonUnavailable is set while the provider cannot be reached; users can wait, or delete the
	// pod.
	reasonUnavailable = "RemoteUnavailable"
	// reasonReplaced is set while the provider removes the remote pod and makes another; users can
	// wait.
	reasonReplaced = "RemotePodReplaced"
)

// EarlierRestartsAnnotation holds the restarts of former remote pods on a home pod, after the
// provider has recreated the remote pod. See earlierRestarts.
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
// remote is the pod made from shadow, by offloading/plan/shadowpod.go: ShadowPod at the provider;
// either may be nil.
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
	case hasReport(home, remote):
		pullStatus(out, shadow, remote, v)
	case out.Status.Reason == api.ReasonBackOff:
		out.Status.Reason = ""
	}
	if _, unavailable := home.Labels[api.LabelRemoteUnavailable]; unavailable {
		negateReady(out.Status.Conditions, reasonUnavailable, "the provider cannot be reached")
	}
	out.Status.Conditions = withForeign(out, v)
	out.Status.Conditions = withLost(out, shadow, v)
	return out
}

// statusWithoutRemote shows how a pod that does not exist at the provider ended, or why it is not
// created.
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

// rejected fails a pod that the virtual node does not admit.
func rejected(status *corev1.PodStatus, reason string, v View) {
	status.Phase, status.Reason = corev1.PodFailed, reason
	status.Message = "the operating system of the pod is not that of the virtual node"
	if reason == reasonNodePorts {
		status.Message = "another pod of the virtual node has host port " + v.TakenPort
	}
}

// MayRun reports whether home is a started pod of a namespace that may or may not exist at the
// provider. The pod's status is not changed then.
func MayRun(home desired.Object, v View) bool {
	pod, ok := home.(*corev1.Pod)
	return ok && v.Namespaces[pod.Namespace] == "" && (v.NoMap || v.Unanswered[pod.Namespace]) &&
		pod.Status.StartTime != nil
}

// madeFor reports whether a remote object with these annotations was made for this home pod, not
// for a former pod of its name.
func madeFor(home *corev1.Pod, annotations map[string]string) bool {
	uid := annotations[HomeUIDAnnotation]
	return uid == "" || uid == string(home.UID)
}

// replaced reports whether the remote pod is being removed though the home pod is not: by a drain,
// a deletion, a preemption, or the garbage collector. The provider makes it again, so the end that
// its kubelet reports is not that of the workload. A pod that runs to its end is not made again.
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

// Grace returns the remote pod's grace period in seconds, if the home pod's differs from its spec
// ('kubectl delete pod --grace-period') or was shortened; nil = it keeps its own. A pod deleted by
// force keeps the period of its spec, as with any kubelet.
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
		return nil // a grace period cannot be extended
	}
	return given
}

// ranOnce reports whether a pod has started that must not run a second time.
func ranOnce(home *corev1.Pod) bool { return runsToEnd(home) && home.Status.StartTime != nil }

// terminated sets the end of a pod whose remote pod no longer exists.
func terminated(s *corev1.PodStatus, phase corev1.PodPhase) {
	s.Phase, s.Reason = phase, reasonRemoteTerminated
	negate(s.Conditions, reasonRemoteTerminated)
}

// refusal returns why the provider refuses the ShadowPod, or an object that it makes for it; nil =
// it does not.
func refusal(shadow *offv1beta1.ShadowPod, v View) *metav1.Condition {
	if v.Refusal != nil || shadow == nil {
		return v.Refusal
	}
	return meta.FindStatusCondition(shadow.Status.Conditions, desired.ConditionStalled)
}

// refused sets the status of a pod that the provider refuses, by a quota, a policy or a webhook. It
// is the status of a pod that the scheduler cannot place.
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

// hasReport reports whether a remote status holds more than that the pod exists and has a node,
// which the home pod shows already.
func hasReport(home, remote *corev1.Pod) bool {
	if remote.Status.StartTime != nil || remote.Status.Phase != corev1.PodPending {
		return remote.Status.Phase != ""
	}
	return placeless(remote) || placeless(home) && condition(remote.Status.Conditions, corev1.PodScheduled) != nil
}

// Reports reports whether the creation (before is nil) or an update of a remote pod may change the
// status of its home pod. A pod that no kubelet has taken over says only that it cannot be
// scheduled, or can be again.
func Reports(before, after *corev1.Pod) bool {
	silent := func(p *corev1.Pod) bool {
		return p == nil || p.Status.StartTime == nil && p.Status.Phase == corev1.PodPending &&
			p.DeletionTimestamp == nil && !placeless(p)
	}
	return !silent(before) || !silent(after)
}

// placeless reports whether a pod's conditions say that it cannot be scheduled. A remote pod held
// only by the scheduling gate GateNoted does not count.
func placeless(pod *corev1.Pod) bool {
	scheduled, gates := condition(pod.Status.Conditions, corev1.PodScheduled), pod.Spec.SchedulingGates
	return scheduled != nil && scheduled.Status == corev1.ConditionFalse &&
		!(len(gates) == 1 && gates[0].Name == api.GateNoted)
}

// notOffloaded sets the status of a pod whose namespace does not exist at the provider.
func notOffloaded(s *corev1.PodStatus) {
	s.Phase, s.Reason = corev1.PodPending, api.ReasonBackOff
	if s.StartTime != nil {
		s.Phase, s.Reason = corev1.PodFailed, reasonAborted
	}
	negate(s.Conditions, s.Reason)
}

// negate makes the kubelet's true conditions false for a pod that does not run. Conditions of other
// controllers stay: only they know when a readiness gate closes.
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

// pullStatus copies the report of the provider's kubelet. Fields that belong to the home cluster
// (quality of service, nomination) stay.
func pullStatus(out *corev1.Pod, shadow *offv1beta1.ShadowPod, remote *corev1.Pod, v View) {
	home, in := out.Status, shownStatus(&remote.Status, &out.Spec)
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
		in.InitContainerStatuses, append(in.EphemeralContainerStatuses, refusedContainers(out, shadow, remote, v)...)
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

// specObserved reports whether the provider's kubelet has observed the present generation of the
// home pod: its spec has reached the remote pod, and the kubelet has observed that pod's
// generation. Kubelets before Kubernetes 1.33 do not report it.
func specObserved(home *corev1.Pod, shadow *offv1beta1.ShadowPod, remote *corev1.Pod) bool {
	if shadow == nil || remote.Status.ObservedGeneration == 0 || remote.Status.ObservedGeneration != remote.Generation {
		return false
	}
	ends := home.DeletionTimestamp == nil || remote.DeletionTimestamp != nil
	asked := shadow.Spec.Pod.DeepCopy()
	asked.Tolerations = nil // the provider narrows some, and kubelets need none
	return ends && amended(&shadow.Spec.Pod, &home.Spec) && amended(&remote.Spec, asked)
}

// amended reports whether has contains all fields of asked that may change in the spec of a running
// pod. The provider may have added containers and resources.
func amended(has, asked *corev1.PodSpec) bool {
	if !equality.Semantic.DeepEqual(has.ActiveDeadlineSeconds, asked.ActiveDeadlineSeconds) || !sized(has, asked) {
		return false
	}
	images := map[string]string{}
	eachContainer(has, func(c *corev1.Container) { images[c.Name] = c.Image })
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

// resizePending returns the condition that a pod does not have the size that the home pod requests,
// unless the remote kubelet reports it; nil = none. Schedulers count the present resources of an
// infeasible pod.
//
//	ShadowPod requests   remote pod has    condition
//	another size         –                 the provider's refusal; as before if it is unknown
//	the home pod's size  another size      the refusal in the ShadowPod's status
//	the home pod's size  the same          the remote kubelet's
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

// sized reports whether a pod and its containers have the resources of asked. The provider may add
// further kinds of resources.
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
		return "", nil // the remote pod was recreated
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

// mergeConditions takes over the conditions of the provider's kubelets and schedulers. It keeps all
// others, which the consumer's controllers set, such as readiness gates. The time of scheduling
// stays the consumer's while the remote pod is scheduled, too. A disruption that the consumer has
// announced stays. The clusters count generations separately.
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

// ofKubelet reports whether a condition exists only as long as the kubelet reports it. These are
// the types of PodConditionByKubelet in pkg/kubelet/types of Kubernetes, without PodScheduled. The
// kubelet owns a readiness gate of such a type on any node.
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
