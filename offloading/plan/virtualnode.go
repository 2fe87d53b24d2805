// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// drainInterval is the interval at which the state of a drained node is checked besides events: times
// pass without one.
const drainInterval = 5 * time.Second

// drainTime is how long disruption budgets may protect the pods of a drained node. Then the pods
// are deleted, so that unpeering ends.
const drainTime = 5 * time.Minute

// lostAfter is the time after the end of its grace period from which a pod counts as lost with its
// node.
const lostAfter = 10 * time.Second

// VirtualNodeInput holds the input for the objects of a virtual node.
type VirtualNodeInput struct {
	Root *offloadingv1beta1.VirtualNode
	// Kubelet holds the settings of all virtual kubelets of this cluster.
	Kubelet KubeletSettings
	// Options is the VkOptionsTemplate of the virtual node; nil if it does not exist.
	Options *offloadingv1beta1.VkOptionsTemplate
	// Node is the Node of the virtual node's name, even if it is not Liqo's; nil if there is none.
	Node *corev1.Node
	// Deployment is that of the virtual kubelet; nil before it exists.
	Deployment *appsv1.Deployment
	// Namesake is the namespace of an older virtual node of the same name, to which the Node
	// belongs; empty if there is none.
	Namesake string
	// KubeletPods are the pods of the virtual kubelet; read only without a Deployment, while the node
	// is to be deleted.
	KubeletPods []corev1.Pod
	// Pods are the pods on the node; read only while the node is to be deleted.
	Pods []corev1.Pod
	// Leases are the leases of virtual kubelets in the tenant namespace. They are read whenever
	// KubeletPods are.
	Leases []coordinationv1.Lease
	// Last says that the tenant namespace has no other virtual node.
	Last bool
	// Dead says that the provider was declared permanently unreachable.
	Dead bool
	// Now dates changes of conditions.
	Now time.Time
}

// VirtualNode plans the Deployment of a virtual kubelet and its rights. The virtual kubelet creates
// the Node. A virtual node that is being deleted is drained first, so that its pods end in both
// clusters; then all its objects are deleted.
func VirtualNode(in VirtualNodeInput) desired.Plan {
	switch {
	case in.Root.DeletionTimestamp != nil:
		return dismantle(in)
	case len(in.Root.Name) > validation.LabelValueMaxLength:
		return in.cannot(desired.Block("NameTooLong", "the name has %d characters, but labels allow at most %d; "+
			"create the virtual node under a shorter name", len(in.Root.Name), validation.LabelValueMaxLength))
	case in.Node != nil && in.Node.Labels[api.LabelType] != api.TypeVirtualNode:
		return in.cannot(desired.Block("NodeExists",
			"node %s already exists; create the virtual node under another name", in.Node.Name))
	case in.Namesake != "":
		return in.cannot(desired.Block("VirtualNodeExists",
			"namespace %s has a virtual node of this name; create this one under another name", in.Namesake))
	case in.Options == nil:
		return in.cannot(desired.Wait("OptionsMissing",
			"its VkOptionsTemplate does not exist; create it or name another in spec.vkOptionsTemplateRef"))
	case in.Root.Spec.KubeconfigSecretRef == nil || in.Root.Spec.KubeconfigSecretRef.Name == "":
		return in.cannot(desired.Block("KubeconfigMissing",
			"name the Secret with the provider's kubeconfig in spec.kubeconfigSecretRef"))
	}
	filled := defaulted(in.Root, in.Options)
	if in.Node != nil {
		keepUsersLabels(filled, in.Node, in.Options.Spec.NodeExtraLabels)
	}
	s := progress(in, filled)
	p := desired.Plan{
		Verdict: in.readiness(s),
		Objects: append(rights(filled), kubeletDeployment(filled, in.Options, in.Kubelet)),
		Fill:    filled, Status: virtualNodeStatus(in, s),
	}
	if in.Node == nil || HasNode(filled) {
		return p
	}
	pods := Draining(in.Pods)
	if len(pods) > 0 && !in.Dead {
		p := in.draining(pods, in.drainingSince())
		filled.Spec.CreateNode = new(true) // its kubelet ends the pods
		d := kubeletDeployment(filled, in.Options, in.Kubelet)
		if isScaledToZero(d) || d.Spec.Replicas == nil && isScaledToZero(in.Deployment) {
			d.Spec.Replicas = new(int32(1))
		}
		p.Objects = append(rights(filled), d)
		return p
	}
	p.Actions = desired.Deletes(append(pods, in.Node)...)
	return p
}

