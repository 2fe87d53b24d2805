// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqo-go/liqo/api"
	networkingv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// quotaInterval is the interval between attempts to create a pod that the quota refuses. Other pods
// of its user may have ended.
const quotaInterval = 15 * time.Second

// mappingTime is how long a pod waits for the remapped address of the consumer's API server, which
// takes a second after a peering begins. Pods that do not need it start then anyway.
// mappingInterval is the interval between two checks.
const (
	mappingTime     = 10 * time.Second
	mappingInterval = time.Second
)

// ShadowPodInput holds a ShadowPod and what its pod depends on.
type ShadowPodInput struct {
	Root *offloadingv1beta1.ShadowPod
	// Pod is the pod created for a ShadowPod of this name, maybe a former one; nil if there is
	// none.
	Pod *corev1.Pod
	// Now is the time of the decision.
	Now time.Time
	// LastMade is when the last pod was planned for any ShadowPod; zero = none was.
	LastMade time.Time
	// Configuration holds the remapped ranges of the consumer; nil without networking.
	Configuration *networkingv1beta1.Configuration
	// Quota holds the quota of the pod's user; nil = quotas are not enforced, or the plan grants
	// nothing.
	Quota *QuotaInput
	// Guests lists what pods of consumers may have beyond ordinary workloads.
	Guests GuestPods
	// Dropped holds the fields that the pod sets and the local API server does not know, by path, sorted.
	Dropped []string
}

// ShadowPod plans the pod of a ShadowPod. While the ShadowPod exists, a pod that is deleted is
// created again unless it had finished, so that it stays while the consumer is unavailable. A pod
// with restartPolicy Never or OnFailure "runs to its end". It is not created again once it may have
// started, because what it has done is unknown. Such a pod is created with a scheduling gate, which
// is removed once the status of the ShadowPod has a phase.
//
//	pod       last phase         runs to its end   plan
//	absent    Succeeded, Failed  –                 nothing
//	absent    other, new         –                 waits for the remapped address of the consumer's API server
//	absent    Pending, Running   yes               status Failed
//	absent    other              –                 a pod, unless a policy or the quota refuses it
//	former    any                –                 waits until the pod of the former ShadowPod is gone
//	gated     none               yes               status Pending, then removes the gate
//	gated     Pending            yes               removes the gate
//	present   any                –                 updates its metadata; its phase as status, once it has settled
//	leaving   any                no                updates its metadata; its phase is not the workload's
//
// The consumer writes the ShadowPod in reflection/translate/pod.go: Pod, and reads phase and pod in
// reflection/translate/podstatus.go: PodStatus.
func ShadowPod(in ShadowPodInput) desired.Plan {
	p := in.plan()
	p.ProblemsOnly = true
	in.reportMissing(&p)
	return p
}

// Grants reports whether a plan of ShadowPod takes from the quota: it creates a pod or changes the
// resources of one.
func Grants(p desired.Plan) bool {
	resizes := func(a desired.Action) bool { return a.Subresource == "resize" }
	return len(p.Objects) > 0 || slices.ContainsFunc(p.Actions, resizes)
}

// NeedsQuota reports whether the plan may create a pod or change the resources of one.
func (in ShadowPodInput) NeedsQuota() bool { return in.Pod == nil || Resized(in.Root, in.Pod) != nil }

func (in ShadowPodInput) plan() desired.Plan {
	switch {
	case in.Pod == nil:
		return in.withoutPod()
	case in.ofAnother():
		return desired.Wait("FormerPodTerminating", "waiting for the pod of a former ShadowPod of this name to end")
	}
	p := desired.Plan{Preserve: []desired.Object{in.Pod}}
	if gated(in.Pod) {
		if !HasPhase(in.Root) {
			p.Status = phaseStatus(corev1.PodPending)
		}
		p.Actions = []desired.Action{letGo(in.Pod)}
		in.follow(&p)
		return p
	}
	in.amend(&p)
	in.follow(&p)
	phase, unsettled := in.Pod.Status.Phase, in.unsettled()
	switch {
	case !RunsToEnd(in.Root) && api.Finished(phase) && leaving(in.Pod):
		return p
	case !api.Finished(phase) && unsettled > 0 && (HasPhase(in.Root) || !RunsToEnd(in.Root)):
		requeueWithin(&p, unsettled)
		return p
	case phase == "" || phase == in.Root.Status.Phase:
		return p
	}
	p.Status = phaseStatus(phase)
	return p
}

