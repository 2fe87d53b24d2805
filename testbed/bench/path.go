// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// Targets beside the bare tunnel.
	streamTarget  = 0.85 // of its throughput with 1 stream
	streamsTarget = 0.95 // the same with 8
	requestTarget = 0.8  // of its requests per second
	p50Target     = 1.2  // times its round trip
	p99Target     = 1.3
	pathRounds    = 5
	tunnelMTU     = "1340" // Liqo's default
)

// ends are two places and a way between them.
type ends struct {
	from, to inside
	addr     string // of to, as from sees it
	tunnels  []int  // the processes of the tunnel, first from's
}

// measurePath takes turns between a bare tunnel, one between the same pods, and the peering.
func measurePath(ctx context.Context, b *bed) error {
	peering, err := b.peeringEnds(ctx)
	if err != nil {
		return err
	}
	program := filepath.Join(b.bin, "wireguard-go")
	t := bareTunnel{program: program, like: peering}
	defer t.down()
	bare, err := t.up(ctx)
	if err != nil {
		return fmt.Errorf("make the bare tunnel: %w", err)
	}
	u := podTunnel{program: program, like: peering, milan: b.milan.api}
	defer u.down()
	own, err := u.up(ctx)
	if err != nil {
		return fmt.Errorf("make the tunnel between the pods: %w", err)
	}
	var alone, between, through []sample
	for range pathRounds {
		for _, way := range []struct {
			ends
			samples *[]sample
		}{{bare, &alone}, {own, &between}, {peering.ends, &through}} {
			s, err := way.sample(ctx)
			if err != nil {
				return err
			}
			*way.samples = append(*way.samples, s)
		}
	}
	b.reportPath(alone, through)
	b.reportBetween(between, through)
	return nil
}

// reportBetween shows what Liqo adds to WireGuard where it runs: a tunnel of two pods' own takes the
// clusters' network as the gateways' does. No targets.
func (b *bed) reportBetween(between, through []sample) {
	for _, f := range []struct {
		name, unit string
		value      func(sample) float64
	}{
		{"TCP, 1 stream", "Mbit/s", func(s sample) float64 { return s.stream }},
		{"small HTTP requests", "1/s", func(s sample) float64 { return s.requests }},
		{"round trip, p50", "ms", func(s sample) float64 { return quantile(s.trips, 0.5) }},
	} {
		name := f.name + ", beside a tunnel between the same pods"
		b.report.add(figure{Group: "path", Name: name, Value: middle(through, f.value), Unit: f.unit}.beside(middle(between, f.value)))
	}
}

// middle is the median of one value of samples.
func middle(samples []sample, value func(sample) float64) float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, value(s))
	}
	return median(all)
}

func (b *bed) reportPath(alone, through []sample) {
	show := func(name, unit string, value func(sample) float64) figure {
		note := "rounds"
		for i := range alone {
			note += fmt.Sprintf(" %.3g/%.3g", value(through[i]), value(alone[i]))
		}
		return figure{Group: "path", Name: name, Value: middle(through, value), Unit: unit, Note: note}.beside(middle(alone, value))
	}
	stream := func(s sample) float64 { return s.stream }
	trip := func(q float64) func(sample) float64 {
		return func(s sample) float64 { return quantile(s.trips, q) }
	}
	b.report.add(show("pod to pod, TCP, 1 stream", "Mbit/s", stream).atLeast(streamTarget))
	b.report.add(show("TCP, 8 streams", "Mbit/s", func(s sample) float64 { return s.streams }).atLeast(streamsTarget))
	b.report.add(show("UDP of 64 bytes, received", "thousands/s", func(s sample) float64 { return s.small }))
	b.report.add(show("small HTTP requests, 16 clients", "1/s", func(s sample) float64 { return s.requests }).atLeast(requestTarget))
	b.report.add(show("round trip, p50", "ms", trip(0.5)).atMost(p50Target))
	b.report.add(show("round trip, p99", "ms", trip(0.99)).atMost(p99Target))
	b.report.add(show("CPU of both gateways, TCP, 1 stream", "s/Gbit", func(s sample) float64 { return s.cpu }))
}

// peeringWay is the way through Liqo and the pods at its ends, first rome's; processes are one of each.
type peeringWay struct {
	ends
	pods      [2]pod
	processes [2]int
}

