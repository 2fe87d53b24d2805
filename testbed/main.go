// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command testbed runs real Kubernetes clusters on one Linux machine: each node is a set
// of namespaces with its own containerd, kubelet and kube-proxy, each cluster has a
// control plane of its own, and all of it is built from Go modules and Debian packages.
// There is no Docker and no virtual machine, and nothing of the machine's own network,
// cgroups or settings is changed.
//
// Start reading at plan.go (what a cluster is) and cluster.go (how it comes up).
// config.go has the configuration of every program, node.go and init.go the life of a
// node, network.go, cgroup.go and mount.go what the kernel is asked for. balancer.go is
// the load balancer, volumes.go the default storage class, internet.go what tests do to the network between clusters,
// registry.go what nodes pull images from.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// verb is one subcommand.
type verb struct {
	name  string
	args  string
	does  string
	flags func(*flag.FlagSet, *options)
	run   func(ctx context.Context, t Testbed, o options, args []string) error
	user  bool // also without root
}

// options are the flags of all verbs.
type options struct {
	dir      string
	all      bool
	follow   bool
	clusters string
	signal   string
	fault    faultFlags
	up       upOptions
}

func verbs() []verb {
	return []verb{
		{name: "deps", does: "install the Debian packages that are missing", run: runDeps},
		{name: "build", args: "[name...]", does: "build Kubernetes, CoreDNS and the images into the cache", flags: buildFlags, run: runBuild, user: true},
		{name: "up", does: "start clusters, or repair them", flags: upFlags, run: runUp},
		{name: "down", args: "[cluster...]", does: "remove clusters and all they left", flags: downFlags, run: runDown},
		{name: "status", does: "show clusters, nodes, programs, and what is wrong between clusters", run: runStatus},
		{name: "load", args: "<image.tar|name>...", does: "import images into running nodes", flags: clustersFlag, run: runLoad},
		{name: "registry", args: "up|down", does: "run or remove a registry that nodes pull from", run: runRegistry},
		{name: "link", args: "cut|heal <a> <b>", does: "cut or heal all traffic between two clusters", run: runLink},
		{name: "fault", args: "drop|mtu|delay|heal …", does: "drop or delay packets from one cluster to another", flags: registerFaultFlags, run: runFault},
		{name: "nat", args: "on|off|forward|close <cluster> …", does: "put a cluster behind NAT, map ports", run: runNAT},
		{name: "dns", args: "set|unset <name>.test [address]", does: "change a name that all clusters know", run: runDNS},
		{name: "kill", args: "<cluster> <node> <program>", does: "kill a program; it starts again", flags: signalFlag, run: runKill},
		{name: "node", args: "stop|start <cluster> <node>", does: "crash or start a node", run: runNode},
		{name: "exec", args: "<cluster> <node> [--] <command>...", does: "run a command on a node", run: runExec},
		{name: "logs", args: "<cluster> <node> [program]", does: "print a log; without a program, the node's own", flags: followFlag, run: runLogs, user: true},
		{name: "env", does: "print exports of kubeconfigs and PATH, for eval", run: runEnv, user: true},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		fmt.Print(usage())
		return nil
	}
	switch args[0] {
	case nodeSpawnVerb:
		t, err := openTestbed(args[1])
		if err != nil {
			return err
		}
		return spawn(t, args[2], args[3])
	case registrySpawnVerb:
		t, err := openTestbed(args[1])
		if err != nil {
			return err
		}
		return spawnRegistry(t)
	case relaySpawnVerb:
		t, err := openTestbed(args[1])
		if err != nil {
			return err
		}
		return spawnRelay(t, args[2:])
	case relayVerb:
		return runRelay(args[1:])
	case nodeInitVerb:
		return runInit(args[1])
	}
	for _, v := range verbs() {
		if v.name == args[0] {
			return v.call(ctx, args[1:])
		}
	}
	return fmt.Errorf("unknown verb %q\n%s", args[0], usage())
}

func usage() string {
	var b strings.Builder
	b.WriteString("usage: go run ./testbed <verb> [--dir folder] …\n\n")
	for _, v := range verbs() {
		fmt.Fprintf(&b, "  %-44s %s\n", v.name+" "+v.args, v.does)
	}
	b.WriteString("\n'<verb> -h' shows its flags. The state is in .testbed, the cache in the user's cache directory.\n")
	return b.String()
}

func (v verb) call(ctx context.Context, args []string) error {
	o := options{up: upOptions{nodes: -1, args: map[string][]string{}}}
	f := flag.NewFlagSet(v.name, flag.ContinueOnError)
	f.StringVar(&o.dir, "dir", "", "folder of the state (default .testbed in the repository)")
	if v.flags != nil {
		v.flags(f, &o)
	}
	args, err := parseMixed(f, args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 && !v.user {
		return fmt.Errorf("'%s' makes namespaces, mounts and cgroups: run it as root, for example with 'sudo -E env PATH=$PATH'", v.name)
	}
	t, err := openTestbed(o.dir)
	if err != nil {
		return err
	}
	return v.run(ctx, t, o, args)
}

// parseMixed takes flags also after arguments, up to "--".
func parseMixed(f *flag.FlagSet, args []string) ([]string, error) {
	var rest []string
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		// Parse stops behind "--" or before the first argument.
		left := f.Args()
		if parsed := len(args) - len(left); len(left) == 0 || parsed > 0 && args[parsed-1] == "--" {
			return append(rest, left...), nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}
