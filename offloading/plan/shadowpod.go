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

// quotaInterval is how often a refused pod is tried again: any pod of its user that ends may
// have made room.
const quotaInterval = 15 * time.Second

// mappingTime is how long a pod waits for the address of its home's API server to be mapped, which takes a
// second after a peering begins; a pod that needs none is not kept longer. It is asked for each mappingInterval.
const (
	mappingTime     = 10 * time.Second
	mappingInterval = time.Second
)

// ShadowPodInput is a pod a consumer asked for.
type ShadowPodInput struct {
	Root *offloadingv1beta1.ShadowPod
	// Pod is the pod made for a ShadowPod of this name; nil when there is none.
	Pod *corev1.Pod
	// Now is the time of the decision.
	Now time.Time
	// Configuration is the mapping of the consumer's addresses; nil without networking.
	Configuration *networkingv1beta1.Configuration
	// Quota is what the pod's user may have; nil = quotas are not enforced, or the plan grants nothing.
	Quota *QuotaInput
	// Guests is what pods of consumers may have here.
	Guests GuestPods
}

// ShadowPod plans the pod of a ShadowPod: as long as the ShadowPod stands the pod is created
// again whenever it vanishes, unless it had finished. That keeps an offloaded pod alive while
// its consumer is away. A pod that runs to its end (restartPolicy Never or OnFailure) is not run
// a second time once it could have started: what it has done is not known. So it is made with a gate,
// noted, and only then let go.
//
//	pod       last phase         runs to its end   plan
//	absent    Succeeded, Failed  –                 nothing
//	absent    other, just made   –                 waits until home's API server is seen from here
//	absent    Pending, Running   yes               Failed as status
//	absent    other              –                 pod, unless it asks too much or the quota refuses it
//	another's any                –                 waits until the former ShadowPod's pod is gone
//	gated     none               yes               Pending as status, then no gate
//	gated     Pending            yes               no gate
//	present   any                –                 its metadata, and its phase once it is settled
//	leaving   any                no                its metadata; its end is not the workload's
//
// The consumer writes the ShadowPod in reflection/translate/pod.go: Pod, and reads phase and pod in
// reflection/translate/podstatus.go: PodStatus.
func ShadowPod(in ShadowPodInput) desired.Plan {
	p := in.plan()
	p.ProblemsOnly = true
	return p
}

// Grants reports whether a plan of ShadowPod takes from the quota: it creates a pod or changes the resources of one.
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
	phase, settled := in.Pod.Status.Phase, in.Pod.CreationTimestamp.Add(settleTime)
	switch {
	case !RunsToEnd(in.Root) && api.Finished(phase) && leaving(in.Pod):
		return p
	case !api.Finished(phase) && in.Now.Before(settled) && (HasPhase(in.Root) || !RunsToEnd(in.Root)):
		requeueWithin(&p, settled.Sub(in.Now))
		return p
	case phase == "" || phase == in.Root.Status.Phase:
		return p
	}
	p.Status = phaseStatus(phase)
	return p
}

// withoutPod plans for a ShadowPod whose pod does not exist: it is made unless something stands against it, or it ran.
func (in ShadowPodInput) withoutPod() desired.Plan {
	switch before := in.Root.Status.Phase; {
	case api.Finished(before):
		return desired.Plan{}
	case in.Mapping():
		return desired.Plan{Verdict: mappingVerdict(in.Root.Labels[api.LabelOrigin]), RequeueAfter: mappingInterval}
	case RunsToEnd(in.Root) && (before == corev1.PodPending || before == corev1.PodRunning):
		return desired.Plan{Status: phaseStatus(corev1.PodFailed)}
	case in.Guests.refuses(in.Root) != "":
		return desired.Block(reasonForbidden, "%s", in.Guests.refuses(in.Root))
	case Refusal(in.Quota) != "":
		return in.quotaRefused()
	}
	return made(in)
}

