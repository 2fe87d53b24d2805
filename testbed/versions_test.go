// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// A go.mod of another version replaces what lies in Kubernetes' own folder staging/, and takes the etcd that
// Kubernetes is tested with.
func TestGoMod(t *testing.T) {
	var kubernetes kubernetesModule
	if err := json.Unmarshal([]byte(`{
		"Go": "1.26.0",
		"Godebug": [{"Key": "default", "Value": "go1.26"}],
		"Require": [{"Path": "go.etcd.io/etcd/client/v3", "Version": "v3.6.8"}, {"Path": "k8s.io/api", "Version": "v0.0.0"}],
		"Replace": [{"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}}]
	}`), &kubernetes); err != nil {
		t.Fatal(err)
	}
	got := goMod(release{version: "1.36.3"}, kubernetes)
	for _, line := range []string{
		"go 1.26.0", "godebug default=go1.26", "require k8s.io/kubernetes v1.36.3", "require go.etcd.io/etcd/server/v3 v3.6.8",
		"replace k8s.io/api => k8s.io/api v0.36.3", "tool k8s.io/kubernetes/cmd/kubelet", "tool go.etcd.io/etcd/server/v3",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("lacks the line %q:\n%s", line, got)
		}
	}
}

// Programs of each release have a folder, a go.mod and a version stamped into them of their own.
func TestReleasesAreApart(t *testing.T) {
	bed := Testbed{Repo: "/repo", Cache: "/cache"}
	seen := map[string]string{}
	for _, r := range releases {
		for _, a := range kubernetesArtifacts(r) {
			for _, where := range []string{a.out, bed.moduleDir(a.module) + " " + a.pkg} {
				if other := seen[where]; other != "" {
					t.Errorf("%s is of %s and %s", where, other, r.version)
				}
				seen[where] = r.version
			}
			if flag := "gitVersion=v" + r.version + " "; !strings.Contains(a.ldflags(), flag) {
				t.Errorf("%s of %s is not built with %s", a.name, r.version, flag)
			}
		}
	}
	if dir := bed.moduleDir(defaultRelease().module()); dir != "/repo/testbed/kubernetes" {
		t.Errorf("the default is built in %s", dir)
	}
}