// HasNode reports whether a virtual node is to have a Node. Otherwise an existing one is drained
// and deleted, and its kubelet runs until then.
func HasNode(vn *offloadingv1beta1.VirtualNode) bool {
	return vn.DeletionTimestamp == nil && ptr.Deref(vn.Spec.CreateNode, true)
}

// draining waits for the pods of the node, and deletes those that are protected for longer than
// drainTime.
func (in VirtualNodeInput) draining(pods []desired.Object, since time.Time) desired.Plan {
	p := desired.Wait("Draining", "waiting for the pods of the node to end at the provider; if it is gone for good, "+
		"run 'liqoctl force unpeer'")
	if in.Deployment != nil && in.Deployment.Status.ReadyReplicas == 0 {
		p = desired.Wait("Draining", "the virtual kubelet, which ends the pods of the node, does not run; "+
			"look at the pods of Deployment %s, or run 'liqoctl force unpeer' if the provider is gone for good",
			in.Deployment.Name)
	}
	p.RequeueAfter = drainInterval
	if in.Now.Sub(since) > drainTime {
		p.Actions = desired.Deletes(pods...)
	}
	p.Status = virtualNodeStatus(in, step{offloadingv1beta1.VirtualNodeRunning, offloadingv1beta1.VirtualNodeDraining})
	return p
}

// drainingSince returns when the drain began, from the virtual node's conditions.
func (in VirtualNodeInput) drainingSince() time.Time {
	for _, c := range in.Root.Status.Conditions {
		if c.Type == offloadingv1beta1.NodeCondition && c.Status == offloadingv1beta1.VirtualNodeDraining {
			return c.LastTransitionTime.Time
		}
	}
	return in.Now
}

// readiness returns what a complete virtual node waits for, as a verdict.
func (in VirtualNodeInput) readiness(s step) desired.Verdict {
	switch {
	case s.kubelet != offloadingv1beta1.VirtualNodeRunning:
		return desired.Wait("VirtualKubeletNotReady",
			"its virtual kubelet does not run; look at the pods of Deployment %s",
			api.VirtualKubeletName(in.Root.Name)).Verdict
	case s.node == offloadingv1beta1.VirtualNodeCreating && in.Node == nil:
		return desired.Wait("NodeMissing",
			"its virtual kubelet has not made the Node; look at the log of Deployment %s",
			api.VirtualKubeletName(in.Root.Name)).Verdict
	case s.node == offloadingv1beta1.VirtualNodeCreating:
		return desired.Wait("NodeNotReady", "Node %s is not Ready; look at its conditions", in.Node.Name).Verdict
	}
	return desired.Verdict{}
}

// cannot returns a plan whose verdict is also in the virtual node's own conditions. Existing
// objects stay.
func (in VirtualNodeInput) cannot(p desired.Plan) desired.Plan {
	status := virtualNodeStatus(in, step{in.kubeletStatus(), offloadingv1beta1.VirtualNodeCreating})
	for i := range status.Status.Conditions {
		status.Status.Conditions[i].Reason, status.Status.Conditions[i].Message = p.Reason, api.Printable(p.Message)
	}
	p.Status = status
	return p
}

// defaulted returns the virtual node with defaults for unset fields. The template of the Deployment
// is not one of them: it is computed from the options, so that an upgrade of Liqo changes existing
// kubelets.
func defaulted(root *offloadingv1beta1.VirtualNode,
	options *offloadingv1beta1.VkOptionsTemplate) *offloadingv1beta1.VirtualNode {
	filled := root.DeepCopy()
	if filled.Spec.CreateNode == nil {
		filled.Spec.CreateNode = new(options.Spec.CreateNode)
	}
	if filled.Spec.DisableNetworkCheck == nil {
		filled.Spec.DisableNetworkCheck = new(options.Spec.DisableNetworkCheck)
	}
	metav1.SetMetaDataLabel(&filled.ObjectMeta, api.LabelRemoteClusterID, filled.Spec.ClusterID)
	return filled
}

