// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A node is one process tree in its own network, mount, pid, host name, IPC and cgroup
// namespaces. Its first process is this program ("node-init"); the kernel ends all
// others with it, which is also how a crash of the node is made.

// nodeSpec is what the first process of a node reads, <node>/node.json.
type nodeSpec struct {
	Cluster Cluster
	Node    string
	Dir     string // the node's own directory
	PKI     string // the cluster's CA and administrator
	Path    string // PATH of its processes
}

// startNode starts a node unless it runs: network, files, first process.
func (t Testbed) startNode(c Cluster, node string) error {
	if _, running := t.initOf(c, node); running {
		_, err := t.inNet(c.nodeName(node), podRoutes(c, node), "ip", "-batch", "-") // the cluster may have grown
		return err
	}
	if err := t.endProcesses(c.nodeName(node)); err != nil {
		return err
	}
	if err := t.attachNode(c, node); err != nil {
		return err
	}
	if err := t.writeNode(c, node); err != nil {
		return err
	}
	return t.spawnNode(c, node)
}

// stopNode ends a node at once, as a loss of power does. Its files stay.
func (t Testbed) stopNode(nodeName string) error {
	if err := t.endProcesses(nodeName); err != nil {
		return err
	}
	if err := t.detachNode(nodeName); err != nil {
		return err
	}
	return t.removeCgroups(nodeName)
}

// renewPrograms ends those programs of a running node that are not of the cluster's version of Kubernetes. The node
// starts them again, from the version's folder; containers go on. They are killed: without its etcd, an API server
// takes a minute to end.
func (t Testbed) renewPrograms(c Cluster, node string) error {
	pid, _ := t.initOf(c, node)
	var former []int
	for name, program := range t.supervised(c, node) {
		want, err := os.Stat(filepath.Join(t.kubernetesDir(c), name))
		if err != nil {
			continue // a program of the machine, like containerd
		}
		if have, err := os.Stat(fmt.Sprintf("/proc/%d/exe", program)); err == nil && !os.SameFile(have, want) {
			former = append(former, program)
		}
	}
	if len(former) == 0 {
		return nil
	}
	mount := exec.Command("nsenter", "--target", strconv.Itoa(pid), "--mount", "--", "mount", "--bind", t.kubernetesDir(c), programs)
	if _, err := run(mount); err != nil {
		return err
	}
	for _, program := range former {
		if err := syscall.Kill(program, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end program %d of %s: %w", program, c.nodeName(node), err)
		}
	}
	return nil
}

// initOf finds the first process of a node.
func (t Testbed) initOf(c Cluster, node string) (pid int, running bool) {
	all, err := machineHierarchies()
	if err != nil {
		return 0, false
	}
	top := t.cgroup(all[0], c.nodeName(node))
	for _, pid := range append(processesIn(top), processesIn(filepath.Join(top, initCgroup))...) {
		if args := commandLine(pid); len(args) > 1 && args[1] == nodeInitVerb {
			return pid, true
		}
	}
	return 0, false
}

// commandLine is empty when the process is gone.
func commandLine(pid int) []string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}

// supervised are the programs a node keeps running, by name.
func (t Testbed) supervised(c Cluster, node string) map[string]int {
	init, running := t.initOf(c, node)
	if !running {
		return nil
	}
	pids, _ := t.processes(c.nodeName(node))
	programs := map[string]int{}
	for _, pid := range pids {
		name := filepath.Base(commandLine(pid)[0])
		// containerd's shims are adopted, not started, by the first process.
		if parentOf(pid) == init && !strings.HasPrefix(name, "containerd-shim") {
			programs[name] = pid
		}
	}
	return programs
}

