// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// program is something a testbed or its tests call, and the Debian package it is in.
type program struct{ name, pkg string }

// required are the programs without which no cluster starts.
func required() []program {
	return []program{
		{"containerd", "containerd"}, {"ctr", "containerd"}, {"runc", "runc"},
		{"nft", "nftables"}, {"iptables", "iptables"}, {"conntrack", "conntrack"},
		{"ip", "iproute2"}, {"nsenter", "util-linux"}, {"sysctl", "procps"},
	}
}

// useful are those people and tests use on nodes.
func useful() []program {
	return []program{
		{"socat", "socat"}, {"curl", "curl"}, {"openssl", "openssl"}, {"wg", "wireguard-tools"},
		{"chromium", "chromium"}, {"iperf3", "iperf3"}, {"ping", "iputils-ping"}, {"tcpdump", "tcpdump"}, {"ipset", "ipset"},
	}
}

// has looks where root finds programs, whatever PATH the caller has.
func (p program) has() bool {
	if _, err := exec.LookPath(p.name); err == nil {
		return true
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if _, err := os.Stat(filepath.Join(dir, p.name)); err == nil {
			return true
		}
	}
	return false
}

func missingPrograms() []string {
	var names []string
	for _, p := range required() {
		if !p.has() {
			names = append(names, p.name)
		}
	}
	if _, err := cniPlugins(); err != nil {
		names = append(names, "CNI plugins")
	}
	return names
}

// standsAlone tells that a program needs no library: Debian has a busybox of each kind, and the image of the
// shell holds nothing else.
func standsAlone(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// missingPackages are the Debian packages of what is not there.
func missingPackages() []string {
	var packages []string
	for _, p := range append(required(), useful()...) {
		if !p.has() && !slices.Contains(packages, p.pkg) {
			packages = append(packages, p.pkg)
		}
	}
	if _, err := cniPlugins(); err != nil {
		packages = append(packages, "containernetworking-plugins")
	}
	if !standsAlone(busybox) {
		packages = append(packages, "busybox-static")
	}
	return packages
}

// installDeps installs what is missing. Package lists are fetched when installing
// fails without: a machine that is complete asks nobody.
func installDeps(ctx context.Context) error {
	packages := missingPackages()
	if len(packages) == 0 {
		fmt.Println("all programs are there")
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this is not Debian or Ubuntu; install what is in their packages %s", strings.Join(packages, " "))
	}
	install := func() error {
		return aptGet(ctx, append([]string{"install", "--yes", "--no-install-recommends"}, packages...)...)
	}
	if install() == nil {
		return nil
	}
	return errors.Join(aptGet(ctx, "update"), install())
}

func aptGet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// Without a run level the packages start no service: nodes run their own containerd.
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
