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

// RemoteNamespacesInput is a consumer's map as its provider sees it.
type RemoteNamespacesInput struct {
	// Root is the map; only copies (those another cluster put here) are carried out.
	Root *offloadingv1beta1.NamespaceMap
	// Tenant is the map's namespace. Its label says whose the map is: the map's own labels are
	// written by the consumer and prove nothing.
	Tenant corev1.Namespace
	// Namespaces are the cluster's, by name: at least those the map wishes and those made for it.
	Namespaces map[string]corev1.Namespace
	// Tenants are the cluster IDs of all consumers.
	Tenants []string
	// LiqoNamespace is where Liqo is installed, and StorageNamespace holds the volumes of its storage class.
	LiqoNamespace, StorageNamespace string
	// Names are the names that are given away.
	Names NamePatterns
	// PodSecurity is the Pod Security level of namespaces that have none; empty sets none.
	PodSecurity string
	// Bounds are those of every namespace made for a consumer.
	Bounds NamespaceBounds
}

// NamePatterns are patterns of names, as in path.Match. A name that matches one of Denied is refused, and one that
// matches none of Allowed, if there are any.
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

// refuse returns why a name is not given away, or empty.
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

// RemoteNamespaces plans the namespaces a consumer's map asks for, each with the binding that
// lets the consumer's virtual nodes work there. A namespace that exists and was not made for
// this map is never touched: its entry backs off until it goes. So does the entry that wishes what another
// one has; what was made for one that wishes it no more goes before it is made for the next. Names that
// mean something in every cluster, or for another consumer, are never given away, whether they are free or not.
// Namespaces are created, never taken over. Only a namespace made for this map is deleted. The consumer writes the map
// in NamespaceMap.
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
	unwished := desired.Deletes(in.unwished(current)...)
	p.Actions = append(p.Actions, unwished...)
	if in.Root.DeletionTimestamp != nil {
		if len(unwished) == 0 {
			return desired.Plan{}
		}
		w := desired.Wait("NamespacesTerminating",
			"waiting for the namespaces of the consumer to be emptied; look at what holds them with 'kubectl "+
				"describe namespace'")
		w.Actions = unwished
		p = w
	}
	p.Status = &offloadingv1beta1.NamespaceMap{Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: current}}
	return p
}

// phase is how a wished namespace stands, and why it is refused; the empty phase is one about to be created. Who has
// it keeps it, and of those that wish one nobody has the first gets it.
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
	case exists && !in.wished(ns):
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

// reserved returns why a name that is free is not this consumer's, or empty. Some have, or will have, a meaning here:
// who may write in such a namespace could read another tenant's keys, or act as the cluster. One that ends in a
// consumer's ID is meant for that consumer, who gets it by default. Where several IDs fit, who asks first has it.
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

func (in RemoteNamespacesInput) ours(ns corev1.Namespace) bool {
	return ns.Annotations[api.AnnotationManagedByNamespaceMap] == api.ManagedByNamespaceMap(in.Root.Namespace,
		in.Root.Name)
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

// grant plans what a wished namespace consists of. A namespace is created or, if it was made for this map, patched;
// nothing prunes namespaces. The consumer is bound once the namespace is seen: if somebody else creates one of that
// name meanwhile, it is not theirs.
func (in RemoteNamespacesInput) grant(p *desired.Plan, origin, local, remote string) {
	ns, exists := in.Namespaces[remote]
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name:        in.Root.Namespace,
			Namespace:   remote,
			Annotations: map[string]string{api.AnnotationManagedByNamespaceMap: in.Root.Namespace + "/" + in.Root.Name},
		},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: api.ClusterRoleVirtualKubeletRemote},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: origin}},
	}
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
	p.Objects = append(append(p.Objects, in.Bounds.objects(remote)...), binding)
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
func (in RemoteNamespacesInput) unwished(current map[string]offloadingv1beta1.RemoteNamespaceStatus) []desired.Object {
	var gone []desired.Object
	for _, name := range slices.Sorted(maps.Keys(in.Namespaces)) {
		ns := in.Namespaces[name]
		if !in.ours(ns) || in.wished(ns) {
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