// peeringEnds are the pods on the nodes where the gateways run: their way is that of the
// bare tunnel, one hop to the node and one VXLAN hop to the gateway on each side.
func (b *bed) peeringEnds(ctx context.Context) (peeringWay, error) {
	var found [2]pod
	for i, c := range b.clusters() {
		var list struct{ Items []pod }
		if err := c.api.get(ctx, "/api/v1/pods?fieldSelector=status.phase%3DRunning", &list); err != nil {
			return peeringWay{}, err
		}
		for _, p := range list.Items {
			if strings.HasPrefix(p.Metadata.Name, "gw-") {
				found[i] = b.before[p.Spec.NodeName]
			}
		}
		if found[i].Metadata.UID == "" {
			return peeringWay{}, fmt.Errorf("no gateway runs in %s", c.name)
		}
	}
	addr, err := b.remapped(ctx, found[1].Status.PodIP)
	if err != nil {
		return peeringWay{}, err
	}
	way := peeringWay{pods: found}
	var entered [2]inside
	for i, p := range found {
		if way.processes[i], err = processOf(p); err != nil {
			return peeringWay{}, err
		}
		entered[i] = enter(way.processes[i]).beside(way.processes[i])
	}
	gateways, err := b.gateways(ctx)
	if err == nil && len(gateways) != len(found) {
		err = fmt.Errorf("%d gateways run, not one in each cluster", len(gateways))
	}
	way.ends = ends{entered[0], entered[1], addr, gateways}
	return way, err
}

// inside makes commands that run in the network namespace of something.
type inside func(ctx context.Context, command ...string) *exec.Cmd

func enter(pid int) inside {
	return func(ctx context.Context, command ...string) *exec.Cmd { return inNetOf(ctx, pid, command...) }
}

func enterSpace(space string) inside {
	return func(ctx context.Context, command ...string) *exec.Cmd { return inSpace(ctx, space, command...) }
}

// beside runs commands in the CPU cgroup of a process. Those of pods lie some groups deep, and each group
// costs whenever a process waits or wakes: the bare tunnel carried 14,000 requests per second outside of all
// groups and 9,600 where the gateways are.
func (in inside) beside(pid int) inside {
	const join = `echo $$ > "$0" && exec "$@"`
	return func(ctx context.Context, command ...string) *exec.Cmd {
		cmd := in(ctx, command...)
		return exec.CommandContext(ctx, "sh", append([]string{"-c", join, filepath.Join(cpuCgroup(pid), "cgroup.procs")}, cmd.Args...)...)
	}
}

// cpuCgroup is the directory of a process's cgroup that shares out CPU: with version 1 that of a controller,
// with version 2 the one of all. Of a process that is gone it is nowhere.
func cpuCgroup(pid int) string {
	dir := "/nowhere"
	lines, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range strings.Lines(string(lines)) {
		// 1:cpu,cpuacct:/path or 0::/path
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(fields) < 3:
		case slices.Contains(strings.Split(fields[1], ","), "cpu"):
			return filepath.Join("/sys/fs/cgroup", fields[1], fields[2])
		case fields[1] == "":
			dir = filepath.Join("/sys/fs/cgroup", fields[2])
		}
	}
	return dir
}

