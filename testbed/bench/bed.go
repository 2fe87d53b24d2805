// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	podCIDR     = "10.10.0.0/16" // of both clusters: peers see each other remapped
	serviceCIDR = "10.110.0.0/16"
	// patience is how long something may take that normally takes seconds.
	patience = 3 * time.Minute
)

// cluster is one of the two: a name, a kubeconfig, and its API server seen from here and
// from the other cluster.
type cluster struct {
	name, kubeconfig, url string
	api                   api
}

// bed is what all phases share.
type bed struct {
	bin         string   // what the repository built, and bench.json
	measured    string   // liqoctl and liqo-image.tar
	dir         string   // state of the clusters, removed with them
	cache       string   // what the testbed built
	clusterArgs []string // of 'testbed up'
	rome, milan cluster
	before      map[string]pod       // the pods on real nodes, by cluster/node
	fakes       *fakes               // nil until fake nodes are asked for
	bare        map[string][]float64 // seconds of bursts before Liqo was installed; nil if it was there
	profile     string               // folder for profiles; "" = none
	thousand    bool                 // measure with 1000 peers, too
	// defaultLimits says that kube-controller-manager has its default limits of requests.
	defaultLimits bool
	report        report
}

func newBed(ctx context.Context) (*bed, error) {
	repo, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/liqo-go/liqo"))
	if err != nil {
		return nil, fmt.Errorf("%w; run this inside the repository", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(strings.TrimSpace(repo), "bin")
	return &bed{bin: bin, dir: filepath.Join(bin, "bench"), cache: filepath.Join(cache, "liqo-testbed")}, nil
}

func (b *bed) clusters() []cluster { return []cluster{b.rome, b.milan} }

// up starts the clusters, installs Liqo on both and a pod on each of their nodes. Before Liqo is installed it calls bare.
func (b *bed) up(ctx context.Context, bare func() error) error {
	image := filepath.Join(b.measured, "liqo-image.tar")
	if _, err := os.Stat(image); err != nil {
		return fmt.Errorf("%w; run 'make image' first", err)
	}
	if err := b.buildTools(ctx); err != nil {
		return err
	}
	args := append([]string{"up", "--dir", b.dir, "--clusters", "rome,milan", "--nodes", "2", "--image", image}, b.clusterArgs...)
	if err := b.testbed(ctx, args...); err != nil {
		return err
	}
	for c, name := range map[*cluster]string{&b.rome: "rome", &b.milan: "milan"} {
		opened, err := b.openCluster(ctx, name)
		if err != nil {
			return fmt.Errorf("open cluster %s: %w", name, err)
		}
		*c = opened
	}
	err := b.rome.api.get(ctx, "/api/v1/namespaces/liqo", nil)
	if notFound(err) {
		err = bare()
	}
	if err != nil {
		return err
	}
	if err := b.both(func(c cluster) error { return b.install(ctx, c) }); err != nil {
		return err
	}
	return b.startPods(ctx)
}

// buildTools builds the testbed itself, the fake nodes, and the tunnel alone, of the
// version that Liqo's go.mod has.
func (b *bed) buildTools(ctx context.Context) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	for out, pkg := range map[string]string{"testbed": "github.com/liqo-go/liqo/testbed", "wireguard-go": "golang.zx2c4.com/wireguard"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(b.bin, out), pkg)
		cmd.Dir = filepath.Dir(b.bin)
		if _, err := output(cmd); err != nil {
			return err
		}
	}
	return b.testbed(ctx, "build", "kwok")
}

// testbed runs one of the testbed's verbs.
func (b *bed) testbed(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "testbed"), args...)
	cmd.Dir = filepath.Dir(b.bin)
	// An interrupt from the keyboard reaches the whole process group; the testbed shall
	// end when this program says so, and 'down' not at all.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	_, err := output(cmd)
	return err
}

// close ends fake nodes and clusters; it does so also when the run was interrupted.
func (b *bed) close(keep bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if keep {
		return b.removeFakes(ctx)
	}
	b.fakes.stop()
	if _, err := os.Stat(filepath.Join(b.bin, "testbed")); err != nil {
		return nil // it was not even built
	}
	return b.testbed(ctx, "down", "--dir", b.dir, "--all")
}

func (b *bed) openCluster(ctx context.Context, name string) (cluster, error) {
	c := cluster{name: name, kubeconfig: filepath.Join(b.dir, name, "kubeconfig")}
	printed, err := b.run(ctx, "kubectl", "--kubeconfig", c.kubeconfig, "config", "view", "--raw", "--flatten", "-o", "json")
	if err != nil {
		return c, err
	}
	if c.api, err = newAPI(printed); err != nil {
		return c, err
	}
	var published struct {
		Endpoints []struct{ Addresses []string }
		Ports     []struct{ Port int }
	}
	if err := c.api.get(ctx, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes", &published); err != nil {
		return c, err
	}
	if len(published.Endpoints) == 0 || len(published.Ports) == 0 {
		return c, errors.New("the API server has not published its address yet")
	}
	c.url = fmt.Sprintf("https://%s:%d", published.Endpoints[0].Addresses[0], published.Ports[0].Port)
	return c, nil
}

func (b *bed) install(ctx context.Context, c cluster) error {
	_, err := b.liqoctl(ctx, c, "install", "--cluster-id", c.name, "--pod-cidr", podCIDR, "--service-cidr", serviceCIDR,
		"--api-server-url", c.url, "--set", "pullPolicy=Never")
	return err
}

func (b *bed) liqoctl(ctx context.Context, c cluster, args ...string) (string, error) {
	return b.run(ctx, filepath.Join(b.measured, "liqoctl"), append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

// run runs a program of the testbed or of the machine.
func (b *bed) run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if name == "kubectl" {
		name = filepath.Join(b.dir, "bin", name)
	}
	return output(exec.CommandContext(ctx, name, args...))
}

// output runs a command; its error has what it printed.
func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// Children of what is killed may hold the pipes open.
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

// background starts a program that ends with this one at the latest.
func background(cmd *exec.Cmd) (stop func(), err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	return func() { cmd.Process.Kill(); <-ended }, nil
}

// both does the same on both clusters at once.
func (b *bed) both(do func(cluster) error) error {
	var errs [2]error
	var wg sync.WaitGroup
	for i, c := range b.clusters() {
		wg.Go(func() {
			if err := do(c); err != nil {
				errs[i] = fmt.Errorf("%s: %w", c.name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// startPods runs a pod on every real node and waits until all run.
func (b *bed) startPods(ctx context.Context) error {
	b.before = map[string]pod{}
	for _, c := range b.clusters() {
		for _, node := range []string{"n1", "n2"} {
			p := newPod("bench-"+node, "testbed.local/echo:1")
			p.Spec.NodeName = c.name + "-" + node
			if err := c.api.ensure(ctx, podsPath("default"), p); err != nil {
				return err
			}
		}
		for _, node := range []string{"n1", "n2"} {
			var p pod
			err := eventually(ctx, "pod bench-"+node+" of "+c.name+" runs", patience, func() (bool, error) {
				err := c.api.get(ctx, podsPath("default")+"/bench-"+node, &p)
				return p.Status.Phase == "Running" && p.Status.PodIP != "", err
			})
			if err != nil {
				return err
			}
			b.before[c.name+"-"+node] = p
		}
	}
	return nil
}
