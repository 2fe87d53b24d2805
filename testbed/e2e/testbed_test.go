// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/patience"
)

// TestUpDownLeavesNothing starts clusters in every way that goes right or wrong, and
// compares the machine before and after.
func TestUpDownLeavesNothing(t *testing.T) {
	tb := newTool(t)
	before := tb.look(t)
	t.Run("another's directory", func(t *testing.T) {
		theirs := filepath.Join(t.TempDir(), "theirs")
		if err := os.WriteFile(theirs, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"up", "--clusters", "rome"}, {"down", "--all"}} {
			out, err := tool{t: t, path: tb.path, dir: filepath.Dir(theirs)}.command(args...).CombinedOutput()
			if _, gone := os.Stat(theirs); err == nil || gone != nil || !strings.Contains(string(out), "holds other things") {
				t.Errorf("%s took it: %v\n%s", args[0], gone, out)
			}
		}
	})
	t.Run("up, second up, down", func(t *testing.T) {
		tb.t = t
		tb.run("up", "--clusters", "rome,milan", "--nodes", "1")
		first := lasting(tb.processes(t))
		tb.run("up", "--clusters", "rome,milan", "--nodes", "1")
		if again := lasting(tb.processes(t)); !slices.Equal(first, again) {
			t.Errorf("the second up changed processes:\n%s\nthen\n%s", strings.Join(first, "\n"), strings.Join(again, "\n"))
		}
		tb.run("down", "milan")
		if out := tb.run("status"); strings.Contains(out, "milan") || !strings.Contains(out, "rome-n1") {
			t.Errorf("after the removal of milan:\n%s", out)
		}
		tb.run("down", "--all")
		before.compare(t, tb.look(t))
	})
	// The moments at which the tool dies, by what exists then.
	moments := map[string]func() bool{
		"the first namespace exists": func() bool { return len(tb.namespaces(t)) > 0 },
		"the first node starts":      func() bool { return len(tb.processes(t)) > 0 },
		"half of the nodes run":      func() bool { return len(tb.namespaces(t)) > 3 },
		"kubelet runs":               func() bool { return tb.runs(t, "kubelet") },
	}
	for name, moment := range moments {
		t.Run("killed when "+name+", down", func(t *testing.T) {
			tb.t = t
			tb.killUp(moment)
			tb.run("down", "--all")
			before.compare(t, tb.look(t))
		})
	}
	t.Run("killed when the first node starts, up, down", func(t *testing.T) {
		tb.t = t
		tb.killUp(moments["the first node starts"])
		tb.run("up", "--clusters", "rome,milan", "--nodes", "1")
		tb.kubectl("milan", "True", "get", "node", "milan-n1", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		tb.run("down")
		before.compare(t, tb.look(t))
	})
	t.Run("state lost, down", func(t *testing.T) {
		tb.t = t
		tb.run("up", "--clusters", "rome", "--nodes", "1")
		if err := os.Rename(tb.dir, filepath.Join(t.TempDir(), "lost")); err != nil {
			t.Fatal(err)
		}
		tb.run("down", "--all")
		before.compare(t, tb.look(t))
	})
}

// lasting are the processes that run as long as their node: a container runtime also starts such as
// come and go at any time.
func lasting(processes []string) []string {
	programs := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "containerd", "kubelet", "kube-proxy"}
	return slices.DeleteFunc(slices.Sorted(slices.Values(processes)), func(p string) bool {
		command := strings.Fields(p)[1:]
		return len(command) == 0 || !slices.Contains(programs, filepath.Base(command[0]))
	})
}

// killUp starts "up" and kills it, with SIGKILL, at a moment.
func (tb tool) killUp(moment func() bool) {
	tb.t.Helper()
	up := tb.command("up", "--clusters", "rome,milan", "--nodes", "1")
	if err := up.Start(); err != nil {
		tb.t.Fatal(err)
	}
	deadline := time.Now().Add(patience.Limit)
	for !moment() {
		if time.Now().After(deadline) {
			tb.t.Fatalf("gave up after %s: waited for the moment to kill up", patience.Limit)
		}
	}
	if err := up.Process.Kill(); err != nil {
		tb.t.Fatal(err)
	}
	if err := up.Wait(); err == nil {
		tb.t.Fatal("up ended before the moment")
	}
}

// runs reports whether a node runs a program.
func (tb tool) runs(t *testing.T, program string) bool {
	return slices.ContainsFunc(tb.processes(t), func(p string) bool {
		return filepath.Base(strings.Fields(p)[1]) == program
	})
}

