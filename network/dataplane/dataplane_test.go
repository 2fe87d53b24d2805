// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/plan"
)

// peered makes two clusters A and B and joins them. A sees the pods of B as 10.71.0.0/16, B those
// of A as 10.72.0.0/16; external CIDRs are 10.73.0.0/16 and 10.74.0.0/16.
func peered(t testing.TB) (internet *space.Space, a, b *cluster) {
	t.Helper()
	internet = space.NewInternet(t)
	a = newCluster(t, internet, "A", 1, "10.10.1.5")
	b = newCluster(t, internet, "B", 2, "10.10.1.6")
	b.Pod.IP("addr add 10.10.1.5/24 dev eth0") // the address of A's gateway pod
	a.expose(exposed("10.70.0.2", "10.96.0.1", false), exposed("10.70.0.3", "198.51.100.9", true))
	b.dial(0, a, [2]string{"10.72.0.0/16", "10.74.0.0/16"}, [2]string{"10.71.0.0/16", "10.73.0.0/16"})
	a.settle(t)
	b.settle(t)
	for _, c := range []*cluster{a, b} {
		c.Pod.Serve("10.10.1.2:80")
		c.Node.Serve(":8080")
		c.Gateway.Serve(":8080")
	}
	b.Pod.Serve("10.10.1.5:80")
	internet.Serve("198.51.100.9:80")
	internet.Serve("192.168.1.254:80")
	waitFor(t, b.Gateway)
	return internet, a, b
}

func TestDataPath(t *testing.T) {
	internet, a, b := peered(t)
	// kube-proxy marks the first packet of what it will masquerade, and the mark is inherited by
	// the frame of the overlay around it.
	a.Node.NFT(`table ip proxy {
	chain in { type nat hook prerouting priority dstnat; fib daddr type local tcp dport 30001 meta mark set 0x4000 dnat to 10.71.1.2:80; }
	chain out { type nat hook postrouting priority srcnat; meta mark & 0x4000 != 0 masquerade fully-random; }
}`)
	reached := []struct {
		claim    string
		from     *space.Space
		source   string
		to       string
		seen     string // by the server
		networks []string
	}{
		{"pod to pod", a.Pod, "", "10.71.1.2:80", "10.72.1.2", []string{"tcp", "udp"}},
		{"pod to pod, back", b.Pod, "10.10.1.2", "10.72.1.2:80", "10.71.1.2", []string{"tcp", "udp"}},
		{"pod to a pod with the address of its gateway", a.Pod, "", "10.71.1.5:80", "10.72.1.2", []string{"tcp", "udp"}},
		{"a pod with the address of the gateway to a pod", b.Pod, "10.10.1.5", "10.72.1.2:80", "10.71.1.5", []string{"tcp", "udp"}},
		{"node to pod", a.Node, "", "10.71.1.2:80", "10.74.0.0", []string{"tcp", "udp"}},
		{"node by its own address to pod", a.Node, a.NodeIP.String(), "10.71.1.2:80", "10.74.0.0", []string{"tcp"}},
		{"node by its address among the pods to pod", a.Node, "10.10.1.1", "10.71.1.2:80", "10.74.0.0", []string{"tcp"}},
		{"a node port to pod", internet, "", a.NodeIP.String() + ":30001", "10.74.0.0", []string{"tcp"}},
		{"pod to a Service made an IP object", b.Pod, "10.10.1.2", "10.74.0.2:443", "10.10.1.1", []string{"tcp"}},
		{"pod to a masqueraded IP object", b.Pod, "10.10.1.2", "10.74.0.3:80", a.NodeIP.String(), []string{"tcp", "udp"}},
	}
	for _, c := range reached {
		for _, network := range c.networks {
			if seen := c.from.AsksUntilAnswered(t, network, c.source, c.to, 100); seen != c.seen {
				t.Errorf("%s over %s: the server saw %q, want %q", c.claim, network, seen, c.seen)
			}
		}
	}
	// Too large for the tunnel: refused first, then cut at the source, put together, translated
	// and cut again.
	for _, size := range []int{1400, 5000} {
		if seen := a.Pod.AsksUntilAnswered(t, "udp", "", "10.71.1.2:80", size); seen != "10.72.1.2" {
			t.Errorf("%d bytes over udp: the server saw %q", size, seen)
		}
	}
	a.Pod.PingsUntilAnswered(t, "10.71.1.2")
	b.Pod.PingsUntilAnswered(t, "-I", "10.10.1.2", "10.72.1.2")
	for claim, to := range map[string]string{
		"the gateway pod": "10.72.1.5:8080", "the node by its address among the pods": "10.72.1.1:8080",
		"a node port": "10.72.1.1:30000", "an external address without IP object": "10.74.0.9:80",
		"the address that stands for nodes": "10.74.0.0:8080",
	} {
		if seen, err := b.Pod.Asks("tcp", "10.10.1.2", to, 0); err == nil {
			t.Errorf("%s is reached from the peer, seen as %q", claim, seen)
		}
	}
}

// TestErrorsAreUnderstood: ICMP errors quote the packet they are about, and whoever sent it knows it
// again, wherever on the way they come from – also where the node drops those that fit no connection,
// as kube-proxy does. So a sender learns what fits, what is closed, and the way.
func TestErrorsAreUnderstood(t *testing.T) {
	_, a, b := peered(t)
	// The view of B's pods is also a CIDR of B, with a view of its own.
	twice := netv1beta1.Mapping{Remote: prefixes("10.71.0.0/16")[0], Local: prefixes("10.75.0.0/16")[0]}
	a.gateways[0].in.Remote = append(a.gateways[0].in.Remote, twice)
	a.announce()
	a.settle(t)
	for _, c := range []*cluster{a, b} {
		c.Node.NFT("table ip proxy { chain f { type filter hook forward priority filter; ct state invalid drop; }; }")
	}
	a.learnsOfAClosedPort(t)
	for ttl, from := range map[int]string{1: "10.10.1.1", 2: "10.80.128.1", 3: "169.254.18.2", 4: "10.73.0.0"} {
		want := fmt.Sprintf("From %s icmp_seq=1 Time to live exceeded", from)
		space.Eventually(t, fmt.Sprintf("%q after %d hops", want, ttl), func() error {
			out, err := a.Pod.Try("", "ping", "-nc1", "-W1", "-t", fmt.Sprint(ttl), "10.71.1.2")
			if err == nil || !strings.Contains(out, want) {
				return errors.New(out)
			}
			return nil
		})
	}
	learns := func(mtu string, size int) {
		t.Helper()
		space.Eventually(t, "a sender that learns "+mtu, func() error {
			a.Pod.Asks("udp", "", "10.71.1.2:80", size)
			if route := a.Pod.IP("route get 10.71.1.2"); !strings.Contains(route, mtu) {
				return errors.New(route)
			}
			return nil
		})
	}
	b.Node.IP("route replace 10.10.1.2 dev cni0 mtu 1280")
	learns("mtu 1280", 1300)
	b.Gateway.IP("link set liqo.ovl mtu 1240")
	learns("mtu 1240", 1230) // less than is known to fit, so it may not be cut
}

