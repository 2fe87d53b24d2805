// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/patience"
)

// tool is the built program with a directory of its own.
type tool struct {
	t    *testing.T
	path string
	dir  string
}

func newTool(t *testing.T) tool {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("clusters need root")
	}
	path := filepath.Join(t.TempDir(), "testbed")
	if out, err := exec.Command("go", "build", "-o", path, "..").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	// What the first build leaves in the cache does not belong to a cluster.
	if out, err := exec.Command(path, "build").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	tb := tool{t: t, path: path, dir: filepath.Join(t.TempDir(), "state")}
	t.Cleanup(func() { _ = tb.command("down", "--all").Run() }) // after a failure; else there is nothing
	return tb
}

func (tb tool) command(args ...string) *exec.Cmd {
	return exec.Command(tb.path, append([]string{args[0], "--dir", tb.dir}, args[1:]...)...)
}

func (tb tool) run(args ...string) string {
	tb.t.Helper()
	out, err := tb.command(args...).CombinedOutput()
	if err != nil {
		tb.t.Fatalf("testbed %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// kubectl asks a cluster until it succeeds and the answer has the text.
func (tb tool) kubectl(cluster, want string, args ...string) {
	tb.t.Helper()
	tb.eventually(fmt.Sprintf("%q of %s: kubectl %s", want, cluster, strings.Join(args, " ")), func() error {
		cmd := exec.Command(filepath.Join(tb.dir, "bin", "kubectl"), append([]string{"--kubeconfig", filepath.Join(tb.dir, cluster, "kubeconfig")}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
}

// eventually repeats a check until it succeeds.
func (tb tool) eventually(what string, check func() error) {
	tb.t.Helper()
	var err error
	for deadline := time.Now().Add(patience.Limit); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	tb.t.Fatalf("last: %v\ngave up after %s: waited for %s", err, patience.Limit, what)
}

// made reports whether a text names something that this tool made, and not one with another
// directory: its directory, a network namespace or a cgroup. See testbed/testbed.go: id.
func (tb tool) made(text string) bool {
	sum := sha256.Sum256([]byte(tb.dir))
	id := hex.EncodeToString(sum[:2])
	return slices.ContainsFunc([]string{tb.dir, "/ltb-" + id + "-", "/liqo-testbed/" + id},
		func(mark string) bool { return strings.Contains(text, mark) })
}

// ours returns the lines that name something this tool made.
func (tb tool) ours(lines []string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return !tb.made(line) })
}

// machine is what a cluster could leave behind, as comparable lines by kind.
type machine map[string][]string

// inNetwork matches what the clusters rome and milan have in their network namespaces: links of nodes
// and bridges, addresses of nodes, tables of nftables. Nothing of it belongs into the machine's.
var inNetwork = regexp.MustCompile(`\b(rome|milan)\b|\b172\.31\.[12]0\.|\btable \w+ (testbed-|kube-proxy\b)`)

// network returns the lines of a command's output that clusters could have caused.
func network(t *testing.T, command ...string) []string {
	t.Helper()
	return slices.DeleteFunc(output(t, command...), func(line string) bool { return !inNetwork.MatchString(line) })
}

// look returns what is there. Others may have clusters, containers, mounts and links at the same time,
// so of these kinds only what the tool could make counts, and a directory for all once it is empty.
func (tb tool) look(t *testing.T) machine {
	t.Helper()
	m := machine{
		"namespaces": tb.namespaces(t),
		"mounts":     tb.ours(lines(t, "/proc/self/mounts")),
		"links":      network(t, "ip", "-brief", "link"),
		"addresses":  network(t, "ip", "-brief", "address"),
		"routes":     network(t, "ip", "route", "show", "table", "all"),
		"tables":     network(t, "nft", "list", "tables"),
		"cgroups":    tb.ours(cgroups(t)),
		"processes":  tb.processes(t),
	}
	for _, dir := range []string{"/etc", "/var/lib", "/var/log", "/run", "/opt", "/usr/libexec", "/var/run"} {
		m["files"] = append(m["files"], names(t, dir)...)
	}
	m["files"] = slices.DeleteFunc(m["files"], func(name string) bool {
		return strings.HasSuffix(name, "/run/netns") && len(names(t, name)) > 0
	})
	for _, setting := range []string{"kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom", "net/ipv4/ip_forward"} {
		m["settings"] = append(m["settings"], setting+"="+strings.Join(lines(t, "/proc/sys/"+setting), ""))
	}
	return m
}

// compare fails with everything that came and everything that went.
func (m machine) compare(t *testing.T, after machine) {
	t.Helper()
	for _, kind := range slices.Sorted(maps.Keys(m)) {
		for _, line := range after[kind] {
			if !slices.Contains(m[kind], line) {
				t.Errorf("left behind in %s: %s", kind, line)
			}
		}
		for _, line := range m[kind] {
			if !slices.Contains(after[kind], line) {
				t.Errorf("missing in %s: %s", kind, line)
			}
		}
	}
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func output(t *testing.T, command ...string) []string {
	t.Helper()
	b, err := exec.Command(command[0], command[1:]...).Output()
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(command, " "), err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// names are the entries of a directory, none when it is missing.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, filepath.Join(dir, e.Name()))
	}
	return all
}

// namespaces are the names of the tool's network namespaces.
func (tb tool) namespaces(t *testing.T) []string {
	t.Helper()
	return tb.ours(names(t, "/run/netns"))
}

func cgroups(t *testing.T) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// processes are those in a cgroup of the tool, and those that start a node of it.
func (tb tool) processes(t *testing.T) []string {
	t.Helper()
	var found []string
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(command) == 0 { // gone, or of the kernel
			continue
		}
		text := string(bytes.ReplaceAll(command, []byte{0}, []byte(" ")))
		groups, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		starts := strings.Contains(text, "node-init") || strings.Contains(text, "node-spawn")
		if err == nil && tb.made(string(groups)) || starts && tb.made(text) {
			found = append(found, fmt.Sprintf("%s %s", filepath.Base(dir), text))
		}
	}
	return found
}
