// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/liqo-go/liqo/internal/patience"
)

// runInit is the first process of a node: it makes the node's mounts, starts its
// programs in order and keeps them running until it is killed.
func runInit(specFile string) error {
	var spec nodeSpec
	b, err := os.ReadFile(specFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &spec); err != nil {
		return fmt.Errorf("read %s: %w", specFile, err)
	}
	cgroups, err := machineHierarchies()
	if err != nil {
		return err
	}
	kubelet, err := exec.LookPath("kubelet")
	if err != nil {
		return err
	}
	if err := mountNode(spec.Dir, filepath.Dir(kubelet), cgroups); err != nil {
		return err
	}
	if err := os.Setenv("PATH", programs+":"+os.Getenv("PATH")); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(spec.Cluster.nodeName(spec.Node))); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := setNetworkTunables(spec.Cluster); err != nil {
		return err
	}
	s := newSupervisor("/var/log")
	if spec.Node == controlPlane {
		err = runControlPlane(s, spec)
	} else {
		err = runWorker(s, spec)
	}
	if err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	return nil
}

// setNetworkTunables lets the node forward what pods send and receive.
func setNetworkTunables(c Cluster) error {
	tunables := map[string]string{"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0"}
	if c.CNI == cniPolicies {
		tunables["bridge/bridge-nf-call-iptables"] = "1" // policies count between pods of one node, too
	}
	for name, value := range tunables {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("set net/%s: %w", name, err)
		}
	}
	return nil
}

// runControlPlane starts the controllers only when the API server is ready: before
// that the rules that grant them their rights are missing, and they exit.
func runControlPlane(s *supervisor, spec nodeSpec) error {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return fmt.Errorf("take over the API server's port: %w", err)
	}
	local := fmt.Sprintf("127.0.0.1:%d", apiPort)
	go forward(listener, local)
	s.keep(etcd())
	s.keep(apiServer(spec.Cluster))
	client, err := adminClient(spec.PKI, local)
	if err != nil {
		return err
	}
	if err := client.waitReady(context.Background()); err != nil {
		return err
	}
	s.keep(controllerManager(spec.Cluster))
	s.keep(scheduler(spec.Cluster))
	if spec.Cluster.Nodes > 0 {
		go newBalancer(s, spec.Cluster, client).balance(context.Background())
		go provisionVolumes(context.Background(), client, filepath.Dir(spec.Dir))
	}
	return nil
}

// runWorker starts kubelet when its images and its Node object are there.
func runWorker(s *supervisor, spec nodeSpec) error {
	s.keep(containerd())
	if err := waitForSocket("/run/containerd/containerd.sock"); err != nil {
		return err
	}
	if err := importImages(s, spec); err != nil {
		return err
	}
	const pki = "/etc/kubernetes/pki/"
	client, err := newClient(fmt.Sprintf("%s:%d", spec.Cluster.apiAddr(), apiPort), pki+"ca.crt", pki+"kubelet.crt", pki+"kubelet.key")
	if err != nil {
		return err
	}
	if err := client.waitFor(context.Background(), "/api/v1/nodes/"+spec.Cluster.nodeName(spec.Node)); err != nil {
		return err
	}
	if program, runs := networkProgram(spec.Cluster, spec.Node); runs {
		s.keep(program)
	}
	s.keep(kubelet(spec.Cluster, spec.Node))
	s.keep(kubeProxy(spec.Cluster, spec.Node))
	return nil
}

// importImages imports the cluster's images into the node, each once in its life.
func importImages(s *supervisor, spec nodeSpec) error {
	done := filepath.Join(spec.Dir, "imported")
	before, _ := os.ReadFile(done) // missing: none
	lines := strings.Split(string(before), "\n")
	for _, archive := range spec.Cluster.Images {
		info, err := os.Stat(archive)
		if err != nil {
			return fmt.Errorf("import image: %w; run 'go run ./testbed build'", err)
		}
		line := fmt.Sprintf("%s %d %d", archive, info.Size(), info.ModTime().UnixNano())
		if slices.Contains(lines, line) {
			continue
		}
		if err := s.run(process{name: "import", args: importCommand(archive)}); err != nil {
			return err
		}
		log.Printf("imported %s", archive)
		lines = append(lines, line)
	}
	return writeFile(done, []byte(strings.Join(lines, "\n")), 0o644)
}