// quotaRefused is the plan for a ShadowPod whose user may not have what it asks for.
func (in ShadowPodInput) quotaRefused() desired.Plan {
	const message = "%s; free resources of this consumer or ask the provider for more"
	p := desired.Block("QuotaRefused", message, Refusal(in.Quota))
	p.RequeueAfter = quotaInterval
	return p
}

// reasonForbidden says that a pod asks for what pods of consumers may not have here. Make it without, or have the
// provider allow it.
const reasonForbidden = "PodForbidden"

// HasPhase reports whether the ShadowPod's status shows that its pod exists or existed.
func HasPhase(root *offloadingv1beta1.ShadowPod) bool {
	return root.Status.Phase != "" && root.Status.Phase != corev1.PodUnknown
}

func gated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates, isNotedGate)
}

func isNotedGate(g corev1.PodSchedulingGate) bool { return g.Name == api.GateNoted }

// letGo takes our gate from the pod; those of others stay.
func letGo(pod *corev1.Pod) desired.Action {
	out := pod.DeepCopy()
	out.Spec.SchedulingGates = slices.DeleteFunc(out.Spec.SchedulingGates, isNotedGate)
	return desired.Action{Verb: desired.Strategic, Before: pod, Object: out, Last: true}
}

// Mapping reports whether the pod waits until the address of the consumer's API server is mapped.
func (in ShadowPodInput) Mapping() bool {
	_, mapped := homeAPIServer(in.Root.Spec.Pod.HostAliases, in.Configuration)
	made := in.Root.CreationTimestamp
	return !mapped && !in.Now.Before(made.Time) && in.Now.Before(made.Add(mappingTime)) // by two clocks
}

// amend plans what may change in a pod that runs: its resources and those of its containers, within the quota,
// and the containers it is debugged with. What the provider added to its resources stays.
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
		return // the next pass has the pod as it is then
	}
	for _, asked := range in.Root.Spec.Pod.EphemeralContainers {
		exists := func(c corev1.EphemeralContainer) bool { return c.Name == asked.Name }
		if slices.ContainsFunc(in.Pod.Spec.EphemeralContainers, exists) {
			continue
		}
		// One that is refused does not keep others away; the next pass has those that were granted.
		amended := in.Pod.DeepCopy()
		amended.Spec.EphemeralContainers = append(amended.Spec.EphemeralContainers, asked)
		p.Actions = append(p.Actions, desired.Action{
			Verb: desired.Update, Subresource: "ephemeralcontainers", Object: amended, Last: true,
		})
	}
}

// Resized is the pod with the resources its ShadowPod asks for since it was changed; nil if it has them.
func Resized(root *offloadingv1beta1.ShadowPod, pod *corev1.Pod) *corev1.Pod {
	if !changed(root) {
		return nil
	}
	out := pod.DeepCopy()
	eachAsked(&root.Spec.Pod, &out.Spec, func(asked, has *corev1.Container) {
		of, by := &has.Resources, asked.Resources
		of.Requests, of.Limits = overlaid(of.Requests, by.Requests), overlaid(of.Limits, by.Limits)
	})
	if of, by := out.Spec.Resources, root.Spec.Pod.Resources; of != nil && by != nil {
		of.Requests, of.Limits = overlaid(of.Requests, by.Requests), overlaid(of.Limits, by.Limits)
	}
	if equality.Semantic.DeepEqual(out.Spec, pod.Spec) {
		return nil
	}
	return out
}

