// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"maps"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// shortNames are those of Kubernetes 1.37.2 (`grep -rA1 'ShortNames()' pkg/registry` in k8s.io/kubernetes). kubectl
// prefers them to a singular of ours.
const shortNames = "cj cm cs csr deploy ds ep ev hpa ing ip limits netpol no ns pc pdb po pv pvc quota rc rs sa sc sts svc vac"

// operators are common ones with CRDs of the names that ours have, each with such a CRD.
var operators = map[string]string{
	"configuration": "Crossplane (configurations.pkg.crossplane.io) and Knative (configurations.serving.knative.dev)",
	"ip":            "Kube-OVN (ips.kubeovn.io)",
	"network":       "OpenShift (networks.config.openshift.io)",
	"tenant":        "Capsule (tenants.capsule.clastix.io) and the operator of MinIO (tenants.minio.min.io)",
}

// TestCommandsNameOurResources refuses commands with a name that a cluster may understand otherwise: in pages, messages
// and their goldens, kubectl gets the short or the full name of such a resource.
func TestCommandsNameOurResources(t *testing.T) {
	shared := sharedNames(t)
	for _, name := range []string{"resourceslices", "quota", "tenant"} {
		if shared[name] == "" {
			t.Errorf("nobody else has %s: %v", name, slices.Sorted(maps.Keys(shared)))
		}
	}
	out, err := exec.Command("git", "-C", "../..", "ls-files", "*.md", "*.go", "*.yaml", "*.sh", "*.html", "*.txtar", "demo/run").Output()
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, file := range strings.Fields(string(out)) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, command := range kubectlCommands(readRoot(t, file)) {
			commands++
			for _, word := range strings.Fields(command) {
				for _, name := range strings.Split(word, ",") {
					name, _, _ = strings.Cut(name, "/")
					if other := shared[name]; other != "" {
						t.Errorf("%s: %q may show %s; write the short name or the full one", file, "kubectl"+command, other)
					}
				}
			}
		}
	}
	if commands < 200 {
		t.Errorf("found %d commands only", commands)
	}
}

var (
	continued = regexp.MustCompile("\"\\s*\\+\\s*\"|\\\\\n")
	kubectl   = regexp.MustCompile("\\bkubectl( [^`'\"\n;|&()<]+)")
)

// kubectlCommands returns the arguments of all commands of kubectl in a text, but for its plugin, which is ours.
func kubectlCommands(text string) (out []string) {
	for _, found := range kubectl.FindAllStringSubmatch(continued.ReplaceAllString(text, ""), -1) {
		if !strings.HasPrefix(found[1], " liqo ") {
			out = append(out, found[1])
		}
	}
	return out
}

// sharedNames returns the names of our resources that others have, too, and whose resources those are.
func sharedNames(t *testing.T) map[string]string {
	t.Helper()
	others := map[string]string{}
	for _, name := range strings.Fields(shortNames) {
		others[name] = "what Kubernetes calls so in short"
	}
	for kind := range scheme.Scheme.AllKnownTypes() {
		plural, singular := meta.UnsafeGuessKindToResource(kind)
		others[plural.Resource], others[singular.Resource] = "those of "+kind.Group, "those of "+kind.Group
	}
	files, err := filepath.Glob("../../deploy/liqo/crds/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d CRDs: %v", len(files), err)
	}
	shared := map[string]string{}
	for _, file := range files {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal([]byte(readRoot(t, path.Join("deploy/liqo/crds", filepath.Base(file)))), &crd); err != nil {
			t.Fatal(err)
		}
		names := crd.Spec.Names
		for _, name := range append(names.ShortNames, names.Plural, names.Singular) {
			if other := others[name]; other != "" {
				shared[name] = other
			}
		}
		if other := operators[names.Singular]; other != "" {
			shared[names.Singular], shared[names.Plural] = other, other
		}
	}
	return shared
}
