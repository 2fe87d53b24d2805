// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// list is a flag that collects values.
type list struct{ values *[]string }

func (l list) String() string { return "" }
func (l list) Set(s string) error {
	*l.values = append(*l.values, s)
	return nil
}

// programArgs is a flag that collects arguments of one program.
type programArgs struct {
	args map[string][]string
	name string
}

func (a programArgs) String() string { return "" }
func (a programArgs) Set(s string) error {
	a.args[a.name] = append(a.args[a.name], s)
	return nil
}

func clustersFlag(f *flag.FlagSet, o *options) {
	f.StringVar(&o.clusters, "clusters", "", "names, separated by commas (default: all)")
}

func upFlags(f *flag.FlagSet, o *options) {
	f.StringVar(&o.clusters, "clusters", "", "names, separated by commas (default: those that exist, or rome,milan)")
	f.IntVar(&o.up.nodes, "nodes", -1, "workers of each cluster (default 2 for new clusters)")
	f.BoolVar(&o.up.distinct, "distinct-cidrs", false, "give new clusters pod and service CIDRs of their own")
	f.Var(list{&o.up.podCIDRs}, "pod-cidr", "pod `CIDR` of new clusters, or cluster=CIDR; may be repeated")
	f.Var(list{&o.up.serviceCIDRs}, "service-cidr", "service `CIDR` of new clusters, or cluster=CIDR; may be repeated")
	f.Var(list{&o.up.cnis}, "cni", "`shape` of the pod network of new clusters, bridge, pool, flannel or policies, or cluster=shape; may be repeated")
	f.Var(list{&o.up.kubernetes}, "kubernetes", "`version` of Kubernetes, as 1.36, or cluster=version; may be repeated; a cluster that exists goes to the next one")
	f.Var(list{&o.up.images}, "image", "`archive` or built image that every node of new clusters gets; may be repeated")
	for flagName, program := range map[string]string{
		"apiserver-arg": "kube-apiserver", "kcm-arg": "kube-controller-manager", "scheduler-arg": "kube-scheduler",
		"kubelet-arg": "kubelet", "proxy-arg": "kube-proxy",
	} {
		f.Var(programArgs{o.up.args, program}, flagName, "`argument` of "+program+" in new clusters, as --flag=value; may be repeated")
	}
}

func buildFlags(f *flag.FlagSet, o *options) {
	f.Var(list{&o.up.kubernetes}, "kubernetes", "also this `version` of Kubernetes, as 1.36; may be repeated")
}

func downFlags(f *flag.FlagSet, o *options) {
	f.BoolVar(&o.all, "all", false, "remove all clusters (also the default without names)")
}

func signalFlag(f *flag.FlagSet, o *options) {
	f.StringVar(&o.signal, "signal", "KILL", "KILL, TERM, STOP or CONT")
}

func followFlag(f *flag.FlagSet, o *options) {
	f.BoolVar(&o.follow, "f", false, "follow")
}

func splitNames(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

func runDeps(ctx context.Context, _ Testbed, _ options, _ []string) error { return installDeps(ctx) }

func runBuild(ctx context.Context, t Testbed, o options, names []string) error {
	began := time.Now()
	known := artifactNames(allArtifacts())
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("nothing is called %q; there is %s", name, strings.Join(known, ", "))
		}
	}
	artifacts := defaultArtifacts()
	if len(names) > 0 {
		artifacts = namedArtifacts(names)
	}
	for _, version := range o.up.kubernetes {
		r, err := releaseOf(version)
		if err != nil {
			return err
		}
		artifacts = append(artifacts, kubernetesArtifacts(r)...)
	}
	cache, err := t.lockCache(ctx)
	if err != nil {
		return err
	}
	defer cache.Close()
	if err := t.build(ctx, artifacts); err != nil {
		return err
	}
	fmt.Printf("all built, %.1fs; in %s\n", time.Since(began).Seconds(), t.Cache)
	return nil
}

func runUp(ctx context.Context, t Testbed, o options, args []string) error {
	o.up.clusters = append(splitNames(o.clusters), args...)
	return t.up(ctx, o.up)
}

func runDown(_ context.Context, t Testbed, o options, names []string) error {
	if o.all && len(names) > 0 {
		return fmt.Errorf("--all and names: say one of them")
	}
	return t.down(names)
}

