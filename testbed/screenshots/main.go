// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command screenshots writes pictures of the dashboard's pages into docs/images, from its recorded clusters. They show
// nothing of the moment or the machine, except for its fonts.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/liqo-go/liqo/dashboard"
	"github.com/liqo-go/liqo/testbed/browser"
)

// The size of pictures in pixels: lower pages have lower pictures, and higher pages are cut off.
const width, maxHeight = 1280, 960

// shot is one picture: a file, the page it shows, and the colours the reader prefers.
type shot struct{ file, path, scheme string }

func shots() []shot {
	return []shot{
		{"map.png", "/", "light"},
		{"map-dark.png", "/", "dark"},
		{"peer.png", "/peers/milan", "light"},
		{"workloads.png", "/workloads", "light"},
		{"events.png", "/events", "light"},
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	err := run(ctx, filepath.Join("docs", "images"))
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

// run serves the recorded clusters and writes all pictures into a directory.
func run(ctx context.Context, dir string) (err error) {
	demo, err := dashboard.Demo()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := dashboard.New(dashboard.NewSnapshots(demo), listener)
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(serving) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	b, err := browser.Start(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.Open(server.URL()); err != nil { // the browser gets its cookie
		return err
	}
	for _, s := range shots() {
		if err := s.take(b, "http://"+listener.Addr().String(), filepath.Join(dir, s.file)); err != nil {
			return fmt.Errorf("take %s: %w", s.file, err)
		}
	}
	return nil
}

// take writes one picture.
func (s shot) take(b *browser.Browser, server, file string) error {
	var height int64
	for _, step := range []func() error{
		func() error { return b.Scheme(s.scheme) },
		func() error { return b.Resize(width, 1) },
		func() error { return b.Open(server + s.path) },
		func() error { return b.Eval("document.documentElement.scrollHeight", &height) },
		func() error { return b.Resize(width, min(height, maxHeight)) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	picture, err := b.Picture()
	if err != nil {
		return err
	}
	if picture, err = small(picture); err != nil {
		return err
	}
	return os.WriteFile(file, picture, 0o644)
}