// TestClustersServe uses two clusters with equal pod and service CIDRs as tests of the
// product do.
func TestClustersServe(t *testing.T) {
	tb := newTool(t)
	tb.run("up", "--clusters", "rome,milan", "--nodes", "2")
	for _, c := range []string{"rome", "milan"} {
		tb.kubectl(c, "created", "create", "-f", "testdata/echo.yaml")
		tb.kubectl(c, "successfully rolled out", "rollout", "status", "deployment/echo")
	}
	inRome := func(want string, command ...string) {
		t.Helper()
		tb.kubectl("rome", want, append([]string{"exec", "deployment/echo", "--", "/echo"}, command...)...)
	}
	inRome("pod=echo-", "get", "http://echo.default.svc.cluster.local/")
	inRome("from=", "udp", "echo:9000")
	inRome("0 failed", "tcp", "-n", "3", "-i", "10ms", "echo:9000")
	inRome("node=milan-n", "get", "http://172.31.20.11:30080/")
	tb.kubectl("rome", "http=:8080", "logs", "deployment/echo") // the API server trusts the kubelet

	t.Run("a cut link stops pods and API, and heals", func(t *testing.T) {
		tb.t = t
		tb.run("link", "cut", "rome", "milan")
		for _, url := range []string{"http://172.31.20.11:30080/", "https://172.31.20.10:6443/version"} {
			out, err := exec.Command(tb.path, "exec", "--dir", tb.dir, "rome", "n1", "--", "curl", "-sk", "--max-time", "1", url).CombinedOutput()
			if err == nil {
				t.Errorf("%s answered through a cut link: %s", url, out)
			}
		}
		tb.kubectl("milan", "milan-n1", "get", "nodes") // from the machine it is reached all the same
		tb.run("link", "heal", "milan", "rome")
		inRome("node=milan-n", "get", "http://172.31.20.11:30080/")
	})
	t.Run("packets come later, and some never", func(t *testing.T) {
		tb.t = t
		connect := func() error { // with less patience than the delay lasts
			return tb.command("exec", "rome", "n1", "--", "curl", "-so/dev/null", "--connect-timeout", "0.15", "http://172.31.20.11:30080/").Run()
		}
		tb.run("fault", "delay", "rome", "milan", "100", "--both")
		if connect() == nil {
			t.Error("a connection was made within 150 ms, with a delay of 100 ms each way")
		}
		tb.run("fault", "drop", "milan", "rome", "--port", "tcp/30080")
		if out, err := exec.Command(tb.path, "exec", "--dir", tb.dir, "rome", "n1", "--", "curl", "-s", "--max-time", "1", "http://172.31.20.11:30080/").CombinedOutput(); err == nil {
			t.Errorf("a dropped answer came late: %s", out)
		}
		tb.run("fault", "drop", "rome", "milan", "--loss", "50")
		out := tb.run("exec", "rome", "n1", "--", "ping", "-c200", "-i0.01", "-W1", "-q", "172.31.20.11")
		_, counted, _ := strings.Cut(out, "statistics ---\n")
		var sent, received int
		if _, err := fmt.Sscanf(counted, "%d packets transmitted, %d received", &sent, &received); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		if received < 60 || received > 140 { // 5 standard deviations and more
			t.Errorf("of %d packets %d came through a fault that loses half of them", sent, received)
		}
		tb.run("fault", "heal")
		tb.eventually("a connection without delay on the healed path", connect)
	})
	t.Run("killed programs come back", func(t *testing.T) {
		tb.t = t
		for _, program := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
			tb.run("kill", "rome", "cp", program)
		}
		for _, program := range []string{"containerd", "kubelet", "kube-proxy"} {
			tb.run("kill", "rome", "n1", program)
		}
		tb.kubectl("rome", "condition met", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=1s")
		tb.kubectl("rome", "created", "create", "deployment", "late", "--image=testbed.local/echo:1")
		tb.kubectl("rome", "successfully rolled out", "rollout", "status", "deployment/late")
	})
	t.Run("a crashed node comes back with its pods", func(t *testing.T) {
		tb.t = t
		tb.run("node", "stop", "rome", "n2")
		if out := tb.run("status"); !strings.Contains(out, "stopped") {
			t.Errorf("no node is stopped:\n%s", out)
		}
		tb.run("node", "start", "rome", "n2")
		tb.kubectl("rome", "1", "get", "pod", "-l", "app=echo", "--field-selector", "spec.nodeName=rome-n2",
			"-o", "jsonpath={.items[*].status.containerStatuses[*].restartCount}")
		tb.kubectl("rome", "successfully rolled out", "rollout", "status", "deployment/echo")
	})
	t.Run("a cluster grows", func(t *testing.T) {
		tb.t = t
		tb.run("up", "--clusters", "milan", "--nodes", "3")
		tb.kubectl("milan", "10.10.3.0/24", "get", "node", "milan-n3", "-o", "jsonpath={.spec.podCIDR}")
	})
	t.Run("the signers sign for kubelets and clients", func(t *testing.T) {
		tb.t = t
		for _, name := range []string{"kubelet-serving", "kube-apiserver-client"} {
			tb.kubectl("rome", "created", "create", "-f", "testdata/"+name+".yaml")
			tb.kubectl("rome", "approved", "certificate", "approve", name)
			tb.kubectl("rome", "Issued", "get", "csr", name)
		}
	})
	tb.run("down")
}
