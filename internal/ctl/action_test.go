// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/internal/desired"
)

// TestPatchesNameTheObjectThatWasRead: another one of that name is not changed, and what is as it
// should be is not written.
func TestPatchesNameTheObjectThatWasRead(t *testing.T) {
	t.Parallel()
	before := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}, Spec: corev1.PodSpec{
		SchedulingGates: []corev1.PodSchedulingGate{{Name: "ours"}, {Name: "theirs"}},
	}}
	after := before.DeepCopy()
	after.Spec.SchedulingGates = after.Spec.SchedulingGates[1:]
	for verb, want := range map[desired.Verb]string{
		desired.Merge: `{"metadata":{"uid":"1"},"spec":{"schedulingGates":[{"name":"theirs"}]}}`,
		desired.Strategic: `{"metadata":{"uid":"1"},"spec":{"$setElementOrder/schedulingGates":[{"name":"theirs"}],` +
			`"schedulingGates":[{"$patch":"delete","name":"ours"}]}}`,
	} {
		patch, err := difference(desired.Action{Verb: verb, Before: before, Object: after})
		if err != nil {
			t.Fatal(err)
		}
		if data, err := patch.Data(nil); err != nil || string(data) != want {
			t.Errorf("%s, not %s (%v)", data, want, err)
		}
		if patch, err := difference(desired.Action{Verb: verb, Before: before, Object: before.DeepCopy()}); patch != nil || err != nil {
			t.Errorf("a change of nothing is %v (%v)", patch, err)
		}
	}
}
