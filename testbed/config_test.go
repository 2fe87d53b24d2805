// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata")

// golden compares files, joined as a txtar archive, with testdata/<claim>.txtar.
func golden(t *testing.T, claim, story string, files map[string]string) {
	t.Helper()
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString(story + "\n")
	for _, name := range names {
		fmt.Fprintf(&b, "-- %s --\n%s\n", name, strings.TrimSuffix(files[name], "\n"))
	}
	file := filepath.Join("testdata", claim+".txtar")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s differs; see 'go test ./testbed -update' and the diff. Now:\n%s", file, b.String())
	}
}

func arguments(p process) string { return strings.Join(p.args, "\n") }

func TestConfiguration(t *testing.T) {
	rome := cluster(t, "rome", 0, 2, false)
	rome.Args = map[string][]string{"kube-controller-manager": {"--node-monitor-grace-period=8s"}}
	golden(t, "control-plane-of-one-cluster", "What the control plane runs. An additional argument comes last.", map[string]string{
		"etcd": arguments(etcd()), "kube-apiserver": arguments(apiServer(rome)),
		"kube-controller-manager": arguments(controllerManager(rome)), "kube-scheduler": arguments(scheduler(rome)),
	})
	golden(t, "worker-of-one-cluster", "What the second worker runs and reads.", map[string]string{
		"kubelet": arguments(kubelet(rome, "n2")), "kube-proxy": arguments(kubeProxy(rome, "n2")), "containerd": arguments(containerd()),
		"kubelet.yaml": kubeletConfig(rome), "kube-proxy.yaml": kubeProxyConfig(rome, "n2"), "config.toml": containerdConfig("/usr/lib/cni"),
		"hosts.toml":      registryHosts(),
		"10-pod.conflist": cniConfig(rome, "n2"), "masquerade.nft": masquerade(rome), "node.json": nodeObject(rome, "n2"),
		"hosts": hosts(rome, "n2"), "routes": podRoutes(rome, "n2"),
	})
	milan := cluster(t, "milan", 1, 2, false)
	golden(t, "second-cluster-differs-in-node-addresses-only", "Pods and services of rome and milan are the same.", map[string]string{
		"10-pod.conflist": cniConfig(milan, "n2"), "masquerade.nft": masquerade(milan), "hosts": hosts(milan, "n2"), "routes": podRoutes(milan, "n2"),
		"kubelet": arguments(kubelet(milan, "n2")),
	})
	turin, err := newCluster("turin", 2, upOptions{nodes: 2, cnis: []string{"bridge", "turin=pool"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "pods-outside-the-podcidr-of-their-node", "The second CNI shape: blocks of one pool, links without a bridge, more masquerading.", map[string]string{
		"10-pod.conflist": cniConfig(turin, "n2"), "masquerade.nft": masquerade(turin), "routes": podRoutes(turin, "n2"), "node.json": nodeObject(turin, "n2"),
	})
	pisa, err := newCluster("pisa", 3, upOptions{nodes: 2, cnis: []string{"flannel"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	program, _ := networkProgram(pisa, "n2")
	golden(t, "pods-behind-flannel", "The third CNI shape: flannel leads from node to node and masquerades.", map[string]string{
		"10-pod.conflist": cniConfig(pisa, "n2"), "net-conf.json": flannelConfig(pisa), "routes": podRoutes(pisa, "n2"), "routes of the control plane": podRoutes(pisa, controlPlane),
		"flannel": arguments(program),
	})
	golden(t, "exports-for-the-shell", "What 'eval' of the verb env sets.", map[string]string{
		"env":        exports([]Cluster{rome, {Name: "milan-2"}}, func(c Cluster) string { return "/t/" + c.Name + "/kubeconfig" }, []string{"/t/bin", "/repo/bin"}),
		"kubeconfig": kubeconfig(rome, netip.MustParseAddrPort("127.0.0.1:16443"), []byte("ca"), []byte("cert"), []byte("key")),
	})
}

func TestKubernetesFlags(t *testing.T) {
	for _, want := range []string{"-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2 ", "-X k8s.io/client-go/pkg/version.gitMinor=37 "} {
		if !strings.Contains(kubernetesFlags(defaultRelease()), want) {
			t.Errorf("%q lacks %q", kubernetesFlags(defaultRelease()), want)
		}
	}
}

// The versions in the code are those of the module files.
func TestVersionsMatchModules(t *testing.T) {
	for _, want := range []struct{ file, module, version string }{
		{"kubernetes/go.mod", "k8s.io/kubernetes", kubernetesVersion},
		{"kubernetes/go.mod", "github.com/coredns/coredns", coreDNSVersion},
		{"kubernetes/go.mod", "sigs.k8s.io/metrics-server", metricsServerVersion},
		{"kwok/go.mod", "sigs.k8s.io/kwok", kwokVersion},
		{"flannel/go.mod", "github.com/flannel-io/flannel", flannelVersion},
		{"kuberouter/go.mod", "github.com/cloudnativelabs/kube-router/v2", kubeRouterVersion},
		{"registry/go.mod", "github.com/distribution/distribution/v3", registryVersion},
	} {
		if got := requirements(t, want.file)[want.module]; got != "v"+want.version {
			t.Errorf("%s requires %s %s, want v%s", want.file, want.module, got, want.version)
		}
	}
}

// A package compiles once for the product and for the clusters only if everything below it has one version:
// otherwise a build from nothing takes about three minutes more.
func TestProductAndClustersShareVersions(t *testing.T) {
	product := requirements(t, "../go.mod")
	for _, file := range []string{"kubernetes/go.mod", "helm4/go.mod"} {
		for module, version := range requirements(t, file) {
			if want, shared := product[module]; shared && version != want && version != "v0.0.0" { // v0.0.0 is replaced
				t.Errorf("testbed/%s requires %s %s, the product %s: 'go get' the newer one in both modules", file, module, version, want)
			}
		}
	}
}

// requirements returns the versions that a go.mod requires, by module.
func requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range requirement.FindAllStringSubmatch(string(b), -1) {
		out[m[1]] = m[2]
	}
	if len(out) == 0 {
		t.Fatalf("%s requires nothing", file)
	}
	return out
}

var requirement = regexp.MustCompile(`(?m)^(?:\t|require )(\S+) (v\S+)`)

func TestFlagsAfterArguments(t *testing.T) {
	f := flag.NewFlagSet("exec", flag.ContinueOnError)
	clusters := f.String("clusters", "", "")
	got, err := parseMixed(f, []string{"a", "--clusters", "rome", "b", "--", "ls", "-l"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "ls", "-l"}; !slices.Equal(got, want) || *clusters != "rome" {
		t.Errorf("got %q, clusters %q", got, *clusters)
	}
}
