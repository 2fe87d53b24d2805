// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// insider is an address of rome's pods that no pod has, nobody one that milan was never told of.
const insider, nobody = "10.10.1.250", "203.0.113.77"

// trespassing: whoever rules rome's gateway reaches milan's pods with the addresses of rome's pods, and nothing
// else with any. What is sent goes to a port of its own, by which it is known wherever it comes out.
func trespassing(t *testing.T) {
	pod := milan.probeOn(t, "milan-n1")
	apiServer, _, _ := strings.Cut(strings.TrimPrefix(milan.api, "https://"), ":")
	service := milan.kubectl(t, "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
	targets := []string{remapped(t, rome, milan, []string{pod})[0], nodeAddress(t, milan, "n1"), nodeAddress(t, milan, "n2"), apiServer, service}
	for _, addr := range strings.Fields(milan.kubectl(t, "get", "ips.ipam.liqo.io", "-A", "-o", "jsonpath={.items[*].status.ip}")) {
		targets = append(targets, external(t, rome, milan, addr)) // the API server's among them
	}
	if len(targets) < 5+2 {
		t.Errorf("milan has no addresses for its API server: %s", targets)
	}
	at := activeGateway(t, rome)
	evil := func(command string) {
		t.Helper()
		if out, err := rome.inGateway(at, command); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	have := fmt.Sprintf("for a in %s %s; do ip addr $verb $a/32 dev lo; done; ip rule $verb ipproto udp dport 4242 lookup 4242; ip route $verb default dev liqo-tunnel table 4242",
		insider, nobody)
	// What is not tracked keeps its source. What leaves with a source nobody knows is counted.
	evil("verb=add; " + have + "; nft 'add table ip evil; add chain ip evil out { type filter hook output priority raw; }; add rule ip evil out notrack; " +
		"add chain ip evil left { type filter hook postrouting priority 400; }; add rule ip evil left oifname liqo-tunnel ip saddr " + nobody + " counter'")
	defer evil("verb=del; " + have + "; nft delete table ip evil")
	var send strings.Builder
	for _, from := range []string{insider, nobody} {
		for _, to := range targets {
			fmt.Fprintf(&send, "echo | socat -u - UDP4-SENDTO:%s:4242,bind=%s; ", to, from)
		}
	}
	seen := milan.seen(t, "any", "udp port 4242", func() { evil(send.String()) })
	want := remapped(t, milan, rome, []string{insider})[0]
	for line := range strings.Lines(seen) {
		if !strings.Contains(line, " "+want+".") || !strings.Contains(line, " > "+pod+".4242:") {
			t.Errorf("milan's nodes see of its peer: %s", line)
		}
	}
	evil("nft list chain ip evil left | grep -q 'packets [1-9]'") // otherwise nothing was tried
	if !strings.Contains(seen, want) {
		t.Errorf("not even a pod is reached:\n%s", seen)
	}
}

// impersonated: a frame of the overlay counts when a gateway sends it, and does not when another pod does.
func impersonated(t *testing.T) {
	at := activeGateway(t, milan)
	node := strings.TrimPrefix(at.node, "milan-")
	mac, err := testbed("exec", "milan", node, "--", "cat", "/sys/class/net/liqo.ovl/address")
	if err != nil {
		t.Fatalf("%v\n%s", err, mac)
	}
	from := remapped(t, milan, rome, []string{insider})[0]
	send := fmt.Sprintf("echo %s | base64 -d >/dev/udp/%s/6091", frame(t, strings.TrimSpace(mac), from, milan.probeOn(t, at.node)), nodeAddress(t, milan, node))
	for who, counts := range map[string]bool{theGateway: true, theProbe: false} {
		seen := milan.seen(t, "liqo.ovl", "src host "+from, func() {
			if out, err := milan.inside(node, who, send); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		})
		if (seen != "") != counts {
			t.Errorf("frames sent in the network of %s that arrive:\n%s", who, seen)
		}
	}
}

// probeOn is the address of the probe on a node.
func (c cluster) probeOn(t *testing.T, node string) string {
	t.Helper()
	return c.kubectl(t, "get", "pods", "-l", "app=probe", "--field-selector", "spec.nodeName="+node, "-o", "jsonpath={.items[0].status.podIP}")
}

// Processes of pods, by their commands.
const (
	theGateway = "^/usr/bin/liqo gateway "
	theProbe   = "^/echo$"
)

// inside runs a command in the network of a process on a node.
func (c cluster) inside(node, process, command string) (string, error) {
	return testbed("exec", c.name, node, "--", "bash", "-c", `exec nsenter -t "$(pgrep -o -f "$0")" -n bash -euc "$1"`, process, command)
}

func (c cluster) inGateway(at gatewayPod, command string) (string, error) {
	return c.inside(strings.TrimPrefix(at.node, c.name+"-"), theGateway, command)
}

// seen are the packets on a device of both nodes while something is sent again and again.
func (c cluster) seen(t *testing.T, device, which string, send func()) string {
	t.Helper()
	nodes := []string{"n1", "n2"}
	heard := make(chan string, len(nodes))
	for _, node := range nodes {
		go func() {
			out, err := testbed("exec", c.name, node, "--", "sh", "-c", "timeout 4 tcpdump -l -n -i "+device+" "+which+" 2>/dev/null || [ $? = 124 ]")
			if err != nil {
				t.Error(err)
			}
			heard <- out
		}()
	}
	var all strings.Builder
	for left := len(nodes); left > 0; {
		select {
		case out := <-heard:
			for line := range strings.Lines(out) {
				if strings.Contains(line, " > ") { // it ends with an empty one
					all.WriteString(line)
				}
			}
			left--
		default:
			send()
		}
	}
	return all.String()
}

// frame is an Ethernet frame with an empty UDP packet, in VXLAN as the overlay has it, in base64.
func frame(t *testing.T, mac, from, to string) string {
	t.Helper()
	receiver, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	source, destination := netip.MustParseAddr(from).As4(), netip.MustParseAddr(to).As4()
	ip := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0}
	ip = append(append(ip, source[:]...), destination[:]...)
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	out := []byte{0x08, 0, 0, 0, 'l', 'q', 'o', 0}
	out = append(append(out, receiver...), 0x02, 0, 0, 0, 0, 1, 0x08, 0)
	out = append(append(out, ip...), 0, 9, 0, 9, 0, 8, 0, 0)
	return base64.StdEncoding.EncodeToString(out)
}