// rights returns the service account of the virtual kubelet, and the bindings of its roles in this
// cluster.
func rights(vn *offloadingv1beta1.VirtualNode) []desired.Object {
	return []desired.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: api.VirtualKubeletName(vn.Name),
			Namespace: vn.Namespace, Labels: kubeletLabels(vn)}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{
				Name: api.VirtualNodeBindingName(vn.Name),
				Labels: map[string]string{api.LabelAppManagedBy: api.ManagedByLiqo,
					api.LabelRemoteClusterID: vn.Spec.ClusterID},
			},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
				Name: api.ClusterRoleVirtualKubeletLocal},
			Subjects: []rbacv1.Subject{kubeletAccount(vn)},
		},
		// to read its kubeconfig, which is in this namespace
		offloadedRights(vn.Namespace, api.VirtualKubeletName(vn.Name), vn.Spec.ClusterID, kubeletAccount(vn)),
	}
}

func kubeletAccount(vn *offloadingv1beta1.VirtualNode) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: api.VirtualKubeletName(vn.Name),
		Namespace: vn.Namespace}
}

// offloadedRights lets virtual kubelets read Secrets and ConfigMaps of a namespace, and request
// tokens for its pods.
func offloadedRights(namespace, name, peer string, kubelets ...rbacv1.Subject) desired.Object {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{api.LabelAppManagedBy: api.ManagedByLiqo, api.LabelRemoteClusterID: peer},
		},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: api.ClusterRoleVirtualKubeletOffloaded},
		Subjects: kubelets,
	}
}

// step holds the states of the two parts of a virtual node.
type step struct {
	kubelet, node offloadingv1beta1.VirtualNodeConditionStatus
}

// progress returns the states of a virtual node that is not being deleted.
func progress(in VirtualNodeInput, filled *offloadingv1beta1.VirtualNode) step {
	s := step{in.kubeletStatus(), offloadingv1beta1.VirtualNodeCreating}
	switch {
	case !*filled.Spec.CreateNode:
		s.node = offloadingv1beta1.VirtualNodeNone
	case in.Node != nil && api.NodeReady(in.Node):
		s.node = offloadingv1beta1.VirtualNodeRunning
	}
	return s
}

func (in VirtualNodeInput) kubeletStatus() offloadingv1beta1.VirtualNodeConditionStatus {
	if in.Deployment != nil && in.Deployment.Status.ReadyReplicas > 0 {
		return offloadingv1beta1.VirtualNodeRunning
	}
	return offloadingv1beta1.VirtualNodeCreating
}

// dismantle plans the end of a virtual node. Leases are deleted last, because a running kubelet
// would create its own again.
//
//	state                                     plan
//	pods on the node that may still end       runs the kubelet, evicts the pods, deletes them after drainTime
//	Node, Deployment or kubelet pod exists    deletes them, and waits for that
//	none of these                             deletes leases; all else is pruned
//
// A dead provider never confirms the end of pods, nor does a kubelet that was deleted before. Such
// pods are deleted, and Kubernetes' garbage collection removes them once their Node is gone.
func dismantle(in VirtualNodeInput) desired.Plan {
	node := in.Node
	if node != nil && (node.Labels[api.LabelType] != api.TypeVirtualNode || in.Namesake != "") {
		node = nil // not of this virtual node
	}
	var pods []desired.Object
	if node != nil {
		pods = Draining(in.Pods)
	}
	if len(pods) > 0 && !in.Dead && (in.Deployment != nil || in.kubeletRuns()) {
		p := in.draining(pods, in.Root.DeletionTimestamp.Time)
		if isScaledToZero(in.Deployment) {
			scaled := in.Deployment.DeepCopy()
			scaled.Spec.Replicas = new(int32(1))
			p.Actions = append(p.Actions, desired.Action{Verb: desired.Merge, Before: in.Deployment, Object: scaled})
		}
		return p
	}
	if node == nil && in.Deployment == nil && !in.kubeletRuns() {
		return desired.Plan{Actions: desired.Deletes(leftLeases(in)...)}
	}
	p := desired.Wait("Deleting", "waiting for the virtual kubelet to end; look at its pod if this lasts")
	ending := pods
	if in.Deployment != nil {
		ending = append(ending, in.Deployment)
	}
	if node != nil {
		ending = append(ending, node)
	}
	p.Actions, p.RequeueAfter = desired.Deletes(ending...), drainInterval
	p.Status = virtualNodeStatus(in, step{offloadingv1beta1.VirtualNodeDeleting, offloadingv1beta1.VirtualNodeDeleting})
	return p
}