// learnsOfAClosedPort waits until a pod of the cluster gets the ICMP error for a closed port of a peer's pod.
func (c *cluster) learnsOfAClosedPort(t *testing.T) {
	t.Helper()
	space.Eventually(t, "the error for a closed port", func() error {
		if _, err := c.Pod.Asks("udp", "", "10.71.1.2:9999", 100); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("error %v", err)
		}
		return nil
	})
}

// TestNodesAmongThePods: both clusters announce pod CIDRs in which their nodes are, as on flat networks of
// clouds. What the tunnel is made of goes to the peer's node all the same, also when kube-proxy gave it
// the address of a node.
func TestNodesAmongThePods(t *testing.T) {
	_, a, b := peered(t)
	a.Node.NFT("table ip proxy { chain out { type nat hook postrouting priority srcnat; oifname cni0 ct status dnat masquerade; }; }")
	nodes := map[*cluster]netip.Prefix{a: netip.MustParsePrefix("192.168.1.0/24"), b: netip.MustParsePrefix("192.168.2.0/24")}
	for c, peer := range map[*cluster]*cluster{a: b, b: a} {
		g := c.gateways[0]
		g.in.Pods = append(g.in.Pods, nodes[c])
		g.in.Remote = append(g.in.Remote, netv1beta1.Mapping{Remote: nodes[peer], Local: nodes[peer]})
		c.announce()
		c.settle(t)
	}
	b.Gateway.Do(func() {
		if err := b.gateways[0].plane.DialAnew(api.TunnelInterface(0), b.gateways[0].in.Tunnel.PeerKey, netip.AddrPort{}, 0); err != nil {
			t.Error(err)
		}
	})
	b.settle(t)
	waitFor(t, b.Gateway)
	if seen := a.Pod.AsksUntilAnswered(t, "tcp", "", "10.71.1.2:80", 0); seen != "10.72.1.2" {
		t.Errorf("pod to pod: the server saw %q", seen)
	}
	if changes := a.node.settle(t); !changes.Empty() {
		t.Errorf("a second pass changes\n%s", changes)
	}
}

// TestMisbehavingPeer: a peer that sends from what it did not announce, or to what was not offered.
func TestMisbehavingPeer(t *testing.T) {
	internet, a, b := peered(t)
	a.Node.IP("addr add 10.10.77.1/32 dev lo")      // a node whose address lies among the pods'
	a.Node.IP("addr add 192.168.1.101/24 dev eth0") // not the one the tunnel goes to
	a.gateways[0].in.Nodes = append(a.gateways[0].in.Nodes, plan.Member{Name: "n2", Outer: netip.MustParseAddr("10.10.77.1"), Overlay: netip.MustParseAddr("10.80.0.9")})
	a.gateways[0].in.Exposed = a.gateways[0].in.Exposed[1:] // 10.96.0.1 is no longer there for B
	a.settle(t)
	bad := plan.GatewayState(b.gateways[0].in)
	bad.Table = ""
	bad.Peers[0].AllowedIPs = prefixes("0.0.0.0/0")
	offered := "10.10.1.2:80"
	forbidden := map[*space.Space]string{
		a.Node: "192.168.1.101:8080", internet: "192.168.1.254:80", a.Gateway: "10.10.1.5:8080",
	}
	for _, to := range []string{"10.10.1.2", "192.168.1.101", "192.168.1.254", "10.10.1.5", "10.10.1.1", "10.10.77.1", "10.80.0.1", "10.96.0.1", "10.70.0.2"} {
		bad.Routes = append(bad.Routes, plan.Route{Device: "liqo-tunnel", To: netip.MustParsePrefix(to + "/32")})
	}
	b.gateways[0].apply(t, bad)
	// The gateway itself speaks, by that table and with sources of its choice.
	b.Gateway.IP("rule add from all lookup 6091 priority 80")
	sources := []string{"10.10.9.9", "203.0.113.1", "10.10.9.10"} // the second is not announced
	for _, s := range sources {
		b.Gateway.IP("addr add " + s + "/32 dev lo")
	}
	for _, to := range []string{"10.10.1.1:8080", "10.10.77.1:8080", "10.80.0.1:8080", "10.96.0.1:443", "10.70.0.2:443"} {
		b.Gateway.Tells("10.10.9.9", to)
	}
	for _, to := range forbidden {
		b.Gateway.Tells("10.10.9.9", to)
	}
	b.Gateway.Tells("203.0.113.1", offered)
	// Also when the tunnel would let it in.
	open := plan.GatewayState(a.gateways[0].in)
	open.Peers[0].AllowedIPs = prefixes("0.0.0.0/0")
	a.gateways[0].apply(t, open)
	b.Gateway.Tells("203.0.113.1", offered)
	b.Gateway.Tells("10.10.9.10", offered) // last, so everything before it has arrived or will not
	space.Eventually(t, "announced source", func() error {
		if !a.Pod.Hears("10.71.9.10") {
			return fmt.Errorf("the pod did not hear it")
		}
		return nil
	})
	if a.Pod.Hears("203.0.113.1") {
		t.Error("a source that was not announced is heard")
	}
	for s, to := range forbidden {
		if s.Hears("10.71.9.9") {
			t.Errorf("%s is reached", to)
		}
	}
	if a.Pod.Hears("10.71.9.9") {
		t.Error("a Service is reached")
	}
}