// withoutPod plans for a ShadowPod whose pod does not exist. The pod is created unless it is
// refused or may have run.
func (in ShadowPodInput) withoutPod() desired.Plan {
	switch before := in.Root.Status.Phase; {
	case api.Finished(before):
		return desired.Plan{}
	case in.Mapping():
		return desired.Plan{Verdict: mappingVerdict(in.Root.Labels[api.LabelOrigin]), RequeueAfter: mappingInterval}
	case RunsToEnd(in.Root) && (before == corev1.PodPending || before == corev1.PodRunning):
		return desired.Plan{Status: phaseStatus(corev1.PodFailed)}
	case in.refuses() != "":
		return desired.Block(reasonForbidden, "%s", in.refuses())
	case Refusal(in.Quota) != "":
		return in.quotaRefused()
	}
	return made(in)
}

// quotaRefused returns the plan for a ShadowPod that the quota of its user refuses.
func (in ShadowPodInput) quotaRefused() desired.Plan {
	const message = "%s; free resources of this consumer or ask the provider for more"
	p := desired.Block("QuotaRefused", message, Refusal(in.Quota))
	p.RequeueAfter = quotaInterval
	return p
}

// HasPhase reports whether the ShadowPod's status shows that its pod exists or existed.
func HasPhase(root *offloadingv1beta1.ShadowPod) bool {
	return root.Status.Phase != "" && root.Status.Phase != corev1.PodUnknown
}

func gated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, isOurGate)
}

func isOurGate(g corev1.PodSchedulingGate) bool { return g.Name == api.GateNoted }

// letGo removes Liqo's scheduling gate from the pod. Gates of others stay.
func letGo(pod *corev1.Pod) desired.Action {
	out := pod.DeepCopy()
	out.Spec.SchedulingGates = slices.DeleteFunc(out.Spec.SchedulingGates, isOurGate)
	return desired.Action{Verb: desired.Strategic, Before: pod, Object: out, Last: true}
}

// Mapping reports whether the pod waits for the remapped address of the consumer's API server.
func (in ShadowPodInput) Mapping() bool {
	_, mapped := consumerAPIServer(in.Root.Spec.Pod.HostAliases, in.Configuration)
	made := in.Root.CreationTimestamp
	return !mapped && !in.Now.Before(made.Time) && in.Now.Before(made.Add(mappingTime)) // clocks may differ
}

// amend plans the changes of a running pod: resources, within the quota, and ephemeral containers.
// Resources that the provider has added stay.
func (in ShadowPodInput) amend(p *desired.Plan) {
	if in.Pod.DeletionTimestamp != nil || api.Finished(in.Pod.Status.Phase) {
		return
	}
	if amended := Resized(in.Root, in.Pod); amended != nil {
		if Refusal(in.Quota) != "" {
			refused := in.quotaRefused()
			p.Verdict, p.RequeueAfter = refused.Verdict, refused.RequeueAfter
			return
		}
		p.Actions = []desired.Action{{Verb: desired.Update, Subresource: "resize", Object: amended, Last: true}}
	}
	for _, asked := range in.Root.Spec.Pod.EphemeralContainers {
		exists := func(c corev1.EphemeralContainer) bool { return c.Name == asked.Name }
		if slices.ContainsFunc(in.Pod.Spec.EphemeralContainers, exists) {
			continue
		}
		// One action each, so that a refused one, or a resize that the API server drops, does not
		// prevent others. The next reconcile reads the result.
		amended := in.Pod.DeepCopy()
		amended.Spec.EphemeralContainers = append(amended.Spec.EphemeralContainers, asked)
		p.Actions = append(p.Actions, desired.Action{
			Verb: desired.Update, Subresource: "ephemeralcontainers", Object: amended, Last: true,
		})
	}
}