// Drained reports whether a virtual node is being deleted and its pods have ended. Its virtual kubelet
// may still run, but needs no remote namespaces any more.
func Drained(v offloadingv1beta1.VirtualNode) bool {
	return v.DeletionTimestamp != nil && slices.ContainsFunc(v.Status.Conditions,
		func(c offloadingv1beta1.VirtualNodeCondition) bool {
			return c.Type == offloadingv1beta1.NodeCondition && c.Status == offloadingv1beta1.VirtualNodeDeleting
		})
}

// isScaledToZero reports whether somebody has scaled the virtual kubelet to zero. Without it, the
// pods of a drained node would never end.
func isScaledToZero(d *appsv1.Deployment) bool {
	return d != nil && ptr.Deref(d.Spec.Replicas, 1) == 0
}

// kubeletRuns reports whether a pod of the virtual kubelet may still run. A deleted one does not count
// once its containers have ended, although its node cleans up for another second; nor does one that
// should have ended long ago, which is on a lost node.
func (in VirtualNodeInput) kubeletRuns() bool {
	return slices.ContainsFunc(in.KubeletPods, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp == nil ||
			!api.Finished(pod.Status.Phase) && in.Now.Before(pod.DeletionTimestamp.Add(lostAfter))
	})
}

// Draining returns the pods to evict from a node. Pods of DaemonSets would be created again at
// once, and end with their Node.
func Draining(pods []corev1.Pod) []desired.Object {
	var out []desired.Object
	for i := range pods {
		if owner := metav1.GetControllerOf(&pods[i]); owner == nil || owner.Kind != "DaemonSet" {
			out = append(out, &pods[i])
		}
	}
	return out
}

// leftLeases returns the leases that nobody renews any more. A successor would wait until they
// expire.
func leftLeases(in VirtualNodeInput) []desired.Object {
	var out []desired.Object
	for i := range in.Leases {
		if name := in.Leases[i].Name; name == in.Root.Name || in.Last && name == api.VirtualKubeletLeaderLease {
			out = append(out, &in.Leases[i])
		}
	}
	return out
}

// virtualNodeStatus returns the status with the conditions for a step.
func virtualNodeStatus(in VirtualNodeInput, s step) *offloadingv1beta1.VirtualNode {
	list := []offloadingv1beta1.VirtualNodeCondition{
		{Type: offloadingv1beta1.VirtualKubeletCondition, Status: s.kubelet},
		{Type: offloadingv1beta1.NodeCondition, Status: s.node},
	}
	for i := range list {
		list[i].LastTransitionTime = metav1.NewTime(in.Now).Rfc3339Copy()
		for _, before := range in.Root.Status.Conditions {
			if before.Type == list[i].Type && before.Status == list[i].Status {
				list[i].LastTransitionTime = before.LastTransitionTime
			}
		}
	}
	return &offloadingv1beta1.VirtualNode{Status: offloadingv1beta1.VirtualNodeStatus{Conditions: list}}
}

// CordonInput holds a node and the virtual node of its name; nil if there is none.
type CordonInput struct {
	Node        *corev1.Node
	VirtualNode *offloadingv1beta1.VirtualNode
}

// annotationCordoned marks a Node that Liqo has cordoned, not a user.
const annotationCordoned = "offloading.liqo.io/cordoned"

// Cordon makes the Node of a virtual node unschedulable while it is to be deleted, and schedulable
// again if it is to stay after all. A Node that a user has cordoned stays unschedulable.
func Cordon(in CordonInput) desired.Plan {
	if in.Node.Labels[api.LabelType] != api.TypeVirtualNode || in.VirtualNode == nil {
		return desired.Plan{}
	}
	filled := in.Node.DeepCopy()
	switch _, ours := filled.Annotations[annotationCordoned]; {
	case !HasNode(in.VirtualNode) && !filled.Spec.Unschedulable:
		filled.Spec.Unschedulable = true
		metav1.SetMetaDataAnnotation(&filled.ObjectMeta, annotationCordoned, api.True)
	case HasNode(in.VirtualNode) && ours:
		filled.Spec.Unschedulable = false
		delete(filled.Annotations, annotationCordoned)
	}
	return desired.Plan{Fill: filled}
}
