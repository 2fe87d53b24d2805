// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// NamespaceMapInput holds the input for the NamespaceMap of one provider.
type NamespaceMapInput struct {
	// ClusterID is this cluster's ID.
	ClusterID string
	// Namespace is any namespace; only a tenant namespace gets a map.
	Namespace corev1.Namespace
	// VirtualNodes holds the virtual nodes in the namespace, without those that are Drained.
	VirtualNodes []offloadingv1beta1.VirtualNode
	// Nodes are the Nodes of virtual nodes by name, with labels of users. While a Node is missing,
	// its former labels count, so that deleting a Node deletes nothing at the provider.
	Nodes map[string]corev1.Node
	// Offloadings are all NamespaceOffloadings of the cluster.
	Offloadings []offloadingv1beta1.NamespaceOffloading
	// Current is the map as it was applied last; nil before there is one.
	Current *offloadingv1beta1.NamespaceMap
	// HoldVolumes says which namespaces of Deselected have volumes at the provider.
	HoldVolumes map[string]bool
	// Ending holds the namespaces that are being deleted, with what Held returns for each whose
	// NamespaceOffloading is being deleted, too.
	Ending map[string][]string
}

// annotationSelectors of a NamespaceMap holds, for each namespace, a hash of the cluster selector
// that matched.
const annotationSelectors = "offloading.liqo.io/selectors"

// keepInterval is how often a namespace that stays mapped because of its volumes is checked for
// these.
const keepInterval = 30 * time.Second

// Deselected returns the mapped namespaces whose cluster selector does not match any more because
// labels have changed. They stay mapped while they hold volumes: changes of labels, by the provider
// or others, must not delete data. A user who changes the selector may; liqoctl names the volumes
// and asks.
func (in NamespaceMapInput) Deselected() []string {
	var out []string
	for _, o := range in.Offloadings {
		selected := selectsAny(o.Spec, in.VirtualNodes, in.Nodes)
		if o.DeletionTimestamp == nil && !selected && matchedBefore(in.Current, &o) {
			out = append(out, o.Namespace)
		}
	}
	return out
}

// matchedBefore reports whether a namespace is mapped because its current cluster selector once
// matched.
func matchedBefore(m *offloadingv1beta1.NamespaceMap, o *offloadingv1beta1.NamespaceOffloading) bool {
	if m == nil || m.Spec.DesiredMapping[o.Namespace] == "" {
		return false
	}
	matched, err := labels.ConvertSelectorToLabelsMap(m.Annotations[annotationSelectors])
	return err == nil && matched[o.Namespace] == hash(selectorTerms(o.Spec))
}

// NamespaceMap plans the map of a tenant namespace with virtual nodes: the namespaces that are
// offloaded to that provider, with their remote names. One controller computes it from all
// NamespaceOffloadings, so it has one writer. In these namespaces the peer's virtual kubelets may
// read the Secrets and ConfigMaps of pods. The provider acts on its replica of the map in
// RemoteNamespaces. A namespace that is being deleted leaves the map with its NamespaceOffloading, unless
// users' finalizers hold it; an annotation names it as long as the provider has the remote one.
func NamespaceMap(in NamespaceMapInput) desired.Plan {
	peer := in.Namespace.Labels[api.LabelRemoteClusterID]
	if in.Namespace.Labels[api.LabelTenantNamespace] != api.True || peer == "" || len(in.VirtualNodes) == 0 {
		return desired.Plan{}
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
	p, deselected, matched := desired.Plan{Objects: []desired.Object{m}}, in.Deselected(), labels.Set{}
	held := false
	for _, o := range in.Offloadings {
		keep := in.HoldVolumes[o.Namespace] && slices.Contains(deselected, o.Namespace)
		if keep {
			p.RequeueAfter = keepInterval
		}
		if o.DeletionTimestamp != nil && len(in.Ending[o.Namespace]) > 0 && in.mapped(&o) {
			keep, held = true, true
		}
		if keep || o.DeletionTimestamp == nil && selectsAny(o.Spec, in.VirtualNodes, in.Nodes) {
			m.Spec.DesiredMapping[o.Namespace] = RemoteNamespaceName(o.Namespace, o.Spec, in.ClusterID)
			if terms := selectorTerms(o.Spec); len(terms) > 0 {
				matched[o.Namespace] = hash(terms)
			}
		}
	}
	if held {
		p.RequeueAfter = heldInterval
	}
	if len(matched) > 0 {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotationSelectors, matched.String())
	}
	if ending := in.ending(m.Spec.DesiredMapping); len(ending) > 0 {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, api.AnnotationEndingNamespaces, strings.Join(ending, ","))
	}
	var kubelets []rbacv1.Subject
	for i := range in.VirtualNodes {
		kubelets = append(kubelets, kubeletAccount(&in.VirtualNodes[i]))
	}
	for _, namespace := range slices.Sorted(maps.Keys(m.Spec.DesiredMapping)) {
		p.Objects = append(p.Objects, offloadedRights(namespace, in.Namespace.Name, peer, kubelets...))
	}
	return p
}