// Resized returns the pod with the resources of its changed ShadowPod; nil if nothing differs.
func Resized(root *offloadingv1beta1.ShadowPod, pod *corev1.Pod) *corev1.Pod {
	if !changed(root) {
		return nil
	}
	out := pod.DeepCopy()
	eachContainer(&root.Spec.Pod, &out.Spec, func(asked, has *corev1.Container) {
		of, by := &has.Resources, asked.Resources
		of.Requests, of.Limits = overlaid(of.Requests, by.Requests), overlaid(of.Limits, by.Limits)
	})
	if by := root.Spec.Pod.Resources; by != nil && len(by.Requests)+len(by.Limits) > 0 {
		if out.Spec.Resources == nil {
			out.Spec.Resources = &corev1.ResourceRequirements{}
		}
		of := out.Spec.Resources
		of.Requests, of.Limits = overlaid(of.Requests, by.Requests), overlaid(of.Limits, by.Limits)
	}
	if equality.Semantic.DeepEqual(out.Spec, pod.Spec) {
		return nil
	}
	return out
}

// eachContainer calls visit for each container of a ShadowPod, with the pod's container of that
// name. The provider may have added others.
func eachContainer(asked, has *corev1.PodSpec, visit func(asked, has *corev1.Container)) {
	for _, each := range []struct{ asked, has []corev1.Container }{
		{asked.Containers, has.Containers}, {asked.InitContainers, has.InitContainers},
	} {
		for i := range each.asked {
			for j := range each.has {
				if each.asked[i].Name == each.has[j].Name {
					visit(&each.asked[i], &each.has[j])
				}
			}
		}
	}
}

// changed reports whether the spec of a ShadowPod was updated since its creation.
func changed(root *offloadingv1beta1.ShadowPod) bool { return root.Generation > 1 }

// overlaid returns the quantities of under, replaced by those of over.
func overlaid(under, over corev1.ResourceList) corev1.ResourceList {
	if len(over) == 0 {
		return under
	}
	out := maps.Clone(over)
	for name, amount := range under {
		if _, ok := out[name]; !ok {
			out[name] = amount
		}
	}
	return out
}

// ofAnother reports whether the pod was created for a former ShadowPod of this name.
func (in ShadowPodInput) ofAnother() bool {
	owner := metav1.GetControllerOf(in.Pod)
	return owner != nil && owner.UID != in.Root.UID
}

func phaseStatus(phase corev1.PodPhase) *offloadingv1beta1.ShadowPod {
	return &offloadingv1beta1.ShadowPod{Status: offloadingv1beta1.ShadowPodStatus{Phase: phase}}
}

// RunsToEnd reports whether the pod ends by itself and must not run twice.
func RunsToEnd(root *offloadingv1beta1.ShadowPod) bool {
	policy := root.Spec.Pod.RestartPolicy
	return policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure
}

// leaving reports whether the pod is being removed: by deletion, drain, preemption or garbage
// collection. Before it is gone, a finished phase is written to it that does not describe the
// workload. A pod that its kubelet evicts stays and has failed.
func leaving(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue &&
			c.Reason != corev1.PodReasonTerminationByKubelet
	})
}

// settleTime is how long after the creation of a pod its phase is not copied to the ShadowPod,
// unless the pod has finished. Nobody waits for the phases between, and writing them would slow down
// bursts: 1000 pods take that long to start on two cores. In longer bursts it is not copied before
// calmTime has passed without a new pod, but after mostSettleTime in any case.
const (
	settleTime     = 30 * time.Second
	calmTime       = 5 * time.Second
	mostSettleTime = 10 * time.Minute
)

// unsettled returns the time until the phase of the pod is copied or, if that is not known, looked
// at again; 0 = it is copied now.
func (in ShadowPodInput) unsettled() time.Duration {
	switch age := in.Now.Sub(in.Pod.CreationTimestamp.Time); {
	case age < settleTime:
		return settleTime - age
	case age < mostSettleTime && in.Now.Sub(in.LastMade) < calmTime:
		return settleTime
	}
	return 0
}

// PodConcerns reports whether the creation (before is nil) or an update of a pod may change the plan
// of its ShadowPod. Creation, binding and start of a new pod do not: the ShadowPod is reconciled when
// the pod has settled.
func PodConcerns(before, after *corev1.Pod, now time.Time) bool {
	if after.Spec.RestartPolicy != corev1.RestartPolicyAlways || api.Finished(after.Status.Phase) ||
		!now.Before(after.CreationTimestamp.Add(settleTime)) {
		return true
	}
	if before == nil {
		return false
	}
	from, to := *before, *after
	from.ResourceVersion, to.ResourceVersion = "", ""
	from.Generation, to.Generation = 0, 0
	from.Spec.NodeName, to.Spec.NodeName = "", ""
	from.Status, to.Status = corev1.PodStatus{}, corev1.PodStatus{}
	return !equality.Semantic.DeepEqual(&from, &to)
}

