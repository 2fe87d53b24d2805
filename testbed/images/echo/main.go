// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command echo is the test image's only program: servers that say who answered and from
// where they were asked, clients that measure, and a few things one would use a shell
// for. The image has no shell.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const usage = `echo serve [-http :8080] [-tcp :9000] [-udp :9000] [-files DIR]   answer who, where and from whom
echo get   [-n N] [-i 1s] [-timeout 5s] [-account] URL...   fetch, print answer and time
echo tcp   [-n N] [-i 1s] [-timeout 5s] [-size B] HOST:PORT   one connection, N exchanges
echo udp   [-n N] [-i 1s] [-timeout 5s] [-size B] HOST:PORT   N datagrams
echo ping  [-n N] [-i 1s] HOST   ICMP echo requests, as root; how many were answered and lost, and the longest gap
echo lookup NAME...        ask the resolver
echo cat [FILE...]         print files; without, repeat standard input line by line
echo write FILE            write standard input to a file
echo follow URL FILE       keep a file what another pod's is, each second; does nothing in that pod
echo env                   print the environment
echo sleep [DURATION]      wait, without an argument for ever
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	verbs := map[string]func(context.Context, []string) error{
		"serve": serve, "get": get, "tcp": exchangeTCP, "udp": exchangeUDP, "ping": ping,
		"lookup": lookup, "cat": cat, "write": keep, "follow": follow, "env": printEnv, "sleep": sleep,
	}
	verb, ok := verbs[args[0]]
	if !ok {
		return errors.New("unknown verb " + args[0] + "\n" + usage)
	}
	return verb(ctx, args[1:])
}

// sleep ends early, and well, when it is told to.
func sleep(ctx context.Context, args []string) error {
	if len(args) == 0 {
		<-ctx.Done()
		return nil
	}
	d, err := time.ParseDuration(args[0])
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return nil
}

func printEnv(context.Context, []string) error {
	fmt.Println(strings.Join(os.Environ(), "\n"))
	return nil
}

// cat without files is for trying an interactive "kubectl exec": it greets, and repeats
// each line until the end of input or "exit".
func cat(_ context.Context, files []string) error {
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(os.Stdout, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	if len(files) > 0 {
		return nil
	}
	fmt.Printf("%s: type, or 'exit'\n", who())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && lines.Text() != "exit" {
		fmt.Println(lines.Text())
	}
	return lines.Err()
}

// keep writes what it is told: the data has reached the disk when it returns.
func keep(_ context.Context, files []string) error {
	if len(files) != 1 {
		return errors.New("name one file")
	}
	f, err := os.Create(files[0])
	if err != nil {
		return err
	}
	_, err = io.Copy(f, os.Stdin)
	return errors.Join(err, f.Sync(), f.Close())
}

// who names this pod: its host name, and its node and cluster when the environment
// tells them.
func who() string {
	host, _ := os.Hostname()
	s := "pod=" + host
	for _, v := range []string{"NODE_NAME", "CLUSTER"} {
		if os.Getenv(v) != "" {
			s += " " + strings.ToLower(strings.TrimSuffix(v, "_NAME")) + "=" + os.Getenv(v)
		}
	}
	return s
}