// TestSteadyStateWritesNothing: a second pass finds nothing to do, and the kernel reports no write.
func TestSteadyStateWritesNothing(t *testing.T) {
	_, a, _ := peered(t)
	var node, gateway plan.Changes
	written := a.Node.Written(func() { node = a.node.settle(t) }) + a.Gateway.Written(func() { gateway = a.gateways[0].settle(t) })
	if !node.Empty() || !gateway.Empty() || written != "" {
		t.Errorf("a second pass changes\n%s%s\nthe kernel reports\n%s", node, gateway, written)
	}
	n := 0
	if written := a.Node.Written(func() {
		n++
		a.node.in.Self.CIDRs = prefixes(fmt.Sprintf("10.10.%d.0/24", n))
		a.node.settle(t)
	}); written == "" {
		t.Error("the kernel reports no write of another table")
	}
	if written := a.Node.Written(func() {
		n++
		a.node.in.Gateways[0].Outer = netip.AddrFrom4([4]byte{10, 10, 1, byte(5 + n)})
		a.node.settle(t)
	}); !strings.Contains(written, "lladdr") {
		t.Errorf("the kernel reports no write of a forwarding entry but\n%s", written)
	}
}

// TestLooksAreCheap: rules nobody changed are not read again, those somebody did are. Without a PATH
// there is no nft to read them with.
func TestLooksAreCheap(t *testing.T) {
	_, a, _ := peered(t)
	before := a.node.observe(t)
	path := os.Getenv("PATH")
	t.Setenv("PATH", "")
	if changed := plan.Diff(before, a.node.observe(t)); !changed.Empty() {
		t.Error(changed)
	}
	t.Setenv("PATH", path)
	a.Node.Run("", "nft", "add", "rule", "inet", plan.NFTable, "arriving", "counter")
	if changes := a.node.settle(t); changes.Table == nil {
		t.Error("a rule of somebody else is not seen")
	}
	a.Node.Run("", "nft", "add", "table", "inet", "somebody")
	if changed := plan.Diff(before, a.node.observe(t)); !changed.Empty() {
		t.Error(changed)
	}
}

// TestPodsStayOutOfTheOverlay: where frames are accepted from any address, the node stops its pods. The
// packet in each frame has a source of its own.
func TestPodsStayOutOfTheOverlay(t *testing.T) {
	internet, a, b := peered(t)
	a.seek(t, "cni0")
	far := plan.Member{Name: "far", Outer: netip.MustParseAddr("10.10.2.9"), Overlay: netip.MustParseAddr("10.80.128.9")}
	a.node.in.Gateways = append(a.node.in.Gateways, far)
	a.node.settle(t)
	if changes := a.node.settle(t); !changes.Empty() {
		t.Errorf("a second pass changes\n%s", changes)
	}
	a.Node.IP("addr add 192.168.1.77/24 dev eth0")
	// Services without selector lead to both.
	a.Node.NFT(`table ip services { chain in { type nat hook prerouting priority dstnat;
		ip daddr 10.96.0.8 udp dport 53 dnat to 192.168.1.1:6091
		ip daddr 10.96.0.9 udp dport 53 dnat to 10.10.1.5:6091
	}; }`)
	for _, forged := range []string{"10.99.9.9", "10.10.1.5", "10.10.2.9"} { // anybody, a gateway here, one elsewhere
		a.Pod.IP("addr add " + forged + "/32 dev lo")
	}
	gateway, node := "02:00:0a:50:80:01", "02:00:0a:50:00:01"
	for i, c := range []struct{ from, to, mac string }{
		{"10.10.1.2", "10.10.1.5:6091", gateway}, {"10.99.9.9", "10.10.1.5:6091", gateway}, {"10.10.2.9", "10.10.1.5:6091", gateway},
		{"10.10.1.2", "10.96.0.9:53", gateway}, {"10.10.1.2", "10.10.1.255:6091", gateway},
		{"10.10.1.2", "192.168.1.1:6091", node}, {"10.99.9.9", "192.168.1.1:6091", node}, {"10.10.2.9", "192.168.1.1:6091", node},
		{"10.10.1.5", "192.168.1.1:6091", node}, {"10.10.1.2", "192.168.1.77:6091", node}, {"10.10.1.2", "10.10.1.1:6091", node},
		{"10.10.1.2", "10.80.0.1:6091", node}, {"10.10.1.2", "10.96.0.8:53", node}, {"10.10.1.2", "10.10.1.255:6091", node},
	} {
		claim, heard := fmt.Sprintf("a frame of a pod from %s to %s is taken by %s", c.from, c.to, c.mac), false
		if c.mac == gateway {
			a.Pod.Sends(c.from, c.to, frame(gateway, fmt.Sprintf("10.10.1.%d", 100+i), "10.71.1.2"))
			a.Node.Sends("192.168.1.1", "10.10.1.5:6091", frame(gateway, fmt.Sprintf("10.10.1.%d", 200+i), "10.71.1.2"))
			space.Eventually(t, "frame of the node", func() error { return errorUnless(b.Pod.Hears(fmt.Sprintf("10.72.1.%d", 200+i))) })
			heard = b.Pod.Hears(fmt.Sprintf("10.72.1.%d", 100+i))
		} else {
			a.Pod.Sends(c.from, c.to, frame(node, fmt.Sprintf("10.71.9.%d", 100+i), "10.10.1.2"))
			a.Gateway.Sends("10.10.1.5", "192.168.1.1:6091", frame(node, fmt.Sprintf("10.71.9.%d", 200+i), "10.10.1.2"))
			space.Eventually(t, "frame of the gateway", func() error { return errorUnless(a.Pod.Hears(fmt.Sprintf("10.71.9.%d", 200+i))) })
			heard = a.Pod.Hears(fmt.Sprintf("10.71.9.%d", 100+i))
		}
		if heard {
			t.Error(claim)
		}
	}

	// The gateway's pod is removed, and an ordinary one gets its address: it is sent nothing, and not believed.
	a.Gateway.IP("addr del 10.10.1.5/24 dev eth0")
	a.Pod.IP("addr add 10.10.1.5/24 dev eth0")
	a.Node.IP("neigh flush dev cni0")
	a.Node.PingsUntilAnswered(t, "10.10.1.5")
	a.Pod.Serve("10.10.1.5:6091")
	removed := &a.node.in.Gateways[0]
	removed.Outer = netip.IPv4Unspecified()
	var here map[netip.Addr][]string
	var err error
	a.Node.Do(func() { here, err = a.node.plane.Here([]netip.Addr{removed.Outer}, a.node.in.PodDevices) })
	if err != nil {
		t.Fatal(err)
	}
	removed.MACs, removed.Here = here[removed.Outer]
	a.node.settle(t)
	if changes := a.node.settle(t); !changes.Empty() {
		t.Errorf("a second pass changes\n%s", changes)
	}
	a.Pod.Tells("10.10.1.2", "10.71.1.2:80")
	a.Pod.Sends("10.10.1.5", "192.168.1.1:6091", frame(node, "10.71.9.50", "10.10.1.2"))
	internet.IP("addr add 10.10.2.9/32 dev lo")
	internet.Sends("10.10.2.9", "192.168.1.1:6091", frame(node, "10.71.9.51", "10.10.1.2"))
	space.Eventually(t, "frame of the other gateway", func() error { return errorUnless(a.Pod.Hears("10.71.9.51")) })
	if a.Pod.Hears("192.168.1.1") {
		t.Error("a pod with the address of a removed gateway is sent the peer's traffic")
	}
	if a.Pod.Hears("10.71.9.50") {
		t.Error("a frame of a pod with the address of a removed gateway is taken")
	}
}

