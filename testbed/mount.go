// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// initCgroup is where a node's daemons live on a machine with version 2 only: there a
// cgroup that hands controllers to children may hold no processes itself.
const initCgroup = "init"

// tunables are settings of the whole machine that kubelet sets or requires. Inside a
// node files with the wanted values cover them, and the machine keeps its own.
var tunables = [...][2]string{
	{"vm/overcommit_memory", "1"},
	{"vm/panic_on_oom", "0"},
	{"kernel/panic", "10"},
	{"kernel/panic_on_oops", "1"},
	{"kernel/keys/root_maxkeys", "1000000"},
	{"kernel/keys/root_maxbytes", "25000000"},
}

// programs is the mount point of the Kubernetes programs in a node. User nobody cannot enter the cache
// if that is in root's home.
const programs = "/run/kubernetes"

// mountNode turns a copy of the machine's mounts into those of a node: the machine's
// root file system with the node's own /etc (changes only), /var/lib, /var/log, /run,
// /proc, /sys and cgroups. It mounts the directory kubernetes at programs. It must run in new namespaces.
func mountNode(dir, kubernetes string, cgroups []hierarchy) error {
	// Private first, else everything below would appear on the machine too; shared at
	// last, so that containers can hand mounts to the node (mountPropagation).
	m := mounter{}
	m.mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	m.releaseNamespaces()
	m.mount("proc", "/proc", "proc", 0, "")
	m.mount("sysfs", "/sys", "sysfs", 0, "")
	m.mountCgroups(cgroups)
	if _, err := os.Stat("/sys/fs/bpf"); err == nil {
		_ = syscall.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "") // not in every kernel
	}
	m.mount("overlay", "/etc", "overlay", 0, fmt.Sprintf("lowerdir=/etc,upperdir=%[1]s/etc,workdir=%[1]s/etc.work", dir))
	m.mount(filepath.Join(dir, "lib"), "/var/lib", "", syscall.MS_BIND, "")
	m.mount(filepath.Join(dir, "log"), "/var/log", "", syscall.MS_BIND, "")
	m.mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
	if m.err == nil {
		m.err = os.Mkdir(programs, 0o755)
	}
	m.mount(kubernetes, programs, "", syscall.MS_BIND, "")
	for _, tunable := range tunables {
		m.coverTunable(filepath.Join(dir, "tunables"), tunable[0], tunable[1])
	}
	m.mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "")
	return m.err
}

// mounter mounts until the first error.
type mounter struct{ err error }

func (m *mounter) mount(source, target, fstype string, flags uintptr, data string) {
	if m.err != nil {
		return
	}
	if err := syscall.Mount(source, target, fstype, flags, data); err != nil {
		m.err = fmt.Errorf("mount %s: %w", target, err)
	}
}

// releaseNamespaces drops the copies of named network namespaces: a namespace would
// otherwise live as long as any node that started after it.
func (m *mounter) releaseNamespaces() {
	points := mountPoints()
	for i := len(points) - 1; i >= 0; i-- {
		if points[i] == netnsDir || strings.HasPrefix(points[i], netnsDir+"/") {
			_ = syscall.Unmount(points[i], syscall.MNT_DETACH)
		}
	}
}

// mountCgroups mounts every hierarchy again: in the node's cgroup namespace its root is
// the node's cgroup.
func (m *mounter) mountCgroups(all []hierarchy) {
	if unified(all) {
		m.mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, "")
		m.leaveRootCgroup()
		return
	}
	m.mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, "mode=755")
	for _, h := range all {
		target := filepath.Join("/sys/fs/cgroup", filepath.Base(h.path))
		if err := os.MkdirAll(target, 0o755); err != nil && m.err == nil {
			m.err = err
		}
		if h.v2 {
			m.mount("cgroup2", target, "cgroup2", 0, "")
			continue
		}
		m.mount("cgroup", target, "cgroup", 0, h.options)
		for _, controller := range strings.Split(h.options, ",") {
			_ = os.Symlink(filepath.Base(h.path), filepath.Join("/sys/fs/cgroup", controller)) // exists when alone
		}
	}
}

// leaveRootCgroup moves this process into a leaf and hands the controllers to kubelet.
func (m *mounter) leaveRootCgroup() {
	if m.err != nil {
		return
	}
	leaf := filepath.Join("/sys/fs/cgroup", initCgroup)
	if m.err = os.MkdirAll(leaf, 0o755); m.err != nil {
		return
	}
	if m.err = os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0); m.err != nil {
		return
	}
	// The process that started this one may need a moment to leave.
	const cgroup = "/sys/fs/cgroup"
	m.err = retry("enable controllers in "+cgroup, func() error { return enableControllers(cgroup) })
}

func (m *mounter) coverTunable(dir, name, value string) {
	target := filepath.Join("/proc/sys", name)
	if _, err := os.Stat(target); err != nil || m.err != nil {
		return
	}
	file := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
	if m.err = os.WriteFile(file, []byte(value+"\n"), 0o644); m.err == nil {
		m.mount(file, target, "", syscall.MS_BIND, "")
	}
}

// mountPoints are those of this process, in the order of mounting.
func mountPoints() []string {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	var points []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 {
			points = append(points, f[4])
		}
	}
	return points
}
