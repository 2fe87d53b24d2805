// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// Targets beside the bare tunnel.
	pathTarget    = 0.85 // of its throughput
	requestTarget = 0.8  // of its requests per second
	latencyTarget = 1.3  // times its round trip
	pathRounds    = 5
	tunnelMTU     = "1340" // Liqo's default
)

// ends are two places and a way between them.
type ends struct {
	from, to func(ctx context.Context, command ...string) *exec.Cmd
	addr     string // of to, as from sees it
	tunnels  []int  // the processes of the tunnel
}

// measurePath takes turns between a bare tunnel, the same over bridges, and the peering.
func measurePath(ctx context.Context, b *bed) error {
	peering, err := b.peeringEnds(ctx)
	if err != nil {
		return err
	}
	program := filepath.Join(b.dir, "wireguard-go")
	t, u := bareTunnel{program: program, name: "bench"}, bareTunnel{program: program, name: "bridged", bridged: true}
	defer t.down()
	defer u.down()
	bare, err := t.up(ctx)
	if err != nil {
		return fmt.Errorf("make the bare tunnel: %w", err)
	}
	bridged, err := u.up(ctx)
	if err != nil {
		return fmt.Errorf("make the bare tunnel over bridges: %w", err)
	}
	var alone, through []sample
	var overBridges []float64
	for range pathRounds {
		a, err := bare.sample(ctx)
		if err != nil {
			return err
		}
		o, err := bridged.iperf(ctx)
		if err != nil {
			return err
		}
		t, err := peering.sample(ctx)
		if err != nil {
			return err
		}
		alone, overBridges, through = append(alone, a), append(overBridges, o.BitsPerSecond/1e6), append(through, t)
	}
	b.reportPath(alone, overBridges, through)
	return nil
}

func (b *bed) reportPath(alone []sample, overBridges []float64, through []sample) {
	of := func(samples []sample, value func(sample) float64) float64 {
		var all []float64
		for _, s := range samples {
			all = append(all, value(s))
		}
		return median(all)
	}
	show := func(name, unit string, value func(sample) float64) figure {
		note := "rounds"
		for i := range alone {
			note += fmt.Sprintf(" %.3g/%.3g", value(through[i]), value(alone[i]))
		}
		return figure{Group: "path", Name: name, Value: of(through, value), Unit: unit, Note: note}.beside(of(alone, value))
	}
	stream := func(s sample) float64 { return s.stream }
	trip := func(q float64) func(sample) float64 {
		return func(s sample) float64 { return quantile(s.trips, q) }
	}
	b.report.add(show("pod to pod, TCP, 1 stream", "Mbit/s", stream).atLeast(pathTarget))
	// No target: it tells which share of the loss is the bridge of this testbed's CNI.
	b.report.add(figure{Group: "path", Name: "the same, beside a bare tunnel over bridges", Value: of(through, stream), Unit: "Mbit/s"}.beside(median(overBridges)))
	b.report.add(show("TCP, 8 streams", "Mbit/s", func(s sample) float64 { return s.streams }).atLeast(pathTarget))
	b.report.add(show("UDP of 64 bytes, received", "thousands/s", func(s sample) float64 { return s.small }))
	b.report.add(show("small HTTP requests, 16 clients", "1/s", func(s sample) float64 { return s.requests }).atLeast(requestTarget))
	b.report.add(show("round trip, p50", "ms", trip(0.5)).atMost(latencyTarget))
	b.report.add(show("round trip, p99", "ms", trip(0.99)).atMost(latencyTarget))
	b.report.add(show("CPU of both gateways, TCP, 1 stream", "s/Gbit", func(s sample) float64 { return s.cpu }))
}

