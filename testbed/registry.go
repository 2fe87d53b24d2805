// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// The registry of a testbed is one process in the namespace "inet". It stores what is pushed in .registry. All nodes
// and pods reach it, nodes pull from it over plain HTTP, and it ends with the last cluster.

// registryName is the name of the program, and of its cgroup beside those of nodes.
const registryName = "registry"

// registryAddress is a part of the node networks that no cluster has. Nodes know no route but their router, which
// has the address itself.
var registryAddress = netip.MustParseAddrPort("172.31.0.1:5000")

// registrySpawnVerb has one argument, the testbed's directory.
const registrySpawnVerb = "registry-spawn"

func registryArtifact() artifact {
	return artifact{registryName, registryName, ".", registryName + "-v" + registryVersion + "/" + registryName}
}

func (t Testbed) registryDir() string { return filepath.Join(t.Dir, ".registry") }

func runRegistry(ctx context.Context, t Testbed, _ options, args []string) error {
	if len(args) != 1 || args[0] != "up" && args[0] != "down" {
		return errors.New("usage: registry up|down")
	}
	if args[0] == "up" {
		return t.registryUp(ctx)
	}
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return t.registryDown()
}

// registryUp builds and starts the registry unless it runs, and prints its address.
func (t Testbed) registryUp(ctx context.Context) error {
	if err := t.checkMachine(); err != nil {
		return err
	}
	cache, err := t.lockCache(ctx)
	if err != nil {
		return err
	}
	defer cache.Close()
	if err := t.build(ctx, []artifact{registryArtifact()}); err != nil {
		return err
	}
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	pids, err := t.processes(registryName)
	if err == nil && len(pids) == 0 {
		err = t.startRegistry()
	}
	if err != nil {
		return err
	}
	fmt.Println(registryAddress)
	return nil
}

func (t Testbed) startRegistry() error {
	if err := errors.Join(t.installTools(), t.ensureInternet(), os.MkdirAll(t.registryDir(), 0o755)); err != nil {
		return err
	}
	address := fmt.Sprintf("addr replace %s/32 dev lo\n", registryAddress.Addr())
	if _, err := t.inNet(inetSpace, address, "ip", "-batch", "-"); err != nil {
		return err
	}
	_, err := t.inNet(inetSpace, "", t.toolPath(), registrySpawnVerb, t.Dir)
	return err
}

// spawnRegistry runs in the namespace "inet" and starts the registry in its own cgroup. Clients can connect as soon as
// it returns, because the registry inherits a socket that listens.
func spawnRegistry(t Testbed) error {
	if err := t.joinCgroups(registryName); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", registryAddress.String())
	if err != nil {
		return err
	}
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(t.registryDir(), "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(t.Cache, registryArtifact().out), t.registryDir())
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles, cmd.Dir = log, log, []*os.File{socket}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// registryDown ends the registry and removes what was pushed.
func (t Testbed) registryDown() error {
	if err := t.endProcesses(registryName); err != nil {
		return err
	}
	return errors.Join(t.removeCgroups(registryName), os.RemoveAll(t.registryDir()))
}