// eachAsked visits the containers that are asked for, each with the one of its name that the pod has. The provider
// may have put others between them.
func eachAsked(asked, has *corev1.PodSpec, visit func(asked, has *corev1.Container)) {
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

// changed reports whether the ShadowPod asks for something else than it did when it was made.
func changed(root *offloadingv1beta1.ShadowPod) bool { return root.Generation > 1 }

// overlaid are amounts with others in their place.
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

// ofAnother reports whether the pod was made for a ShadowPod that stood here before.
func (in ShadowPodInput) ofAnother() bool {
	owner := metav1.GetControllerOf(in.Pod)
	return owner != nil && owner.UID != in.Root.UID
}

func phaseStatus(phase corev1.PodPhase) *offloadingv1beta1.ShadowPod {
	return &offloadingv1beta1.ShadowPod{Status: offloadingv1beta1.ShadowPodStatus{Phase: phase}}
}

// RunsToEnd reports whether the pod is one that ends by itself and must not be run twice.
func RunsToEnd(root *offloadingv1beta1.ShadowPod) bool {
	policy := root.Spec.Pod.RestartPolicy
	return policy == corev1.RestartPolicyNever || policy == corev1.RestartPolicyOnFailure
}

// leaving reports whether somebody removes the pod: deletion, drain, preemption, garbage
// collection. Before it vanishes a finished phase is written to it, by its kubelet or for it,
// which says nothing of the workload. A pod its kubelet evicts stays and has failed.
func leaving(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue &&
			c.Reason != corev1.PodReasonTerminationByKubelet
	})
}

// settleTime is how long after the creation of a pod its ShadowPod says nothing of it unless it has
// finished. Pods start in a few seconds and in numbers; nobody waits for the phases between, and
// writing them takes from the API server what the next pods need to start. It is as long as 1000
// pods take on two cores.
const settleTime = 30 * time.Second

// PodConcerns tells whether a change of a pod may mean something to its ShadowPod. That a young pod
// was bound and has started does not: ShadowPod looks at it when it has settled.
func PodConcerns(before, after *corev1.Pod, now time.Time) bool {
	if after.Spec.RestartPolicy != corev1.RestartPolicyAlways || api.Finished(after.Status.Phase) ||
		!now.Before(after.CreationTimestamp.Add(settleTime)) {
		return true
	}
	from, to := *before, *after
	from.ResourceVersion, to.ResourceVersion = "", ""
	from.Generation, to.Generation = 0, 0
	from.Spec.NodeName, to.Spec.NodeName = "", ""
	from.Status, to.Status = corev1.PodStatus{}, corev1.PodStatus{}
	return !equality.Semantic.DeepEqual(&from, &to)
}

// made plans a new pod. That its tolerations are narrowed is told once, when it is created.
func made(in ShadowPodInput) desired.Plan {
	p := desired.Plan{Objects: []desired.Object{podOf(in)}}
	if _, narrowed := in.Guests.narrowed(in.Root.Spec.Pod.Tolerations); narrowed {
		p.Events = []desired.Event{{
			Object: p.Objects[0], Type: corev1.EventTypeWarning, Reason: "TolerationsNarrowed",
			Message: "a toleration without a key covers only taints node.kubernetes.io/* here; for others name " +
				"their keys, or have the provider add them to the value offloading.guestPods.tolerations",
		}}
	}
	return p
}

// podOf is the pod as it is made. One that tolerates virtual nodes, because it tolerates everything, is kept off those
// this cluster has itself: it would wait there for ever.
func podOf(in ShadowPodInput) *corev1.Pod {
	root := in.Root
	pod := &corev1.Pod{Spec: *root.Spec.Pod.DeepCopy()}
	pod.Name, pod.Namespace = root.Name, root.Namespace
	pod.Labels, pod.Annotations = inherited(root, nil)
	pod.Spec.HostAliases, _ = homeAPIServer(root.Spec.Pod.HostAliases, in.Configuration)
	pod.Spec.EphemeralContainers = nil // a pod is made without
	pod.Spec.Tolerations, _ = in.Guests.narrowed(pod.Spec.Tolerations)
	if tolerates(pod.Spec.Tolerations) {
		require(&pod.Spec, []corev1.NodeSelectorTerm{nodeType(corev1.NodeSelectorOpNotIn)})
	}
	if RunsToEnd(root) && !HasPhase(root) {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: api.GateNoted})
	}
	return pod
}

// annotationLabels and annotationAnnotations of a pod list those it was given by its ShadowPod, so that one that
// vanishes there is told from one somebody else put on the pod.
const (
	annotationLabels      = "offloading.liqo.io/labels"
	annotationAnnotations = "offloading.liqo.io/annotations"
)

