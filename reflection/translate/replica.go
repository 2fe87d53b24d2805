// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// ReasonNameTaken is the reason of a refusal because the peer's object of the name is not ours, or
// has lost our labels. The effects of the object may exist at the peer.
const ReasonNameTaken = "NameTaken"

// replica returns the metadata of a copy of one of our own kinds. Labels and annotations are
// written once; later they belong to the peer.
func (v View) replica(home, remote metav1.ObjectMeta) metav1.ObjectMeta {
	if remote.Name != "" {
		return remote
	}
	local := func(key string) bool { return strings.HasPrefix(key, "ctl.liqo.io/") || staysAnnotation(key) }
	labels := without(home.Labels, local)
	maps.Copy(labels, map[string]string{
		api.LabelReplication:     "false",
		api.LabelReplicated:      api.True,
		api.LabelOriginID:        v.Consumer,
		api.LabelRemoteClusterID: v.Consumer,
	})
	return metav1.ObjectMeta{
		Name:        home.Name,
		Namespace:   v.Namespaces[home.Namespace],
		Labels:      labels,
		Annotations: without(home.Annotations, local),
	}
}

// ResourceSlice pushes the request of a slice.
func ResourceSlice(home, remote *authv1beta1.ResourceSlice, v View) *authv1beta1.ResourceSlice {
	out := copyOf(remote)
	out.ObjectMeta = v.replica(home.ObjectMeta, out.ObjectMeta)
	if remote == nil {
		out.Annotations[api.AnnotationFeatures] = api.FeatureStandardConditions
	}
	home.Spec.DeepCopyInto(&out.Spec)
	return out
}

// ResourceSliceStatus pulls the peer's answer, or its refusal of the slice. An earlier answer stays
// if the copy has none yet (it was just recreated), or one that is too large.
func ResourceSliceStatus(home, remote *authv1beta1.ResourceSlice, v View) (*authv1beta1.ResourceSlice, error) {
	out := home.DeepCopy()
	var err error
	if remote != nil && slices.ContainsFunc(remote.Status.Conditions, isAnswer) {
		status := *remote.Status.DeepCopy()
		status.Conditions, status.Node = answered(home, remote), status.Node.Bounded()
		if err = fits(status); err == nil {
			out.Status = status
		}
	}
	out.Status.Conditions = v.replicated(out.Status.Conditions)
	return out, err
}

// answers lists the types of conditions that a provider writes.
var answers = []authv1beta1.ResourceSliceConditionType{authv1beta1.ResourceSliceAuthentication,
	authv1beta1.ResourceSliceResources}

func isAnswer(c authv1beta1.ResourceSliceCondition) bool { return slices.Contains(answers, c.Type) }

// answered merges the peer's answers into the conditions of a slice. The other conditions belong to
// this cluster.
func answered(home, remote *authv1beta1.ResourceSlice) []authv1beta1.ResourceSliceCondition {
	out := slices.Clone(home.Status.Conditions)
	for _, answer := range answers {
		is := func(c authv1beta1.ResourceSliceCondition) bool { return c.Type == answer }
		at, from := slices.IndexFunc(out, is), slices.IndexFunc(remote.Status.Conditions, is)
		if from < 0 {
			out = slices.DeleteFunc(out, is)
			continue
		}
		given := remote.Status.Conditions[from]
		given.Reason, given.Message = api.Printable(given.Reason), api.Printable(given.Message)
		given.ObservedGeneration = observed(home, remote, given)
		if at < 0 {
			out = append(out, given)
		} else {
			out[at] = given
		}
	}
	return out
}

// observed returns the generation of the home object that the peer's answer is about. The two
// objects count generations separately. An answer is about the present home generation if the copy
// has the home spec and the answer is about the copy's present generation. Otherwise it is about an
// earlier one.
func observed(home, remote *authv1beta1.ResourceSlice, given authv1beta1.ResourceSliceCondition) int64 {
	current := given.ObservedGeneration == remote.Generation
	if given.ObservedGeneration == 0 { // a peer that names none
		current = !grantsOther(remote, given)
	}
	if current && equality.Semantic.DeepEqual(home.Spec, remote.Spec) {
		return home.Generation
	}
	return home.Generation - 1
}

