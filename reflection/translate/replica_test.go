// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/reflection/translate"
)

// TestAnswersOfSlices: the answers come back, and nothing else that the provider says of its copy;
// that it refuses the slice is said until it no longer does.
func TestAnswersOfSlices(t *testing.T) {
	type conditions = []authv1beta1.ResourceSliceCondition
	authenticated := authv1beta1.ResourceSliceCondition{Type: authv1beta1.ResourceSliceAuthentication, Status: authv1beta1.ResourceSliceAccepted}
	ready := authv1beta1.ResourceSliceCondition{Type: "Ready", Status: "True"}
	unready := authv1beta1.ResourceSliceCondition{Type: "Ready", Status: "False", Reason: "TenantNotFound"}
	refused := authv1beta1.ResourceSliceCondition{
		Type: authv1beta1.ResourceSliceReplicated, Status: "False", Reason: "ProviderRefuses",
		Message: "milan refuses it: forbidden; its administrator can change that, a drain with 'liqoctl activate tenant rome'",
	}
	for _, test := range []struct {
		name               string
		home, remote, want conditions
		refusal            *metav1.Condition
		unsaid             bool
	}{
		{name: "answered", home: conditions{ready}, remote: conditions{unready, authenticated}, want: conditions{ready, authenticated}},
		{name: "made anew", home: conditions{ready, authenticated}, remote: conditions{unready}, want: conditions{ready, authenticated}},
		{name: "drained", home: conditions{ready, authenticated}, want: conditions{ready, authenticated, refused}, refusal: &metav1.Condition{Message: "forbidden"}},
		{name: "drained and away", home: conditions{ready, authenticated, refused}, want: conditions{ready, authenticated, refused}, unsaid: true},
		{name: "activated", home: conditions{ready, refused}, remote: conditions{authenticated}, want: conditions{ready, authenticated}},
	} {
		home, remote := &authv1beta1.ResourceSlice{}, &authv1beta1.ResourceSlice{}
		home.Status.Conditions, remote.Status.Conditions = test.home, test.remote
		home.Status.AuthParams = &authv1beta1.AuthParams{APIServer: "https://milan"}
		remote.Status.AuthParams = home.Status.AuthParams
		if len(test.remote) == 1 && test.remote[0].Type == "Ready" {
			remote.Status.AuthParams = nil
		}
		view := translate.View{Consumer: "rome", Provider: "milan", Refusal: test.refusal, RefusalUnknown: test.unsaid}
		got, _ := translate.ResourceSliceStatus(home, remote, view)
		if diff := cmp.Diff(test.want, got.Status.Conditions); diff != "" || got.Status.AuthParams == nil {
			t.Errorf("%s: credentials %v, conditions (-want +got):\n%s", test.name, got.Status.AuthParams, diff)
		}
	}
}

// TestAMapIsAnsweredByWhoRefusesIt: its namespaces are not at the provider then. While nothing is
// known they are where they were.
func TestAMapIsAnsweredByWhoRefusesIt(t *testing.T) {
	type mapping = map[string]offv1beta1.RemoteNamespaceStatus
	accepted := mapping{"shop": {RemoteNamespace: "shop-rome", Phase: offv1beta1.NamespaceAccepted}}
	for _, test := range []struct {
		name string
		copy *offv1beta1.NamespaceMap
		view translate.View
		want mapping
	}{
		{"answered", &offv1beta1.NamespaceMap{Status: offv1beta1.NamespaceMapStatus{CurrentMapping: accepted}}, translate.View{}, accepted},
		{"made anew", nil, translate.View{}, nil},
		{"drained", nil, translate.View{Refusal: &metav1.Condition{Message: "forbidden"}},
			mapping{"shop": {RemoteNamespace: "shop-rome", Phase: offv1beta1.NamespaceCreationLoopBackOff}}},
		{"away", nil, translate.View{RefusalUnknown: true}, accepted},
		{"without our mark", nil, translate.View{Refusal: &metav1.Condition{Reason: translate.ReasonNameTaken}}, accepted},
	} {
		home := &offv1beta1.NamespaceMap{}
		home.Spec.DesiredMapping = map[string]string{"shop": "shop-rome"}
		home.Status.CurrentMapping = accepted
		if diff := cmp.Diff(test.want, translate.NamespaceMapStatus(home, test.copy, test.view).Status.CurrentMapping); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// TestRefusedNamespaceIsLetGo: a provider that refused a namespace and then went away does not hold
// it.
func TestRefusedNamespaceIsLetGo(t *testing.T) {
	home := &offv1beta1.NamespaceMap{}
	home.Spec.DesiredMapping = map[string]string{"wanted": "wanted-rome"}
	home.Status.CurrentMapping = map[string]offv1beta1.RemoteNamespaceStatus{
		"wanted": {Phase: offv1beta1.NamespaceCreationLoopBackOff}, "refused": {Phase: offv1beta1.NamespaceCreationLoopBackOff},
		"there": {Phase: offv1beta1.NamespaceAccepted},
	}
	got := translate.NamespaceMapStatus(home, nil, translate.View{RefusalUnknown: true}).Status.CurrentMapping
	if _, held := got["refused"]; held || len(got) != 2 {
		t.Errorf("what stands is %v", got)
	}
}

// TestCopyOfASliceAnnouncesWhatItsConsumerKnows when it is made; later its annotations are the
// provider's.
func TestCopyOfASliceAnnouncesWhatItsConsumerKnows(t *testing.T) {
	home := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "big", Namespace: "here"}}
	view := translate.View{Consumer: "rome", Provider: "milan", Namespaces: map[string]string{"here": "there"}}
	made := translate.ResourceSlice(home, nil, view)
	if got := made.Annotations[api.AnnotationFeatures]; got != api.FeatureStandardConditions {
		t.Errorf("features %q", got)
	}
	made.Annotations = nil
	if again := translate.ResourceSlice(home, made, view); again.Annotations != nil {
		t.Errorf("annotations are written again: %v", again.Annotations)
	}
}