// TestPodsStayOutOfTheOverlayFromTheStart: where each pod has a device of its own, the route to it is there before
// anybody has told of the pod, and is news; devices that lead to other hosts are none of pods.
func TestPodsStayOutOfTheOverlayFromTheStart(t *testing.T) {
	_, a, _ := peered(t)
	uplink := space.New(t, "another uplink")
	space.Cable(uplink, "eth0", a.Node, "eth1")
	a.Node.IP("addr add 192.168.77.1/32 dev eth1")
	a.Node.IP("route add 192.168.77.254 dev eth1")
	a.Node.IP("route add 192.168.78.0/24 via 192.168.77.254 dev eth1")

	ctx, stop := context.WithCancel(t.Context())
	news, ended := make(chan bool, 1), make(chan error, 1)
	var namespace int
	var err error
	a.Node.Do(func() { namespace, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Setns(namespace, unix.CLONE_NEWNET)
		if err == nil {
			err = a.node.plane.Watch(ctx, func() {}, func() {
				select {
				case news <- true:
				default:
				}
			})
		}
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, unix.Close(namespace)); err != nil {
			t.Error(err)
		}
	})
	space.Eventually(t, "news of a route to a pod", func() error {
		a.Node.Try("", "ip", "route", "del", "10.55.0.2")
		a.Node.Try("", "ip", "route", "add", "10.55.0.2", "dev", "cni0")
		return errorUnless(len(news) > 0)
	})

	pod := space.New(t, "new pod")
	space.Cable(pod, "eth0", a.Node, "caliA")
	a.Node.IP("route add 10.66.0.2 dev caliA")
	pod.IP("addr add 10.66.0.2/32 dev eth0")
	pod.IP("route add default dev eth0")
	a.Node.IP("neigh add 10.66.0.2 dev caliA lladdr " + strings.Fields(pod.IP("-br link show eth0"))[2])
	for _, to := range []string{"10.10.1.5", "192.168.1.1"} { // as with proxy_arp
		pod.IP("neigh add " + to + " dev eth0 lladdr " + strings.Fields(a.Node.IP("-br link show caliA"))[2])
	}
	const node = "02:00:0a:50:00:01"
	arrives := func(last int) bool {
		pod.Sends("10.66.0.2", "192.168.1.1:6091", frame(node, fmt.Sprintf("10.71.9.%d", last), "10.10.1.2"))
		return a.Pod.Hears(fmt.Sprintf("10.71.9.%d", last))
	}
	space.Eventually(t, "the frame of a pod that nobody looks at", func() error { return errorUnless(arrives(7)) })
	a.seek(t, "cni0", "caliA")
	a.node.settle(t)
	pod.Sends("10.66.0.2", "192.168.1.1:6091", frame(node, "10.71.9.8", "10.10.1.2"))
	a.Gateway.Sends("10.10.1.5", "192.168.1.1:6091", frame(node, "10.71.9.9", "10.10.1.2"))
	space.Eventually(t, "frame of the gateway", func() error { return errorUnless(a.Pod.Hears("10.71.9.9")) })
	if a.Pod.Hears("10.71.9.8") {
		t.Error("a frame of a pod with a device of its own is taken")
	}
}

func errorUnless(heard bool) error {
	if !heard {
		return errors.New("not heard")
	}
	return nil
}

// seek finds, as a node does, the devices of its pods and where its gateway is.
func (c *cluster) seek(t *testing.T, devices ...string) {
	t.Helper()
	var err error
	var here map[netip.Addr][]string
	c.Node.Do(func() {
		if c.node.in.PodDevices, err = c.node.plane.PodDevices(c.node.in.Self.CIDRs, "eth0"); err == nil {
			here, err = c.node.plane.Here([]netip.Addr{c.GatewayIP, netip.MustParseAddr("10.10.2.9")}, c.node.in.PodDevices)
		}
	})
	if err != nil || !slices.Equal(c.node.in.PodDevices, devices) {
		t.Fatalf("devices of pods: %q, error %v", c.node.in.PodDevices, err)
	}
	g := &c.node.in.Gateways[0]
	g.MACs, g.Here = here[c.GatewayIP]
	want := strings.Fields(c.Gateway.IP("-br link show eth0"))[2:3]
	if len(here) != 1 || !slices.Equal(g.MACs, want) {
		t.Fatalf("the gateway is at %q, want %q", here, want)
	}
}

// TestNetworkPolicies: rules of the shape a CNI writes for policies – by source before the device of
// a pod, by block where a pod's packets come in – see the addresses that are seen here.
func TestNetworkPolicies(t *testing.T) {
	_, a, b := peered(t)
	a.Node.NFT(`table ip policies {
	chain forward { type filter hook forward priority filter;
		oifname "cni0" ip daddr 10.10.1.2 ct state new ip saddr != 10.71.1.2 drop
		iifname "cni0" ip saddr 10.10.1.2 ct state new ip daddr 10.71.1.5 drop
	}
}`)
	for _, c := range []struct {
		from     *space.Space
		source   string
		to, seen string
	}{
		{b.Pod, "10.10.1.2", "10.72.1.2:80", "10.71.1.2"}, {b.Pod, "10.10.1.5", "10.72.1.2:80", ""},
		{a.Pod, "", "10.71.1.2:80", "10.72.1.2"}, {a.Pod, "", "10.71.1.5:80", ""},
	} {
		for _, network := range []string{"tcp", "udp"} {
			var seen string
			if c.seen != "" {
				seen = c.from.AsksUntilAnswered(t, network, c.source, c.to, 100)
			} else {
				seen, _ = c.from.Asks(network, c.source, c.to, 100)
			}
			if seen != c.seen {
				t.Errorf("%s from %s to %s: the server saw %q, want %q", network, c.source, c.to, seen, c.seen)
			}
		}
	}
}

