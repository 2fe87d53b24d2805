// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// bed is the pair of clusters and what runs on it.
type bed struct {
	repo    string
	version string // of Kubernetes
	tools   string // what is built for the suite, images and reports; kept
	dir     string // state of the clusters, removed with them
}

func newBed(ctx context.Context) (*bed, error) {
	repo, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/liqo-go/liqo"))
	if err != nil {
		return nil, fmt.Errorf("%w; run this inside the repository", err)
	}
	b := &bed{repo: strings.TrimSpace(repo)}
	b.tools, b.dir = b.bin("conformance-tools"), b.bin("conformance")
	version, err := output(b.suite(ctx, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"))
	b.version = strings.TrimSpace(version)
	return b, err
}

func (b *bed) bin(name string) string           { return filepath.Join(b.repo, "bin", name) }
func (b *bed) tool(name string) string          { return filepath.Join(b.tools, name) }
func (b *bed) kubeconfig(cluster string) string { return filepath.Join(b.dir, cluster, "kubeconfig") }
func (b *bed) cached(path ...string) string {
	cache, _ := os.UserCacheDir() // the testbed has checked it
	return filepath.Join(append([]string{cache, "liqo-testbed"}, path...)...)
}

// suite is the go command in the module of the suite.
func (b *bed) suite(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(b.repo, "testbed", "conformance", "suite")
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	return cmd
}

// build builds the suite and what runs it. The first time it takes five minutes.
func (b *bed) build(ctx context.Context) error {
	if err := os.MkdirAll(b.tools, 0o755); err != nil {
		return err
	}
	minor := strings.Split(b.version, ".")[1]
	stamp := "-s -w"
	for _, kv := range []string{"gitVersion=" + b.version, "gitMajor=1", "gitMinor=" + minor} {
		stamp += " -X k8s.io/component-base/version." + kv
	}
	testbed := exec.CommandContext(ctx, "go", "build", "-o", b.bin("testbed"), "./testbed")
	testbed.Dir = b.repo
	for _, cmd := range []*exec.Cmd{
		testbed,
		b.suite(ctx, "test", "-vet=off", "-c", "-ldflags="+stamp, "-o", b.tool("e2e.test"), "."),
		b.suite(ctx, "build", "-o", b.tool("ginkgo"), "github.com/onsi/ginkgo/v2/ginkgo"),
		b.suite(ctx, "build", "-o", b.tool("nnp"), "k8s.io/kubernetes/test/images/nonewprivs"),
		exec.CommandContext(ctx, b.bin("testbed"), "build", "agnhost"),
	} {
		if _, err := output(cmd); err != nil {
			return err
		}
	}
	return nil
}

// up starts the clusters, installs Liqo and peers. Pod CIDRs differ, because specs tell pods the addresses of others:
// with equal ones an address is another one in each cluster. Ranges of Services are equal, as in clusters of one
// distribution: specs tell pods ClusterIPs, too. The provider grants whatever a pod asks for, because
// specs try privileged pods, too. The consumer's own workers take no new pods.
func (b *bed) up(ctx context.Context) error {
	if err := b.build(ctx); err != nil {
		return err
	}
	images, err := b.images(ctx)
	if err != nil {
		return err
	}
	args := []string{
		"up", "--dir", b.dir, "--clusters", "rome,milan", "--nodes", "2", "--pod-cidr", "milan=10.20.0.0/16",
		"--image", b.bin("liqo-image.tar"),
	}
	for _, image := range images {
		args = append(args, "--image", image)
	}
	if _, err := output(detached(exec.CommandContext(ctx, b.bin("testbed"), args...))); err != nil {
		return err
	}
	if _, err := b.kubectl(ctx, "rome", "get", "node", "milan"); err == nil {
		return nil // left by a run with -keep
	}
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, cluster := range []string{"rome", "milan"} {
		wg.Go(func() { errs[i] = b.install(ctx, cluster) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	if _, err := b.liqoctl(ctx, "rome", "peer", "--remote-kubeconfig", b.kubeconfig("milan"),
		"--gw-server-service-type", "NodePort", "--cpu", "64", "--memory", "64Gi", "--pods", "1000"); err != nil {
		return err
	}
	// The control plane of test clusters is no node, so nobody tells it the way to the provider's pods.
	if _, err := output(exec.CommandContext(ctx, b.bin("testbed"), "exec", "--dir", b.dir, "rome", "cp", "--",
		"ip", "route", "replace", "10.20.0.0/16", "via", "172.31.10.11")); err != nil {
		return err
	}
	_, err = b.kubectl(ctx, "rome", "taint", "nodes", "rome-n1", "rome-n2", "conformance=none:NoSchedule")
	return err
}

func (b *bed) install(ctx context.Context, cluster string) error {
	api, err := b.kubectl(ctx, cluster, "get", "endpointslices", "kubernetes",
		"-o", "jsonpath={.endpoints[0].addresses[0]}:{.ports[0].port}")
	if err != nil {
		return err
	}
	pods, services := map[string]string{"rome": "10.10.0.0/16", "milan": "10.20.0.0/16"}[cluster], "10.110.0.0/16"
	_, err = b.liqoctl(ctx, cluster, "install", "--cluster-id", cluster, "--pod-cidr", pods, "--service-cidr", services,
		"--api-server-url", "https://"+api, "--set", "pullPolicy=Never", "--set", "offloading.podSecurity=privileged",
		"--set", "offloading.guestPods.volumes={hostPath}", "--set", "offloading.guestPods.runtimeClasses={*}")
	return err
}

// down removes the clusters; it does so also when the run was interrupted.
func (b *bed) down() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	_, err := output(detached(exec.CommandContext(ctx, b.bin("testbed"), "down", "--dir", b.dir, "--all")))
	return err
}

func (b *bed) kubectl(ctx context.Context, cluster string, args ...string) (string, error) {
	args = append([]string{"--kubeconfig", b.kubeconfig(cluster)}, args...)
	return output(exec.CommandContext(ctx, b.cached("kubernetes-"+b.version, "kubectl"), args...))
}

func (b *bed) liqoctl(ctx context.Context, cluster string, args ...string) (string, error) {
	return output(exec.CommandContext(ctx, b.bin("liqoctl"), append([]string{"--kubeconfig", b.kubeconfig(cluster)},
		args...)...))
}

// specs runs the suite at virtual or real nodes.
func (b *bed) specs(ctx context.Context, o options, node string) (map[string]outcome, error) {
	cluster := map[string]string{"virtual": "rome", "real": "milan"}[node]
	if cluster == "" {
		return nil, fmt.Errorf("nodes are virtual or real, not %q", node)
	}
	args := []string{fmt.Sprintf("--procs=%d", o.procs), "--timeout=4h", "--no-color", "--silence-skips",
		"--output-dir=" + b.tools,
		"--json-report=" + node + ".json", "--label-filter=Conformance || NodeConformance", "--focus=" + o.focus}
	for _, l := range leftOut() {
		args = append(args, "--skip="+l.specs)
	}
	args = append(args, b.tool("e2e.test"), "--", "--provider=skeleton", "--kubeconfig="+b.kubeconfig(cluster),
		"--kubectl-path="+b.cached("kubernetes-"+b.version, "kubectl"), "--allowed-not-ready-nodes=10",
		fmt.Sprintf("--offload=%t", node == "virtual"))
	log, err := os.Create(b.tool(node + ".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, b.tool("ginkgo"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // each of its processes wants the signal
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	// ginkgo fails when a spec does; without a report something else was wrong.
	runErr := cmd.Run()
	outcomes, err := readReport(b.tool(node + ".json"))
	if err != nil || ctx.Err() != nil {
		return nil, fmt.Errorf("run specs: %w; %v; see %s", runErr, err, log.Name())
	}
	return outcomes, nil
}

// detached keeps an interrupt from the keyboard away from a program, which shall end when this one says so.
func detached(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// output runs a command; its error has what it printed.
func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}
