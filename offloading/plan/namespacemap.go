// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
)

// NamespaceMapInput is what a consumer wants of one provider.
type NamespaceMapInput struct {
	// ClusterID is this cluster.
	ClusterID string
	// Namespace is any namespace; only a tenant namespace gets a map.
	Namespace corev1.Namespace
	// VirtualNodes are those in the namespace.
	VirtualNodes []offloadingv1beta1.VirtualNode
	// Nodes are the cluster's virtual nodes by name; they may carry labels users added. While one is missing, those
	// count that it had: what lies at the provider does not go because a Node was deleted.
	Nodes map[string]corev1.Node
	// Offloadings are all of the cluster.
	Offloadings []offloadingv1beta1.NamespaceOffloading
}

// NamespaceMap plans the one map a tenant namespace has while it has virtual nodes: the
// namespaces of this cluster that are extended to that peer, with their names there. It is
// planned whole from all requests, so no two writers meet in it. In these namespaces the virtual kubelets of the peer
// may read what pods mount.
func NamespaceMap(in NamespaceMapInput) ctl.Plan {
	peer := in.Namespace.Labels[api.LabelRemoteClusterID]
	if in.Namespace.Labels[api.LabelTenantNamespace] != api.True || peer == "" || len(in.VirtualNodes) == 0 {
		return ctl.Plan{}
	}
	m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Name:      peer,
		Namespace: in.Namespace.Name,
		Labels: map[string]string{
			api.LabelReplication:     api.True,
			api.LabelRemoteID:        peer,
			api.LabelRemoteClusterID: peer,
		},
	}}
	m.Spec.DesiredMapping = map[string]string{}
	for _, o := range in.Offloadings {
		if o.DeletionTimestamp == nil && selectsAny(o.Spec, in.VirtualNodes, in.Nodes) {
			m.Spec.DesiredMapping[o.Namespace] = RemoteNamespaceName(o.Namespace, o.Spec, in.ClusterID)
		}
	}
	p := ctl.Plan{Objects: []client.Object{m}}
	var kubelets []rbacv1.Subject
	for i := range in.VirtualNodes {
		kubelets = append(kubelets, kubeletAccount(&in.VirtualNodes[i]))
	}
	for _, namespace := range slices.Sorted(maps.Keys(m.Spec.DesiredMapping)) {
		p.Objects = append(p.Objects, offloadedRights(namespace, in.Namespace.Name, peer, kubelets...))
	}
	return p
}

// Extended tells to which providers namespaces are extended: cluster IDs by namespace. Nodes are the
// cluster's virtual nodes by name.
func Extended(offloadings []offloadingv1beta1.NamespaceOffloading, vns []offloadingv1beta1.VirtualNode, nodes map[string]corev1.Node) map[string][]string {
	providers := map[string][]offloadingv1beta1.VirtualNode{}
	for _, vn := range vns {
		providers[vn.Spec.ClusterID] = append(providers[vn.Spec.ClusterID], vn)
	}
	out := map[string][]string{}
	for _, o := range offloadings {
		for _, id := range slices.Sorted(maps.Keys(providers)) {
			if o.DeletionTimestamp == nil && selectsAny(o.Spec, providers[id], nodes) {
				out[o.Namespace] = append(out[o.Namespace], id)
			}
		}
	}
	return out
}

// RemoteNamespaceName is the name of the namespace's counterpart at providers.
func RemoteNamespaceName(namespace string, spec offloadingv1beta1.NamespaceOffloadingSpec, clusterID string) string {
	switch spec.NamespaceMappingStrategy {
	case offloadingv1beta1.EnforceSameNameMapping:
		return namespace
	case offloadingv1beta1.SelectedNameMapping:
		return spec.RemoteNamespaceName
	}
	return api.RemoteNamespaceName(namespace, clusterID)
}

func selectsAny(spec offloadingv1beta1.NamespaceOffloadingSpec, vns []offloadingv1beta1.VirtualNode, nodes map[string]corev1.Node) bool {
	for i := range vns {
		set := merged(usersLabels(&vns[i]), NodeLabels(&vns[i]))
		if node, there := nodes[vns[i].Name]; there {
			set = merged(NodeLabels(&vns[i]), node.Labels)
		}
		if Selects(selectorTerms(spec), vns[i].Name, set) {
			return true
		}
	}
	return false
}

// NodeLabels are the labels of a virtual node's Node, those of the provider and the user last, but
// never in place of what makes the Node a virtual one.
func NodeLabels(vn *offloadingv1beta1.VirtualNode) map[string]string {
	set := map[string]string{
		corev1.LabelHostname:   vn.Name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
		"kubernetes.io/role":   "agent",
		"type":                 "virtual-kubelet",
	}
	maps.Copy(set, vn.Spec.Labels)
	maps.Copy(set, map[string]string{
		api.LabelType:                    api.TypeVirtualNode,
		api.LabelRemoteClusterID:         vn.Spec.ClusterID,
		api.LabelStorageAvailable:        strconv.FormatBool(len(vn.Spec.StorageClasses) > 0),
		corev1.LabelNodeExcludeBalancers: api.True,
		"alpha.service-controller.kubernetes.io/exclude-balancer": api.True,
	})
	return set
}