// frame is a VXLAN frame to a MAC address with a datagram for port 80 in it.
func frame(to, source, destination string) []byte {
	src, dst := netip.MustParseAddr(source).As4(), netip.MustParseAddr(destination).As4()
	ip := []byte{0x45, 0, 0, 28 + 5, 0, 0, 0, 0, 64, 17, 0, 0}
	ip = append(append(ip, src[:]...), dst[:]...)
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	vxlan := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, plan.OverlayVNI<<8)
	mac, _ := net.ParseMAC(to)
	ethernet := append(mac, 2, 0, 10, 80, 0, 9, 8, 0)
	udp := []byte{0x12, 0x34, 0, 80, 0, 8 + 5, 0, 0}
	return slices.Concat(vxlan, ethernet, ip, udp, []byte("hello"))
}

// TestStoriesReadBack: nft prints the tables of every story of network/plan as they are written.
func TestStoriesReadBack(t *testing.T) {
	stories, err := filepath.Glob("../plan/testdata/kernel/*.txtar")
	if err != nil || len(stories) == 0 {
		t.Fatalf("find stories: %v, %d files", err, len(stories))
	}
	s := space.New(t, "nft")
	for _, file := range stories {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range regexp.MustCompile(`(?ms)^table (\S+ \S+) \{\n.*?^\}\n`).FindAllStringSubmatch(string(text), -1) {
			s.NFT(fmt.Sprintf("add table %s\ndelete table %s\n%s", table[1], table[1], table[0]))
			if diff := cmp.Diff(table[0], s.Run("", "nft", append([]string{"-s", "list", "table"}, strings.Fields(table[1])...)...)); diff != "" {
				t.Errorf("%s: nft prints (+) other text than ours (-):\n%s", filepath.Base(file), diff)
			}
		}
	}
}

// TestUsersRules: what users wrote acts beside ours. What the kernel refuses of it keeps neither
// ours nor the rest out, is told, and is not tried again at once.
func TestUsersRules(t *testing.T) {
	_, a, b := peered(t)
	g := a.gateways[0]
	before := everything(a.Gateway)
	ours := plan.GatewayState(g.in)
	guard := plan.Content{
		Tables: []plan.Table{{Family: "inet", Name: "liqo/ns/guard", Text: "table inet liqo/ns/guard {\n\tchain guard {\n\t\ttype filter hook forward priority filter; policy accept;\n\t\ttcp dport 80 counter reject\n\t}\n}\n"}},
	}
	broken := plan.Content{Tables: []plan.Table{{Family: "inet", Name: "liqo/ns/broken", Text: "table inet liqo/ns/broken {\n\tchain drop {\n\t}\n}\n"}}}
	away := plan.Content{
		Rules: []plan.Rule{{Priority: 70, Table: plan.UserTables, From: netip.MustParsePrefix("10.72.0.0/16"), In: "liqo.ovl", Mark: 7}, {Priority: 89, Table: plan.UserTables, IPv6: true}},
		Routes: []plan.Route{
			{Table: plan.UserTables, To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("10.10.1.1")},
			{Table: plan.UserTables, To: netip.MustParsePrefix("10.9.0.0/16"), Device: "eth0", Source: netip.MustParseAddr("10.10.1.5"), Scope: "link"},
			{Table: plan.UserTables, To: netip.MustParsePrefix("10.8.0.0/16"), Device: "absent", Scope: "link"},
			{Table: plan.UserTables, To: netip.MustParsePrefix("fd00:9::/64"), Device: "eth0"},
		},
	}
	want := ours.With([]plan.Content{guard, broken, away})
	g.apply(t, want)
	if changes := g.apply(t, want); !changes.Empty() {
		t.Errorf("a second pass changes\n%s", changes)
	}
	refused := func(c plan.Content) []string { return g.plane.Refused(c) }
	if got := refused(guard); got != nil {
		t.Errorf("refused: %s", got)
	}
	for _, c := range []plan.Content{broken, away} {
		if got := refused(c); len(got) != 1 || !strings.Contains(got[0], "drop") && !strings.Contains(got[0], "absent") {
			t.Errorf("told is %q", got)
		}
	}
	b.Pod.Serve("10.10.1.2:81")
	a.Pod.AsksUntilAnswered(t, "tcp", "", "10.71.1.2:81", 0)
	if seen, err := a.Pod.Asks("tcp", "", "10.71.1.2:80", 0); err == nil {
		t.Errorf("a port that a rule rejects is reached, seen as %q", seen)
	}
	g.apply(t, ours)
	if diff := cmp.Diff(before, everything(a.Gateway)); diff != "" || refused(broken) != nil {
		t.Errorf("users' rules leave %s and\n%s", refused(broken), diff)
	}
	nat := plan.Content{Tables: []plan.Table{{Family: "inet", Name: "liqo/ns/nat",
		Text: "table inet liqo/ns/nat {\n\tchain way {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\tip daddr 10.71.1.99 dnat ip to 10.71.1.2\n\t}\n}\n"}}}
	in := g.in
	in.Tracks = false // so nothing between pods comes to NAT
	g.apply(t, plan.GatewayState(in).With([]plan.Content{nat}))
	if seen, err := a.Pod.Asks("tcp", "", "10.71.1.99:81", 0); err == nil {
		t.Errorf("a pod is reached through NAT without tracking, seen as %q", seen)
	}
	in.Tracks = true
	g.apply(t, plan.GatewayState(in).With([]plan.Content{nat}))
	a.Pod.AsksUntilAnswered(t, "tcp", "", "10.71.1.99:81", 0)
}

