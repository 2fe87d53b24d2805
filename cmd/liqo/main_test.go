// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestTheTrafficRolesLinkLittle names packages that must not be linked: each would cost every
// process that carries traffic tens of megabytes, and add code that must not run with NET_ADMIN.
// The protobuf library alone makes the linker keep every method of every type.
func TestTheTrafficRolesLinkLittle(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("list dependencies: %v", err)
	}
	heavy := regexp.MustCompile(`^(sigs\.k8s\.io/controller-runtime|k8s\.io/client-go/(kubernetes|discovery|informers)|google\.golang\.org/protobuf|github\.com/prometheus/)`)
	for _, dependency := range strings.Fields(string(out)) {
		if heavy.MatchString(dependency) {
			t.Errorf("command liqo links %s; 'go list -deps' and docs/decisions/0007 help", dependency)
		}
	}
}