func runLoad(ctx context.Context, t Testbed, o options, images []string) error {
	cache, err := t.lockCache(ctx)
	if err != nil {
		return err
	}
	err = t.build(ctx, namedArtifacts(images))
	var files []string
	if err == nil {
		files, err = t.imageFiles(images)
	}
	cache.Close()
	if err != nil {
		return err
	}
	clusters, err := t.selectClusters(splitNames(o.clusters))
	if err != nil {
		return err
	}
	began := time.Now()
	var imports []func() error
	for _, c := range clusters {
		for _, node := range c.workers() {
			imports = append(imports, func() error {
				for _, file := range files {
					if err := t.importImage(c, node, file); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	if len(imports) == 0 || len(files) == 0 {
		return fmt.Errorf("nothing to load: %d images, %d nodes", len(files), len(imports))
	}
	if err := parallel(imports...); err != nil {
		return err
	}
	fmt.Printf("%d images on %d nodes, %.1fs\n", len(files), len(imports), time.Since(began).Seconds())
	return nil
}

// clusterNode resolves the first two arguments.
func (t Testbed) clusterNode(args []string) (Cluster, string, error) {
	if len(args) < 2 {
		return Cluster{}, "", fmt.Errorf("name a cluster and a node")
	}
	clusters, err := t.selectClusters(args[:1])
	if err != nil {
		return Cluster{}, "", err
	}
	node, err := clusters[0].node(args[1])
	return clusters[0], node, err
}

func runKill(_ context.Context, t Testbed, o options, args []string) error {
	c, node, err := t.clusterNode(args)
	if err != nil {
		return err
	}
	signals := map[string]syscall.Signal{"KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}
	sig, known := signals[strings.TrimPrefix(strings.ToUpper(o.signal), "SIG")]
	programs := t.supervised(c, node)
	if len(args) != 3 || !known {
		return fmt.Errorf("usage: kill [--signal KILL|TERM|STOP|CONT] <cluster> <node> <program>; %s runs %s", c.nodeName(node), programNames(programs))
	}
	pid, ok := programs[args[2]]
	if !ok {
		return fmt.Errorf("node %s runs no %q; it runs %s", c.nodeName(node), args[2], programNames(programs))
	}
	return syscall.Kill(pid, sig)
}

func programNames(programs map[string]int) string {
	var names []string
	for name := range programs {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func runNode(_ context.Context, t Testbed, _ options, args []string) error {
	if len(args) != 3 || args[0] != "stop" && args[0] != "start" {
		return fmt.Errorf("usage: node stop|start <cluster> <node>")
	}
	c, node, err := t.clusterNode(args[1:])
	if err != nil {
		return err
	}
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if args[0] == "stop" {
		return t.stopNode(c.nodeName(node))
	}
	return t.startNode(c, node)
}

func runExec(_ context.Context, t Testbed, _ options, args []string) error {
	c, node, err := t.clusterNode(args)
	if err != nil {
		return err
	}
	command := args[2:]
	if len(command) == 0 {
		command = []string{"bash"}
	}
	return t.enter(c, node, command)
}

func (t Testbed) logFile(c Cluster, node, program string) string {
	return filepath.Join(t.nodeDir(c, node), "log", program+".log")
}

// lastLines are the end of a program's log; empty when there is none.
func (t Testbed) lastLines(c Cluster, node, program string, n int) string {
	b, _ := os.ReadFile(t.logFile(c, node, program))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func runLogs(ctx context.Context, t Testbed, o options, args []string) error {
	c, node, err := t.clusterNode(args)
	if err != nil {
		return err
	}
	program := "init"
	if len(args) > 2 {
		program = args[2]
	}
	if _, err := os.Stat(t.logFile(c, node, program)); err != nil {
		logs, _ := filepath.Glob(t.logFile(c, node, "*"))
		for i := range logs {
			logs[i] = strings.TrimSuffix(filepath.Base(logs[i]), ".log")
		}
		return fmt.Errorf("no log of %s on %s; there are: %s", program, c.nodeName(node), strings.Join(logs, " "))
	}
	tail := []string{"-n", "+1"}
	if o.follow {
		tail = append(tail, "-F")
	}
	cmd := exec.CommandContext(ctx, "tail", append(tail, t.logFile(c, node, program))...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// runEnv prints what "eval" sets: a variable per cluster, and where the commands are.
func runEnv(_ context.Context, t Testbed, _ options, _ []string) error {
	clusters, err := t.clusters()
	if err != nil {
		return err
	}
	if len(clusters) == 0 {
		return fmt.Errorf("no cluster in %s; run 'go run ./testbed up'", t.Dir)
	}
	fmt.Print(exports(clusters, t.kubeconfig, []string{t.binDir(), filepath.Join(t.Repo, "bin")}))
	return nil
}

func exports(clusters []Cluster, kubeconfig func(Cluster) string, path []string) string {
	var b strings.Builder
	for _, c := range clusters {
		fmt.Fprintf(&b, "export %s=%s\n", strings.ToUpper(strings.ReplaceAll(c.Name, "-", "_")), kubeconfig(c))
	}
	fmt.Fprintf(&b, "export PATH=%s:\"$PATH\"\n", strings.Join(path, ":"))
	return b.String()
}

func runStatus(ctx context.Context, t Testbed, _ options, _ []string) error {
	clusters, err := t.clusters()
	if err != nil {
		return err
	}
	if len(clusters) == 0 {
		fmt.Printf("no cluster in %s\n", t.Dir)
		return nil
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tKUBERNETES\tADDRESS\tPODS\tSTATE\tPROGRAMS")
	for _, c := range clusters {
		admin, err := adminClient(t.pkiDir(c), fmt.Sprintf("127.0.0.1:%d", c.Port))
		if err != nil {
			return err
		}
		for _, node := range c.nodes() {
			pods := strings.Trim(fmt.Sprint(c.podBlocks(node)), "[]")
			if node == controlPlane {
				pods = fmt.Sprintf("%s services %s", c.PodCIDR, c.ServiceCIDR)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", c.nodeName(node), c.Kubernetes, c.nodeAddr(node), pods, t.state(ctx, c, node, admin), programNames(t.supervised(c, node)))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if pids, _ := t.processes(registryName); len(pids) > 0 {
		fmt.Println("registry", registryAddress)
	}
	in, err := t.internet()
	for _, line := range in.describe(clusters) {
		fmt.Println(line)
	}
	return err
}

// state is one word about a node.
func (t Testbed) state(ctx context.Context, c Cluster, node string, admin client) string {
	if _, running := t.initOf(c, node); !running {
		return "stopped"
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if node == controlPlane {
		if admin.get(ctx, "/readyz", nil) != nil {
			return "starting"
		}
		return fmt.Sprintf("ready at 127.0.0.1:%d", c.Port)
	}
	ready, _, err := admin.nodeReady(ctx, c.nodeName(node))
	switch {
	case err != nil:
		return "unknown"
	case ready:
		return "Ready"
	}
	return "NotReady"
}
