// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/offloading/plan"
)

// TestReadmitPod shows that a client which applies the tolerations of its manifest does not remove
// the one that admission added.
func TestReadmitPod(t *testing.T) {
	own, given := corev1.Toleration{Key: "own", Operator: corev1.TolerationOpExists}, api.VirtualNodeToleration()
	all := corev1.Toleration{Operator: corev1.TolerationOpExists}
	for name, c := range map[string]struct{ old, changed, want []corev1.Toleration }{
		"left out":  {[]corev1.Toleration{own, given}, []corev1.Toleration{own}, []corev1.Toleration{own, given}},
		"kept":      {[]corev1.Toleration{given}, []corev1.Toleration{given, own}, []corev1.Toleration{given, own}},
		"covered":   {[]corev1.Toleration{given}, []corev1.Toleration{all}, []corev1.Toleration{all, given}},
		"never had": {[]corev1.Toleration{own}, nil, nil},
	} {
		old, changed := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: c.old}}, &corev1.Pod{Spec: corev1.PodSpec{Tolerations: c.changed}}
		if diff := cmp.Diff(c.want, plan.ReadmitPod(changed, old).Spec.Tolerations); diff != "" {
			t.Errorf("%s: tolerations (-want +got):\n%s", name, diff)
		}
	}
}
