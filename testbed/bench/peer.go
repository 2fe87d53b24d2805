// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Targets in seconds after the command starts: the virtual node takes pods; the command has ended.
const (
	peerTarget       = 2.5 // for the first time
	peerAgainTarget  = 2.0
	peerBesideTarget = 6.0 // beside other providers
	unpeerTarget     = 3.0
	unpeerBusyTarget = 10.0 // with pods in ten namespaces
	busyNamespaces   = 10
)

// peering are the moments of one peering, in seconds since the command started.
type peering struct {
	exit, node, tunnel float64
	phases             []phaseTime // as the command prints them
}

// phaseTime is what a part of the command took; parts overlap.
type phaseTime struct {
	name    string
	seconds float64
}

// measurePeer peers, unpeers, and peers again. The first unpeer has no target: Kubernetes' garbage collector deletes
// owned objects, but learns new kinds every 30 s only, and ours have just been installed.
func measurePeer(ctx context.Context, b *bed) error {
	if peered, err := b.nodeReady(ctx, b.milan); err != nil || peered {
		if _, unpeered := b.unpeer(ctx, ""); err != nil || unpeered != nil {
			return errors.Join(err, unpeered)
		}
	}
	for i, which := range []string{"first time", "second time"} {
		if i > 0 {
			f, err := b.unpeer(ctx, "unpeer soon after the installation, command ends")
			if err != nil {
				return err
			}
			b.report.add(f)
		}
		p, err := b.timePeering(ctx, b.milan)
		if err != nil {
			return fmt.Errorf("%s: %w", which, err)
		}
		b.addPeering(which, p, map[bool]float64{true: peerTarget, false: peerAgainTarget}[i == 0])
		b.report.add(figure{Group: "peer", Name: "first reply pod to pod, " + which, Value: p.tunnel, Unit: "s"})
		for _, phase := range p.phases {
			b.report.add(figure{Group: "peer", Name: "of it " + phase.name + ", " + which, Value: phase.seconds, Unit: "s"})
		}
	}
	f, err := b.unpeer(ctx, "unpeer, command ends")
	if err != nil {
		return err
	}
	b.report.add(f.below(unpeerTarget))
	if _, err := b.timePeering(ctx, b.milan); err != nil {
		return fmt.Errorf("third time: %w", err)
	}
	return b.unpeerBusy(ctx)
}

func (b *bed) addPeering(which string, p peering, target float64) {
	b.report.add(figure{Group: "peer", Name: "command ends, " + which, Value: p.exit, Unit: "s"})
	b.report.add(figure{Group: "peer", Name: "virtual node Ready, " + which, Value: p.node, Unit: "s"}.below(target))
}

// measureProviders peers with a second and a third provider, beside the first, and takes them away again.
func measureProviders(ctx context.Context, b *bed) (err error) {
	names := []string{"turin", "oslo"}
	args := []string{"up", "--dir", b.dir, "--clusters", strings.Join(names, ","), "--nodes", "1", "--image", filepath.Join(b.bin, "liqo-image.tar")}
	if err := b.testbed(ctx, args...); err != nil {
		return err
	}
	var more []cluster
	for _, name := range names {
		c, err := b.openCluster(ctx, name)
		if err != nil {
			return fmt.Errorf("open cluster %s: %w", name, err)
		}
		if err := b.install(ctx, c); err != nil {
			return err
		}
		more = append(more, c)
	}
	for i, c := range more {
		p, err := b.timePeering(ctx, c)
		if err != nil {
			return fmt.Errorf("provider %s: %w", c.name, err)
		}
		b.addPeering(fmt.Sprintf("provider %d", i+2), p, peerBesideTarget)
	}
	for _, c := range more {
		if _, err := b.liqoctl(ctx, b.rome, "unpeer", "--remote-kubeconfig", c.kubeconfig); err != nil {
			return err
		}
	}
	return b.testbed(ctx, append([]string{"down", "--dir", b.dir}, names...)...)
}

// unpeerBusy unpeers while pods of several namespaces run at milan, and removes the namespaces.
func (b *bed) unpeerBusy(ctx context.Context) error {
	err := inParallel(busyNamespaces, func(i int) error { return b.busy(ctx, i) })
	if err == nil {
		var f figure
		f, err = b.unpeer(ctx, fmt.Sprintf("unpeer, pods in %d namespaces, command ends", busyNamespaces))
		if err == nil {
			b.report.add(f.below(unpeerBusyTarget))
		}
	}
	return errors.Join(err, inParallel(busyNamespaces, func(i int) error {
		return b.rome.api.remove(ctx, "/api/v1/namespaces/"+busyName(i))
	}))
}

func busyName(i int) string { return fmt.Sprintf("bench-busy-%d", i) }

// busy offloads a namespace and runs a pod of it at milan.
func (b *bed) busy(ctx context.Context, i int) error {
	p := place{b.rome, busyName(i), busyName(i) + "-rome", nil}
	if err := p.ensure(ctx); err != nil {
		return err
	}
	if _, err := b.liqoctl(ctx, b.rome, "offload", "namespace", p.namespace, "--pod-offloading-strategy", "Remote"); err != nil {
		return err
	}
	_, err := p.run(ctx, pods, []string{"busy"})
	return err
}

// unpeer runs the command, and notes in the figure when it printed what.
func (b *bed) unpeer(ctx context.Context, name string) (figure, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "liqoctl"), "--kubeconfig", b.rome.kubeconfig, "unpeer",
		"--remote-kubeconfig", b.milan.kubeconfig)
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Run()
		in.Close()
	}()
	var steps []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := strings.TrimPrefix(strings.TrimSpace(lines.Text()), "INFO   ")
		steps = append(steps, fmt.Sprintf("%.2f %s", time.Since(began).Seconds(), line))
	}
	note := strings.Join(steps, "; ")
	if err := <-ended; err != nil {
		return figure{}, fmt.Errorf("liqoctl unpeer: %w\n%s", err, note)
	}
	return figure{Group: "peer", Name: name, Value: time.Since(began).Seconds(), Unit: "s", Note: note}, nil
}

