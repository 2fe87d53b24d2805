// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A node lives in one cgroup of every hierarchy of the machine,
// <hierarchy>/liqo-testbed/<testbed>/<cluster>-<node>, which becomes the root of its
// cgroup namespace. That is also how its processes are found: what is in there is
// ours, whoever started it and whatever file was lost.
const cgroupParent = "liqo-testbed"

// hierarchy is a mounted cgroup tree: one per controller with version 1, one for all
// with version 2. A hybrid machine has both.
type hierarchy struct {
	path    string // mount point
	options string // what mounts it again, version 1: "cpu,cpuacct", "none,name=systemd"
	v2      bool
}

// hierarchies reads the cgroup mounts of /proc/self/mountinfo.
func hierarchies(mountinfo string) []hierarchy {
	var all []hierarchy
	for line := range strings.Lines(mountinfo) {
		// 36 35 98:0 /root /point options [fields] - type source superoptions
		mount, super, ok := strings.Cut(strings.TrimSpace(line), " - ")
		left, right := strings.Fields(mount), strings.Fields(super)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		h := hierarchy{path: left[4]}
		switch right[0] {
		case "cgroup":
			h.options = controllerOptions(right[2])
		case "cgroup2":
			h.v2 = true
		default:
			continue
		}
		if !slices.ContainsFunc(all, func(o hierarchy) bool { return o.options == h.options && o.v2 == h.v2 }) {
			all = append(all, h)
		}
	}
	return all
}

// controllerOptions keeps of "rw,cpu,cpuacct" what chooses the hierarchy.
func controllerOptions(super string) string {
	var keep []string
	for _, o := range strings.Split(super, ",") {
		switch {
		case strings.HasPrefix(o, "name="):
			keep = append([]string{"none"}, append(keep, o)...)
		case o != "rw" && o != "ro" && o != "xattr" && o != "clone_children" && !strings.Contains(o, "="):
			keep = append(keep, o)
		}
	}
	return strings.Join(keep, ",")
}

// unified says that version 2 carries the controllers: there is nothing else.
func unified(all []hierarchy) bool { return len(all) == 1 && all[0].v2 }

func machineHierarchies() ([]hierarchy, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	all := hierarchies(string(b))
	if len(all) == 0 {
		return nil, errors.New("no cgroup hierarchy is mounted; mount cgroup2 at /sys/fs/cgroup")
	}
	return all, nil
}

func (t Testbed) cgroup(h hierarchy, nodeName string) string {
	return filepath.Join(h.path, cgroupParent, t.id(), nodeName)
}

// joinCgroups makes a node's cgroups and moves this process into them.
func (t Testbed) joinCgroups(nodeName string) error {
	all, err := machineHierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := prepareCgroup(h, t.cgroup(h, nodeName)); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(t.cgroup(h, nodeName), "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return fmt.Errorf("join cgroup: %w", err)
		}
	}
	return nil
}

// prepareCgroup makes a cgroup and those above it, with what a process needs to enter:
// processors and memory nodes (version 1), controllers (version 2).
func prepareCgroup(h hierarchy, path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	parent := h.path
	for _, part := range strings.Split(strings.TrimPrefix(path, h.path+"/"), "/") {
		child := filepath.Join(parent, part)
		switch {
		case h.v2:
			if err := enableControllers(parent); err != nil {
				return err
			}
		case slices.Contains(strings.Split(h.options, ","), "cpuset"):
			if err := inheritCpuset(parent, child); err != nil {
				return err
			}
		}
		parent = child
	}
	return nil
}

func inheritCpuset(parent, child string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		v, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(child, file), v, 0); err != nil {
			return fmt.Errorf("set up cgroup: %w", err)
		}
	}
	return nil
}

// enableControllers hands all controllers of a version 2 cgroup to its children.
func enableControllers(path string) error {
	available, err := os.ReadFile(filepath.Join(path, "cgroup.controllers"))
	if err != nil {
		return err
	}
	enabled, err := os.ReadFile(filepath.Join(path, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(available)) {
		if slices.Contains(strings.Fields(string(enabled)), c) {
			continue
		}
		if err := os.WriteFile(filepath.Join(path, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("enable cgroup controller %s: %w; %s must hold no processes of its own", c, err, path)
		}
	}
	return nil
}

// cgroupNodes are the nodes that have a cgroup.
func (t Testbed) cgroupNodes() ([]string, error) {
	all, err := machineHierarchies()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, h := range all {
		entries, err := os.ReadDir(filepath.Join(h.path, cgroupParent, t.id()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() && !slices.Contains(names, e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	return names, nil
}

// processes are the machine's ids of all processes of a node, sandboxes and containers
// included.
func (t Testbed) processes(nodeName string) ([]int, error) {
	all, err := machineHierarchies()
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, h := range all {
		for _, dir := range subdirectories(t.cgroup(h, nodeName)) {
			pids = append(pids, processesIn(dir)...)
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// processesIn are the processes of one cgroup; one that vanished has none.
func processesIn(cgroup string) []int {
	b, _ := os.ReadFile(filepath.Join(cgroup, "cgroup.procs"))
	var pids []int
	for _, f := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// subdirectories are a directory and all below it, parents first; those that vanish
// meanwhile are left out.
func subdirectories(dir string) []string {
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir
		}
		if e.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

// endProcesses kills everything in a node's cgroups and waits until it is gone.
func (t Testbed) endProcesses(nodeName string) error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		pids, err := t.processes(nodeName)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // gone already: fine
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("end node %s: processes %v do not end; they wait for the kernel, try again", nodeName, pids)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// removeCgroups removes a node's cgroups, and those of the testbed and of the tool once
// they are empty. An empty name removes only the latter.
func (t Testbed) removeCgroups(nodeName string) error {
	all, err := machineHierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if nodeName != "" {
			if err := removeTree(t.cgroup(h, nodeName)); err != nil {
				return err
			}
		}
		_ = os.Remove(filepath.Join(h.path, cgroupParent, t.id())) // others may be inside
		_ = os.Remove(filepath.Join(h.path, cgroupParent))
	}
	return nil
}

// removeTree removes a cgroup and its children. The kernel needs a moment after the
// last process.
func removeTree(path string) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		dirs := subdirectories(path)
		slices.Reverse(dirs)
		var failed error
		for _, dir := range dirs {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
				failed = fmt.Errorf("remove cgroup %s: %w", dir, err)
			}
		}
		if failed == nil || time.Now().After(deadline) {
			return failed
		}
		time.Sleep(10 * time.Millisecond)
	}
}
