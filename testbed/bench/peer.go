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
	"slices"
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

// kindsLearned is the time after an installation in which Kubernetes' garbage collector, which deletes owned objects,
// learns the new kinds: it asks for them every 30 s.
const kindsLearned = 40 * time.Second

// measurePeer peers for the first time, and three times more, after unpeering with nothing offloaded and with pods in some
// namespaces. The very first unpeer has no target, because it may wait for the garbage collector to learn our kinds.
func measurePeer(ctx context.Context, b *bed) error {
	if peered, err := b.nodeReady(ctx, b.milan); err != nil || peered {
		if _, unpeered := b.unpeer(ctx, ""); err != nil || unpeered != nil {
			return errors.Join(err, unpeered)
		}
	}
	first, err := b.timePeering(ctx, b.milan)
	if err != nil {
		return fmt.Errorf("first time: %w", err)
	}
	b.addPeerings("first time", []peering{first}, peerTarget)
	f, err := b.unpeer(ctx, "unpeer soon after the installation, command ends")
	if err != nil {
		return err
	}
	b.report.add(f)
	if err := pause(ctx, kindsLearned); err != nil {
		return err
	}
	var again []peering
	var idle, busy []figure
	for round := range rounds {
		p, err := b.timePeering(ctx, b.milan)
		if err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
		f, err := b.unpeer(ctx, "unpeer, command ends")
		if err != nil {
			return err
		}
		again, idle = append(again, p), append(idle, f)
		if _, err := b.timePeering(ctx, b.milan); err != nil {
			return fmt.Errorf("round %d, again: %w", round+1, err)
		}
		if f, err = b.unpeerBusy(ctx); err != nil {
			return err
		}
		busy = append(busy, f)
	}
	b.addPeerings("later", again, peerAgainTarget)
	b.report.add(medianOf(idle).below(unpeerTarget))
	b.report.add(medianOf(busy).below(unpeerBusyTarget))
	return nil
}

// medianOf returns the figure with the median, and notes the least and the most of all.
func medianOf(of []figure) figure {
	var values []float64
	for _, f := range of {
		values = append(values, f.Value)
	}
	at := slices.Index(values, median(values))
	of[at].Note = span(values) + "; " + of[at].Note
	return of[at]
}

// addPeerings reports the medians of some peerings.
func (b *bed) addPeerings(which string, all []peering, target float64) {
	seconds := func(what string, value func(peering) float64) figure {
		var values []float64
		for _, p := range all {
			values = append(values, value(p))
		}
		return figure{Group: "peer", Name: what + ", " + which, Value: median(values), Unit: "s", Note: span(values)}
	}
	b.report.add(seconds("command ends", func(p peering) float64 { return p.exit }))
	b.report.add(seconds("virtual node Ready", func(p peering) float64 { return p.node }).below(target))
	if all[0].tunnel > 0 {
		b.report.add(seconds("first reply pod to pod", func(p peering) float64 { return p.tunnel }))
	}
	for i, phase := range all[0].phases {
		b.report.add(seconds("of it "+phase.name, func(p peering) float64 { return p.phases[i].seconds }))
	}
}

// measureProviders peers with a second and a third provider, beside the first, and takes them away again.
func measureProviders(ctx context.Context, b *bed) (err error) {
	names := []string{"turin", "oslo"}
	args := []string{"up", "--dir", b.dir, "--clusters", strings.Join(names, ","), "--nodes", "1", "--image", filepath.Join(b.measured, "liqo-image.tar")}
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
		b.addPeerings(fmt.Sprintf("provider %d", i+2), []peering{p}, peerBesideTarget)
	}
	for _, c := range more {
		if _, err := b.liqoctl(ctx, b.rome, "unpeer", "--remote-kubeconfig", c.kubeconfig); err != nil {
			return err
		}
	}
	return b.testbed(ctx, append([]string{"down", "--dir", b.dir}, names...)...)
}

// unpeerBusy unpeers while pods of several namespaces run at milan, and removes the namespaces.
func (b *bed) unpeerBusy(ctx context.Context) (f figure, err error) {
	if err = inParallel(busyNamespaces, func(i int) error { return b.busy(ctx, i) }); err == nil {
		f, err = b.unpeer(ctx, fmt.Sprintf("unpeer, pods in %d namespaces, command ends", busyNamespaces))
	}
	return f, errors.Join(err, inParallel(busyNamespaces, func(i int) error { return b.removeBusy(ctx, i) }))
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

// removeBusy returns when the namespace is gone.
func (b *bed) removeBusy(ctx context.Context, i int) error {
	path := "/api/v1/namespaces/" + busyName(i)
	if err := b.rome.api.remove(ctx, path); err != nil {
		return err
	}
	return eventually(ctx, busyName(i)+" is gone", patience, func() (bool, error) {
		err := b.rome.api.get(ctx, path, &struct{}{})
		if notFound(err) {
			return true, nil
		}
		return false, err
	})
}

// unpeer runs the command, and notes in the figure when it printed what.
func (b *bed) unpeer(ctx context.Context, name string) (figure, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began := time.Now()
	cmd := exec.CommandContext(ctx, filepath.Join(b.measured, "liqoctl"), "--kubeconfig", b.rome.kubeconfig, "unpeer",
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
	out, err := exec.CommandContext(ctx, filepath.Join(b.measured, "liqoctl"), "--kubeconfig", b.rome.kubeconfig, "peer", "-v",
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
