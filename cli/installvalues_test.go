// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/cli/values"

	"github.com/liqo-go/liqo/api"
)

// TestPodRanges: the pods' ranges that the user sets, also by the deprecated value, override those
// that were read from the cluster.
func TestPodRanges(t *testing.T) {
	chart, err := embeddedChart()
	if err != nil {
		t.Fatal(err)
	}
	network := regexp.MustCompile(`name: pod-cidr[^\n]*\n(?:[^-].*\n)*? +cidr: "?([^"\n]*)`)
	for set, want := range map[string][]string{
		"tag=v2":                   {kubeadmPods},
		"ipam.podCIDR=10.1.0.0/16": {"10.1.0.0/16"},
		"ipam.podCIDRs={10.2.0.0/16,10.3.0.0/16}":              {"10.2.0.0/16", "10.3.0.0/16"},
		"ipam.podCIDR=10.1.0.0/16,ipam.podCIDRs={10.2.0.0/16}": {"10.2.0.0/16"},
		"ipam.podCIDR=10.1.0.0/16,ipam.podCIDRs=null":          {"10.1.0.0/16"},
	} {
		o := &installOptions{provider: "kubeadm", values: values.Options{Values: []string{set}}}
		vals, err := o.merged(facts{id: "rome", pods: []string{kubeadmPods}, services: kubeadmServices})
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := render(t.Context(), api.Namespace, chart, vals)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, found := range network.FindAllStringSubmatch(manifest, -1) {
			got = append(got, found[1])
		}
		slices.Sort(got) // Networks are in the order of their names
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("--set %s (-want +got):\n%s", set, diff)
		}
		if diff := cmp.Diff(want, podCIDRs(vals)); diff != "" {
			t.Errorf("--set %s is checked as another range (-want +got):\n%s", set, diff)
		}
	}
}
