// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/utils/ptr"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

const (
	// Heartbeat is the interval at which unchanged conditions are written, that of kubelets with a
	// lease (nodeStatusReportFrequency).
	Heartbeat = 5 * time.Minute

	// annotationTaints lists the taints from the VirtualNode. Those that the VirtualNode loses are
	// removed from the Node, and those that others have set stay.
	annotationTaints = "offloading.liqo.io/taints"

	// annotationUsersLabels of a VirtualNode holds the labels that users have set on its Node. A
	// deleted Node is created with them again, because cluster selectors may match them, and data
	// at the provider would be lost.
	annotationUsersLabels = "offloading.liqo.io/labels-of-users"

	// conditionOneArchitecture says that the provider's nodes have several architectures.
	conditionOneArchitecture corev1.NodeConditionType = "OneArchitecture"
)

// NodeInput holds the input for the Node of a virtual node.
type NodeInput struct {
	VirtualNode *offloadingv1beta1.VirtualNode
	// Node is the existing Node; nil before it exists.
	Node *corev1.Node
	// Peer is the ForeignCluster of the provider; nil before it exists.
	Peer *corev1beta1.ForeignCluster
	// CheckNetwork makes the node not ready while there is no tunnel.
	CheckNetwork bool
	// Address is that of the kubelet, and Port that of its API.
	Address string
	Port    int32
	// Version is that of the local API server, as in "v1.35.4".
	Version string
	// ExtraLabels and ExtraAnnotations are added to those of the VirtualNode.
	ExtraLabels, ExtraAnnotations map[string]string
	// Now dates changes of conditions.
	Now time.Time
}

// Node returns the Node of a virtual node, with its status.
func Node(in NodeInput) *corev1.Node {
	spec := &in.VirtualNode.Spec
	taints := ownTaints(spec.Taints)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   in.VirtualNode.Name,
		Labels: labels.Merge(in.ExtraLabels, NodeLabels(in.VirtualNode)),
		Annotations: labels.Merge(labels.Merge(in.ExtraAnnotations, spec.Annotations), map[string]string{
			annotationTaints: taintNames(taints),
		}),
	}}
	var live corev1.Node
	if in.Node != nil {
		live = *in.Node
	}
	node.Spec.Taints = joinTaints(live, taints)
	// The controller of a cloud deletes nodes that it does not know, but none whose ID names another cloud.
	// An ID cannot change.
	node.Spec.ProviderID = cmp.Or(live.Spec.ProviderID, providerID(in.VirtualNode))
	node.Status = corev1.NodeStatus{
		Capacity:    complete(spec.ResourceQuota.Hard),
		Allocatable: complete(spec.ResourceQuota.Hard),
		Conditions:  nodeConditions(in, live.Status.Conditions),
		Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: in.Address}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{
			KubeletEndpoint: corev1.DaemonEndpoint{Port: in.Port},
		},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: in.Version, OperatingSystem: "linux", Architecture: architecture(in.VirtualNode),
		},
		Images: spec.Images,
	}
	if facts := spec.Node.Bounded(); facts != nil { // users may have written them
		node.Status.NodeInfo.KernelVersion, node.Status.NodeInfo.OSImage = facts.KernelVersion, facts.OSImage
		if knowsDeclaredFeatures(in.Version) {
			node.Status.DeclaredFeatures = facts.DeclaredFeatures
		}
	}
	return node
}

// complete returns amounts with zeros for the resources that kubectl expects of every node.
func complete(amounts corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourceCPU: {}, corev1.ResourceMemory: {}, corev1.ResourceEphemeralStorage: {},
		corev1.ResourcePods: {}}
	maps.Copy(out, amounts)
	return out
}

// knowsDeclaredFeatures reports whether an API server of a version knows status.declaredFeatures of
// Nodes. Others refuse the whole status with it.
func knowsDeclaredFeatures(server string) bool {
	v, err := version.ParseGeneric(server)
	return err == nil && v.AtLeast(version.MajorMinor(1, 35))
}

// NewNode returns the Node of a virtual node to create, with its taints. Everything else is applied
// later, because the kubelet could not remove fields that it has created without apply. Only
// constant labels, and those of users, are created.
func NewNode(vn *offloadingv1beta1.VirtualNode) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: vn.Name, Labels: labels.Merge(usersLabels(vn), map[string]string{api.LabelType: api.TypeVirtualNode}),
	}}
	node.Spec.Taints = ownTaints(vn.Spec.Taints)
	node.Spec.ProviderID = providerID(vn)
	return node
}

// providerID returns the ID of a virtual node among the nodes of all clouds.
func providerID(vn *offloadingv1beta1.VirtualNode) string {
	return "liqo://" + vn.Spec.ClusterID + "/" + vn.Name
}

// usersLabels returns the labels that users had set on the Node when it was last observed.
func usersLabels(vn *offloadingv1beta1.VirtualNode) map[string]string {
	set, err := labels.ConvertSelectorToLabelsMap(vn.Annotations[annotationUsersLabels])
	if err != nil {
		return nil // not written by Liqo
	}
	return set
}

// keepUsersLabels records in a virtual node the labels that users have set on its Node; extra are
// those of the kubelet. The architecture never counts: it is the kubelet's, and stays for a moment
// when it is not known any more.
func keepUsersLabels(vn *offloadingv1beta1.VirtualNode, node *corev1.Node, extra map[string]string) {
	users, own := labels.Set{}, labels.Merge(extra, NodeLabels(vn))
	for key, value := range node.Labels {
		if _, ours := own[key]; !ours && key != corev1.LabelArchStable {
			users[key] = value
		}
	}
	if len(users) == 0 {
		delete(vn.Annotations, annotationUsersLabels)
		return
	}
	metav1.SetMetaDataAnnotation(&vn.ObjectMeta, annotationUsersLabels, users.String())
}