// grantsOther reports whether the granted amounts differ from the requested ones. A provider grants
// requests of the default class unchanged, so a difference shows that it has not observed the
// change. For another class, that class's controller decides.
func grantsOther(remote *authv1beta1.ResourceSlice, given authv1beta1.ResourceSliceCondition) bool {
	if given.Type != authv1beta1.ResourceSliceResources || given.Status != authv1beta1.ResourceSliceAccepted ||
		remote.Spec.Class != "" && remote.Spec.Class != api.DefaultResourceSliceClass {
		return false
	}
	for name, asked := range remote.Spec.Resources {
		if granted, ok := remote.Status.Resources[name]; !ok || granted.Cmp(asked) != 0 {
			return true
		}
	}
	return false
}

// replicated sets the condition that the peer refuses a slice, or removes it.
func (v View) replicated(conditions []authv1beta1.ResourceSliceCondition) []authv1beta1.ResourceSliceCondition {
	at := slices.IndexFunc(conditions, func(c authv1beta1.ResourceSliceCondition) bool {
		return c.Type == authv1beta1.ResourceSliceReplicated
	})
	if v.RefusalUnknown {
		return conditions
	}
	if v.Refusal == nil {
		if at >= 0 {
			conditions = slices.Delete(slices.Clone(conditions), at, at+1)
		}
		return conditions
	}
	refused := authv1beta1.ResourceSliceCondition{
		Type: authv1beta1.ResourceSliceReplicated, Status: authv1beta1.ResourceSliceFalse,
		Reason: authv1beta1.ReasonProviderRefuses, LastTransitionTime: v.Refusal.LastTransitionTime,
		Message: v.refusal(),
	}
	if at < 0 {
		return append(slices.Clone(conditions), refused)
	}
	refused.LastTransitionTime = conditions[at].LastTransitionTime
	conditions = slices.Clone(conditions)
	conditions[at] = refused
	return conditions
}

// Renew pushes the request of a renewal.
func Renew(home, remote *authv1beta1.Renew, v View) *authv1beta1.Renew {
	out := copyOf(remote)
	out.ObjectMeta = v.replica(home.ObjectMeta, out.ObjectMeta)
	home.Spec.DeepCopyInto(&out.Spec)
	return out
}

// RenewStatus pulls the new credentials. Earlier ones stay if the copy has no answer, or one that
// is too large.
func RenewStatus(home, remote *authv1beta1.Renew, _ View) (*authv1beta1.Renew, error) {
	if remote == nil || remote.Status.AuthParams == nil {
		return home, nil
	}
	if err := fits(remote.Status); err != nil {
		return home, err
	}
	out := home.DeepCopy()
	remote.Status.DeepCopyInto(&out.Status)
	return out, nil
}

// NamespaceMap pushes the desired namespaces.
func NamespaceMap(home, remote *offv1beta1.NamespaceMap, v View) *offv1beta1.NamespaceMap {
	out := copyOf(remote)
	out.ObjectMeta = v.replica(home.ObjectMeta, out.ObjectMeta)
	home.Spec.DeepCopyInto(&out.Spec)
	return out
}

