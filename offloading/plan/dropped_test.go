// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/offloading/plan"
)

// TestDroppedFields: a pod that loses a field is made, and its ShadowPod says so; without the source of
// a volume, none is made.
func TestDroppedFields(t *testing.T) {
	t.Parallel()
	for field, refused := range map[string]bool{
		"spec.volumes.newer":                   true,
		"spec.volumes.projected.sources.newer": true,
		"spec.volumes.projected.newer":         false,
		"spec.containers.newer":                false,
	} {
		in := plan.ShadowPodInput{Root: &offloadingv1beta1.ShadowPod{}, Now: now, Dropped: []string{field}}
		p := plan.ShadowPod(in)
		if made := len(p.Objects) == 1; made == refused || refused != (p.State == desired.Blocked) {
			t.Errorf("%s: a pod is made: %t, %v", field, made, p.Verdict)
		}
		if p.RequeueAfter == 0 {
			t.Errorf("%s: is not planned again after an upgrade, which no event tells of", field)
		}
		if p.Degraded.Reason != api.ReasonFieldsDropped {
			t.Errorf("%s: %+v", field, p.Degraded)
		}
	}
}
