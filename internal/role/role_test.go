// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package role

import (
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// TestEachRoleTakesVerbosity: the chart's extraArgs are given to all roles, and --v=4 is what users
// give there.
func TestEachRoleTakesVerbosity(t *testing.T) {
	t.Cleanup(func() { _ = Root().PersistentFlags().Set("v", "0") })
	ran := false
	cmd := Root(&cobra.Command{Use: "proxy", Args: cobra.NoArgs, Run: func(*cobra.Command, []string) { ran = true }})
	cmd.SetArgs([]string{"proxy", "--v=4"})
	if err := cmd.Execute(); err != nil || !ran || !klog.V(4).Enabled() || klog.V(5).Enabled() {
		t.Errorf("proxy --v=4: %v, ran %t, verbosity 4 %t, 5 %t", err, ran, klog.V(4).Enabled(), klog.V(5).Enabled())
	}
}
