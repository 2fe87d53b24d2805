// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// NamespaceOffloadingInput holds a NamespaceOffloading and the state of its namespace at providers.
type NamespaceOffloadingInput struct {
	// ClusterID is this cluster's ID.
	ClusterID string
	// Root is the NamespaceOffloading.
	Root *offloadingv1beta1.NamespaceOffloading
	// Maps are the NamespaceMaps that this cluster sends to providers, those being deleted
	// included.
	Maps []offloadingv1beta1.NamespaceMap
	// VirtualNodes are those of all peers, and Nodes their Nodes by name. A selected peer is waited
	// for even before its map has the namespace.
	VirtualNodes []offloadingv1beta1.VirtualNode
	Nodes        map[string]corev1.Node
	// Pods are the pods of the namespace.
	Pods []corev1.Pod
	// Dead are the peers that were declared permanently unreachable.
	Dead map[string]bool
	// Ends is set if the namespace is being deleted. Held lists the users' finalizers that hold it then, as the
	// function Held returns them.
	Ends bool
	Held []string
	// RuntimeClass is the class that sends pods to virtual nodes.
	RuntimeClass string
	// Now dates changes of conditions.
	Now time.Time
}

// NamespaceOffloading plans the status of an offloaded namespace; NamespaceMap does the offloading.
// While the NamespaceOffloading is being deleted, it waits until no reachable peer has the remote
// namespace. In a namespace that is being deleted, Kubernetes would delete it only after the pods. It is
// deleted before, so that the remote namespaces end beside the pods, and waits only until they do end.
func NamespaceOffloading(in NamespaceOffloadingInput) desired.Plan {
	name := RemoteNamespaceName(in.Root.Namespace, in.Root.Spec, in.ClusterID)
	status := &offloadingv1beta1.NamespaceOffloading{}
	status.Status.RemoteNamespaceName = name
	status.Status.ObservedGeneration = in.Root.Generation
	conditions := map[string]offloadingv1beta1.RemoteNamespaceConditions{}
	at := map[offloadingv1beta1.NamespacePhase][]string{}
	var problems, kept []string
	pending := in.selected()
	for i := range in.Maps {
		m := &in.Maps[i]
		_, mapped := m.Spec.DesiredMapping[in.Root.Namespace]
		wanted := mapped || pending[m.Namespace] != ""
		if mapped && pending[m.Namespace] == "" && matchedBefore(m, in.Root) {
			kept = append(kept, m.Name)
		}
		delete(pending, m.Namespace)
		conditions[m.Name] = peerConditions(in, m, wanted)
		if wanted {
			state, problem := stateAt(m, in.Root, name)
			at[state] = append(at[state], m.Name)
			if problem != "" {
				problems = append(problems, fmt.Sprintf("at %s: %s", m.Name, problem))
			}
		}
	}
	for _, peer := range pending {
		at[""] = append(at[""], peer)
	}
	status.Status.RemoteNamespacesConditions = conditions
	switch {
	case in.Root.DeletionTimestamp != nil:
		return releasing(in, status)
	case in.Ends && len(in.Held) == 0 && !endsSlowly(in.Pods):
		return desired.Plan{Actions: desired.Deletes(in.Root)}
	}
	status.Status.OffloadingPhase = phase(at)
	p := phaseVerdict(in.Root, status.Status.OffloadingPhase, name, at, problems)
	p.Status = status
	if len(kept) > 0 && p.State == desired.Ready {
		p.Reason = "VolumesKept"
		p.Message = fmt.Sprintf("ready, but the labels of %s do not match the cluster selector any more; "+
			"the remote namespace stays because of its volumes: label the virtual node so that it matches, "+
			"delete the claims, or offload the namespace with another selector", some(kept))
		return p
	}
	names := Misplaced(in.Pods, in.Nodes, in.Root.Spec, in.RuntimeClass)
	if len(names) > 0 && p.State == desired.Ready {
		p.Reason, p.RequeueAfter = "PodsAstray", misplacedInterval
		p.Message = fmt.Sprintf("ready, but pods run where new ones would not: %s; delete them to have them elsewhere",
			some(names))
	}
	return p
}

// misplacedInterval is the interval at which misplaced pods are counted again. Nothing waits for
// that, and watching all pods would cost something for each.
const misplacedInterval = 15 * time.Second

// some lists the first three names, and the number of further ones.
func some(names []string) string {
	slices.Sort(names)
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
}

// selected returns the IDs of the peers that the cluster selector matches, by their tenant
// namespaces.
func (in NamespaceOffloadingInput) selected() map[string]string {
	set := map[string]string{}
	for i, vn := range in.VirtualNodes {
		if in.Root.DeletionTimestamp == nil && selectsAny(in.Root.Spec, in.VirtualNodes[i:i+1], in.Nodes) {
			set[vn.Namespace] = vn.Spec.ClusterID
		}
	}
	return set
}