// peeringEnds are the pods on the nodes where the gateways run: their way is that of the
// bare tunnel, one hop to the node and one VXLAN hop to the gateway on each side.
func (b *bed) peeringEnds(ctx context.Context) (ends, error) {
	var found [2]pod
	for i, c := range b.clusters() {
		var list struct{ Items []pod }
		if err := c.api.get(ctx, "/api/v1/pods?fieldSelector=status.phase%3DRunning", &list); err != nil {
			return ends{}, err
		}
		for _, p := range list.Items {
			if strings.HasPrefix(p.Metadata.Name, "gw-") {
				found[i] = b.before[p.Spec.NodeName]
			}
		}
		if found[i].Metadata.UID == "" {
			return ends{}, fmt.Errorf("no gateway runs in %s", c.name)
		}
	}
	addr, err := b.remapped(ctx, found[1].Status.PodIP)
	if err != nil {
		return ends{}, err
	}
	from, err := processOf(found[0])
	if err != nil {
		return ends{}, err
	}
	to, err := processOf(found[1])
	enter := func(pid int) func(context.Context, ...string) *exec.Cmd {
		return func(ctx context.Context, command ...string) *exec.Cmd { return inNetOf(ctx, pid, command...) }
	}
	if err != nil {
		return ends{}, err
	}
	gateways, err := b.gateways(ctx)
	return ends{enter(from), enter(to), addr, gateways}, err
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
// or Kubernetes. Everything lies in namespaces of its own.
type bareTunnel struct {
	program string
	name    string // its own: wireguard-go has one directory of sockets, by device, for all namespaces
	// bridged puts a bridge between each node and its gateway, as a bridge CNI does. It cuts
	// VXLAN frames into segments in software (measured: Linux 6.18).
	bridged bool
	stops   []func()
	pids    []int
}

// space names the namespace of a place.
func (t *bareTunnel) space(place string) string { return "liqo-" + t.name + "-" + place }

// spaces are the namespaces in the order of the way.
func (t *bareTunnel) spaces() []string {
	return []string{t.space("podA"), t.space("nodeA"), t.space("gwA"), t.space("gwB"), t.space("nodeB"), t.space("podB")}
}

func (t *bareTunnel) down() {
	for _, stop := range t.stops {
		stop()
	}
	for _, s := range t.spaces() {
		exec.Command("ip", "netns", "delete", s).Run() // it may not be there
	}
}

// bareLinks are in ip's own words. "@" stands for the namespaces' common beginning, "@under"
// for the device of a node towards its gateway. The pods' routes have the tunnel's MTU:
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
-n @nodeA address add 192.168.1.1/24 dev @under
-n @gwA address add 192.168.1.2/24 dev eth0
-n @nodeB address add 192.168.2.1/24 dev @under
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

// bridges stand after bareLinks' cables, before its addresses.
const bridges = `-n @nodeA link add cni0 type bridge
-n @nodeB link add cni0 type bridge
-n @nodeA link set eth0 master cni0
-n @nodeB link set eth0 master cni0
-n @nodeA link set cni0 up
-n @nodeB link set cni0 up
`

// links are the commands that make the way.
func (t *bareTunnel) links() string {
	text, under := bareLinks, "eth0"
	if t.bridged {
		text, under = strings.Replace(text, "-n ", bridges+"-n ", 1), "cni0"
	}
	return strings.NewReplacer("@under", under, "@", t.space("")).Replace(strings.TrimSpace(text))
}

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
	for line := range strings.Lines(t.links()) {
		words := strings.Fields(line)
		if _, err := output(exec.CommandContext(ctx, "ip", words...)); err != nil {
			return ends{}, err
		}
	}
	if err := t.tunnels(ctx); err != nil {
		return ends{}, err
	}
	enter := func(space string) func(context.Context, ...string) *exec.Cmd {
		return func(ctx context.Context, command ...string) *exec.Cmd { return inSpace(ctx, space, command...) }
	}
	return ends{enter(t.space("podA")), enter(t.space("podB")), "10.20.1.2", t.pids}, nil
}

func inSpace(ctx context.Context, space string, command ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", space}, command...)...)
}

// tunnels starts wireguard-go at both gateways and routes the other side's pods into it.
func (t *bareTunnel) tunnels(ctx context.Context) error {
	keys := map[string]string{}
	public := map[string]string{}
	for _, side := range []string{"A", "B"} {
		key, err := output(exec.CommandContext(ctx, "wg", "genkey"))
		if err != nil {
			return fmt.Errorf("%w; run 'go run ./testbed deps' first", err)
		}
		cmd := exec.CommandContext(ctx, "wg", "pubkey")
		cmd.Stdin = strings.NewReader(key)
		if public[side], err = output(cmd); err != nil {
			return err
		}
		keys[side] = key
	}
	return errors.Join(
		t.tunnel(ctx, "A", keys["A"], public["B"], "172.16.0.2:51820", "10.20.0.0/16"),
		t.tunnel(ctx, "B", keys["B"], public["A"], "172.16.0.1:51820", "10.10.0.0/16"))
}

func (t *bareTunnel) tunnel(ctx context.Context, side, key, peer, endpoint, pods string) error {
	space, device := t.space("gw"+side), t.name+side
	// In the foreground: otherwise it would leave a child that nobody ends.
	program := inSpace(context.Background(), space, t.program, "--foreground", device)
	program.Env = append(os.Environ(), "LOG_LEVEL=error")
	stop, err := background(program)
	if err != nil {
		return err
	}
	t.stops, t.pids = append(t.stops, stop), append(t.pids, program.Process.Pid)
	err = eventually(ctx, "wireguard-go answers", 10*time.Second, func() (bool, error) {
		_, err := output(inSpace(ctx, space, "wg", "show", device))
		return err == nil, err
	})
	if err != nil {
		return err
	}
	configure := inSpace(ctx, space, "wg", "set", device, "listen-port", "51820", "private-key", "/dev/stdin",
		"peer", strings.TrimSpace(peer), "allowed-ips", "0.0.0.0/0", "endpoint", endpoint)
	configure.Stdin = strings.NewReader(key)
	for _, cmd := range []*exec.Cmd{
		configure,
		inSpace(ctx, space, "ip", "link", "set", device, "mtu", tunnelMTU, "up"),
		inSpace(ctx, space, "ip", "route", "add", pods, "dev", device),
	} {
		if _, err := output(cmd); err != nil {
			return err
		}
	}
	return nil
}