// TestSpelling: rules that nft prints otherwise than they were written read as written, unless somebody changed
// them or may have before they were read.
func TestSpelling(t *testing.T) {
	c := newCluster(t, space.NewInternet(t), "a", 1, "10.10.1.200")
	ours := c.node.plan(c.node.in)
	with := func(service string) plan.State {
		return ours.With([]plan.Content{{Tables: []plan.Table{{Family: "inet", Name: "liqo/ns/guard",
			Text: "table inet liqo/ns/guard {\n\tchain guard {\n\t\ttcp dport " + service + " drop\n\t}\n}\n"}}}})
	}
	again := func(want plan.State, changes bool) {
		t.Helper()
		if got := c.node.apply(t, want); got.Empty() == changes {
			t.Errorf("changes %t, want %t\n%s", !got.Empty(), changes, got)
		}
	}
	again(with("http"), true)
	again(with("http"), false)
	c.Node.NFT("add rule inet liqo/ns/guard guard tcp dport 22 drop")
	again(with("http"), true)
	again(with("http"), false)
	again(with("https"), true)
	c.Node.NFT("add table inet somebody") // before it is read
	again(with("https"), true)
	c.Node.NFT("add table inet another")
	again(with("https"), false)
}

// TestPeerToPeer: pods of two peers of C reach each other through C, by IP objects. All three
// clusters use the same addresses.
func TestPeerToPeer(t *testing.T) {
	internet := space.NewInternet(t)
	c := newCluster(t, internet, "C", 1, "10.10.1.5")
	p1, p2 := newCluster(t, internet, "P1", 2, "10.10.1.6"), newCluster(t, internet, "P2", 3, "10.10.1.6")
	second := space.New(t, "C second gateway")
	c.Plug(second, "10.10.1.7")
	c.addGateway(t, second, "10.10.1.7")
	c.expose(exposed("10.70.0.5", "10.81.1.2", false), exposed("10.70.0.6", "10.71.1.2", false))
	ofC := [2]string{"10.72.0.0/16", "10.74.0.0/16"}
	c.dial(0, p1, [2]string{"10.71.0.0/16", "10.73.0.0/16"}, ofC)
	c.dial(1, p2, [2]string{"10.81.0.0/16", "10.83.0.0/16"}, ofC)
	for _, x := range []*cluster{c, p1, p2} {
		x.settle(t)
		x.Pod.Serve("10.10.1.2:80")
	}
	waitFor(t, c.Gateway)
	waitFor(t, second)
	for from, to := range map[*cluster]string{p1: "10.74.0.5:80", p2: "10.74.0.6:80"} {
		seen := map[*cluster]string{p1: "10.74.0.6", p2: "10.74.0.5"}[from]
		for _, network := range []string{"tcp", "udp"} {
			if got := from.Pod.AsksUntilAnswered(t, network, "", to, 100); got != seen {
				t.Errorf("%s over %s to %s: the server saw %q, want %q", from.Pod.Name, network, to, got, seen)
			}
		}
	}
	if got := p1.Pod.AsksUntilAnswered(t, "tcp", "", "10.72.1.2:80", 0); got != "10.71.1.2" {
		t.Errorf("P1 to a pod of C: the server saw %q", got)
	}
}

// TestBothAddressFamilies: IPv6 takes the same way. The gateways' namespaces forward IPv6 because
// the test says so: their processes cannot.
func TestBothAddressFamilies(t *testing.T) {
	internet := space.NewInternet(t)
	a, b := newCluster(t, internet, "A", 1, "10.10.1.5"), newCluster(t, internet, "B", 2, "10.10.1.6")
	b.dial(0, a, [2]string{"10.72.0.0/16", "10.74.0.0/16"}, [2]string{"10.71.0.0/16", "10.73.0.0/16"})
	for c, view := range map[*cluster][2]string{a: {"fd00:71::/64", "fd00:73::/112"}, b: {"fd00:72::/64", "fd00:74::/112"}} {
		c.Node.IP("addr add fd00:10::1:1/112 dev cni0 nodad")
		for pod, addr := range map[*space.Space]string{c.Pod: "fd00:10::1:2", c.Gateway: "fd00:10::1:5"} {
			pod.IP("addr add " + addr + "/112 dev eth0 nodad")
			pod.IP("route add default via fd00:10::1:1")
		}
		c.Gateway.Forwards()
		g := c.gateways[0]
		c.node.in.Self.CIDRs = append(c.node.in.Self.CIDRs, prefixes("fd00:10::1:0/112")...)
		g.in.Nodes = []plan.Member{c.node.in.Self}
		g.in.Pods, g.in.External = append(g.in.Pods, prefixes("fd00:10::/64")...), append(g.in.External, prefixes("fd00:70::/112")...)
		g.in.Remote = append(g.in.Remote,
			netv1beta1.Mapping{Remote: prefixes("fd00:10::/64")[0], Local: prefixes(view[0])[0]},
			netv1beta1.Mapping{Remote: prefixes("fd00:70::/112")[0], Local: prefixes(view[1])[0]})
		c.announce()
		c.settle(t)
		if changes := g.settle(t); !changes.Empty() {
			t.Errorf("a second pass changes\n%s", changes)
		}
		c.Pod.Serve("[fd00:10::1:2]:80")
		c.Pod.Serve("10.10.1.2:80")
	}
	waitFor(t, b.Gateway)
	for from, want := range map[*space.Space]string{a.Pod: "fd00:72::1:2", a.Node: "fd00:74::"} {
		// The nodes ask for their pods' MAC addresses only once their own addresses are sure.
		space.Eventually(t, "an answer to "+from.Name, func() error {
			seen, err := from.Asks("tcp", "", "[fd00:71::1:2]:80", 0)
			if err == nil && seen != want {
				err = fmt.Errorf("the server saw %q, want %q", seen, want)
			}
			return err
		})
	}
	if seen := b.Pod.AsksUntilAnswered(t, "tcp", "", "10.72.1.2:80", 0); seen != "10.71.1.2" {
		t.Errorf("IPv4 beside it: the server saw %q", seen)
	}
}