// NamespaceMapStatus pulls the namespaces that exist at the provider. If it refuses the map, it has
// none: when the map is deleted there (a drain), its namespaces are deleted, too. If the map does
// not exist yet, or lacks our labels, nothing is known. A refused namespace that is no longer
// desired blocks nothing.
func NamespaceMapStatus(home, remote *offv1beta1.NamespaceMap, v View) *offv1beta1.NamespaceMap {
	out := home.DeepCopy()
	taken := v.Refusal != nil && v.Refusal.Reason == ReasonNameTaken
	if remote == nil && taken {
		meta.SetStatusCondition(&out.Status.Conditions, v.stalled())
	}
	if remote == nil && (v.RefusalUnknown || taken) {
		maps.DeleteFunc(out.Status.CurrentMapping, func(namespace string, s offv1beta1.RemoteNamespaceStatus) bool {
			_, wanted := home.Spec.DesiredMapping[namespace]
			return !wanted && s.Phase == offv1beta1.NamespaceCreationLoopBackOff
		})
		return out
	}
	out.Status = offv1beta1.NamespaceMapStatus{}
	switch {
	case remote != nil:
		out.Status = offv1beta1.NamespaceMapStatus{CurrentMapping: mapped(home, remote),
			Conditions: standing(remote.Status.Conditions)}
	case v.Refusal != nil:
		out.Status.Conditions = home.DeepCopy().Status.Conditions
		meta.SetStatusCondition(&out.Status.Conditions, v.stalled())
		out.Status.CurrentMapping = map[string]offv1beta1.RemoteNamespaceStatus{}
		for namespace, name := range home.Spec.DesiredMapping {
			out.Status.CurrentMapping[namespace] = offv1beta1.RemoteNamespaceStatus{RemoteNamespace: name,
				Phase: offv1beta1.NamespaceCreationLoopBackOff}
		}
	}
	return out
}

// mapped returns the remote namespaces that the consumer has requested: the desired ones, and
// earlier ones until the provider has deleted them. A name that the consumer did not choose must be
// a valid name of a namespace.
func mapped(home, remote *offv1beta1.NamespaceMap) map[string]offv1beta1.RemoteNamespaceStatus {
	out := maps.Clone(remote.Status.CurrentMapping)
	maps.DeleteFunc(out, func(namespace string, s offv1beta1.RemoteNamespaceStatus) bool {
		name, wished := home.Spec.DesiredMapping[namespace]
		shown, known := home.Status.CurrentMapping[namespace]
		asked := s.RemoteNamespace == "" || s.RemoteNamespace == name || s.RemoteNamespace == shown.RemoteNamespace
		return !wished && !known || !asked && len(validation.IsDNS1123Label(s.RemoteNamespace)) > 0 ||
			!slices.Contains(phases, s.Phase)
	})
	return out
}

// phases lists the valid phases of a remote namespace. One that is about to be created has none
// yet.
var phases = []offv1beta1.NamespacePhase{
	"", offv1beta1.NamespaceAccepted, offv1beta1.NamespaceCreationLoopBackOff, offv1beta1.NamespaceTerminating,
}

// standing returns the standard conditions of a provider's object, one of each, with the beginnings
// of their messages.
func standing(conditions []metav1.Condition) []metav1.Condition {
	var out []metav1.Condition
	for _, t := range []string{desired.ConditionReady, desired.ConditionReconciling, desired.ConditionStalled} {
		if c := meta.FindStatusCondition(conditions, t); c != nil {
			shown := *c
			shown.Reason, shown.Message = api.Printable(c.Reason), api.Printable(c.Message)
			out = append(out, shown)
		}
	}
	return out
}

// stalled returns the condition that the peer refuses a NamespaceMap, with what users can do about
// it.
func (v View) stalled() metav1.Condition {
	return metav1.Condition{
		Type: desired.ConditionStalled, Status: metav1.ConditionTrue,
		Reason: v.Refusal.Reason, LastTransitionTime: v.Refusal.LastTransitionTime, Message: v.refusal(),
	}
}

// refusal returns the message for users about a refusal. The peer's API server writes a part of it.
func (v View) refusal() string {
	if v.Refusal.Reason == ReasonNameTaken {
		return api.Printable(fmt.Sprintf("%s has an object of that name in the tenant namespace that is not this "+
			"cluster's: %s; its administrator can delete it",
			v.Provider, v.Refusal.Message))
	}
	return api.Printable(fmt.Sprintf("%s refuses it: %s; its administrator can change that, a drain with 'liqoctl "+
		"activate tenant %s'",
		v.Provider, v.Refusal.Message, v.Consumer))
}