// TestAttackAnswerToAnotherRequest: a consumer changes a slice, and its provider shows an answer that it gave to
// the former request: before it has the change, before it has read it, or without saying which it means.
//
// Outcome: the answer comes back as one to an earlier generation than the slice's, so that it is not taken for
// the answer to the change. An answer of a provider that names no generation counts once the amounts are as asked.
func TestAttackAnswerToAnotherRequest(t *testing.T) {
	asks := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
	for _, test := range []struct {
		name                     string
		asked, copied, granted   string
		class                    string
		copyGeneration, answered int64
		want                     int64
	}{
		{name: "answered", asked: "20", copied: "20", granted: "20", copyGeneration: 2, answered: 2, want: 5},
		{name: "answered in another unit", asked: "20", copied: "20000m", granted: "20", copyGeneration: 2, answered: 2, want: 5},
		{name: "answered with less", asked: "20", copied: "20", granted: "4", copyGeneration: 2, answered: 2, want: 5},
		{name: "not copied", asked: "20", copied: "4", granted: "4", copyGeneration: 1, answered: 1, want: 4},
		{name: "not read", asked: "20", copied: "20", granted: "4", copyGeneration: 2, answered: 1, want: 4},
		{name: "not said", asked: "20", copied: "20", granted: "4", copyGeneration: 2, want: 4},
		{name: "not said but as asked", asked: "20", copied: "20", granted: "20", copyGeneration: 2, want: 5},
		{name: "not said of another class", asked: "20", copied: "20", granted: "4", class: "gold", copyGeneration: 2, want: 5},
		{name: "not copied of another class", asked: "20", copied: "4", granted: "4", class: "gold", copyGeneration: 1, want: 4},
	} {
		home, remote := &authv1beta1.ResourceSlice{}, &authv1beta1.ResourceSlice{}
		home.Generation, remote.Generation = 5, test.copyGeneration
		home.Spec = authv1beta1.ResourceSliceSpec{Class: test.class, Resources: asks(test.asked)}
		remote.Spec = authv1beta1.ResourceSliceSpec{Class: test.class, Resources: asks(test.copied)}
		remote.Status.Resources = asks(test.granted)
		remote.Status.Conditions = []authv1beta1.ResourceSliceCondition{{
			Type: authv1beta1.ResourceSliceResources, Status: authv1beta1.ResourceSliceAccepted, ObservedGeneration: test.answered,
		}}
		got, _ := translate.ResourceSliceStatus(home, remote, translate.View{})
		if is := got.Status.Conditions[0].ObservedGeneration; is != test.want {
			t.Errorf("%s: the answer is about generation %d, want %d", test.name, is, test.want)
		}
	}
}

