// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What the processes of the clusters use, Kubernetes' own among them.

// usage is CPU in seconds by cluster and program, as "rome kube-apiserver", and of the machine when nothing ran, as
// idle, in seconds of all cores.
type usage map[string]float64

// usage reads what all processes of the clusters have used since they began. Of Kubernetes' own it leaves out
// children that have ended: the first process of a node is the parent of all.
func (b *bed) usage() (usage, error) {
	out := usage{}
	ofCluster := regexp.MustCompile(regexp.QuoteMeta(b.dir) + `/(` + b.rome.name + `|` + b.milan.name + `)/`)
	parents, commands := map[int]int{}, map[int][]string{}
	for _, pid := range pids() {
		command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
		commands[pid] = strings.Split(string(command), "\x00")
		parents[pid] = int(number(stat(pid, parentField)))
	}
	for pid, command := range commands {
		role := filepath.Base(command[0])
		if role == "liqo" && len(command) > 1 {
			role += " " + command[1]
		}
		for at := pid; at > 1; at = parents[at] {
			if found := ofCluster.FindStringSubmatch(strings.Join(commands[at], " ") + "/"); found != nil {
				out[found[1]+" "+role] += cpuOf(pid, role != filepath.Base(command[0]))
				break
			}
		}
	}
	content, err := os.ReadFile("/proc/stat")
	if fields := strings.Fields(string(content)); len(fields) > 4 {
		out[idle] = number(fields[4]) / ticks
	}
	return out, err
}

// since returns what was used after an earlier look.
func (u usage) since(earlier usage) usage {
	out := usage{}
	for name, now := range u {
		out[name] = max(0, now-earlier[name])
	}
	return out
}

// leastUsed in ms per pod is what is worth a line.
const leastUsed = 0.1

// idle is the key of the time in which no process ran.
const idle = "idle"

// busy returns the CPU seconds of all processes.
func (u usage) busy() (all float64) {
	for name, used := range u {
		if name != idle {
			all += used
		}
	}
	return all
}

// profileTime is how long -profile looks.
const profileTime = 20 * time.Second

// profiles begins to record profiles of both API servers and of our processes, and returns what waits for them. Ours
// have names of functions only if the image was built by 'make image LDFLAGS='.
func (b *bed) profiles(ctx context.Context, name string) (wait func() error) {
	file := func(what string) string {
		return filepath.Join(b.profile, strings.ReplaceAll(name, " ", "-")+"-"+what+".pprof")
	}
	errs := make(chan error, len(b.clusters())+1)
	for _, c := range b.clusters() {
		go func() { errs <- c.api.profile(ctx, file(c.name+"-kube-apiserver")) }()
	}
	go func() { errs <- b.perf(ctx, strings.TrimSuffix(file("liqo"), ".pprof")+".perf") }()
	return sync.OnceValue(func() (err error) {
		for range cap(errs) {
			if one := <-errs; one != nil {
				err = fmt.Errorf("profile: %w", one)
			}
		}
		return err
	})
}

// profile keeps a CPU profile of an API server.
func (a api) profile(ctx context.Context, file string) error {
	path := "/debug/pprof/profile?seconds=" + strconv.Itoa(int(profileTime.Seconds()))
	resp, err := a.open(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = io.Copy(out, resp.Body)
	return err
}

// perf keeps samples of all our processes.
func (b *bed) perf(ctx context.Context, file string) error {
	all, err := b.look(ctx)
	if err != nil {
		return err
	}
	var pids []string
	for _, processes := range all {
		for _, p := range processes {
			pids = append(pids, strconv.Itoa(p.pid))
		}
	}
	_, err = output(exec.CommandContext(ctx, "perf", "record", "-q", "-g", "-e", "cpu-clock", "-F", "199", "-o", file,
		"-p", strings.Join(pids, ","), "--", "sleep", strconv.Itoa(int(profileTime.Seconds()))))
	return err
}
