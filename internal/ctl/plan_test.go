// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import "testing"

// TestWhatACompletePlanLacksIsTold instead of Ready; a plan that is not complete has its own word.
func TestWhatACompletePlanLacksIsTold(t *testing.T) {
	t.Parallel()
	lacks := Wait("ProviderDenied", "ask its administrator").Verdict
	complete, waiting, plain := Plan{Lacks: lacks}, Wait("CertificatePending", "look at the signer"), Plan{}
	waiting.Lacks = lacks
	for _, test := range []struct {
		plan Plan
		want Verdict
	}{{complete, lacks}, {waiting, waiting.Verdict}, {plain, Verdict{}}} {
		if got := test.plan.told(); got != test.want {
			t.Errorf("told %+v, want %+v", got, test.want)
		}
	}
}
