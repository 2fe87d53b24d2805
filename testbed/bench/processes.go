// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	idleTime   = 60 * time.Second
	settleTime = 20 * time.Second // what a peering still has to do when it works
	idleTarget = 200.0            // MB of all our processes of a cluster
)

// process is one of ours, as the kernel accounts for it.
type process struct {
	pid       int
	role, pod string
	rss, anon float64 // MB; anon is what is not a file's
	pss       float64 // MB; pages of several processes are split between them
	cpu       float64 // seconds since it started, with children that have ended
}

// ofPod finds the pod in the cgroup of a process.
var ofPod = regexp.MustCompile(`pod([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})`)

// podOf is the UID of the pod a process belongs to; "" when it is gone or of no pod.
func podOf(pid int) string {
	cgroups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if found := ofPod.FindSubmatch(cgroups); found != nil {
		return string(found[1])
	}
	return ""
}

// pids are all processes of the machine.
func pids() []int {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	var all []int
	for _, f := range folders {
		if pid, err := strconv.Atoi(filepath.Base(f)); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// processOf is any process of a pod: all share its network.
func processOf(p pod) (int, error) {
	for _, pid := range pids() {
		if podOf(pid) == p.Metadata.UID {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("pod %s has no process on this machine", p.Metadata.Name)
}

// processes are ours in one cluster: those called liqo in its pods.
func (c cluster) processes(ctx context.Context) ([]process, error) {
	var list struct{ Items []pod }
	if err := c.api.get(ctx, "/api/v1/pods", &list); err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, p := range list.Items {
		names[p.Metadata.UID] = p.Metadata.Name
	}
	var all []process
	for _, pid := range pids() {
		pod, ours := names[podOf(pid)]
		if line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); ours {
			if args := strings.Split(string(line), "\x00"); len(args) > 1 && filepath.Base(args[0]) == "liqo" {
				all = append(all, measure(process{pid: pid, role: args[1], pod: pod}))
			}
		}
	}
	slices.SortFunc(all, func(a, b process) int { return strings.Compare(a.role+a.pod, b.role+b.pod) })
	return all, nil
}

// measure leaves figures at zero when the process has ended.
func measure(p process) process {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		switch fields[0] {
		case "VmRSS:":
			p.rss = number(fields[1]) / 1024
		case "RssAnon:":
			p.anon = number(fields[1]) / 1024
		}
	}
	shared, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.pid))
	for line := range strings.Lines(string(shared)) {
		if size, ok := strings.CutPrefix(line, "Pss:"); ok {
			p.pss = number(strings.Fields(size)[0]) / 1024
		}
	}
	p.cpu = cpuOf(p.pid, true)
	return p
}

// ticks are the units of times that the kernel tells, in a second.
const ticks = 100

// Fields of /proc/<pid>/stat behind the name of the program. Times are in user and kernel mode.
const (
	parentField   = 1
	userField     = 11
	kernelField   = 12
	childrenField = 13 // and the one behind it, of children that have ended
)

// stat returns a field of /proc/<pid>/stat behind the name, which is in brackets and may hold anything; "" when the
// process has ended.
func stat(pid, field int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) <= field {
		return ""
	}
	return fields[field]
}

// cpuOf returns the seconds a process has used, with those of its children that have ended, such as nft, or without.
func cpuOf(pid int, children bool) float64 {
	used := number(stat(pid, userField)) + number(stat(pid, kernelField))
	if children {
		used += number(stat(pid, childrenField)) + number(stat(pid, childrenField+1))
	}
	return used / ticks
}

// number is 0 for what is none.
func number(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}

// since makes cpu that of the time after an earlier look. A process that was not there
// then counts in full.
func since(earlier, now []process) []process {
	now = slices.Clone(now)
	for i := range now {
		for _, e := range earlier {
			if e.pid == now[i].pid {
				now[i].cpu -= e.cpu
			}
		}
	}
	return now
}

func sum(processes []process) (total process) {
	for _, p := range processes {
		total.rss, total.anon, total.pss, total.cpu = total.rss+p.rss, total.anon+p.anon, total.pss+p.pss, total.cpu+p.cpu
	}
	return total
}

// detail is what stands beside the resident memory.
func (p process) detail(during string) string {
	return fmt.Sprintf("anonymous %.1f MB, proportional %.1f MB, CPU %.2f s in %s", p.anon, p.pss, p.cpu, during)
}

// look takes the processes of both clusters.
func (b *bed) look(ctx context.Context) (map[string][]process, error) {
	found := map[string][]process{}
	for _, c := range b.clusters() {
		all, err := c.processes(ctx)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("no process of Liqo runs in %s", c.name)
		}
		found[c.name] = all
	}
	return found, nil
}

// pause lets time pass: what is measured is what happens in it.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// lookTwice looks when all has settled and again after a time.
func (b *bed) lookTwice(ctx context.Context, settle, between time.Duration) (before, after map[string][]process, err error) {
	if err = pause(ctx, settle); err != nil {
		return nil, nil, err
	}
	if before, err = b.look(ctx); err != nil {
		return nil, nil, err
	}
	if err = pause(ctx, between); err != nil {
		return nil, nil, err
	}
	after, err = b.look(ctx)
	return before, after, err
}

// measureIdle is about a peering that nobody uses.
func measureIdle(ctx context.Context, b *bed) error {
	before, after, err := b.lookTwice(ctx, settleTime, idleTime)
	if err != nil {
		return err
	}
	for _, c := range b.clusters() {
		b.reportProcesses("idle", c.name, idleTime.String(), since(before[c.name], after[c.name]))
	}
	return nil
}

// reportProcesses prints one line for each process, and a sum against the target when
// the cluster was idle.
func (b *bed) reportProcesses(group, cluster, during string, all []process) {
	for _, p := range all {
		b.report.add(figure{Group: group, Name: fmt.Sprintf("%s %s (%s)", cluster, p.role, p.pod), Value: p.rss, Unit: "MB",
			Note: p.detail(during)})
	}
	total := sum(all)
	f := figure{Group: group, Name: fmt.Sprintf("%s, all %d processes", cluster, len(all)), Value: total.rss, Unit: "MB", Note: total.detail(during)}
	if group == "idle" {
		f = f.below(idleTarget)
	}
	b.report.add(f)
}
