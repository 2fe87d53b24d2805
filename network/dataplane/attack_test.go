// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/plan"
)

// TestAttackProtectedPods: pods of a peer open connections to pods of Liqo and of kube-system by the addresses of these
// pods. They also send a stray ACK first, so that the gateway takes the SYN that follows for a part of a connection.
//
// Outcome: the gateway drops what opens a connection, and pings. It still carries connections that protected pods open to the peer, also
// when another gateway takes over in the middle, and those to IP objects with a protected pod behind them.
func TestAttackProtectedPods(t *testing.T) {
	for claim, tracks := range map[string]bool{"not tracked": false, "tracked": true} { // as rules of users ask for it
		t.Run(claim, func(t *testing.T) {
			_, a, b := peered(t)
			const open = "10.10.1.9"
			a.Pod.IP("addr add " + open + "/24 dev eth0")
			a.Pod.Serve(open + ":80")
			a.expose(exposed("10.70.0.2", "10.96.0.1", false), exposed("10.70.0.4", "10.10.1.2", false))
			a.gateways[0].in.Protected, a.gateways[0].in.Tracks = []netip.Addr{netip.MustParseAddr("10.10.1.2")}, tracks
			a.settle(t)

			b.Pod.Tells("10.10.1.5", "10.72.1.2:80")
			b.opensNothing(t, 0)
			for _, network := range []string{"tcp", "udp"} {
				for _, to := range []string{"10.72.1.9:80", "10.74.0.4:80"} { // another pod, an IP object
					b.Pod.AsksUntilAnswered(t, network, "10.10.1.2", to, 0)
				}
				a.Pod.AsksUntilAnswered(t, network, "10.10.1.2", "10.71.1.2:80", 0)
			}
			// A Service made an IP object, with a protected pod behind it.
			b.Pod.AsksUntilAnswered(t, "tcp", "10.10.1.2", "10.74.0.2:443", 0)
			if a.Pod.Hears("10.71.1.5") {
				t.Error("a protected pod is reached over udp")
			}
			if out, err := b.Pod.Try("", "ping", "-c1", "-W1", "-I", "10.10.1.2", "10.72.1.2"); err == nil {
				t.Errorf("a protected pod is pinged: %s", out)
			}
			a.Pod.PingsUntilAnswered(t, "-I", "10.10.1.2", "10.71.1.2")

			b.strayACK(t, "10.72.1.2", 40000)
			b.opensNothing(t, 40000)
			a.outlives(t, b)
		})
	}
}

// opensNothing fails when the pod gets a connection from one of its ports, 0 for any, to the protected pod. What is
// dropped is not answered: a second is longer than all that is answered takes.
func (c *cluster) opensNothing(t *testing.T, port int) {
	t.Helper()
	dialer := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP("10.10.1.2"), Port: port}}
	c.Pod.Do(func() {
		if conn, err := dialer.Dial("tcp", "10.72.1.2:80"); err == nil {
			conn.Close()
			t.Errorf("a protected pod is reached over tcp from port %d", port)
		}
	})
}

// strayACK sends an ACK of no connection from a port of the pod to port 80 of another pod, and waits for the RST.
func (c *cluster) strayACK(t *testing.T, to string, port uint16) {
	t.Helper()
	source, destination := netip.MustParseAddr("10.10.1.2").As4(), netip.MustParseAddr(to).As4()
	segment := make([]byte, 20) // RFC 9293 §3.1
	binary.BigEndian.PutUint16(segment, port)
	binary.BigEndian.PutUint16(segment[2:], 80)
	segment[12], segment[13] = 5<<4, 0x10 // 5 words of header, ACK
	pseudo := append(append(source[:], destination[:]...), 0, unix.IPPROTO_TCP, 0, byte(len(segment)))
	sum := uint32(0)
	for bytes := append(pseudo, segment...); len(bytes) > 0; bytes = bytes[2:] {
		sum += uint32(binary.BigEndian.Uint16(bytes))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(segment[16:], ^uint16(sum&0xffff+sum>>16))
	c.Pod.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: source}); err != nil {
			t.Fatal(err)
		}
		if err := unix.Sendto(fd, segment, 0, &unix.SockaddrInet4{Addr: destination}); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}); err != nil {
			t.Fatal(err)
		}
		unix.Recvfrom(fd, make([]byte, 100), 0)
	})
}