// TestAttackStatusOfAnySize: a provider answers with more than was asked for: namespaces nobody wished, names no
// namespace can have, conditions of its own, and messages, credentials or labels of 1 MiB.
//
// Outcome: a NamespaceMap shows at most 300 bytes for each namespace it wishes and the beginnings of three messages.
// A ResourceSlice or a Renew keeps its last answer if the new one has more than 64 KiB, and an event says so.
func TestAttackStatusOfAnySize(t *testing.T) {
	type mapping = map[string]offv1beta1.RemoteNamespaceStatus
	text := strings.Repeat("x", 1<<20)
	size := func(status any) int {
		out, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		return len(out)
	}
	longest := strings.Repeat("n", 63)
	home, remote := &offv1beta1.NamespaceMap{}, &offv1beta1.NamespaceMap{}
	home.Spec.DesiredMapping = map[string]string{longest: longest + "-" + longest, "shop": "shop-rome"}
	home.Status.CurrentMapping = mapping{"old": {RemoteNamespace: "old-rome", Phase: offv1beta1.NamespaceAccepted}}
	loop, ends := offv1beta1.NamespaceCreationLoopBackOff, offv1beta1.NamespaceTerminating
	remote.Status.CurrentMapping = mapping{
		longest: {RemoteNamespace: longest + "-" + longest, Phase: loop}, "old": {RemoteNamespace: "old-rome", Phase: ends},
		"shop": {RemoteNamespace: text, Phase: loop}, "stranger": {RemoteNamespace: "stranger-rome", Phase: loop},
	}
	for _, c := range []string{desired.ConditionStalled, desired.ConditionStalled, desired.ConditionReady, "Example"} {
		remote.Status.Conditions = append(remote.Status.Conditions, metav1.Condition{Type: c, Reason: text, Message: text})
	}
	got := translate.NamespaceMapStatus(home, remote, translate.View{})
	want := mapping{longest: remote.Status.CurrentMapping[longest], "old": remote.Status.CurrentMapping["old"]}
	if diff := cmp.Diff(want, got.Status.CurrentMapping); diff != "" {
		t.Error(diff)
	}
	if n := size(mapping{longest: got.Status.CurrentMapping[longest]}); n > 300 {
		t.Errorf("a namespace takes %d bytes", n)
	}
	if n := len(got.Status.Conditions); n != 2 || size(got.Status) > 20<<10 {
		t.Errorf("a map has %d conditions and %d bytes", n, size(got.Status))
	}
	remote.Status.CurrentMapping["shop"] = offv1beta1.RemoteNamespaceStatus{RemoteNamespace: "shop-rome", Phase: "Gone"}
	if _, shown := translate.NamespaceMapStatus(home, remote, translate.View{}).Status.CurrentMapping["shop"]; shown {
		t.Error("a phase that no namespace has is shown")
	}
	refused := &metav1.Condition{Reason: "ProviderRefuses", Message: text}
	if n := size(translate.NamespaceMapStatus(home, nil, translate.View{Refusal: refused}).Status); n > 6<<10 {
		t.Errorf("the refusal of a map takes %d bytes", n)
	}

	answer := authv1beta1.ResourceSliceCondition{Type: authv1beta1.ResourceSliceResources, Status: authv1beta1.ResourceSliceAccepted, Reason: text, Message: text}
	slice, answered := &authv1beta1.ResourceSlice{}, &authv1beta1.ResourceSlice{}
	slice.Status.NodeLabels = map[string]string{"zone": "a"}
	answered.Status.Conditions = []authv1beta1.ResourceSliceCondition{answer}
	answered.Status.NodeLabels = map[string]string{"zone": "b"}
	out, err := translate.ResourceSliceStatus(slice, answered, translate.View{})
	if n := size(out.Status); err != nil || n > 9<<10 || out.Status.NodeLabels["zone"] != "b" {
		t.Errorf("an answer with a long message takes %d bytes (%v)", n, err)
	}
	answered.Status.Node = &authv1beta1.NodeFacts{DeclaredFeatures: []string{text}, Architectures: []string{text, "x86_64"}, OSImage: text}
	out, _ = translate.ResourceSliceStatus(slice, answered, translate.View{})
	facts := &authv1beta1.NodeFacts{Architectures: []string{"x86_64"}, OSImage: api.Printable(text)}
	if diff := cmp.Diff(facts, out.Status.Node, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what the provider's nodes are (-want +got):\n%s", diff)
	}
	answered.Status.NodeLabels["zone"] = text
	out, err = translate.ResourceSliceStatus(slice, answered, translate.View{Refusal: refused})
	if n := size(out.Status); err == nil || n > 6<<10 || out.Status.NodeLabels["zone"] != "a" {
		t.Errorf("a large answer takes %d bytes (%v)", n, err)
	}
	renew, renewed := &authv1beta1.Renew{}, &authv1beta1.Renew{}
	renewed.Status.AuthParams = &authv1beta1.AuthParams{CA: []byte(text)}
	if out, err := translate.RenewStatus(renew, renewed, translate.View{}); err == nil || out.Status.AuthParams != nil {
		t.Errorf("a large renewal is taken (%v)", err)
	}
	renewed.Status.AuthParams.CA = []byte(text[:32<<10])
	if out, err := translate.RenewStatus(renew, renewed, translate.View{}); err != nil || out.Status.AuthParams == nil {
		t.Errorf("a renewal with a long bundle is not taken (%v)", err)
	}
}
