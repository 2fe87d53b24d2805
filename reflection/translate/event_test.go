// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/reflection/translate"
)

// TestLongMessagesAreCut: an event is shown with as much of its message as an API server takes.
func TestLongMessagesAreCut(t *testing.T) {
	v := translate.View{Involved: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web"}}
	for _, c := range []struct{ name, message, want string }{
		{"fits", strings.Repeat("a", 1015), strings.Repeat("a", 1015) + " (remote)"},
		{"as long as those of a scheduler", strings.Repeat("a", 1024), strings.Repeat("a", 763) + " … " + strings.Repeat("a", 247) + " (remote)"},
		{"output of a probe", "Liveness probe failed: cat: /live: No such file\n", "Liveness probe failed: cat: /live: No such file (remote)"},
	} {
		got := translate.Event(&corev1.Event{Reason: "FailedScheduling", Message: c.message}, nil, v).Message
		if got != c.want {
			t.Errorf("%s: %q (%d bytes), want %q", c.name, got, len(got), c.want)
		}
	}
}

// TestAttackCopiedText: a provider writes escape sequences, line breaks and a million bytes into the
// conditions of a slice and of a NamespaceMap, into its refusals and into the events of a pod.
//
// Outcome: the consumer's copies have them escaped, and cut at 1 KiB.
func TestAttackCopiedText(t *testing.T) {
	for name, hostile := range map[string]string{
		"escapes": "\x1b[2J\u202eNORMAL\u2028\nE0101 forged \u009b\xff", "long": strings.Repeat("\x1b", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			shown := api.Printable(hostile)
			slice := &authv1beta1.ResourceSlice{Status: authv1beta1.ResourceSliceStatus{Conditions: []authv1beta1.ResourceSliceCondition{
				{Type: authv1beta1.ResourceSliceResources, Status: authv1beta1.ResourceSliceDenied, Reason: hostile, Message: hostile},
			}}}
			refusal := translate.View{Provider: "milan", Consumer: "rome", Refusal: &metav1.Condition{Message: hostile}}
			status, err := translate.ResourceSliceStatus(&authv1beta1.ResourceSlice{}, slice, refusal)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range status.Status.Conditions {
				if c.Reason != shown && c.Type == authv1beta1.ResourceSliceResources || c.Message != api.Printable(c.Message) {
					t.Errorf("condition %s of a slice: %.200q: %.200q", c.Type, c.Reason, c.Message)
				}
			}
			m := &offv1beta1.NamespaceMap{Status: offv1beta1.NamespaceMapStatus{Conditions: []metav1.Condition{{Type: "Stalled", Message: hostile}}}}
			for _, remote := range []*offv1beta1.NamespaceMap{m, nil} {
				for _, c := range translate.NamespaceMapStatus(&offv1beta1.NamespaceMap{}, remote, refusal).Status.Conditions {
					if c.Message != api.Printable(c.Message) {
						t.Errorf("condition of a map: %.200q", c.Message)
					}
				}
			}
			if hostile = hostile[:min(len(hostile), 1500)]; len(hostile) > 1024 {
				shown = api.Printable(hostile + " (remote)")
			} else {
				shown += " (remote)"
			}
			event := translate.Event(&corev1.Event{Reason: hostile, Message: hostile, Source: corev1.EventSource{Component: hostile}},
				nil, translate.View{Involved: &corev1.ObjectReference{Kind: "Pod"}})
			if event.Message != shown || event.Reason != api.Printable(hostile) || event.Source.Component != api.Printable(hostile) {
				t.Errorf("event: %.200q: %.200q of %.200q", event.Reason, event.Message, event.Source.Component)
			}
		})
	}
}
