// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/internal/story"
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

// TestGatewaysTakeTheArgumentsOfTemplates parses the arguments to which templates lead, as the process
// does: an unknown flag would end it again and again. Servers listen where their Services lead.
func TestGatewaysTakeTheArgumentsOfTemplates(t *testing.T) {
	for _, stories := range []string{"../../network/testdata/*.txtar", "../../network/testdata/original/*.txtar"} {
		story.Each(t, stories, func(t *testing.T, s *story.Story) {
			var gateway corev1.Container
			for _, doc := range strings.Split(string(s.Part("workload.yaml")), "---\n")[1:] {
				var object struct {
					Name string
					Spec struct {
						Template corev1.PodTemplateSpec
						Ports    []corev1.ServicePort
					}
				}
				if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
					t.Fatal(err)
				}
				if containers := object.Spec.Template.Spec.Containers; len(containers) > 0 {
					gateway = containers[0]
				}
				if !strings.HasSuffix(object.Name, "-metrics") {
					leadTo(t, object.Spec.Ports, gateway)
				}
			}
			if len(gateway.Args) == 0 {
				t.Fatal("there is no Deployment")
			}
			listensAt(t, gateway)
		})
	}
}

// leadTo checks that a gateway listens at the targets of a Service's ports.
func leadTo(t *testing.T, ports []corev1.ServicePort, gateway corev1.Container) {
	t.Helper()
	for _, p := range ports {
		if target := p.TargetPort; target.Type != intstr.Int || !slices.Contains(listensAt(t, gateway), target.IntValue()) {
			t.Errorf("port %d leads to %s, where the gateway does not listen: %v", p.Port, &target, gateway.Args)
		}
	}
}

// listensAt parses a gateway's arguments and returns the ports it listens at; none for a client.
func listensAt(t *testing.T, gateway corev1.Container) []int {
	t.Helper()
	cmd, words, err := root().Find(gateway.Args)
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.ParseFlags(words); err != nil {
		t.Fatalf("%s: %v", gateway.Args, err)
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil || cmd.Name() != "gateway" {
		t.Fatalf("%s: command %s, %v", gateway.Args, cmd.Name(), err)
	}
	ports, err := cmd.Flags().GetIntSlice("listen-ports")
	if err != nil {
		t.Fatal(err)
	}
	return ports
}
