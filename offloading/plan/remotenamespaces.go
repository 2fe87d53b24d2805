// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// RemoteNamespacesInput holds a consumer's NamespaceMap, and the provider's namespaces and
// settings.
type RemoteNamespacesInput struct {
	// Root is the map, replicated here by the consumer.
	Root *offloadingv1beta1.NamespaceMap
	// Tenant is the map's namespace. Its label identifies the consumer; the map's own labels are
	// written by the consumer and prove nothing.
	Tenant corev1.Namespace
	// Namespaces are the cluster's namespaces by name: at least those that the map requests and
	// those created for it.
	Namespaces map[string]corev1.Namespace
	// Tenants are the cluster IDs of all consumers.
	Tenants []string
	// LiqoNamespace is the namespace of the installation, and StorageNamespace holds the claims
	// behind Liqo's storage class.
	LiqoNamespace, StorageNamespace string
	// Names are the patterns of names that consumers may use.
	Names NamePatterns
	// PodSecurity is the Pod Security level of namespaces that have none; empty sets none.
	PodSecurity string
	// Bounds are the limits in each namespace of a consumer.
	Bounds NamespaceBounds
}

// NamePatterns holds patterns of names, as in path.Match. A name is refused if it matches one of
// Denied, or if Allowed is not empty and it matches none of these.
type NamePatterns struct{ Allowed, Denied []string }

// Check returns an error for a pattern that cannot be matched.
func (n NamePatterns) Check() error {
	for _, pattern := range slices.Concat(n.Allowed, n.Denied) {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	return nil
}

// refuse returns why a consumer may not use a name, or empty.
func (n NamePatterns) refuse(name string) string {
	matches := func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	}
	switch {
	case slices.ContainsFunc(n.Denied, matches):
		return "the value offloading.namespaces.denied denies it"
	case len(n.Allowed) > 0 && !slices.ContainsFunc(n.Allowed, matches):
		return "no pattern of the value offloading.namespaces.allowed allows it"
	}
	return ""
}

// RemoteNamespaces plans the namespaces that a consumer's map requests, each with the role binding
// of the consumer's virtual kubelets. Namespaces are created, never taken over, and only those
// created for this map are changed or deleted. If a namespace of the name exists, or belongs to
// another entry of the map, the entry waits until that is gone. A namespace whose entry changes to
// another local namespace is deleted and created again. Reserved names, and those meant for another
// consumer, are refused even if they are free. The consumer writes the map in NamespaceMap.
func RemoteNamespaces(in RemoteNamespacesInput) desired.Plan {
	origin := in.Tenant.Labels[api.LabelRemoteClusterID]
	p := desired.Plan{}
	var failed []string
	current := map[string]offloadingv1beta1.RemoteNamespaceStatus{}
	taken := map[string]bool{}
	for _, local := range slices.Sorted(maps.Keys(in.Root.Spec.DesiredMapping)) {
		remote := in.Root.Spec.DesiredMapping[local]
		if in.Root.DeletionTimestamp != nil {
			break
		}
		phase, refusal := in.phase(origin, local, remote, taken[remote])
		current[local] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: remote, Phase: phase}
		taken[remote] = true
		switch phase {
		case offloadingv1beta1.NamespaceCreationLoopBackOff:
			failed = append(failed, fmt.Sprintf("%s: %s", remote, refusal))
		case offloadingv1beta1.NamespaceTerminating: // nothing can be written into it
		default:
			in.grant(&p, origin, local, remote)
		}
	}
	if len(failed) > 0 {
		p.Verdict = desired.Wait("NamespaceNotFree",
			"not given to the consumer: %s; have it offload under other names, or make these free here",
			strings.Join(failed, ", ")).Verdict
	}
	obsolete := in.obsolete(current)
	for _, namespace := range obsolete { // Kubernetes deletes the binding after the pods, which the consumer observes
		p.Preserve = append(p.Preserve, in.binding(origin, namespace.GetName()))
	}
	deletions := desired.Deletes(obsolete...)
	p.Actions = append(p.Actions, deletions...)
	if in.Root.DeletionTimestamp != nil {
		if len(deletions) == 0 {
			return desired.Plan{}
		}
		w := desired.Wait("NamespacesTerminating",
			"waiting for the namespaces of the consumer to be emptied; look at what holds them with 'kubectl "+
				"describe namespace'")
		w.Actions = deletions
		p = w
	}
	p.Status = &offloadingv1beta1.NamespaceMap{Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: current}}
	return p
}