// inherited returns the labels and annotations a pod has from its ShadowPod, without those that are refused. A consumer
// cannot choose those by which pods are found.
func inherited(root *offloadingv1beta1.ShadowPod, refused []string) (podLabels, annotations map[string]string) {
	podLabels, annotations = labels.Merge(root.Labels, nil), labels.Merge(root.Annotations, nil)
	for _, set := range []map[string]string{podLabels, annotations} {
		maps.DeleteFunc(set, func(key, _ string) bool { return desired.Marks(key) || slices.Contains(refused, key) })
	}
	podLabels[api.LabelManagedBy] = api.ManagedByShadowPod
	names := strings.Join(slices.Sorted(maps.Keys(annotations)), ",")
	annotations[annotationLabels] = strings.Join(slices.Sorted(maps.Keys(podLabels)), ",")
	annotations[annotationAnnotations] = names
	return podLabels, annotations
}

// follow plans what of a pod follows its ShadowPod, as one patch: an apply would have to name all of the spec, and is
// refused where a pod names a variable or a port twice. What pods of consumers may not have does not follow, and the
// verdict says so.
func (in ShadowPodInput) follow(p *desired.Plan) {
	out := in.Pod.DeepCopy()
	if why := in.Guests.refusesChange(in.Root, in.Pod); why != "" {
		p.Verdict = desired.Block(reasonForbidden, "%s", why).Verdict
	}
	labels, annotations := inherited(in.Root, in.Guests.foreign(in.Root, in.Pod))
	out.Labels = followed(out.Labels, labels, in.Pod.Annotations[annotationLabels])
	out.Annotations = followed(out.Annotations, annotations, in.Pod.Annotations[annotationAnnotations])
	out.Spec = in.standing()
	if !equality.Semantic.DeepEqual(out, in.Pod) {
		p.Actions = append(p.Actions, desired.Action{Verb: desired.Strategic, Before: in.Pod, Object: out, Last: true})
	}
}

// followed are labels or annotations as they are wanted: without those that were given before and are not any more.
func followed(has, want map[string]string, before string) map[string]string {
	out := maps.Clone(has)
	for _, key := range strings.Split(before, ",") {
		delete(out, key)
	}
	return labels.Merge(out, want)
}

// standing is the spec of a pod that was made. The provider may have made something else of it then, by webhooks or
// policies, which stays. Of a ShadowPod that has changed follows what can follow; resources do by a part of the pod.
func (in ShadowPodInput) standing() corev1.PodSpec {
	asked, out := &in.Root.Spec.Pod, *in.Pod.Spec.DeepCopy()
	if !changed(in.Root) {
		return out
	}
	eachAsked(asked, &out, func(asked, has *corev1.Container) { has.Image = asked.Image })
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
		case i >= 0: // of a toleration, only the seconds can change
			out.Tolerations[i] = t
		default:
			out.Tolerations = append(out.Tolerations, t)
		}
	}
	return out
}

// homeAPIServer translates the address of the consumer's API server in the aliases that the
// consumer's virtual kubelet added to a pod. Other aliases stay as they are. The result mapped is
// false while such an address is not mapped yet.
func homeAPIServer(
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

// namesAPIServer reports whether an alias has only names that virtual kubelets give the API server
// of the consumer. It may lack those that the user has set.
func namesAPIServer(names []string) bool {
	const service = "kubernetes.default.svc"
	return len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool {
		return name != "kubernetes" && name != "kubernetes.default" && name != service &&
			!strings.HasPrefix(name, service+".")
	})
}

// maxPodNames is how many characters the names of a pod and its namespace have at most, taken
// together. Kubelets call the directory of a pod's logs <namespace>_<name>_<UID>
// (BuildPodLogsDirectory in pkg/kubelet/kuberuntime), and file systems take names of 255 bytes:
// 217 = 255 − 2 − 36.
const maxPodNames = 217

// ShadowPodRefusal returns why a new ShadowPod is refused apart from quotas, or empty. The origin is the cluster its
// namespace was made for; it is empty for any other namespace. What may change later is a policy of the chart.
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