// releasing delays the deletion while a peer that may come back still has the remote namespace.
func releasing(in NamespaceOffloadingInput, status *offloadingv1beta1.NamespaceOffloading) desired.Plan {
	var holders []string
	kept := false
	for i := range in.Maps {
		m := &in.Maps[i]
		_, wanted := m.Spec.DesiredMapping[in.Root.Namespace]
		current, there := m.Status.CurrentMapping[in.Root.Namespace]
		there = there && !(in.Ends && current.Phase == offloadingv1beta1.NamespaceTerminating)
		if (wanted || there) && !in.Dead[m.Labels[api.LabelRemoteID]] {
			holders, kept = append(holders, m.Name), kept || wanted
		}
	}
	if len(holders) == 0 {
		return desired.Plan{}
	}
	p := desired.Wait("RemoteNamespacesTerminating",
		"waiting for the remote namespaces at %s; if such a peer is gone for good, run 'liqoctl force unpeer'",
		strings.Join(holders, ", "))
	if len(in.Held) > 0 && kept {
		p = desired.Wait("FinalizersRemaining",
			"the remote namespaces at %s stay until these finalizers are removed: %s",
			strings.Join(holders, ", "), some(in.Held))
		p.RequeueAfter = heldInterval
	}
	status.Status.OffloadingPhase = offloadingv1beta1.OffloadingTerminating
	p.Status = status
	return p
}

// phase sums up the states of the remote namespaces. at holds the peers by state, which is "" for
// peers without a response.
func phase(at map[offloadingv1beta1.NamespacePhase][]string) offloadingv1beta1.OffloadingPhase {
	all, failed := 0, len(at[offloadingv1beta1.NamespaceCreationLoopBackOff])
	for _, peers := range at {
		all += len(peers)
	}
	switch {
	case all == 0:
		return offloadingv1beta1.OffloadingNoClusterSelected
	case len(at[offloadingv1beta1.NamespaceAccepted]) == all:
		return offloadingv1beta1.OffloadingReady
	case failed == all:
		return offloadingv1beta1.OffloadingAllFailed
	case failed > 0:
		return offloadingv1beta1.OffloadingSomeFailed
	}
	return offloadingv1beta1.OffloadingInProgress
}

// phaseVerdict returns the verdict for a phase, with the reason and what the user can do.
func phaseVerdict(root *offloadingv1beta1.NamespaceOffloading, p offloadingv1beta1.OffloadingPhase, name string,
	at map[offloadingv1beta1.NamespacePhase][]string, problems []string) desired.Plan {
	if refusal := RemoteNameRefusal(name, root.Spec.NamespaceMappingStrategy); refusal != "" {
		return desired.Block("RemoteNameInvalid", "%s", refusal)
	}
	peers := func(states ...offloadingv1beta1.NamespacePhase) string {
		var names []string
		for _, state := range states {
			names = append(names, at[state]...)
		}
		slices.Sort(names)
		return strings.Join(names, ", ")
	}
	switch p {
	case offloadingv1beta1.OffloadingNoClusterSelected:
		if len(selectorTerms(root.Spec)) == 0 {
			return desired.Wait(string(p), "there is no virtual node yet; peer with a provider")
		}
		return desired.Wait(string(p), "no virtual node matches the cluster selector; change it or peer with a "+
			"provider that does")
	case offloadingv1beta1.OffloadingInProgress:
		return desired.Wait(string(p), "waiting for %s to create namespace %s; if this lasts, look at 'liqoctl info "+
			"peer'",
			peers("", offloadingv1beta1.NamespaceTerminating), name)
	case offloadingv1beta1.OffloadingSomeFailed, offloadingv1beta1.OffloadingAllFailed:
		slices.Sort(problems)
		return desired.Wait(string(p), "namespace %s cannot be created %s", name, strings.Join(problems, "; "))
	}
	return desired.Plan{}
}

// RemoteNameRefusal returns why the remote name that a strategy gives is illegal, and what to do.
// It is empty for a legal name.
func RemoteNameRefusal(name string, strategy offloadingv1beta1.NamespaceMappingStrategy) string {
	errs := validation.IsDNS1123Label(name)
	if len(errs) == 0 {
		return ""
	}
	advice := "choose mapping strategy SelectedName"
	if strategy == offloadingv1beta1.SelectedNameMapping {
		advice = "choose another remote name"
	}
	return fmt.Sprintf("%q cannot be a namespace's name (%s); %s", name, errs[0], advice)
}

