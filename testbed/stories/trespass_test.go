// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/liqo-go/liqo/internal/patience"
)

const (
	insider = "10.10.1.250"  // of pods, but of none
	nobody  = "203.0.113.77" // no cluster was ever told of
	stray   = "4242"         // the port by which packets are known
)

// trespassing: whoever has the key of rome's gateway reaches milan's pods with the addresses of rome's pods, and
// nothing else with any. What is sent goes to a port of its own, by which it is known wherever it comes out.
func trespassing(t *testing.T) {
	pod := milan.probeOn(t, "milan-n1")
	apiServer, _, _ := strings.Cut(strings.TrimPrefix(milan.api, "https://"), ":")
	service := milan.kubectl(t, "get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
	node := nodeAddress(t, milan, "n1")
	targets := []string{pod, remapped(t, rome, milan, []string{pod})[0], node, nodeAddress(t, milan, "n2"), apiServer, service}
	exposed := strings.Fields(milan.kubectl(t, "get", "ips.ipam.liqo.io", "-A", "-o", "jsonpath={.items[*].status.ip}"))
	if len(exposed) < 2 {
		t.Errorf("milan has no addresses for its API server: %s", exposed)
	}
	targets = append(targets, exposed...)
	known := remapped(t, milan, rome, []string{insider})[0]
	var packets []string
	for _, from := range []string{insider, known, nobody, node} {
		for _, to := range targets {
			packets = append(packets, base64.StdEncoding.EncodeToString(datagram(t, from, to)))
		}
	}
	seen := milan.seen(t, "any", "udp port "+stray, known, intruder(t, rome, milan, packets))
	for line := range strings.Lines(seen) {
		if !strings.Contains(line, " "+known+".") || !strings.Contains(line, " > "+pod+"."+stray+":") {
			t.Errorf("milan's nodes see of its peer: %s", line)
		}
	}
	reach(t) // the true gateway is heard again
}

// intruder sends packets into the tunnel between two clusters, some rounds of them, with the key of the gateway of the
// first, which is the tunnel's client, and in its place.
func intruder(t *testing.T, from, to cluster, packets []string) (send func()) {
	t.Helper()
	program := filepath.Join(root, "bin", "intruder")
	if out, err := exec.Command("go", "build", "-o", program, filepath.Join(root, "testbed", "intruder")).CombinedOutput(); err != nil {
		t.Fatalf("build intruder: %v\n%s", err, out)
	}
	tenant := []string{"-n", "liqo-tenant-" + to.name, "get", "-o"}
	key := from.kubectl(t, append(tenant, "jsonpath={.data.privateKey}", "secret", "gw-"+to.name)...)
	peer := from.kubectl(t, append(tenant, "jsonpath={.items[0].spec.publicKey}", "publickeies")...)
	endpoint := from.kubectl(t, append(tenant, "jsonpath={.items[0].spec.endpoint.addresses[0]}:{.items[0].spec.endpoint.port}", "gatewayclients")...)
	limit := fmt.Sprint(patience.Limit.Seconds())
	command := append([]string{from.name, "n1", "--", "timeout", limit, program, "-key", key, "-peer", peer, "-endpoint", endpoint}, packets...)
	return func() {
		t.Helper()
		if out, err := testbed("exec", command...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
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
	from := remapped(t, milan, rome, []string{insider, "10.10.1.251"})
	to, address := milan.probeOn(t, at.node), nodeAddress(t, milan, node)
	send := func(who, from string) {
		vxlan := base64.StdEncoding.EncodeToString(frame(t, strings.TrimSpace(mac), datagram(t, from, to)))
		if out, err := milan.inside(node, who, "echo "+vxlan+" | base64 -d >/dev/udp/"+address+"/6091"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	arrived := milan.seen(t, "liqo.ovl", "src host "+from[0]+" or src host "+from[1], from[0], func() {
		send(theProbe, from[1])
		send(theGateway, from[0])
	})
	if strings.Contains(arrived, from[1]) {
		t.Errorf("frames that another pod sent arrive:\n%s", arrived)
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

// seen returns the packets on a device of both nodes while something is sent: four times, and again
// until a packet with the wanted text arrives.
func (c cluster) seen(t *testing.T, device, which, want string, send func()) string {
	t.Helper()
	packets := c.capture(t, device, which)
	for range 4 {
		send()
	}
	what := fmt.Sprintf("the nodes of %s see a packet %q on %s, %s", c.name, want, device, which)
	eventually(t, what, func() (string, bool) {
		if so := packets(); strings.Contains(so, want) {
			return so, true
		}
		send()
		return packets(), false
	})
	return packets()
}

// capture begins to capture on a device of both nodes, until the test ends, and returns a function
// that returns the packets so far.
func (c cluster) capture(t *testing.T, device, which string) (packets func() string) {
	t.Helper()
	var printed [2]output
	for i := range printed {
		cmd := exec.Command(testbedBinary, "exec", "--dir", dir, c.name, fmt.Sprintf("n%d", i+1), "--",
			"sh", "-c", "tcpdump --immediate-mode -l -n -i "+device+" "+which+" & read -r _; kill $!; wait $!")
		cmd.Stdout, cmd.Stderr = &printed[i], &printed[i]
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = input.Close()
			_ = cmd.Wait() // tcpdump is killed
		})
		eventually(t, "tcpdump listens: "+cmd.String(), func() (string, bool) {
			got := printed[i].String()
			return got, strings.Contains(got, "listening on ")
		})
	}
	return func() string {
		var all strings.Builder
		for i := range printed {
			for line := range strings.Lines(printed[i].String()) {
				// Other lines are about the capture, or incomplete.
				if strings.Contains(line, " > ") && strings.HasSuffix(line, "\n") {
					all.WriteString(line)
				}
			}
		}
		return all.String()
	}
}

// output holds what a program prints while it runs.
type output struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// frame is an Ethernet frame with a packet, in VXLAN as the overlay has it.
func frame(t *testing.T, mac string, packet []byte) []byte {
	t.Helper()
	receiver, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat([]byte{0x08, 0, 0, 0, 'l', 'q', 'o', 0}, receiver, []byte{0x02, 0, 0, 0, 0, 1, 0x08, 0}, packet)
}

// datagram is an empty UDP packet to the stray port.
func datagram(t *testing.T, from, to string) []byte {
	t.Helper()
	port, err := strconv.Atoi(stray)
	if err != nil {
		t.Fatal(err)
	}
	source, destination := netip.MustParseAddr(from).As4(), netip.MustParseAddr(to).As4()
	ip := slices.Concat([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0}, source[:], destination[:])
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	for _, of := range []int{port, port, 8, 0} {
		ip = binary.BigEndian.AppendUint16(ip, uint16(of))
	}
	return ip
}
