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

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// drainInterval is how often a draining node's pods are counted: they are watched by nobody
// here, and a pod ends in about a second.
const drainInterval = time.Second

// drainTime is how long pods on a node being drained may be protected by disruption budgets:
// unpeering ends.
const drainTime = 5 * time.Minute

// lostAfter is how long after the end of its grace period a pod is taken for lost with its node.
const lostAfter = 10 * time.Second

// VirtualNodeInput is what is known about one virtual node.
type VirtualNodeInput struct {
	Root *offloadingv1beta1.VirtualNode
	// Kubelet is how virtual kubelets run in this cluster.
	Kubelet KubeletSettings
	// Options are the defaults the virtual node names; nil when they do not exist.
	Options *offloadingv1beta1.VkOptionsTemplate
	// Node is the node of the virtual node's name, whoever made it; nil when there is none.
	Node *corev1.Node
	// Deployment is the virtual kubelet's; nil before it exists.
	Deployment *appsv1.Deployment
	// Namesake is the namespace of an older virtual node of the same name, whose Node it is; empty
	// when there is none.
	Namesake string
	// KubeletPods are the virtual kubelet's.
	KubeletPods []corev1.Pod
	// Pods are those on the node; read only while it has to go.
	Pods []corev1.Pod
	// Leases are those the virtual kubelets of the tenant namespace left; read likewise.
	Leases []coordinationv1.Lease
	// Last says that no other virtual node is left in the tenant namespace.
	Last bool
	// Dead says that the provider was declared permanently unreachable.
	Dead bool
	// Now dates changes of conditions.
	Now time.Time
}

// VirtualNode plans the virtual kubelet of a virtual node and what it may do. The Node itself is
// made by the virtual kubelet. A virtual node being deleted is drained first, so that its pods
// end in both clusters, and then everything goes, the Node last named here.
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
		Verdict: in.stands(s),
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

// HasNode reports whether there is to be a Node for the virtual node. One that is not wanted any more
// is drained and deleted; its kubelet runs on until then.
func HasNode(vn *offloadingv1beta1.VirtualNode) bool {
	return vn.DeletionTimestamp == nil && (vn.Spec.CreateNode == nil || *vn.Spec.CreateNode)
}

// draining waits for the pods of the node, and deletes what protects itself too long.
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

// drainingSince is when the node began to be drained, as its virtual node tells.
func (in VirtualNodeInput) drainingSince() time.Time {
	for _, c := range in.Root.Status.Conditions {
		if c.Type == offloadingv1beta1.NodeCondition && c.Status == offloadingv1beta1.VirtualNodeDraining {
			return c.LastTransitionTime.Time
		}
	}
	return in.Now
}

// stands says what a virtual node that is set up waits for.
func (in VirtualNodeInput) stands(s step) desired.Verdict {
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

// cannot is a plan whose verdict the virtual node's conditions tell as well. What is there stays.
func (in VirtualNodeInput) cannot(p desired.Plan) desired.Plan {
	status := virtualNodeStatus(in, step{in.kubeletStatus(), offloadingv1beta1.VirtualNodeCreating})
	for i := range status.Status.Conditions {
		status.Status.Conditions[i].Reason, status.Status.Conditions[i].Message = p.Reason, api.Printable(p.Message)
	}
	p.Status = status
	return p
}

// defaulted fills in what the user left open. The Deployment's template is not filled in: it
// follows the options, so that an upgrade of Liqo reaches virtual nodes made before.
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

// rights are the virtual kubelet's service account and what it may do in this cluster.
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
		// its kubeconfig is there
		offloadedRights(vn.Namespace, api.VirtualKubeletName(vn.Name), vn.Spec.ClusterID, kubeletAccount(vn)),
	}
}

func kubeletAccount(vn *offloadingv1beta1.VirtualNode) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: api.VirtualKubeletName(vn.Name),
		Namespace: vn.Namespace}
}

// offloadedRights let virtual kubelets read Secrets and ConfigMaps of one namespace, and have tokens of its pods.
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

// step is the state of the two parts of a virtual node.
type step struct {
	kubelet, node offloadingv1beta1.VirtualNodeConditionStatus
}

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

// dismantle takes a virtual node apart. Leases go last: a kubelet that still runs would make its
// own again.
//
//	state                                     plan
//	pods on the node that may yet end         runs the kubelet, evicts them, at last deletes them
//	Node, Deployment or kubelet pod left      they are deleted, and waited for
//	none of these                             leases are deleted, the rest is pruned
//
// A dead provider never confirms that pods have ended, and a kubelet that went first, with the tenant
// namespace or by somebody's hand, never hears of it: they are marked as deleted and end when Kubernetes
// collects what their missing Node leaves.
func dismantle(in VirtualNodeInput) desired.Plan {
	node := in.Node
	if node != nil && (node.Labels[api.LabelType] != api.TypeVirtualNode || in.Namesake != "") {
		node = nil // somebody else's
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

// isScaledToZero reports whether somebody wants no virtual kubelet. The pods of a node that is
// drained would never end.
func isScaledToZero(d *appsv1.Deployment) bool {
	return d != nil && d.Spec.Replicas != nil && *d.Spec.Replicas == 0
}

// kubeletRuns reports whether a pod of the virtual kubelet may still act. One that should have
// ended long ago runs on a node that is lost, and is not waited for.
func (in VirtualNodeInput) kubeletRuns() bool {
	return slices.ContainsFunc(in.KubeletPods, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp == nil || in.Now.Before(pod.DeletionTimestamp.Add(lostAfter))
	})
}

// Draining are the pods that have to leave a node; those of DaemonSets would come back at once
// and end with their Node.
func Draining(pods []corev1.Pod) []desired.Object {
	var out []desired.Object
	for i := range pods {
		if owner := metav1.GetControllerOf(&pods[i]); owner == nil || owner.Kind != "DaemonSet" {
			out = append(out, &pods[i])
		}
	}
	return out
}

// leftLeases are the leases nobody would renew any more; a successor would wait for them to expire.
func leftLeases(in VirtualNodeInput) []desired.Object {
	var out []desired.Object
	for i := range in.Leases {
		if name := in.Leases[i].Name; name == in.Root.Name || in.Last && name == api.VirtualKubeletLeaderLease {
			out = append(out, &in.Leases[i])
		}
	}
	return out
}

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

// CordonInput is a node and the virtual node of its name, nil when there is none.
type CordonInput struct {
	Node        *corev1.Node
	VirtualNode *offloadingv1beta1.VirtualNode
}

// annotationCordoned on a Node says that it was cordoned here, not by a user.
const annotationCordoned = "offloading.liqo.io/cordoned"

// Cordon plans that no new pods come to the node of a virtual node that is to have none, and that they
// come again if it is to have one after all. What a user cordoned stays so.
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