// phaseLine is what the command prints of a phase with -v.
var phaseLine = regexp.MustCompile(`Time of (.+): ([0-9.]+)s,`)

// peer asks for more than any burst needs, so that no scheduler waits for room.
func (b *bed) peer(ctx context.Context, provider cluster) ([]phaseTime, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(b.bin, "liqoctl"), "--kubeconfig", b.rome.kubeconfig, "peer", "-v",
		"--remote-kubeconfig", provider.kubeconfig, "--gw-server-service-type", "NodePort",
		"--cpu", "1000", "--memory", "1000Gi", "--pods", "5000").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("liqoctl peer: %w\n%s", err, out)
	}
	var phases []phaseTime
	for _, found := range phaseLine.FindAllStringSubmatch(string(out), -1) {
		phases = append(phases, phaseTime{found[1], number(found[2])})
	}
	return phases, nil
}

// ensurePeered returns when pods can be offloaded and the tunnel carries traffic.
func (b *bed) ensurePeered(ctx context.Context) error {
	ready, err := b.nodeReady(ctx, b.milan)
	if err != nil || ready {
		return err
	}
	_, err = b.timePeering(ctx, b.milan)
	return err
}

// timePeering runs the command and watches the node meanwhile, and the tunnel to milan: elsewhere no pod
// waits to be reached.
func (b *bed) timePeering(ctx context.Context, provider cluster) (peering, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("peering: not within %s", patience))
	defer cancel()
	began := time.Now()
	var p peering
	steps := map[*float64]func() error{
		&p.exit: func() (err error) { p.phases, err = b.peer(ctx, provider); return err },
		&p.node: func() error {
			return eventually(ctx, "virtual node is Ready", patience, func() (bool, error) { return b.nodeReady(ctx, provider) })
		},
	}
	if provider.name == b.milan.name {
		steps[&p.tunnel] = func() error { return b.awaitReply(ctx) }
	}
	failed := make(chan error, len(steps))
	for moment, step := range steps {
		go func() {
			err := step()
			*moment = time.Since(began).Seconds()
			if err != nil {
				cancel() // no use to wait for the others
			}
			failed <- err
		}()
	}
	var all error
	for range steps {
		all = errors.Join(all, <-failed)
	}
	return p, all
}

// nodeReady is about the virtual node of a provider.
func (b *bed) nodeReady(ctx context.Context, provider cluster) (bool, error) {
	ready, err := b.rome.ready(ctx, provider.name)
	if notFound(err) {
		return false, nil
	}
	return ready, err
}

func (c cluster) ready(ctx context.Context, node string) (bool, error) {
	var n struct {
		Status struct{ Conditions []condition }
	}
	err := c.api.get(ctx, "/api/v1/nodes/"+node, &n)
	for _, condition := range n.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" {
			return err == nil, err
		}
	}
	return false, err
}

// condition is one of any object's.
type condition struct{ Type, Status string }

// awaitReply sends a packet every 50 ms from a pod of rome to one of milan, both older
// than the peering, until one is answered.
func (b *bed) awaitReply(ctx context.Context) error {
	addr, err := b.remapped(ctx, b.before["milan-n1"].Status.PodIP)
	if err != nil {
		return err
	}
	pid, err := processOf(b.before["rome-n1"])
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if replied(ctx, pid, addr) {
			return nil
		}
	}
	return fmt.Errorf("ping %s from a pod of rome: %w", addr, context.Cause(ctx))
}

// replied runs ping until the first reply; false when ping ends without one.
func replied(ctx context.Context, pid int, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := inNetOf(ctx, pid, "ping", "-n", "-i", "0.05", addr)
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return false
	}
	defer cmd.Wait()
	defer cancel()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(lines.Text(), "bytes from") {
			return true
		}
	}
	return false
}

// inNetOf is a command of this machine in the network namespace of a process.
func inNetOf(ctx context.Context, pid int, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net", "--target", strconv.Itoa(pid), "--"}, args...)...)
}

// remapped is the address under which rome reaches a pod of milan, once rome knows.
func (b *bed) remapped(ctx context.Context, addr string) (string, error) {
	var prefix netip.Prefix
	err := eventually(ctx, "rome knows how it sees milan's pods", patience, func() (bool, error) {
		var configurations struct {
			Items []struct {
				Status struct {
					Remote struct{ CIDR struct{ Pod []netip.Prefix } }
				}
			}
		}
		err := b.rome.api.get(ctx, "/apis/networking.liqo.io/v1beta1/configurations?labelSelector=liqo.io/remote-cluster-id%3Dmilan", &configurations)
		if err != nil || len(configurations.Items) == 0 || len(configurations.Items[0].Status.Remote.CIDR.Pod) == 0 {
			return false, err
		}
		prefix = configurations.Items[0].Status.Remote.CIDR.Pod[0]
		return true, nil
	})
	if err != nil {
		return "", err
	}
	if prefix.Bits() != 16 {
		return "", fmt.Errorf("rome sees milan's pods at %s: want a /16", prefix)
	}
	host, err := netip.ParseAddr(addr)
	if err != nil {
		return "", err
	}
	net, last := prefix.Addr().As4(), host.As4()
	return netip.AddrFrom4([4]byte{net[0], net[1], last[2], last[3]}).String(), nil
}
