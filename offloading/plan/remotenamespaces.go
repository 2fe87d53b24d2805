// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
)

// RemoteNamespacesInput is a consumer's map as its provider sees it.
type RemoteNamespacesInput struct {
	// Root is the map; only copies (those another cluster put here) are carried out.
	Root *offloadingv1beta1.NamespaceMap
	// Tenant is the map's namespace. Its label says whose the map is: the map's own labels are
	// written by the consumer and prove nothing.
	Tenant corev1.Namespace
	// Namespaces are the cluster's, by name: at least those the map wishes and those made for it.
	Namespaces map[string]corev1.Namespace
	// LiqoNamespace is where Liqo is installed.
	LiqoNamespace string
	// PodSecurity is the Pod Security level of namespaces that have none; empty sets none.
	PodSecurity string
}

// RemoteNamespaces plans the namespaces a consumer's map asks for, each with the binding that
// lets the consumer's virtual nodes work there. A namespace that exists and was not made for
// this map is never touched: its entry backs off until it goes. So does the entry that wishes what another
// one has; what was made for one that wishes it no more goes before it is made for the next. Names that
// mean something in every cluster are never given away, whether they are free or not. Only a namespace
// made for this map is deleted.
func RemoteNamespaces(in RemoteNamespacesInput) ctl.Plan {
	origin := in.Tenant.Labels[api.LabelRemoteClusterID]
	p := ctl.Plan{}
	var failed []string
	current := map[string]offloadingv1beta1.RemoteNamespaceStatus{}
	taken := map[string]bool{}
	for _, local := range slices.Sorted(maps.Keys(in.Root.Spec.DesiredMapping)) {
		remote := in.Root.Spec.DesiredMapping[local]
		if in.Root.DeletionTimestamp != nil {
			break
		}
		phase := in.phase(origin, local, remote, taken[remote])
		current[local] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: remote, Phase: phase}
		taken[remote] = true
		switch phase {
		case offloadingv1beta1.NamespaceCreationLoopBackOff:
			failed = append(failed, remote)
		case offloadingv1beta1.NamespaceTerminating: // nothing can be written into it
		default:
			p.Objects = append(p.Objects, in.objects(origin, local, remote)...)
		}
	}
	if len(failed) > 0 {
		p.Verdict = ctl.Wait("NamespaceNotFree", "%s exist already, are reserved or are no names; remove them here, or have the consumer offload under other names",
			strings.Join(failed, ", ")).Verdict
	}
	p.Delete = in.unwished(current)
	if in.Root.DeletionTimestamp != nil {
		if len(p.Delete) == 0 {
			return ctl.Plan{}
		}
		w := ctl.Wait("NamespacesTerminating", "waiting for the namespaces of the consumer to be emptied; look at what holds them with 'kubectl describe namespace'")
		w.Delete = p.Delete
		p = w
	}
	p.Status = &offloadingv1beta1.NamespaceMap{Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: current}}
	return p
}

// phase is how a wished namespace stands; the empty phase is one about to be created. Who has it keeps it, and
// of those that wish one nobody has the first gets it.
func (in RemoteNamespacesInput) phase(origin, local, remote string, taken bool) offloadingv1beta1.NamespacePhase {
	ns, exists := in.Namespaces[remote]
	holder := ns.Annotations[api.AnnotationOriginalName]
	switch {
	case origin == "" || in.reserved(remote) || len(validation.IsDNS1123Label(remote)) > 0 || exists && !in.ours(ns):
		return offloadingv1beta1.NamespaceCreationLoopBackOff
	case exists && !in.wished(ns):
		return offloadingv1beta1.NamespaceTerminating
	case holder != local && (holder != "" || taken):
		return offloadingv1beta1.NamespaceCreationLoopBackOff
	case exists && ns.DeletionTimestamp != nil:
		return offloadingv1beta1.NamespaceTerminating
	case exists:
		return offloadingv1beta1.NamespaceAccepted
	}
	return ""
}

// reserved reports whether a namespace of this name has, or will have, a meaning here: who may
// write in it could read another tenant's keys, or act as the cluster.
func (in RemoteNamespacesInput) reserved(name string) bool {
	return name == in.LiqoNamespace || name == api.StorageNamespace || name == metav1.NamespaceDefault ||
		strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, api.TenantNamespacePrefix)
}

func (in RemoteNamespacesInput) ours(ns corev1.Namespace) bool {
	return ns.Annotations[api.AnnotationManagedByNamespaceMap] == api.ManagedByNamespaceMap(in.Root.Namespace, in.Root.Name)
}

// wished reports whether a namespace made for this map is wished for what it was made for.
func (in RemoteNamespacesInput) wished(ns corev1.Namespace) bool {
	holder := ns.Annotations[api.AnnotationOriginalName]
	for local, remote := range in.Root.Spec.DesiredMapping {
		if remote == ns.Name && (holder == local || holder == "") {
			return in.Root.DeletionTimestamp == nil
		}
	}
	return false
}

// objects are what a wished namespace consists of. A namespace that is as it should be is not
// named: nothing prunes namespaces, and only those made for this map are ever deleted.
func (in RemoteNamespacesInput) objects(origin, local, remote string) []client.Object {
	ns, exists := in.Namespaces[remote]
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name:        in.Root.Namespace,
			Namespace:   remote,
			Annotations: map[string]string{api.AnnotationManagedByNamespaceMap: in.Root.Namespace + "/" + in.Root.Name},
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: api.ClusterRoleVirtualKubeletRemote},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: origin}},
	}
	if exists && ns.Labels[api.LabelRemoteClusterID] == origin && ns.Annotations[api.AnnotationOriginalName] == local &&
		(ns.Labels[podSecurityLabel] != "" || in.PodSecurity == "") {
		return []client.Object{binding}
	}
	return []client.Object{in.namespace(origin, local, remote), binding}
}

// podSecurityLabel is the level of pods the API server admits to a namespace:
// https://kubernetes.io/docs/concepts/security/pod-security-admission/
const podSecurityLabel = "pod-security.kubernetes.io/enforce"

// namespace is a wished namespace. A Pod Security level somebody chose for it stays.
func (in RemoteNamespacesInput) namespace(origin, local, remote string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name:   remote,
		Labels: map[string]string{api.LabelRemoteClusterID: origin},
		Annotations: map[string]string{
			api.AnnotationManagedByNamespaceMap: in.Root.Namespace + "/" + in.Root.Name,
			api.AnnotationOriginalName:          local,
		},
	}}
	if level := cmp.Or(in.Namespaces[remote].Labels[podSecurityLabel], in.PodSecurity); level != "" {
		ns.Labels[podSecurityLabel] = level
	}
	return ns
}

// unwished are the namespaces made for this map that it no longer wishes. They are reported as
// terminating under their original name until they are gone.
func (in RemoteNamespacesInput) unwished(current map[string]offloadingv1beta1.RemoteNamespaceStatus) []client.Object {
	var gone []client.Object
	for _, name := range slices.Sorted(maps.Keys(in.Namespaces)) {
		ns := in.Namespaces[name]
		if !in.ours(ns) || in.wished(ns) {
			continue
		}
		gone = append(gone, &ns)
		if local := ns.Annotations[api.AnnotationOriginalName]; current[local].RemoteNamespace == "" {
			current[local] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: name, Phase: offloadingv1beta1.NamespaceTerminating}
		}
	}
	return gone
}
