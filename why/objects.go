// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/view"
)

// Cluster holds what is known of one cluster.
type Cluster struct {
	// ID is the cluster ID; empty if the user may not read it.
	ID string
	// Objects are those that may concern the subject, of any kind. Their order decides which of
	// several equal causes is named.
	Objects []runtime.Object
	// Unread lists the kinds that the user may not read, as kubectl takes them. What they would
	// tell counts as unknown, not as missing.
	Unread []string
	// Used holds, by the name of a virtual node, what pods on it request; nil = not known.
	Used map[string]corev1.ResourceList
}

// Input holds what an answer is made from.
type Input struct {
	Subject
	// Local is the user's own cluster.
	Local Cluster
	// Remote is another cluster that the user can read; nil = none.
	Remote *Cluster
}

// object is a pointer to a typed object.
type object interface {
	runtime.Object
	metav1.Object
}

// all returns the objects of a type.
func all[T object](c *Cluster) (out []T) {
	for _, o := range c.Objects {
		if typed, ok := o.(T); ok {
			out = append(out, typed)
		}
	}
	return out
}

// first returns the first object of a type that fits; nil if there is none.
func first[T object](c *Cluster, fits func(T) bool) (none T) {
	found := all[T](c)
	if i := slices.IndexFunc(found, fits); i >= 0 {
		return found[i]
	}
	return none
}

// named returns the object of a type with this name; nil if there is none.
func named[T object](c *Cluster, namespace, name string) T {
	return first(c, func(o T) bool { return o.GetNamespace() == namespace && o.GetName() == name })
}

// ofPeer returns the objects of a type that concern a peer.
func ofPeer[T object](c *Cluster, peer string) []T {
	return slices.DeleteFunc(all[T](c), func(o T) bool { return o.GetLabels()[api.LabelRemoteClusterID] != peer })
}

// mayRead reports whether the user may read a kind.
func (c *Cluster) mayRead(kind string) bool { return !slices.Contains(c.Unread, kind) }

// fieldNotReflected is the reason of the event about a field that does not reach a provider. It is
// written once for a field in a namespace, about the first object that sets it, and keeps nothing from
// working.
const fieldNotReflected = "FieldNotReflected"

// warning returns the message of the latest warning event about an object; empty if there is none.
func (c *Cluster) warning(kind, namespace, name string) string {
	var latest *corev1.Event
	for _, e := range all[*corev1.Event](c) {
		about := e.InvolvedObject
		if e.Type == corev1.EventTypeWarning && e.Reason != fieldNotReflected && about.Kind == kind &&
			about.Namespace == namespace && about.Name == name &&
			(latest == nil || !view.EventTime(e).Before(view.EventTime(latest))) {
			latest = e
		}
	}
	if latest == nil {
		return ""
	}
	return strings.TrimPrefix(latest.Reason+": "+latest.Message, ": ")
}

// peer returns the ForeignCluster of a peer; nil if there is none.
func (c *Cluster) peer(id string) *corev1beta1.ForeignCluster {
	return first(c, func(f *corev1beta1.ForeignCluster) bool { return f.Spec.ClusterID == id })
}

// virtualNodes returns the Nodes of virtual nodes.
func (c *Cluster) virtualNodes() []*corev1.Node {
	return slices.DeleteFunc(all[*corev1.Node](c), func(n *corev1.Node) bool { return !isVirtual(n) })
}

func isVirtual(n *corev1.Node) bool { return n.Labels[api.LabelType] == api.TypeVirtualNode }

// virtualNode returns the VirtualNode of a Node; nil if there is none.
func (c *Cluster) virtualNode(name string) *offv1beta1.VirtualNode {
	return first(c, func(v *offv1beta1.VirtualNode) bool { return v.Name == name })
}

// slice returns the ResourceSlice from which a virtual node was made; nil if there is none.
func (c *Cluster) slice(v *offv1beta1.VirtualNode) *authv1beta1.ResourceSlice {
	if v == nil {
		return nil
	}
	return named[*authv1beta1.ResourceSlice](c, v.Namespace, v.Labels[api.LabelResourceSliceName])
}

// namespaceMap returns the NamespaceMap that this cluster has made for a provider; nil if there is
// none.
func (c *Cluster) namespaceMap(provider string) *offv1beta1.NamespaceMap {
	return first(c, func(m *offv1beta1.NamespaceMap) bool {
		return m.Labels[api.LabelRemoteClusterID] == provider && m.Labels[api.LabelReplicated] != api.True
	})
}

// offloading returns the NamespaceOffloading of a namespace that is not being deleted; nil if there
// is none.
func (c *Cluster) offloading(namespace string) *offv1beta1.NamespaceOffloading {
	o := named[*offv1beta1.NamespaceOffloading](c, namespace, api.NamespaceOffloadingName)
	if o != nil && o.DeletionTimestamp != nil {
		return nil
	}
	return o
}

// podCondition returns a condition of a pod; nil if it is absent.
func podCondition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// unmet returns what the first of some conditions reports that is not true; empty if all are, or
// are absent.
func unmet(conditions []metav1.Condition, kinds ...string) string {
	for _, kind := range kinds {
		if c := meta.FindStatusCondition(conditions, kind); c != nil && c.Status != metav1.ConditionTrue {
			return cmp.Or(c.Message, c.Reason, kind+" is "+string(c.Status))
		}
	}
	return ""
}

// tunnelProblem returns what the Connections to a peer report; empty if they work or there are
// none.
func (c *Cluster) tunnelProblem(peer string) string {
	for _, connection := range ofPeer[*netv1beta1.Connection](c, peer) {
		if problem := unmet(connection.Status.Conditions, netv1beta1.ConnectionGatewayRunning,
			netv1beta1.ConnectionProgrammed, "Ready"); problem != "" {
			return problem
		}
		if connection.Status.Value == netv1beta1.ConnectionError {
			return "the tunnel does not work"
		}
	}
	return ""
}