// stateAt returns the phase of a namespace at one peer. If the namespace cannot exist there,
// stateAt also returns why, and what to do. A peer reports in the map's conditions that it, or its
// API server, refuses the namespace.
func stateAt(
	m *offloadingv1beta1.NamespaceMap, root *offloadingv1beta1.NamespaceOffloading, remote string,
) (offloadingv1beta1.NamespacePhase, string) {
	phase := m.Status.CurrentMapping[root.Namespace].Phase
	stalled := meta.FindStatusCondition(m.Status.Conditions, desired.ConditionStalled)
	refusal := RemoteNameRefusal(remote, root.Spec.NamespaceMappingStrategy)
	switch {
	case refusal != "":
		return offloadingv1beta1.NamespaceCreationLoopBackOff, refusal
	case phase == offloadingv1beta1.NamespaceCreationLoopBackOff && stalled != nil &&
		stalled.Reason == authv1beta1.ReasonProviderRefuses:
		return phase, stalled.Message
	case phase == offloadingv1beta1.NamespaceCreationLoopBackOff:
		return phase, fmt.Sprintf("namespace %s exists there already, or its name is not granted: "+
			"have what is in its way removed there, or offload under another name: 'liqoctl unoffload namespace %s', "+
			"which deletes the remote namespaces with their volumes, then %s", remote, root.Namespace,
			offloadRenamed(root))
	case phase == "" && stalled != nil && strings.Contains(stalled.Message, remote):
		return offloadingv1beta1.NamespaceCreationLoopBackOff, stalled.Message
	}
	return phase, ""
}

// offloadRenamed returns what offloads a namespace as before, under a remote name that the user chooses.
func offloadRenamed(root *offloadingv1beta1.NamespaceOffloading) string {
	spec := root.Spec
	spec.NamespaceMappingStrategy, spec.RemoteNamespaceName = offloadingv1beta1.SelectedNameMapping, ""
	flags, ok := OffloadFlags(spec)
	if !ok {
		return "create its NamespaceOffloading again, with the strategy SelectedName and a remoteNamespaceName"
	}
	command, quote := "liqoctl offload namespace "+root.Namespace, "'"
	for _, flag := range flags {
		command += " " + flag[0] + " " + flag[1]
	}
	if strings.Contains(command, quote) {
		quote = `"`
	}
	return quote + command + " --remote-namespace-name …" + quote
}

// peerConditions returns the conditions of the namespace at one peer.
func peerConditions(in NamespaceOffloadingInput, m *offloadingv1beta1.NamespaceMap,
	wanted bool) offloadingv1beta1.RemoteNamespaceConditions {
	current, there := m.Status.CurrentMapping[in.Root.Namespace]
	state, problem := stateAt(m, in.Root, RemoteNamespaceName(in.Root.Namespace, in.Root.Spec, in.ClusterID))
	required := remoteCondition(offloadingv1beta1.NamespaceOffloadingRequired, wanted, "ClusterSelected",
		"ClusterNotSelected")
	list := offloadingv1beta1.RemoteNamespaceConditions{required}
	if wanted || there {
		reason := "Creating"
		switch state {
		case offloadingv1beta1.NamespaceCreationLoopBackOff:
			reason = "CreationLoopBackOff"
		case offloadingv1beta1.NamespaceTerminating:
			reason = "Terminating"
		}
		accepted := current.Phase == offloadingv1beta1.NamespaceAccepted
		ready := remoteCondition(offloadingv1beta1.NamespaceReady, accepted, "NamespaceCreated", reason)
		ready.Message = problem
		list = append(list, ready)
	}
	before := in.Root.Status.RemoteNamespacesConditions[m.Name]
	for i := range list {
		list[i].LastTransitionTime = metav1.NewTime(in.Now).Rfc3339Copy()
		if old := slices.IndexFunc(before, func(c offloadingv1beta1.RemoteNamespaceCondition) bool {
			return c.Type == list[i].Type && c.Status == list[i].Status
		}); old >= 0 {
			list[i].LastTransitionTime = before[old].LastTransitionTime
		}
	}
	return list
}

// remoteCondition returns a condition that is True with the reason yes, or False with the reason
// no.
func remoteCondition(kind offloadingv1beta1.RemoteNamespaceConditionType, is bool, yes,
	no string) offloadingv1beta1.RemoteNamespaceCondition {
	if is {
		return offloadingv1beta1.RemoteNamespaceCondition{Type: kind, Status: corev1.ConditionTrue, Reason: yes}
	}
	return offloadingv1beta1.RemoteNamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: no}
}

// SchedulingLabelInput holds a namespace and its NamespaceOffloading; nil if there is none.
type SchedulingLabelInput struct {
	Namespace  *corev1.Namespace
	Offloading *offloadingv1beta1.NamespaceOffloading
}

// SchedulingLabel plans the label by which the admission webhook selects namespaces.
func SchedulingLabel(in SchedulingLabelInput) desired.Plan {
	filled := in.Namespace.DeepCopy()
	o := in.Offloading
	if o != nil && o.DeletionTimestamp == nil && o.Spec.PodOffloadingStrategy != offloadingv1beta1.LocalStrategy {
		metav1.SetMetaDataLabel(&filled.ObjectMeta, api.LabelSchedulingEnabled, api.True)
	} else {
		delete(filled.Labels, api.LabelSchedulingEnabled)
	}
	return desired.Plan{Fill: filled}
}