// made plans a new pod, and looks at it when it has settled. If its tolerations are narrowed, an
// event says so.
func made(in ShadowPodInput) desired.Plan {
	p := desired.Plan{Objects: []desired.Object{podOf(in)}, RequeueAfter: settleTime}
	if _, narrowed := in.Guests.narrowed(in.Root.Spec.Pod.Tolerations); narrowed {
		p.Events = []desired.Event{{
			Object: p.Objects[0], Type: corev1.EventTypeWarning, Reason: "TolerationsNarrowed",
			Message: "a toleration without a key covers only taints node.kubernetes.io/* here; for others name " +
				"their keys, or have the provider add them to the value offloading.guestPods.tolerations",
		}}
	}
	return p
}

// podOf returns the pod to create. A pod that tolerates virtual nodes, because it tolerates
// everything, gets a node affinity against those of this cluster, where it would stay pending.
func podOf(in ShadowPodInput) *corev1.Pod {
	root := in.Root
	pod := &corev1.Pod{Spec: *root.Spec.Pod.DeepCopy()}
	pod.Name, pod.Namespace = root.Name, root.Namespace
	pod.Labels, pod.Annotations = inherited(root, in.Guests.foreign(root, nil))
	pod.Spec.HostAliases, _ = consumerAPIServer(root.Spec.Pod.HostAliases, in.Configuration)
	pod.Spec.EphemeralContainers = nil // a new pod cannot have any
	pod.Spec.Tolerations, _ = in.Guests.narrowed(pod.Spec.Tolerations)
	if tolerates(pod.Spec.Tolerations) {
		require(&pod.Spec, []corev1.NodeSelectorTerm{nodeType(corev1.NodeSelectorOpNotIn)})
	}
	if RunsToEnd(root) && !HasPhase(root) {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: api.GateNoted})
	}
	return pod
}

// annotationLabels and annotationAnnotations of a pod list the keys that it has from its ShadowPod.
// Those that the ShadowPod loses are removed from the pod, and those that others have set stay.
const (
	annotationLabels      = "offloading.liqo.io/labels"
	annotationAnnotations = "offloading.liqo.io/annotations"
)

// inherited returns the labels and annotations that a pod gets from its ShadowPod, without leftOut. A consumer
// cannot set those by which controllers find their objects.
func inherited(root *offloadingv1beta1.ShadowPod, leftOut []string) (podLabels, annotations map[string]string) {
	podLabels, annotations = labels.Merge(root.Labels, nil), labels.Merge(root.Annotations, nil)
	maps.DeleteFunc(podLabels, func(key, _ string) bool {
		return desired.Marks(key) || slices.Contains(leftOut, api.LabelPath(key))
	})
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return desired.Marks(key) || slices.Contains(leftOut, api.AnnotationPath(key))
	})
	podLabels[api.LabelManagedBy] = api.ManagedByShadowPod
	annotations[annotationAnnotations], annotations[annotationLabels] =
		strings.Join(slices.Sorted(maps.Keys(annotations)), ","), strings.Join(slices.Sorted(maps.Keys(podLabels)), ",")
	return podLabels, annotations
}

// follow plans the updates of a pod after its ShadowPod, as one patch. Server-side apply would need
// the whole spec, and the API server refuses it if a pod has a variable or a port twice. Changes
// that are refused to consumers are left out, and the verdict reports them, for metadata reportMissing.
func (in ShadowPodInput) follow(p *desired.Plan) {
	out := in.Pod.DeepCopy()
	if why := in.Guests.refusesChange(in.Root, in.Pod); why != "" {
		p.Verdict = desired.Block(reasonForbidden, "%s", why).Verdict
	}
	labels, annotations := inherited(in.Root, in.Guests.foreign(in.Root, in.Pod))
	out.Labels = followed(out.Labels, labels, in.Pod.Annotations[annotationLabels])
	out.Annotations = followed(out.Annotations, annotations, in.Pod.Annotations[annotationAnnotations])
	out.Spec = in.updatedSpec()
	if !equality.Semantic.DeepEqual(out, in.Pod) {
		p.Actions = append(p.Actions, desired.Action{Verb: desired.Strategic, Before: in.Pod, Object: out, Last: true})
	}
}