// ownTaints returns the VirtualNode's taints and the one that keeps other pods away.
func ownTaints(taints []corev1.Taint) []corev1.Taint {
	own := []corev1.Taint{api.VirtualNodeTaint()}
	for _, t := range taints {
		if !slices.ContainsFunc(own, func(o corev1.Taint) bool { return o.MatchTaint(&t) }) {
			own = append(own, t)
		}
	}
	return own
}

// joinTaints returns own and those taints of the Node that are not from the VirtualNode.
func joinTaints(live corev1.Node, own []corev1.Taint) []corev1.Taint {
	before := strings.Split(live.Annotations[annotationTaints], ",")
	out := slices.Clone(own)
	for _, t := range live.Spec.Taints {
		ours := slices.Contains(before, taintName(t)) ||
			slices.ContainsFunc(own, func(o corev1.Taint) bool { return o.MatchTaint(&t) })
		if !ours {
			out = append(out, t)
		}
	}
	return out
}

func taintName(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

func taintNames(taints []corev1.Taint) string {
	names := make([]string, len(taints))
	for i, t := range taints {
		names[i] = taintName(t)
	}
	return strings.Join(names, ",")
}

// network is the state of the tunnel to the provider.
type network int

const (
	unchecked network = iota
	up
	down
)

// networkOf returns whether pods at the provider can be reached. The networking module counts as
// enabled until its state is known. The result is unchecked if the check is disabled.
func networkOf(in NodeInput) network {
	if !in.CheckNetwork || ptr.Deref(in.VirtualNode.Spec.DisableNetworkCheck, false) {
		return unchecked
	}
	if in.Peer == nil || in.Peer.Status.Modules == nil {
		return down
	}
	networking := in.Peer.Status.Modules.Networking
	if !networking.Enabled {
		return unchecked
	}
	for _, c := range networking.Conditions {
		if c.Type == corev1beta1.NetworkConnectionStatusCondition && c.Status == corev1beta1.ConditionEstablished {
			return up
		}
	}
	return down
}

// nodeConditions returns the node's conditions. An unchanged condition keeps its times until the
// next heartbeat.
//
//	condition            true when
//	Ready                there are resources and the network is not down
//	…Pressure            there are no resources
//	NetworkUnavailable   the network is down; absent if it is not checked
//	OneArchitecture      never; False if the provider's nodes have several architectures, else absent
func nodeConditions(in NodeInput, before []corev1.NodeCondition) []corev1.NodeCondition {
	n := networkOf(in)
	empty := noResources(in.VirtualNode.Spec.ResourceQuota.Hard)
	pressure := func(kind corev1.NodeConditionType, yes, no string) corev1.NodeCondition {
		return nodeCondition(kind, empty, yes, no)
	}
	list := []corev1.NodeCondition{
		nodeCondition(corev1.NodeReady, !empty && n != down, "KubeletReady", "KubeletNotReady"),
		pressure(corev1.NodeMemoryPressure, "RemoteClusterHasMemoryPressure", "RemoteClusterHasSufficientMemory"),
		pressure(corev1.NodeDiskPressure, "RemoteClusterHasDiskPressure", "RemoteClusterHasNoDiskPressure"),
		pressure(corev1.NodePIDPressure, "RemoteClusterHasPIDPressure", "RemoteClusterHasNoPIDPressure"),
	}
	list[0].Message = readyMessage(n, empty)
	if n != unchecked {
		list = append(list, nodeCondition(corev1.NodeNetworkUnavailable, n == down, "LiqoNetworkingDown",
			"LiqoNetworkingUp"))
	}
	if facts := in.VirtualNode.Spec.Node; facts != nil && len(facts.Architectures) > 1 {
		c := nodeCondition(conditionOneArchitecture, false, "", "NodesDiffer")
		c.Message = "the provider's nodes have " + strings.Join(facts.Architectures, ", ") +
			", and it chooses among them: Liqo sets no label " + corev1.LabelArchStable + " of its own"
		list = append(list, c)
	}
	for i := range list {
		date(&list[i], before, in.Now)
	}
	return list
}

func readyMessage(n network, empty bool) string {
	switch {
	case empty:
		return "the provider grants no resources; look at the ResourceSlice"
	case n == down:
		return "there is no tunnel to the provider; look at its ForeignCluster"
	}
	return "virtual kubelet is running"
}

// date sets the times of a condition, from the same condition before if it has not changed.
func date(c *corev1.NodeCondition, before []corev1.NodeCondition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
	c.LastHeartbeatTime = c.LastTransitionTime
	for _, old := range before {
		if old.Type != c.Type || old.Status != c.Status {
			continue
		}
		c.LastTransitionTime = old.LastTransitionTime
		if old.Reason == c.Reason && old.Message == c.Message && now.Sub(old.LastHeartbeatTime.Time) < Heartbeat {
			c.LastHeartbeatTime = old.LastHeartbeatTime
		}
	}
}

// nodeCondition returns a condition that is True with the reason yes, or False with the reason no.
func nodeCondition(kind corev1.NodeConditionType, is bool, yes, no string) corev1.NodeCondition {
	if is {
		return corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: yes}
	}
	return corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: no}
}

func noResources(hard corev1.ResourceList) bool {
	for _, amount := range hard {
		if !amount.IsZero() {
			return false
		}
	}
	return true
}
