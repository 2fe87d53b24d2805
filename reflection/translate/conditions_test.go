// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/reflection/translate"
)

// podConditions reads "Type=Status" pairs. Disruptions are by the kubelet.
func podConditions(text string) []corev1.PodCondition {
	var out []corev1.PodCondition
	for pair := range strings.FieldsSeq(text) {
		name, status, _ := strings.Cut(pair, "=")
		c := corev1.PodCondition{Type: corev1.PodConditionType(name), Status: corev1.ConditionStatus(status)}
		if c.Type == corev1.DisruptionTarget {
			c.Reason = corev1.PodReasonTerminationByKubelet
		}
		out = append(out, c)
	}
	return out
}

func conditionText(all []corev1.PodCondition) string {
	var out []string
	for _, c := range all {
		out = append(out, fmt.Sprintf("%s=%s", c.Type, c.Status))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestAttackReadinessGateOfProvider: a provider reports conditions that controllers of the consumer set: a pod's
// readiness gate, so that Services send it traffic too early or never, a condition of another controller, or the end
// of a disruption.
//
// Outcome: only conditions of kubelets and schedulers come from the provider. The gate is true, false or missing as
// the consumer's controller left it, and all others stay as they are.
func TestAttackReadinessGateOfProvider(t *testing.T) {
	const gate = "example.com/in-balancer"
	for name, c := range map[string]struct{ home, says, want string }{
		"opens it":                    {"", gate + "=True Ready=True", "Ready=False"},
		"opens a closed one":          {gate + "=False", gate + "=True Ready=True", "Ready=False example.com/in-balancer=False"},
		"closes it":                   {gate + "=True", gate + "=False Ready=True", "Ready=True example.com/in-balancer=True"},
		"a type twice":                {gate + "=True", "Ready=False Ready=True", "Ready=False example.com/in-balancer=True"},
		"another controller's":        {"Drained=False example.com/x=True", "Drained=True example.com/x=False", "Drained=False example.com/x=True"},
		"one nobody has set":          {"", "Drained=True pod.alpha.kubernetes.io/initialized=True", ""},
		"ends a disruption":           {"DisruptionTarget=True", "DisruptionTarget=False", "DisruptionTarget=True"},
		"leaves all out":              {gate + "=True PodScheduled=True DisruptionTarget=True", "", "DisruptionTarget=True PodScheduled=True example.com/in-balancer=True"},
		"a kubelet reports":           {"PodScheduled=True Ready=True", "PodScheduled=True Ready=False ContainersReady=False", "ContainersReady=False PodScheduled=True Ready=False"},
		"a kubelet evicts":            {"", "DisruptionTarget=True", "DisruptionTarget=True"},
		"a scheduler reports":         {"PodScheduled=True", "PodScheduled=False", "PodScheduled=False"},
		"a kubelet no longer reports": {"PodResizePending=True", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			home := webPod()
			home.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
			home.Status.Conditions = podConditions(c.home)
			alike(t, "conditions", c.want, conditionText(pulledFrom(home, corev1.PodStatus{Conditions: podConditions(c.says)}).Status.Conditions))
		})
	}
}

// TestAttackReadinessGateByRefusal: a provider removes a pod and refuses to make it anew, so that the consumer says of
// all its conditions that they are not true.
//
// Outcome: the pod has no place and is not ready. Its readiness gate stays as the consumer's controller left it.
func TestAttackReadinessGateByRefusal(t *testing.T) {
	home := webPod()
	home.Status.Conditions = podConditions("example.com/in-balancer=True Ready=True PodScheduled=True")
	out := translate.PodStatus(home, nil, nil, translate.View{
		Namespaces: map[string]string{"shop": "shop-rome"}, Refusal: &metav1.Condition{Message: "exceeded quota"},
	})
	alike(t, "conditions", "PodScheduled=False Ready=False example.com/in-balancer=True", conditionText(out.Status.Conditions))
}

// TestAttackClaimConditions: a provider reports conditions of a claim that controllers of the consumer set, and
// messages as long as an API server takes.
//
// Outcome: the consumer shows how the volume grows, with the beginning of the message. All other conditions of the
// claim stay as they are.
func TestAttackClaimConditions(t *testing.T) {
	claim := func(conditions ...corev1.PersistentVolumeClaimCondition) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Finalizers: []string{api.ClaimFinalizer("milan")}},
			Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Conditions: conditions},
		}
	}
	long := strings.Repeat("x", 1<<20)
	resizing := corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimResizing, Message: long, Status: corev1.ConditionStatus(long)}
	out := translate.ClaimStatus(
		claim(corev1.PersistentVolumeClaimCondition{Type: corev1.PersistentVolumeClaimNodeResizeError}, corev1.PersistentVolumeClaimCondition{Type: "example.com/backed-up", Status: "False"}),
		claim(corev1.PersistentVolumeClaimCondition{Type: "example.com/backed-up", Status: "True"}, corev1.PersistentVolumeClaimCondition{Type: "Unused"}, resizing, resizing),
		translate.View{Provider: "milan"})
	resizing.Message, resizing.Status = resizing.Message[:4<<10], resizing.Status[:4<<10]
	alike(t, "conditions", []corev1.PersistentVolumeClaimCondition{{Type: "example.com/backed-up", Status: "False"}, resizing}, out.Status.Conditions)
}
