// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package desired

import "testing"

// TestDegradedIsReportedOfACompletePlan instead of Ready; a plan that is not complete has its own
// word.
func TestDegradedIsReportedOfACompletePlan(t *testing.T) {
	t.Parallel()
	degraded := Wait("ProviderDenied", "ask its administrator").Verdict
	complete, waiting, plain := Plan{Degraded: degraded}, Wait("CertificatePending", "look at the signer"), Plan{}
	waiting.Degraded = degraded
	for _, test := range []struct {
		plan Plan
		want Verdict
	}{{complete, degraded}, {waiting, waiting.Verdict}, {plain, Verdict{}}} {
		if got := test.plan.Reported(); got != test.want {
			t.Errorf("reported %+v, want %+v", got, test.want)
		}
	}
}
