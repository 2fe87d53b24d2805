// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

const (
	// Heartbeat is how often conditions are written though nothing changed: what kubelets do
	// when they have a lease (nodeStatusReportFrequency).
	Heartbeat = 5 * time.Minute

	// annotationTaints lists the taints taken from the VirtualNode, so that one that vanishes
	// there is told from one somebody else put on the Node.
	annotationTaints = "offloading.liqo.io/taints"

	// annotationUsersLabels of a VirtualNode holds the labels users put on its Node. A Node that was deleted is made
	// with them again: namespaces may be chosen by them, and what lies in those would be lost.
	annotationUsersLabels = "offloading.liqo.io/labels-of-users"
)

// NodeInput is what is known about one virtual node by its kubelet.
type NodeInput struct {
	VirtualNode *offloadingv1beta1.VirtualNode
	// Node is the Node as it is; nil before it exists.
	Node *corev1.Node
	// Peer is the provider as this cluster sees it; nil before it was looked at.
	Peer *corev1beta1.ForeignCluster
	// CheckNetwork is false where the node is ready without a tunnel.
	CheckNetwork bool
	// Address is the kubelet's, Port its API's.
	Address string
	Port    int32
	// Version is that of the home API server, as in "v1.35.4".
	Version string
	// ExtraLabels and ExtraAnnotations are put on the Node besides the VirtualNode's.
	ExtraLabels, ExtraAnnotations map[string]string
	// Now dates changes of conditions.
	Now time.Time
}

// Node is the Node of a virtual node, with its status.
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
	node.Status = corev1.NodeStatus{
		Capacity:    spec.ResourceQuota.Hard,
		Allocatable: spec.ResourceQuota.Hard,
		Conditions:  nodeConditions(in, live.Status.Conditions),
		Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: in.Address}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{
			KubeletEndpoint: corev1.DaemonEndpoint{Port: in.Port},
		},
		NodeInfo: corev1.NodeSystemInfo{KubeletVersion: in.Version, OperatingSystem: "linux", Architecture: "amd64"},
		Images:   spec.Images,
	}
	return node
}

// NewNode is the Node of a virtual node as it is created, tainted from the start; the rest follows when it is seen.
// What is created is no longer the kubelet's to take back, so it is only what never changes, and what is users'.
func NewNode(vn *offloadingv1beta1.VirtualNode) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: vn.Name, Labels: labels.Merge(usersLabels(vn), map[string]string{api.LabelType: api.TypeVirtualNode}),
	}}
	node.Spec.Taints = ownTaints(vn.Spec.Taints)
	return node
}

// usersLabels are those users put on the Node when it was seen last.
func usersLabels(vn *offloadingv1beta1.VirtualNode) map[string]string {
	set, err := labels.ConvertSelectorToLabelsMap(vn.Annotations[annotationUsersLabels])
	if err != nil {
		return nil // not ours
	}
	return set
}

// keepUsersLabels writes into a virtual node the labels users put on its Node; extra are the kubelet's own.
func keepUsersLabels(vn *offloadingv1beta1.VirtualNode, node *corev1.Node, extra map[string]string) {
	users, own := labels.Set{}, labels.Merge(extra, NodeLabels(vn))
	for key, value := range node.Labels {
		if _, ours := own[key]; !ours {
			users[key] = value
		}
	}
	if len(users) == 0 {
		delete(vn.Annotations, annotationUsersLabels)
		return
	}
	metav1.SetMetaDataAnnotation(&vn.ObjectMeta, annotationUsersLabels, users.String())
}

// ownTaints are the VirtualNode's taints and the one that keeps other pods away.
func ownTaints(taints []corev1.Taint) []corev1.Taint {
	own := []corev1.Taint{api.VirtualNodeTaint()}
	for _, t := range taints {
		if !slices.ContainsFunc(own, func(o corev1.Taint) bool { return o.MatchTaint(&t) }) {
			own = append(own, t)
		}
	}
	return own
}

// joinTaints keeps on a Node the taints that did not come from the VirtualNode.
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

// network is how the way to the provider stands.
type network int

const (
	unchecked network = iota
	up
	down
)

// networkOf tells whether pods at the provider can be reached. The module counts as in use until
// the peer was looked at, and not at all where the check is switched off.
func networkOf(in NodeInput) network {
	if !in.CheckNetwork || in.VirtualNode.Spec.DisableNetworkCheck != nil && *in.VirtualNode.Spec.DisableNetworkCheck {
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

// nodeConditions are the node's conditions; one that did not change keeps its times until the
// next heartbeat.
//
//	condition            true when
//	Ready                there are resources and the network is not down
//	…Pressure            there are no resources
//	NetworkUnavailable   the network is down; absent where it is not checked
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

// date gives a condition its times.
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

func nodeCondition(kind corev1.NodeConditionType, is bool, yes, no string) corev1.NodeCondition {
	if is {
		return corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: yes}
	}
	return corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: no}
}

func noResources(hard corev1.ResourceList) bool {
	for amount := range maps.Values(hard) {
		if !amount.IsZero() {
			return false
		}
	}
	return true
}