// TestSeveralPorts: connections spread over a tunnel for each port, each keeps to one, and what is
// one tunnel again has nothing left of the others.
func TestSeveralPorts(t *testing.T) {
	_, a, b := peered(t)
	before := everything(a.Gateway)
	a.Node.NFT("table ip more { chain in { type nat hook prerouting priority dstnat; fib daddr type local udp dport 51841-51842 dnat to 10.10.1.5; }; }")
	a.gateways[0].in.Tunnel.Listen, b.gateways[0].in.Tunnel.Dial = []int{51841, 51842}, []int{51841, 51842}
	a.settle(t)
	b.settle(t)
	for _, peer := range []string{"169.254.18.5", "169.254.18.9"} {
		b.Gateway.PingsUntilAnswered(t, peer)
	}
	sent := func(g *end[plan.GatewayStateInput]) (out []int64) {
		for n := range 3 {
			var traffic plan.Traffic
			var err error
			g.Do(func() { traffic, err = g.plane.Traffic(api.TunnelInterface(n), g.in.Tunnel.PeerKey) })
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, traffic.Sent)
		}
		return out
	}
	sentA, sentB := sent(a.gateways[0]), sent(b.gateways[0])
	for range 40 {
		for _, network := range []string{"tcp", "udp"} {
			if seen := a.Pod.AsksUntilAnswered(t, network, "", "10.71.1.2:80", 1000); seen != "10.72.1.2" {
				t.Fatalf("over %s: the server saw %q", network, seen)
			}
		}
	}
	for n, after := range sent(a.gateways[0]) {
		// A third of 40 datagrams of 1000 bytes would be 13; a tenth is fair enough.
		if after-sentA[n] < 4000 || sent(b.gateways[0])[n] == sentB[n] {
			t.Errorf("tunnel %d carried %d bytes", n, after-sentA[n])
		}
	}
	a.learnsOfAClosedPort(t)
	a.gateways[0].in.Tunnel.Silent = []int{0, 1}
	a.settle(t)
	sentA = sent(a.gateways[0])
	for range 10 {
		a.Pod.Asks("udp", "", "10.71.1.2:80", 1000)
		a.Pod.PingsUntilAnswered(t, "-s1000", "10.71.1.2") // of no connection
	}
	for n, after := range sent(a.gateways[0]) {
		// A third of 20 packets of 1000 bytes would be 6; the last may still be on its way.
		if carried := after - sentA[n]; (carried < 5000) != (n < 2) {
			t.Errorf("while two are silent tunnel %d carried %d bytes", n, carried)
		}
	}
	if changes := a.gateways[0].settle(t); !changes.Empty() {
		t.Errorf("a second pass changes\n%s", changes)
	}
	a.gateways[0].in.Tunnel.Listen = nil
	a.settle(t)
	if diff := cmp.Diff(before, everything(a.Gateway)); diff != "" {
		t.Errorf("what is left of the other tunnels\n%s", diff)
	}
}

