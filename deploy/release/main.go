// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release makes and pushes releases of Liqo without a container engine. "build" writes images, archives of
// liqoctl, the chart and what package managers need into a folder, with the same bytes from the same commit wherever it
// is checked out. "push" copies image and chart of such a folder to a registry. Start at release.build.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// passwordVariable names the environment variable with the password of the signing key.
const passwordVariable = "SIGNING_PASSWORD"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] != "build" && args[0] != "push" {
		return errors.New("the first argument is \"build\" or \"push\"")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	dist := flags.String("dist", "../../dist", "folder with the release; build replaces it")
	registry := flags.String("registry", "", "host and folder; the image is liqo in it, the chart charts/liqo")
	key := flags.String("key", "", "file with a PEM key to sign with; $"+passwordVariable+" has its password")
	unsigned := flags.Bool("unsigned", false, "sign nothing, to try a release out")
	var version, url, source *string
	var plainHTTP *bool
	if args[0] == "build" {
		version = flags.String("version", "", "version, like v0.2.0")
		url = flags.String("url", "", "where the files of the folder will be served")
		source = flags.String("source", "../..", "root of the repository")
	} else {
		plainHTTP = flags.Bool("plain-http", false, "the registry has no TLS")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *registry == "" {
		return errors.New("-registry is required")
	}
	signer, err := loadSigner(*key, os.Getenv(passwordVariable), *unsigned)
	if err != nil {
		return err
	}
	if args[0] == "push" {
		return push(ctx, *dist, *registry, *plainHTTP, signer)
	}
	root, err := filepath.Abs(*source)
	if err != nil {
		return err
	}
	r := &release{version: *version, registry: *registry, url: *url, source: root, dist: *dist}
	if err := r.check(ctx); err != nil {
		return err
	}
	return r.build(ctx, signer)
}