// outlives checks that the peer goes on sending in a connection of the protected pod which the gateway has forgotten.
func (c *cluster) outlives(t *testing.T, peer *cluster) {
	t.Helper()
	var l net.Listener
	var err error
	peer.Pod.Do(func() { l, err = net.Listen("tcp", "10.10.1.2:81") })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialer := net.Dialer{Timeout: patience.Limit, LocalAddr: &net.TCPAddr{IP: net.ParseIP("10.10.1.2")}}
	var ours net.Conn
	c.Pod.Do(func() { ours, err = dialer.Dial("tcp", "10.71.1.2:81") })
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	c.Gateway.Do(func() { err = netlink.ConntrackTableFlush(netlink.ConntrackTable) })
	if err != nil {
		t.Fatal(err)
	}
	space.Eventually(t, "the peer's word", func() error {
		if _, err := theirs.Write([]byte("word")); err != nil {
			return err
		}
		ours.SetReadDeadline(time.Now().Add(3 * time.Second))
		if _, err := io.ReadFull(ours, make([]byte, 4)); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		return nil
	})
}

// TestLocalAddresses: a node publishes the addresses of its devices with their networks, and its default gateway, but
// nothing that Liqo or a proxy for Services made.
func TestLocalAddresses(t *testing.T) {
	_, a, _ := peered(t)
	a.Node.IP("link add kube-ipvs0 type bridge")
	a.Node.IP("addr add 10.96.0.1/32 dev kube-ipvs0")
	a.Node.IP("link add ppp type bridge")
	a.Node.IP("addr add 10.5.0.1 peer 10.6.0.0/16 dev ppp")
	var found []netip.Prefix
	var err error
	a.Node.Do(func() { found, err = a.node.plane.Local() })
	if err != nil {
		t.Fatal(err)
	}
	got := plan.LocalAddresses(found, "search example.org\nnameserver 10.0.0.53\n# nameserver 10.0.0.54\nnameserver 127.0.0.53\nnameserver fd00::53\n")
	want := []string{"10.0.0.53/32", "10.10.1.1/24", "10.5.0.1/32", "10.6.0.0/16", "192.168.1.1/24", "192.168.1.254/32", "fd00::53/128"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestAttackFramesOfStrangers: a host that reaches a node, or a gateway, sends frames of the overlay there, with packets
// for pods and for the peer.
//
// Outcome: nodes and gateways drop frames unless they come from an address of a node or of a gateway pod. A CNI may
// masquerade frames: all addresses that a node publishes count, which are its own and those of its default gateways and DNS
// servers. Further ones are the chart's networking.overlaySources. Who can forge such an address on the nodes' network is
// not stopped, nor is anybody while some node has published no addresses, because its fabric does not run or is of a
// former version.
func TestAttackFramesOfStrangers(t *testing.T) {
	internet, a, b := peered(t)
	internet.IP("route add 10.10.1.0/24 via 192.168.1.1 dev up1")
	const stranger, masqueraded = "192.168.1.66", "192.168.1.77"
	internet.IP("addr add " + stranger + "/32 dev lo")
	a.Node.IP("addr add " + masqueraded + "/32 dev lo")
	last := 0
	hears := func(from *space.Space, source string, want bool) {
		t.Helper()
		last++
		known := func(n int) string { return fmt.Sprintf("10.71.9.%d", n) }
		ours := func(n int) string { return fmt.Sprintf("10.10.1.%d", n) }
		seen := func(n int) string { return fmt.Sprintf("10.72.1.%d", n) }
		const gateway, node = "02:00:0a:50:80:01", "02:00:0a:50:00:01"
		from.Sends(source, "192.168.1.1:6091", frame(node, known(100+last), "10.10.1.2"))
		from.Sends(source, "10.10.1.5:6091", frame(gateway, ours(100+last), "10.71.1.2"))
		a.Gateway.Sends("10.10.1.5", "192.168.1.1:6091", frame(node, known(200+last), "10.10.1.2"))
		a.Node.Sends("192.168.1.1", "10.10.1.5:6091", frame(gateway, ours(200+last), "10.71.1.2"))
		space.Eventually(t, "frame of the gateway", func() error { return errorUnless(a.Pod.Hears(known(200 + last))) })
		space.Eventually(t, "frame of the node", func() error { return errorUnless(b.Pod.Hears(seen(200 + last))) })
		if got := a.Pod.Hears(known(100 + last)); got != want {
			t.Errorf("the node takes a frame from %s: %v, want %v", source, got, want)
		}
		if got := b.Pod.Hears(seen(100 + last)); got != want {
			t.Errorf("the gateway takes a frame from %s: %v, want %v", source, got, want)
		}
	}
	accepts := func(sources ...string) {
		t.Helper()
		a.node.in.Sources, a.gateways[0].in.Sources = prefixes(sources...), prefixes(sources...)
		a.settle(t)
		if changes := a.node.settle(t); !changes.Empty() {
			t.Errorf("there is still to do:\n%s", changes)
		}
	}
	hears(internet, stranger, true) // the attack
	accepts("10.10.1.5/32", "192.168.1.1/32", masqueraded+"/32")
	hears(internet, stranger, false)
	hears(a.Node, masqueraded, true)
	accepts("10.10.1.5/32", "192.168.1.1/32", "192.168.1.64/28")
	hears(internet, stranger, true)
}

// TestAttackFramesOfPeers: a peer sends frames of the overlay through the tunnel, with packets for
// a protected pod and for pods of another peer. It sends them to gateways, nodes and IP objects
// whose target is a node, from an address that it announced and from the address of a node.
//
// Outcome: they are dropped, also while frames are accepted from any address. The gateway drops
// those for IP objects, which could otherwise leave it with its own address, as frames that nodes
// accept.
func TestAttackFramesOfPeers(t *testing.T) {
	internet := space.NewInternet(t)
	c := newCluster(t, internet, "C", 1, "10.10.1.5")
	p1, p2 := newCluster(t, internet, "P1", 2, "10.10.1.6"), newCluster(t, internet, "P2", 3, "10.10.1.6")
	second := space.New(t, "C second gateway")
	c.Plug(second, "10.10.1.7")
	c.addGateway(t, second, "10.10.1.7")
	c.expose(exposed("10.70.0.2", "192.168.1.1", true), exposed("10.70.0.3", "192.168.1.1", false))
	ofC := [2]string{"10.72.0.0/16", "10.74.0.0/16"}
	c.dial(0, p1, [2]string{"10.71.0.0/16", "10.73.0.0/16"}, ofC)
	c.dial(1, p2, [2]string{"10.81.0.0/16", "10.83.0.0/16"}, ofC)
	c.Pod.IP("addr add 10.10.1.9/24 dev eth0")
	c.Pod.Serve("10.10.1.9:80")
	for _, x := range []*cluster{c, p1, p2} {
		x.settle(t)
		x.Pod.Serve("10.10.1.2:80")
	}
	p1.forges(t, "10.10.1.1/32", "10.10.1.5/32", "10.10.1.7/32", "10.10.1.9/32", "10.70.0.0/16")
	p1.Gateway.IP("addr add 10.10.9.0/24 dev lo")
	p1.Gateway.IP("addr add 192.168.1.77/32 dev lo")

	members := prefixes("10.10.1.5/32", "10.10.1.7/32", "192.168.1.1/32", "192.168.1.77/32")
	for i, sources := range [][]netip.Prefix{nil, members} {
		c.node.in.Sources = sources
		for _, g := range c.gateways {
			g.in.Sources, g.in.Protected = sources, []netip.Addr{netip.MustParseAddr("10.10.1.2")}
		}
		c.settle(t)
		open := plan.GatewayState(c.gateways[0].in)
		open.Peers[0].AllowedIPs = prefixes("0.0.0.0/0")
		c.gateways[0].apply(t, open)
		waitFor(t, c.Gateway)
		waitFor(t, second)
		framesOfPeer(t, c, p1, p2, 100*i)
	}
}

// forges makes the gateway of a cluster send anything to these prefixes of its peer.
func (c *cluster) forges(t *testing.T, to ...string) {
	t.Helper()
	state := plan.GatewayState(c.gateways[0].in)
	state.Table, state.Peers[0].AllowedIPs = "", prefixes("0.0.0.0/0")
	for _, p := range prefixes(to...) {
		state.Routes = append(state.Routes, plan.Route{Device: "liqo-tunnel", To: p})
	}
	c.gateways[0].apply(t, state)
	c.Gateway.IP("rule add from all lookup 6091 priority 80")
}

// framesOfPeer fails when a frame arrives that peer sends to c, or when one of a member does not.
// The packets within have addresses of their own, from n upwards.
func framesOfPeer(t *testing.T, c, peer, another *cluster, n int) {
	t.Helper()
	const node, gateway, second = "02:00:0a:50:00:01", "02:00:0a:50:80:01", "02:00:0a:50:80:02"
	toPod := func() []byte { return frame(node, fmt.Sprintf("10.71.7.%d", n), "10.10.1.2") }
	toPeer := func() []byte { return frame(gateway, fmt.Sprintf("10.10.7.%d", n), "10.71.1.2") }
	toAnother := func() []byte { return frame(second, fmt.Sprintf("10.10.7.%d", n), "10.81.1.2") }
	arrived := func() error {
		ofPeer, ofC := fmt.Sprintf("10.71.7.%d", n), fmt.Sprintf("10.72.7.%d", n)
		return errorUnless(c.Pod.Hears(ofPeer) || peer.Pod.Hears(ofC) || another.Pod.Hears(ofC))
	}
	for _, frames := range []struct {
		to      string
		content func() []byte
	}{
		{"10.10.1.1", toPod}, {"10.70.0.2", toPod}, {"10.70.0.3", toPod},
		{"10.10.1.5", toPeer}, {"10.10.1.7", toAnother},
	} {
		for _, from := range []string{"10.10.9.250", "192.168.1.77"} {
			n++
			peer.Gateway.Sends(from, frames.to+":6091", frames.content())
			peer.Gateway.Tells(fmt.Sprintf("10.10.9.%d", n), "10.10.1.9:80")
			space.Eventually(t, "packet sent after the frame", func() error {
				return errorUnless(c.Pod.Hears(fmt.Sprintf("10.71.9.%d", n)))
			})
			if arrived() == nil {
				t.Errorf("sources %v: a frame from %s to %s arrives", c.node.in.Sources, from, frames.to)
			}
		}
	}
	n++
	c.Gateway.Sends("10.10.1.5", "192.168.1.1:6091", toPod())
	space.Eventually(t, "frame of the gateway", arrived)
	n++
	c.Node.Sends("192.168.1.1", "10.10.1.7:6091", toAnother())
	space.Eventually(t, "frame of the node", arrived)
}

// TestAttackAddressOfALaterNode: a peer is seen at a range when a node joins at an address in it, or nodes get a DNS server
// there. A pod of the peer at that address answers in place of it. Another peer was granted just that address before.
//
// Outcome: nodes and pods keep what is for that address off the tunnel, and reach the node or server. What the peer has at
// other addresses of the range is reached as before, and so is its pod when the address is gone again.
func TestAttackAddressOfALaterNode(t *testing.T) {
	internet, a, _ := peered(t)
	const pod, other = "10.71.1.2", "10.71.1.5"
	internet.IP("addr add " + pod + "/32 dev lo")
	internet.Serve(pod + ":80")
	sees := func(t *testing.T, to, fromPod, fromNode string) {
		t.Helper()
		for from, want := range map[*space.Space]string{a.Pod: fromPod, a.Node: fromNode} {
			if got := from.AsksUntilAnswered(t, "tcp", "", to+":80", 0); got != want {
				t.Errorf("%s: who answers at %s sees %q, want %s", from.Name, to, got, want)
			}
		}
	}
	sees(t, pod, "10.72.1.2", "10.74.0.0")

	joins := func(local ...netip.Addr) {
		t.Helper()
		a.node.in.Local = local
		a.node.settle(t)
		if changes := a.node.settle(t); !changes.Empty() {
			t.Errorf("there is still to do:\n%s", changes)
		}
	}
	views := a.node.in.Gateways[0].CIDRs
	for claim, cidrs := range map[string][]netip.Prefix{"in a range": views, "a range of its own": append(prefixes(pod+"/32"), views...)} {
		t.Run(claim, func(t *testing.T) {
			a.node.in.Gateways[0].CIDRs = cidrs
			joins()
			sees(t, pod, "10.72.1.2", "10.74.0.0")
			joins(netip.MustParseAddr(pod), netip.MustParseAddr("192.168.1.254"))
			sees(t, pod, "192.168.1.1", "192.168.1.1") // a pod's packets are masqueraded
			sees(t, other, "10.72.1.2", "10.74.0.0")
			joins()
			sees(t, pod, "10.72.1.2", "10.74.0.0")
		})
	}
}