// followed returns labels or annotations without the keys listed in before, merged with the desired
// ones.
func followed(has, want map[string]string, before string) map[string]string {
	out := maps.Clone(has)
	for _, key := range strings.Split(before, ",") {
		delete(out, key)
	}
	return labels.Merge(out, want)
}

// updatedSpec returns the desired spec of an existing pod. What webhooks or policies of the
// provider have changed stays. Of a changed ShadowPod, images, deadline and tolerations are taken
// over; amend updates resources.
func (in ShadowPodInput) updatedSpec() corev1.PodSpec {
	asked, out := &in.Root.Spec.Pod, *in.Pod.Spec.DeepCopy()
	if !changed(in.Root) {
		return out
	}
	eachContainer(asked, &out, func(asked, has *corev1.Container) { has.Image = asked.Image })
	has := out.ActiveDeadlineSeconds
	if s := asked.ActiveDeadlineSeconds; s != nil && (has == nil || *s < *has) {
		out.ActiveDeadlineSeconds = s
	}
	wanted := slices.DeleteFunc(slices.Clone(asked.Tolerations), func(t corev1.Toleration) bool {
		return in.Guests.controlPlane(t) || tolerated(out.Tolerations, t)
	})
	wanted, _ = in.Guests.narrowed(wanted)
	for _, t := range wanted {
		former := func(o corev1.Toleration) bool { return o.MatchToleration(&t) && !tolerated(asked.Tolerations, o) }
		switch i := slices.IndexFunc(out.Tolerations, former); {
		case tolerated(out.Tolerations, t):
		case i >= 0: // only the seconds of a toleration can change
			out.Tolerations[i] = t
		default:
			out.Tolerations = append(out.Tolerations, t)
		}
	}
	return out
}

// consumerAPIServer remaps the address of the consumer's API server in the host aliases that the
// consumer's virtual kubelet added to a pod. Other aliases stay. The result mapped is false while
// such an address has no mapping.
func consumerAPIServer(
	aliases []corev1.HostAlias, c *networkingv1beta1.Configuration,
) (out []corev1.HostAlias, mapped bool) {
	if c == nil || c.Spec.Remote == nil {
		return aliases, true
	}
	mappings, external := c.Mappings(), networkingv1beta1.ParseRanges(c.Spec.Remote.CIDR.External...)
	out, mapped = slices.Clone(aliases), true
	for i := range out {
		remote, err := netip.ParseAddr(out[i].IP)
		// The virtual kubelet takes the address from an IP object, whose address is in the external
		// range.
		if err != nil || !namesAPIServer(out[i].Hostnames) || !external.Contains(remote) {
			continue
		}
		local, ok := mappings.ToLocal(remote)
		if !ok {
			mapped = false
			continue
		}
		out[i].IP = local.String()
	}
	return out, mapped
}

// namesAPIServer reports whether an alias has only names that virtual kubelets use for the API
// server of the consumer. Names that the user has set in another alias may be missing.
func namesAPIServer(names []string) bool {
	const service = "kubernetes.default.svc"
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool {
		return name != "kubernetes" && name != "kubernetes.default" && name != service &&
			!strings.HasPrefix(name, service+".")
	})
}

// maxPodNames is the maximum number of characters in the names of a pod and its namespace together.
// Kubelets call the directory of a pod's logs <namespace>_<name>_<UID> (BuildPodLogsDirectory in
// pkg/kubelet/kuberuntime), and file systems take names of 255 bytes: 217 = 255 − 2 − 36.
const maxPodNames = 217

// ShadowPodRefusal returns why a new ShadowPod is refused apart from quotas, or empty. The origin
// is the consumer that its namespace was created for; it is empty for any other namespace. An
// admission policy of the chart limits later updates.
func ShadowPodRefusal(pod *offloadingv1beta1.ShadowPod, origin string, guests GuestPods) string {
	longest := maxPodNames - len(pod.Namespace)
	switch {
	case pod.Labels[api.LabelOrigin] == "":
		return "missing origin Cluster ID label"
	case pod.Labels[api.LabelOrigin] != origin:
		return "origin Cluster ID label differs from the cluster this namespace belongs to"
	case len(pod.Name) > longest:
		return fmt.Sprintf("the pod's name has %d characters, and nodes have room for %d in namespace %q; "+
			"make the pod with a shorter name", len(pod.Name), longest, pod.Namespace)
	}
	return guests.refuses(pod)
}
