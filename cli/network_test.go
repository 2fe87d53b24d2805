// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// TestRangesInAnyOrder: a Configuration that names the ranges in another order is for them, and in force when the
// controller says so of what is there now.
func TestRangesInAnyOrder(t *testing.T) {
	r := ranges{pod: []string{"10.1.0.0/16", "10.10.0.0/16"}, external: []string{"10.70.0.0/16"}}
	conf := func(external string, about int64, status metav1.ConditionStatus, pods ...string) *netv1beta1.Configuration {
		c := &netv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		c.Spec.Remote = &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: pods, External: []string{external}}}
		c.Status.Conditions = []metav1.Condition{{Type: netv1beta1.NetworkCIDRsConfigured, Status: status, ObservedGeneration: about}}
		return c
	}
	for claim, c := range map[string]struct {
		of   *netv1beta1.Configuration
		want bool
	}{
		"another order":              {conf("10.70.0.0/16", 2, "True", "10.10.0.0/16", "10.1.0.0/16"), true},
		"the same order":             {conf("10.70.0.0/16", 2, "True", "10.1.0.0/16", "10.10.0.0/16"), true},
		"granted for the former":     {conf("10.70.0.0/16", 1, "True", "10.1.0.0/16", "10.10.0.0/16"), false},
		"granted for no matter what": {conf("10.70.0.0/16", 0, "True", "10.1.0.0/16", "10.10.0.0/16"), true},
		"not granted":                {conf("10.70.0.0/16", 2, "False", "10.1.0.0/16", "10.10.0.0/16"), false},
		"one is missing":             {conf("10.70.0.0/16", 2, "True", "10.10.0.0/16"), false},
		"another external range":     {conf("10.71.0.0/16", 2, "True", "10.1.0.0/16", "10.10.0.0/16"), false},
		"nothing is told":            {&netv1beta1.Configuration{}, false},
	} {
		if got := configured(c.of, r); got != c.want {
			t.Errorf("%s: %t, want %t", claim, got, c.want)
		}
	}
}