// TestExternalAddressesMove: what goes on to an IP object follows it to its new target at once, also to one that was
// made after the former had gone, and ends with it. A new process ends only connections whose IP object changed.
func TestExternalAddressesMove(t *testing.T) {
	_, a, b := peered(t)
	var c net.Conn
	var err error
	b.Pod.Do(func() {
		c, err = (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP("10.10.1.2")}}).Dial("udp", "10.74.0.9:80")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	asks := func() string { // empty = no answer within 3 s
		c.SetDeadline(time.Now().Add(3 * time.Second))
		c.Write([]byte("hello"))
		buffer := make([]byte, 100)
		n, _ := c.Read(buffer)
		return string(buffer[:n])
	}
	// follows asks until the target is the one wanted. Requests never pause for long, so the former
	// connection does not end because it is unused.
	follows := func(claim, want string) {
		t.Helper()
		space.Eventually(t, claim, func() error {
			if seen := asks(); seen != want {
				return fmt.Errorf("the target saw %q, want %q", seen, want)
			}
			return nil
		})
	}
	for _, step := range []struct {
		claim string
		list  []plan.Exposed
		seen  string // by the target; empty = it is not reached
	}{
		{"a host outside", []plan.Exposed{exposed("10.70.0.9", "198.51.100.9", true)}, a.NodeIP.String()},
		{"a pod in its place", []plan.Exposed{exposed("10.70.0.9", "10.10.1.2", false)}, "10.71.1.2"},
		{"the host again", []plan.Exposed{exposed("10.70.0.9", "198.51.100.9", true)}, a.NodeIP.String()},
		{"nobody for now", nil, ""},
		{"the pod again", []plan.Exposed{exposed("10.70.0.9", "10.10.1.2", false)}, "10.71.1.2"},
	} {
		a.expose(step.list...)
		a.settle(t)
		follows(step.claim, step.seen)
	}
	restarted := open(t, a.Gateway, plan.GatewayState)
	restart := func(list ...plan.Exposed) (known int) {
		a.expose(list...)
		have := plan.State{Table: a.Gateway.Run("", "nft", "-s", "list", "table", "inet", "liqo")}
		changes := plan.Changes{Table: plan.Diff(have, plan.GatewayState(a.gateways[0].in)).Table}
		a.Gateway.Do(func() {
			if err = restarted.plane.Apply(t.Context(), changes); err != nil {
				return
			}
			var flows []*netlink.ConntrackFlow
			flows, err = netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
			for _, f := range flows {
				if f.Forward.DstIP.String() == "10.70.0.9" {
					known++
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return known
	}
	if known := restart(exposed("10.70.0.9", "10.10.1.2", false)); known != 1 {
		t.Errorf("a new process that changes nothing leaves %d connections", known)
	}
	restarted = open(t, a.Gateway, plan.GatewayState)
	if known := restart(exposed("10.70.0.9", "198.51.100.9", true)); known != 0 {
		t.Errorf("a new process with another target leaves %d connections", known)
	}
	follows("the new target", a.NodeIP.String())
}

func TestRemovalLeavesNothing(t *testing.T) {
	internet := space.NewInternet(t)
	a, b := newCluster(t, internet, "A", 1, "10.10.1.5"), newCluster(t, internet, "B", 2, "10.10.1.6")
	a.expose(exposed("10.70.0.2", "192.0.2.1", false))
	b.dial(0, a, [2]string{"10.72.0.0/16", "10.74.0.0/16"}, [2]string{"10.71.0.0/16", "10.73.0.0/16"})
	node, gateway := everything(a.Node), everything(a.Gateway)
	a.settle(t)
	if everything(a.Node) == node || everything(a.Gateway) == gateway {
		t.Error("nothing was made")
	}
	a.node.apply(t, plan.State{})
	a.gateways[0].apply(t, plan.State{})
	if diff := cmp.Diff(node, everything(a.Node)); diff != "" {
		t.Errorf("removal leaves on the node\n%s", diff)
	}
	if diff := cmp.Diff(gateway, everything(a.Gateway)); diff != "" {
		t.Errorf("removal leaves in the gateway\n%s", diff)
	}
}

// TestRulesComeFirst: where the rules cannot be written there is no device either, so that nothing a peer sends is
// forwarded by the default route of the pod.
func TestRulesComeFirst(t *testing.T) {
	internet := space.NewInternet(t)
	a, b := newCluster(t, internet, "A", 1, "10.10.1.5"), newCluster(t, internet, "B", 2, "10.10.1.6")
	b.dial(0, a, [2]string{"10.72.0.0/16", "10.74.0.0/16"}, [2]string{"10.71.0.0/16", "10.73.0.0/16"})
	gateway := a.gateways[0]
	want := plan.GatewayState(gateway.in)
	want.Table = strings.Replace(want.Table, "accept", "lead to nowhere", 1)
	before := everything(a.Gateway)
	var err error
	a.Gateway.Do(func() { err = gateway.plane.Apply(t.Context(), plan.Diff(plan.State{}, want)) })
	if err == nil || !strings.Contains(err.Error(), "write nft table") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(before, everything(a.Gateway)); diff != "" {
		t.Errorf("without rules there is\n%s", diff)
	}
}

// TestFramesGoPastTheBridge: a node hands large frames for a gateway on it to the gateway's port,
// whole; it stops when the gateway is gone, and leaves nothing there.
func TestFramesGoPastTheBridge(t *testing.T) {
	_, a, b := peered(t)
	cut := a.segments(t, b)
	before := everything(a.Node)
	a.node.in.Gateways[0].Port = a.port(t)
	want := plan.Port{Device: "veth101015", MAC: strings.Fields(a.Gateway.IP("-br link show eth0"))[2]}
	if diff := cmp.Diff(want, a.node.in.Gateways[0].Port); diff != "" {
		t.Fatalf("port (-want +got)\n%s", diff)
	}
	if changes := a.node.settle(t); len(changes.Forwards) != 1 || len(changes.Neighbors) != 0 {
		t.Errorf("changed\n%s", changes)
	}
	if whole := a.segments(t, b); 4*whole > cut {
		t.Errorf("frames of the same data: %d over the bridge, %d past it", cut, whole)
	}
	if again := a.node.settle(t); !again.Empty() || a.port(t) != want {
		t.Errorf("a second pass changes\n%s, the port is %v", again, a.port(t))
	}
	for _, network := range []string{"tcp", "udp"} {
		if seen := a.Pod.AsksUntilAnswered(t, network, "", "10.71.1.2:80", 100); seen != "10.72.1.2" {
			t.Errorf("over %s: the server saw %q", network, seen)
		}
	}
	a.node.in.Gateways[0].Port = plan.Port{}
	a.node.settle(t)
	if diff := cmp.Diff(before, everything(a.Node)); diff != "" {
		t.Errorf("what is left of the port\n%s", diff)
	}
	a.node.in.Gateways[0].Port = want
	a.node.settle(t)
	a.Node.IP("link del veth101015")
	a.node.in.Gateways[0].Port = a.port(t)
	if changes := a.node.settle(t); a.node.in.Gateways[0].Port != (plan.Port{}) || len(changes.Forwards) != 1 {
		t.Errorf("the pod is gone, the port is %v, changed\n%s", a.node.in.Gateways[0].Port, changes)
	}
}

// port is where the node finds its gateway.
func (c *cluster) port(t *testing.T) plan.Port {
	t.Helper()
	var ports map[netip.Addr]plan.Port
	var err error
	c.Node.Do(func() { ports, err = c.node.plane.Ports([]netip.Addr{c.GatewayIP, netip.MustParseAddr("192.0.2.1")}) })
	if err != nil {
		t.Fatal(err)
	}
	return ports[c.GatewayIP]
}

// segments counts what the node sends to its gateway for 4 MiB from pod to pod.
func (c *cluster) segments(t *testing.T, to *cluster) int {
	t.Helper()
	sent := func() int {
		var links []struct {
			Stats64 struct{ TX struct{ Packets int } }
		}
		if err := json.Unmarshal([]byte(c.Node.IP("-s -j link show veth101015")), &links); err != nil || len(links) != 1 {
			t.Fatalf("%v of %d links", err, len(links))
		}
		return links[0].Stats64.TX.Packets
	}
	before := sent()
	var l net.Listener
	var conn net.Conn
	var err error
	to.Pod.Do(func() { l, err = net.Listen("tcp", "10.10.1.2:5001") })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c.Pod.Do(func() { conn, err = net.Dial("tcp", "10.71.1.2:5001") })
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		conn.Write(make([]byte, 4<<20))
		conn.Close()
	}()
	received, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer received.Close()
	if n, err := io.Copy(io.Discard, received); n != 4<<20 || err != nil {
		t.Fatalf("%d bytes, error %v", n, err)
	}
	return sent() - before
}

// linkLocal are the addresses and routes the kernel makes when it gets to it.
var linkLocal = regexp.MustCompile(`(?m)^.*\bfe80::?/.*\n|(local|anycast) fe80:.*\n|\bfe80:\S+`)

// everything of a namespace as its tools print it.
func everything(s *space.Space) string {
	var b strings.Builder
	for _, what := range []string{"-br link", "-br addr", "route show table all", "-6 route show table all", "rule", "-6 rule", "neigh show nud permanent"} {
		lines := strings.Split(linkLocal.ReplaceAllString(s.IP(what), ""), "\n")
		for i, line := range lines {
			lines[i] = strings.TrimSpace(line)
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, "\n"))
	}
	return b.String() + s.Run("", "nft", "list", "ruleset")
}

// BenchmarkTunnel is one TCP stream between the gateways alone, BenchmarkPods one between pods of
// the two clusters: the ratio is what overlay and translation cost.
func BenchmarkTunnel(b *testing.B) {
	_, x, y := peered(b)
	x.Gateway.NFT("delete table inet liqo") // which keeps peers off the gateway
	y.Gateway.NFT("delete table inet liqo")
	x.Gateway.Transfer(b, y.Gateway, "169.254.18.2:5001")
}

func BenchmarkPods(b *testing.B) {
	_, x, y := peered(b)
	x.Pod.Transfer(b, y.Pod, "10.71.1.2:5001")
}