func waitForSocket(path string) error {
	return retry("connect to "+path, func() error {
		conn, err := net.Dial("unix", path)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// retry calls f until it succeeds, as long as tests wait. what names in the error what f does.
func retry(what string, f func() error) error {
	deadline := time.Now().Add(patience.Limit)
	for first := true; ; first = false {
		err := f()
		if err == nil {
			return nil
		}
		if first {
			log.Printf("%s: %v; trying again", what, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not within %s: %w", what, patience.Limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// forward joins every connection of the listener with a new one to target.
func forward(l net.Listener, target string) {
	for {
		in, err := l.Accept()
		if err != nil {
			log.Printf("accept: %v", err)
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", target)
			if err != nil {
				return // the client sees a closed connection, as from a dead server
			}
			defer out.Close()
			join(in.(*net.TCPConn), out.(*net.TCPConn))
		}()
	}
}

func join(a, b *net.TCPConn) {
	var both sync.WaitGroup
	oneWay := func(to, from *net.TCPConn) {
		_, _ = io.Copy(to, from) // the end of a connection is not an error here
		_ = to.CloseWrite()
	}
	both.Go(func() { oneWay(a, b) })
	both.Go(func() { oneWay(b, a) })
	both.Wait()
}

// supervisor starts programs and starts them again when they end. As the first process
// of its pid namespace it also inherits the orphans, so one loop waits for all children.
type supervisor struct {
	logs    string
	mu      sync.Mutex
	waiting map[int]chan syscall.WaitStatus
}

func newSupervisor(logs string) *supervisor {
	s := &supervisor{logs: logs, waiting: map[int]chan syscall.WaitStatus{}}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		for range children {
			s.reap()
		}
	}()
	return s
}

func (s *supervisor) reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err != nil && errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ended, ok := s.waiting[pid]; ok {
			delete(s.waiting, pid)
			ended <- status
		}
	}
}

// start runs a program with its log as output and says when it ended.
func (s *supervisor) start(p process) (ended <-chan syscall.WaitStatus, err error) {
	out, err := os.OpenFile(filepath.Join(s.logs, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	if p.asNobody && hasNobody() {
		const nobody, dacOverride = 65534, 1 // CAP_DAC_OVERRIDE
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
			AmbientCaps: []uintptr{dacOverride},
		}
	}
	// Locked until the process is known: it may end before Start returns.
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	status := make(chan syscall.WaitStatus, 1)
	s.waiting[cmd.Process.Pid] = status
	return status, cmd.Process.Release()
}

// hasNobody reports whether user nobody can be used: in the initial user namespace, which maps all user IDs.
func hasNobody() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Contains(string(ids), "4294967295")
}

// run runs a program to its end.
func (s *supervisor) run(p process) error {
	ended, err := s.start(p)
	if err != nil {
		return err
	}
	if status := <-ended; status.ExitStatus() != 0 {
		return fmt.Errorf("%s ended with %s; see %s.log", strings.Join(p.args, " "), describe(status), p.name)
	}
	return nil
}

// keep runs a program for ever. One that ends soon after its start waits longer and
// longer, up to 5 seconds.
func (s *supervisor) keep(p process) {
	p.args = append([]string{p.name}, p.args...)
	go func() {
		const shortest, longest = 300 * time.Millisecond, 5 * time.Second
		pause := shortest
		for {
			log.Printf("start %s", p.name)
			began := time.Now()
			ended, err := s.start(p)
			if err != nil {
				log.Printf("start %s: %v", p.name, err)
			} else {
				log.Printf("%s ended with %s", p.name, describe(<-ended))
			}
			if time.Since(began) > 10*time.Second {
				pause = shortest
			}
			time.Sleep(pause)
			pause = min(2*pause, longest)
		}
	}()
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