// phase returns the phase of a requested namespace, and why it is refused. The phase is empty for
// one to be created. A local namespace keeps the remote one that it has; a free name goes to the
// first entry that requests it.
func (in RemoteNamespacesInput) phase(origin, local, remote string, taken bool) (phase offloadingv1beta1.NamespacePhase,
	refusal string) {
	const refused = offloadingv1beta1.NamespaceCreationLoopBackOff
	ns, exists := in.Namespaces[remote]
	holder := ns.Annotations[api.AnnotationOriginalName]
	switch {
	case origin == "":
		return refused, "nothing says whose the map is"
	case len(validation.IsDNS1123Label(remote)) > 0:
		return refused, "it is no name of a namespace"
	case exists && !in.ours(ns):
		return refused, "it exists"
	case !exists && in.reserved(origin, remote) != "":
		return refused, in.reserved(origin, remote)
	case exists && !in.requested(ns):
		return offloadingv1beta1.NamespaceTerminating, ""
	case holder != local && (holder != "" || taken):
		return refused, "another namespace of the consumer has it"
	case exists && ns.DeletionTimestamp != nil:
		return offloadingv1beta1.NamespaceTerminating, ""
	case exists:
		return offloadingv1beta1.NamespaceAccepted, ""
	}
	return "", ""
}

// reserved returns why this consumer may not have a name that is free, or empty. Some names have a
// meaning in every cluster: who may write in such a namespace could read another tenant's keys, or
// act as the cluster. A name that ends in a consumer's ID is meant for that consumer, who gets it
// by default. If several IDs fit, the first to request it gets it.
func (in RemoteNamespacesInput) reserved(origin, name string) string {
	switch {
	case name == in.LiqoNamespace, name == in.StorageNamespace, name == api.StorageNamespace,
		name == metav1.NamespaceDefault,
		strings.HasPrefix(name, "kube-"), strings.HasPrefix(name, api.TenantNamespacePrefix):
		return "it is reserved"
	case strings.HasSuffix(name, "-"+origin):
		return in.Names.refuse(name)
	}
	for _, other := range in.Tenants {
		if strings.HasSuffix(name, "-"+other) {
			return fmt.Sprintf("it is meant for the consumer %q", other)
		}
	}
	return in.Names.refuse(name)
}

// ours reports whether a namespace was created for this map.
func (in RemoteNamespacesInput) ours(ns corev1.Namespace) bool {
	return ns.Annotations[api.AnnotationManagedByNamespaceMap] == api.ManagedByNamespaceMap(in.Root.Namespace,
		in.Root.Name)
}

// requested reports whether the map still requests a namespace for the local namespace that it was
// created for.
func (in RemoteNamespacesInput) requested(ns corev1.Namespace) bool {
	holder := ns.Annotations[api.AnnotationOriginalName]
	for local, remote := range in.Root.Spec.DesiredMapping {
		if remote == ns.Name && (holder == local || holder == "") {
			return in.Root.DeletionTimestamp == nil
		}
	}
	return false
}

// grant plans a requested namespace and the objects in it. The namespace is created or, if it was
// created for this map, patched; it is never pruned. The role binding follows when the namespace is
// observed: somebody else may create one of that name at the same moment.
func (in RemoteNamespacesInput) grant(p *desired.Plan, origin, local, remote string) {
	ns, exists := in.Namespaces[remote]
	wanted := in.namespace(origin, local, remote)
	if !exists {
		p.Objects = append(p.Objects, wanted)
		p.Events = append(p.Events, desired.Event{Object: wanted, Reason: "NamespaceCreated", Message: fmt.Sprintf(
			"cluster %q has namespace %s here for its namespace %s, until it is no longer offloaded here", origin,
			remote, local)})
		return
	}
	changed := ns.DeepCopy()
	changed.Labels = labels.Merge(ns.Labels, wanted.Labels)
	changed.Annotations = labels.Merge(ns.Annotations, wanted.Annotations)
	if !equality.Semantic.DeepEqual(changed, &ns) {
		p.Actions = append(p.Actions, desired.Action{Verb: desired.Merge, Before: &ns, Object: changed})
	}
	p.Objects = append(append(p.Objects, in.Bounds.objects(remote)...), in.binding(origin, remote))
}

// binding returns the role binding of the consumer's virtual kubelets in a remote namespace.
func (in RemoteNamespacesInput) binding(origin, remote string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name:        in.Root.Namespace,
			Namespace:   remote,
			Annotations: map[string]string{api.AnnotationManagedByNamespaceMap: in.Root.Namespace + "/" + in.Root.Name},
		},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: api.ClusterRoleVirtualKubeletRemote},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: origin}},
	}
}

// podSecurityLabel is the label for the Pod Security level that the API server enforces in a
// namespace: https://kubernetes.io/docs/concepts/security/pod-security-admission/
const podSecurityLabel = "pod-security.kubernetes.io/enforce"

// namespace returns a requested namespace. A Pod Security level that somebody has set stays.
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

// obsolete returns the namespaces created for this map that it does not request any more. It adds
// them to current as terminating, under their local names, until they are gone.
func (in RemoteNamespacesInput) obsolete(current map[string]offloadingv1beta1.RemoteNamespaceStatus) []desired.Object {
	var gone []desired.Object
	for _, name := range slices.Sorted(maps.Keys(in.Namespaces)) {
		ns := in.Namespaces[name]
		if !in.ours(ns) || in.requested(ns) {
			continue
		}
		gone = append(gone, &ns)
		if local := ns.Annotations[api.AnnotationOriginalName]; current[local].RemoteNamespace == "" {
			current[local] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: name,
				Phase: offloadingv1beta1.NamespaceTerminating}
		}
	}
	return gone
}