// gateways are the processes that have the tunnel.
func (b *bed) gateways(ctx context.Context) ([]int, error) {
	var all []int
	for _, c := range b.clusters() {
		processes, err := c.processes(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range processes {
			if p.role == "gateway" {
				all = append(all, p.pid)
			}
		}
	}
	return all, nil
}

// bareTunnel is wireguard-go between two gateways, each one VXLAN hop away from a node,
// each node one veth away from a pod: the way of the peering, without translation, rules
// or Kubernetes. Everything lies in namespaces of its own, and in the cgroups of what does the same in
// the peering.
type bareTunnel struct {
	program string
	like    peeringWay
	tunnels
}

// space names the namespace of a place.
func (t *bareTunnel) space(place string) string { return "liqo-bench-" + place }

// spaces are the namespaces in the order of the way.
func (t *bareTunnel) spaces() []string {
	return []string{t.space("podA"), t.space("nodeA"), t.space("gwA"), t.space("gwB"), t.space("nodeB"), t.space("podB")}
}

func (t *bareTunnel) down() {
	t.stop()
	for _, s := range t.spaces() {
		exec.Command("ip", "netns", "delete", s).Run() // it may not be there
	}
}

// bareLinks are in ip's own words. "@" stands for the namespaces' common beginning. The pods' routes have the tunnel's MTU:
// nothing on the way changes segment sizes.
const bareLinks = `
link add eth0 netns @podA type veth peer name pod netns @nodeA
link add eth0 netns @podB type veth peer name pod netns @nodeB
link add eth0 netns @nodeA type veth peer name eth0 netns @gwA
link add eth0 netns @nodeB type veth peer name eth0 netns @gwB
link add out netns @gwA type veth peer name out netns @gwB
-n @podA address add 10.10.1.2/24 dev eth0
-n @nodeA address add 10.10.1.1/24 dev pod
-n @podB address add 10.20.1.2/24 dev eth0
-n @nodeB address add 10.20.1.1/24 dev pod
-n @nodeA address add 192.168.1.1/24 dev eth0
-n @gwA address add 192.168.1.2/24 dev eth0
-n @nodeB address add 192.168.2.1/24 dev eth0
-n @gwB address add 192.168.2.2/24 dev eth0
-n @gwA address add 172.16.0.1/24 dev out
-n @gwB address add 172.16.0.2/24 dev out
-n @podA link set eth0 up
-n @nodeA link set pod up
-n @podB link set eth0 up
-n @nodeB link set pod up
-n @nodeA link set eth0 up
-n @gwA link set eth0 up
-n @nodeB link set eth0 up
-n @gwB link set eth0 up
-n @gwA link set out up
-n @gwB link set out up
-n @nodeA link add ovl type vxlan id 7 dstport 6091 nolearning local 192.168.1.1 remote 192.168.1.2
-n @gwA link add ovl type vxlan id 7 dstport 6091 nolearning local 192.168.1.2 remote 192.168.1.1
-n @nodeB link add ovl type vxlan id 7 dstport 6091 nolearning local 192.168.2.1 remote 192.168.2.2
-n @gwB link add ovl type vxlan id 7 dstport 6091 nolearning local 192.168.2.2 remote 192.168.2.1
-n @nodeA address add 10.80.1.1/24 dev ovl
-n @gwA address add 10.80.1.2/24 dev ovl
-n @nodeB address add 10.80.2.1/24 dev ovl
-n @gwB address add 10.80.2.2/24 dev ovl
-n @nodeA link set ovl up
-n @gwA link set ovl up
-n @nodeB link set ovl up
-n @gwB link set ovl up
-n @podA route add default via 10.10.1.1 mtu 1340
-n @podB route add default via 10.20.1.1 mtu 1340
-n @nodeA route add 10.20.0.0/16 via 10.80.1.2
-n @nodeB route add 10.10.0.0/16 via 10.80.2.2
-n @gwA route add 10.10.0.0/16 via 10.80.1.1
-n @gwB route add 10.20.0.0/16 via 10.80.2.1`

func (t *bareTunnel) up(ctx context.Context) (ends, error) {
	t.down() // of a run that was killed
	for _, s := range t.spaces() {
		if _, err := output(exec.CommandContext(ctx, "ip", "netns", "add", s)); err != nil {
			return ends{}, err
		}
		if _, err := output(inSpace(ctx, s, "sysctl", "-qw", "net.ipv4.ip_forward=1")); err != nil {
			return ends{}, err
		}
	}
	for line := range strings.Lines(strings.ReplaceAll(strings.TrimSpace(bareLinks), "@", t.space(""))) {
		words := strings.Fields(line)
		if _, err := output(exec.CommandContext(ctx, "ip", words...)); err != nil {
			return ends{}, err
		}
	}
	a, b := enterSpace(t.space("gwA")).beside(t.like.tunnels[0]), enterSpace(t.space("gwB")).beside(t.like.tunnels[1])
	if err := t.connect(ctx, t.program,
		tunnelEnd{a, "benchA", "172.16.0.2:51820", []string{"ip route add 10.20.0.0/16 dev benchA"}},
		tunnelEnd{b, "benchB", "172.16.0.1:51820", []string{"ip route add 10.10.0.0/16 dev benchB"}}); err != nil {
		return ends{}, err
	}
	from, to := enterSpace(t.space("podA")).beside(t.like.processes[0]), enterSpace(t.space("podB")).beside(t.like.processes[1])
	return ends{from, to, "10.20.1.2", t.pids}, nil
}

func inSpace(ctx context.Context, space string, command ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", space}, command...)...)
}
