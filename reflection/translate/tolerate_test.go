// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// TestTolerateLeavesWhatItReads: what a pod has is an object of the cache.
func TestTolerateLeavesWhatItReads(t *testing.T) {
	lasting := func(seconds int64) []corev1.Toleration {
		return []corev1.Toleration{{
			Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
		}}
	}
	has := lasting(300)
	if diff := cmp.Diff(lasting(20), tolerate(has, lasting(20), nil)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(lasting(300), has); diff != "" {
		t.Error(diff)
	}
}
