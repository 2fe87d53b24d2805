// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures Liqo on two real clusters and prints every figure beside what
// Kubernetes or a bare tunnel does alone in the same run: absolute figures say more about
// the machine than about Liqo.
//
// Start reading at phases. bed.go has the clusters, pods.go what is measured with pods,
// burst.go with bursts of them, crowd.go with thousands, services.go with Services,
// path.go the tunnels, traffic.go what is sent through them, peers.go many peers, kernels.go
// what they leave in kernels, dashboard.go what a browser shows, processes.go memory and CPU of Liqo,
// usage.go CPU of everything, report.go the table, against.go compares with a commit, scale.go shows how cost grows,
// for docs/scale.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// longest bounds a whole run.
const longest = 150 * time.Minute

// phase is one group of figures. The order is that of the run: fake nodes come last,
// because the ones before look at real nodes only.
type phase struct {
	name    string
	measure func(ctx context.Context, b *bed) error
}

func phases() []phase {
	return []phase{
		{"peer", measurePeer},
		{"providers", measureProviders},
		{"idle", measureIdle},
		{"path", measurePath},
		{"rate", measureRate},
		{"services", measureServices},
		{"burst", measureBurst},
		{"crowd", measureCrowd},
		{"peers", measurePeers},
		{"dashboard", measureDashboard},
		{"scale", measureScale},
	}
}

func main() {
	only := flag.String("only", "", "phases, separated by commas: peer, providers, idle, path, rate, services, burst, crowd, peers, dashboard, scale (default: all but scale, which writes docs/scale.md)")
	var o options
	flag.StringVar(&o.cni, "cni", "bridge", "shape of the pod network of new clusters: bridge, or pool, where each pod has a routed link as in the bare tunnel")
	flag.BoolVar(&o.keep, "keep", false, "leave the clusters running, for the next run to start from")
	flag.BoolVar(&o.defaultLimits, "default-limits", false, "new clusters whose kube-controller-manager sends at most 20 requests a second for each client, as by default")
	flag.StringVar(&o.profile, "profile", "", "folder for profiles of API servers and of Liqo during bursts of 1000")
	flag.BoolVar(&o.thousand, "thousand-peers", false, "measure with 1000 peers, too, which takes many minutes")
	flag.StringVar(&o.kubernetes, "kubernetes", "", "version of Kubernetes of new clusters, as 1.35, or of one of them, as milan=1.35")
	flag.StringVar(&o.measured, "measured", "", "folder with the liqoctl and the liqo-image.tar that are measured (default: bin)")
	commit := flag.String("against", "", "measure this tree and a commit in turns, and print both beside each other; HEAD shows what is chance")
	rounds := flag.Int("rounds", 3, "how often -against measures each")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var err error
	switch {
	case flag.Arg(0) == serveVerb:
		err = serve(flag.Arg(1))
	case flag.Arg(0) == askVerb:
		err = ask(ctx, flag.Arg(1))
	case *commit != "" && (o.keep || flag.NArg() > 0):
		err = errors.New("-against starts from new clusters, and takes flags only: leave out -keep and other words")
	case *commit != "":
		err = against(ctx, *commit, *rounds)
	default:
		err = run(ctx, *only, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are those of a run.
type options struct {
	cni, kubernetes, measured, profile string

	keep, defaultLimits, thousand bool
}

// run removes the clusters however it ends. What was measured before a failure is
// printed all the same.
func run(ctx context.Context, only string, o options) (err error) {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("this makes namespaces and enters those of pods: run it as root")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("not done within %s", longest))
	defer cancel()
	b, err := newBed(ctx)
	if err != nil {
		return err
	}
	b.clusterArgs = []string{"--cni", o.cni}
	if o.kubernetes != "" {
		b.clusterArgs = append(b.clusterArgs, "--kubernetes", o.kubernetes)
	}
	b.measured = cmp.Or(o.measured, b.bin)
	if o.defaultLimits {
		if _, err := os.Stat(filepath.Join(b.dir, "rome")); err == nil {
			return fmt.Errorf("-default-limits: clusters exist and keep their limits; remove them by 'go run ./testbed down --all --dir %s'", b.dir)
		}
		b.clusterArgs = append(b.clusterArgs, "--kcm-arg=--kube-api-qps=20", "--kcm-arg=--kube-api-burst=30")
	}
	b.thousand, b.defaultLimits = o.thousand, o.defaultLimits
	if b.profile = o.profile; b.profile != "" {
		if _, err := exec.LookPath("perf"); err != nil {
			return fmt.Errorf("-profile: %w; install linux-perf", err)
		}
		if err := os.MkdirAll(b.profile, 0o755); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, b.close(o.keep)) }()
	bare := func() error { return nil }
	if slices.ContainsFunc(chosen, func(p phase) bool { return p.name == "burst" }) {
		bare = func() error { return b.measureBare(ctx) }
	}
	if err := b.up(ctx, bare); err != nil {
		return err
	}
	for _, p := range chosen {
		fmt.Fprintf(os.Stderr, "bench: %s\n", p.name)
		if failed := b.phase(ctx, p); failed != nil {
			err = errors.Join(err, fmt.Errorf("measure %s: %w", p.name, failed))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(err, b.report.write(os.Stdout, filepath.Join(b.bin, "bench.json")))
}

// phase starts from a peering, except for the one that measures peering.
func (b *bed) phase(ctx context.Context, p phase) error {
	if p.name != "peer" {
		if err := b.ensurePeered(ctx); err != nil {
			return err
		}
	}
	return p.measure(ctx, b)
}

func choose(only string) ([]phase, error) {
	all := phases()
	if only == "" {
		return slices.DeleteFunc(all, func(p phase) bool { return p.name == "scale" }), nil
	}
	names := strings.Split(only, ",")
	for _, n := range names {
		if !slices.ContainsFunc(all, func(p phase) bool { return p.name == n }) {
			return nil, fmt.Errorf("no phase is called %q; there are peer, providers, idle, path, rate, services, burst, crowd, peers, dashboard and scale", n)
		}
	}
	return slices.DeleteFunc(all, func(p phase) bool { return !slices.Contains(names, p.name) }), nil
}