// mapped reports whether the map that was applied last has the namespace. If somebody has deleted the map, it
// had those that the cluster selector matches.
func (in NamespaceMapInput) mapped(o *offloadingv1beta1.NamespaceOffloading) bool {
	if in.Current == nil {
		return selectsAny(o.Spec, in.VirtualNodes, in.Nodes)
	}
	return in.Current.Spec.DesiredMapping[o.Namespace] != ""
}

// ending returns the namespaces being deleted that have left the map and may still exist at the provider.
func (in NamespaceMapInput) ending(mapping map[string]string) (ending []string) {
	if in.Current == nil {
		return nil
	}
	for _, namespace := range slices.Sorted(maps.Keys(in.Current.Status.CurrentMapping)) {
		remote := in.Current.Status.CurrentMapping[namespace]
		if _, ends := in.Ending[namespace]; ends && remote.Exists() && mapping[namespace] == "" {
			ending = append(ending, namespace)
		}
	}
	return ending
}

// Extended returns the IDs of the providers that each namespace is offloaded to. Nodes are the
// Nodes of virtual nodes by name. Current are the maps of providers, in which a namespace may be
// kept for its volumes although its selector does not match any more.
func Extended(
	offloadings []offloadingv1beta1.NamespaceOffloading, vns []offloadingv1beta1.VirtualNode,
	nodes map[string]corev1.Node, current []offloadingv1beta1.NamespaceMap,
) map[string][]string {
	providers := map[string][]offloadingv1beta1.VirtualNode{}
	for _, vn := range vns {
		providers[vn.Spec.ClusterID] = append(providers[vn.Spec.ClusterID], vn)
	}
	out := map[string][]string{}
	for _, o := range offloadings {
		for _, id := range slices.Sorted(maps.Keys(providers)) {
			kept := slices.ContainsFunc(current, func(m offloadingv1beta1.NamespaceMap) bool {
				wanted := m.Labels[api.LabelReplication] == api.True && m.Labels[api.LabelRemoteClusterID] == id
				return wanted && matchedBefore(&m, &o)
			})
			if o.DeletionTimestamp == nil && (kept || selectsAny(o.Spec, providers[id], nodes)) {
				out[o.Namespace] = append(out[o.Namespace], id)
			}
		}
	}
	return out
}

// RemoteNamespaceName returns the name of a namespace's remote namespace at providers.
func RemoteNamespaceName(namespace string, spec offloadingv1beta1.NamespaceOffloadingSpec, clusterID string) string {
	switch spec.NamespaceMappingStrategy {
	case offloadingv1beta1.EnforceSameNameMapping:
		return namespace
	case offloadingv1beta1.SelectedNameMapping:
		return spec.RemoteNamespaceName
	}
	return api.RemoteNamespaceName(namespace, clusterID)
}

// selectsAny reports whether a namespace's cluster selector matches one of the virtual nodes.
func selectsAny(spec offloadingv1beta1.NamespaceOffloadingSpec, vns []offloadingv1beta1.VirtualNode,
	nodes map[string]corev1.Node) bool {
	for i := range vns {
		set := labels.Merge(usersLabels(&vns[i]), NodeLabels(&vns[i]))
		if node, there := nodes[vns[i].Name]; there {
			set = labels.Merge(NodeLabels(&vns[i]), node.Labels)
		}
		if Selects(selectorTerms(spec), vns[i].Name, set) {
			return true
		}
	}
	return false
}

// NodeLabels returns the labels of a virtual node's Node. Those in the VirtualNode's spec replace
// defaults, but not the labels by which Liqo and Kubernetes recognize the Node.
func NodeLabels(vn *offloadingv1beta1.VirtualNode) map[string]string {
	set := map[string]string{
		corev1.LabelHostname: vn.Name,
		corev1.LabelOSStable: "linux",
		"kubernetes.io/role": "agent",
		"type":               "virtual-kubelet",
	}
	if arch := architecture(vn); arch != "" {
		set[corev1.LabelArchStable] = arch
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

// architecture returns the architecture of the provider's nodes: that of all of them, "" where they differ, and amd64
// while the provider does not tell.
func architecture(vn *offloadingv1beta1.VirtualNode) string {
	facts := vn.Spec.Node
	switch {
	case facts == nil || len(facts.Architectures) == 0:
		return "amd64"
	case len(facts.Architectures) == 1:
		return facts.Architectures[0]
	}
	return ""
}
