// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command conformance runs specs of Kubernetes' own end-to-end tests twice: on a cluster whose pods all run on a
// virtual node, and on the real nodes of the provider behind it. It writes the comparison to docs/conformance.md.
//
// Start reading at run. bed.go brings the clusters up, images.go makes the images that specs ask for, page.go reads
// the reports and writes the page. leftout.go lists the specs that are not run, and why others fail.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

type options struct {
	focus string
	nodes string
	procs int
	keep  bool
	note  string
}

func main() {
	var o options
	flag.StringVar(&o.focus, "focus", "",
		"run only specs whose name matches this `expression`, and do not write the page")
	flag.StringVar(&o.nodes, "nodes", "virtual,real", "run on `virtual` or real nodes only, and do not write the page")
	flag.IntVar(&o.procs, "procs", 8, "specs at a time; most of them wait")
	flag.BoolVar(&o.keep, "keep", false, "leave the clusters running, for the next run to start from")
	flag.StringVar(&o.note, "page", "",
		"run nothing: write the page from the reports in bin/conformance-tools, with this `note` of their origin")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	began := time.Now()
	b, err := newBed(ctx)
	if err != nil {
		return err
	}
	if o.note != "" {
		virtual, err := readReport(b.tool("virtual.json"))
		if err != nil {
			return err
		}
		real, err := readReport(b.tool("real.json"))
		if err != nil {
			return err
		}
		return b.writePage(o.note, virtual, real)
	}
	if !o.keep {
		defer func() { err = cmp.Or(err, b.down()) }()
	}
	if err := b.up(ctx); err != nil {
		return err
	}
	outcomes := map[string]map[string]outcome{}
	for node := range strings.SplitSeq(o.nodes, ",") {
		runBegan := time.Now()
		if outcomes[node], err = b.specs(ctx, o, node); err != nil {
			return err
		}
		fmt.Printf("%s node: %s, %.0f minutes\n", node, count(outcomes[node]), time.Since(runBegan).Minutes())
	}
	if o.focus == "" && len(outcomes) == 2 {
		err = b.writePage("", outcomes["virtual"], outcomes["real"])
	}
	fmt.Printf("conformance took %.0f minutes\n", time.Since(began).Minutes())
	return err
}