// parentOf is 0 when the process is gone.
func parentOf(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	// pid (name, which may hold anything) state ppid …
	_, rest, _ := strings.Cut(string(b[max(0, strings.LastIndexByte(string(b), ')')):]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

// writeNode writes everything a node reads. A node that starts again finds its old data
// and new certificates of the same authority.
func (t Testbed) writeNode(c Cluster, node string) error {
	ca, err := openAuthority(t.pkiDir(c), c, time.Now())
	if err != nil {
		return err
	}
	dir := t.nodeDir(c, node)
	for _, sub := range []string{"log", "lib", "etc", "etc.work", "tunables"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	files := map[string]string{
		"etc/hosts": hosts(c, node), "etc/hostname": c.nodeName(node) + "\n",
		// Until kube-proxy knows the cluster's DNS nobody is there: asking fails at once.
		"etc/resolv.conf": "nameserver " + c.dns().String() + "\n",
	}
	more := t.workerFiles
	if node == controlPlane {
		more = t.controlPlaneFiles
	}
	if err := more(c, node, ca, files); err != nil {
		return err
	}
	spec, err := json.MarshalIndent(nodeSpec{Cluster: c, Node: node, Dir: dir, PKI: t.pkiDir(c), Path: t.nodePath(c)}, "", "  ")
	if err != nil {
		return err
	}
	files["node.json"] = string(spec)
	for name, content := range files {
		if err := writeFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// kubernetesDir is where nodes of a cluster have their programs from.
func (t Testbed) kubernetesDir(c Cluster) string { return filepath.Join(t.Cache, c.release().folder()) }

func (t Testbed) nodePath(c Cluster) string {
	return t.kubernetesDir(c) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

func (t Testbed) controlPlaneFiles(c Cluster, _ string, ca authority, files map[string]string) error {
	const etc = "etc/kubernetes/"
	for _, name := range []string{"ca.crt", "ca.key", "sa.key", "sa.pub"} {
		b, err := os.ReadFile(filepath.Join(t.pkiDir(c), name))
		if err != nil {
			return err
		}
		files[etc+"pki/"+name] = string(b)
	}
	identities := controlPlaneIdentities()
	identities["apiserver"] = apiServerIdentity(c)
	for name, id := range identities {
		cert, key, err := ca.issue(id)
		if err != nil {
			return err
		}
		files[etc+"pki/"+name+".crt"], files[etc+"pki/"+name+".key"] = string(cert), string(key)
		local := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), apiPort)
		files[etc+name+".kubeconfig"] = kubeconfig(c, local, ca.certPEM(), cert, key)
	}
	return nil
}

func (t Testbed) workerFiles(c Cluster, node string, ca authority, files map[string]string) error {
	cniBin, err := cniPlugins()
	if err != nil {
		return err
	}
	const etc = "etc/kubernetes/"
	server := netip.AddrPortFrom(c.apiAddr(), apiPort)
	identities := map[string]identity{"kubelet": kubeletIdentity(c, node), "kube-proxy": {commonName: "system:kube-proxy"}}
	if program := networkPrograms[c.CNI]; program != "" {
		identities[program] = identity{commonName: program, organization: "system:masters"}
	}
	if c.CNI == cniFlannel {
		files[etc+"net-conf.json"] = flannelConfig(c)
	}
	for name, id := range identities {
		cert, key, err := ca.issue(id)
		if err != nil {
			return err
		}
		files[etc+"pki/"+name+".crt"], files[etc+"pki/"+name+".key"] = string(cert), string(key)
		files[etc+name+".kubeconfig"] = kubeconfig(c, server, ca.certPEM(), cert, key)
	}
	files[etc+"pki/ca.crt"] = string(ca.certPEM())
	files[etc+"kubelet.yaml"] = kubeletConfig(c)
	files[etc+"kube-proxy.yaml"] = kubeProxyConfig(c, node)
	files["etc/containerd/config.toml"] = containerdConfig(cniBin)
	files[filepath.Join(registriesDir, registryAddress.String(), "hosts.toml")[1:]] = registryHosts()
	files["etc/cni/net.d/10-pod.conflist"] = cniConfig(c, node)
	return nil
}

// cniPlugins is where the machine has the CNI programs.
func cniPlugins() (string, error) {
	dirs := []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}
	i := slices.IndexFunc(dirs, func(d string) bool { _, err := os.Stat(filepath.Join(d, "bridge")); return err == nil })
	if i < 0 {
		return "", errors.New("no CNI plugins in " + strings.Join(dirs, ", ") + "; run 'go run ./testbed deps'")
	}
	return dirs[i], nil
}

// spawnNode starts a node's first process by way of nodeSpawnVerb and waits until it is
// on its own.
func (t Testbed) spawnNode(c Cluster, node string) error {
	// A child that outlived this process in the middle of its work would start a node
	// that nobody asked for; the signal is bound to the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command("nsenter", "--net="+t.netns(c.nodeName(node)), t.toolPath(), nodeSpawnVerb, t.Dir, c.Name, node)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Dir = t.Repo
	if node == controlPlane {
		listener, err := listenFor(c)
		if err != nil {
			return err
		}
		defer listener.Close()
		cmd.ExtraFiles = []*os.File{listener}
	}
	if _, err := run(cmd); err != nil {
		return fmt.Errorf("start node %s: %w", c.nodeName(node), err)
	}
	return nil
}

// listenFor opens the machine's loopback port of a cluster. A socket belongs to the
// network namespace it was made in: the control plane's first process gets this one
// and serves it from inside its own namespace.
func listenFor(c Cluster) (*os.File, error) {
	addr := fmt.Sprintf("127.0.0.1:%d", c.Port)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s for the API server of %s: %w; stop what uses the port, or remove the cluster with 'down %s'", addr, c.Name, err, c.Name)
	}
	defer l.Close()
	return l.(*net.TCPListener).File()
}

const (
	nodeSpawnVerb = "node-spawn" // arguments: testbed directory, cluster, node
	nodeInitVerb  = "node-init"  // argument: node.json
)

// spawn runs in the node's network namespace and cgroups and starts its first process
// in the other namespaces: a cgroup namespace shows as its root what the process that
// makes it is in.
func spawn(t Testbed, cluster, node string) error {
	all, err := t.selectClusters([]string{cluster})
	if err != nil {
		return err
	}
	c := all[0]
	if err := t.joinCgroups(c.nodeName(node)); err != nil {
		return err
	}
	dir := t.nodeDir(c, node)
	log, err := os.OpenFile(filepath.Join(dir, "log", "init.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command(t.toolPath(), nodeInitVerb, filepath.Join(dir, "node.json"))
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	// Test clusters lack CPU, not memory. Containers do not inherit this.
	cmd.Env = []string{"PATH=" + t.nodePath(c), "HOME=/root", "GOGC=400"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWCGROUP,
	}
	if node == controlPlane {
		internet, err := os.Open(t.netns(inetSpace))
		if err != nil {
			return err
		}
		defer internet.Close()
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "listener"), internet} // 3 and inetFile
	}
	return cmd.Start()
}

// enter replaces this process by a command inside a node.
func (t Testbed) enter(c Cluster, node string, command []string) error {
	pid, running := t.initOf(c, node)
	if !running {
		return fmt.Errorf("node %s does not run; start it with 'node start %s %s'", c.nodeName(node), c.Name, node)
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	args := append([]string{"nsenter", "--target", strconv.Itoa(pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--"}, command...)
	return syscall.Exec(nsenter, args, append(os.Environ(), "PATH="+t.nodePath(c)))
}

// importImage loads an archive into a running worker.
func (t Testbed) importImage(c Cluster, node, archive string) error {
	pid, running := t.initOf(c, node)
	if !running {
		return fmt.Errorf("node %s does not run; start it with 'node start %s %s'", c.nodeName(node), c.Name, node)
	}
	_, err := run(exec.Command("nsenter", append([]string{"--target", strconv.Itoa(pid), "--mount", "--net", "--pid", "--"}, importCommand(archive)...)...))
	return err
}

// importCommand leaves unpacking to the first container that needs the image.
func importCommand(archive string) []string {
	return []string{"ctr", "--namespace", "k8s.io", "images", "import", "--no-unpack", archive}
}
