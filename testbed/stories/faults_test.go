// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"cmp"
	"flag"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/liqo-go/liqo/internal/seed"
)

var (
	// soak runs what is long in full: all faults in place of a sample.
	soak = flag.Bool("soak", false, "run everything, not samples")
	// fraction is the part of each list of stories and rows that runs, rounded up; 1 = all, in their order.
	fraction = flag.Float64("sample", 0.5, "fraction of stories and rows to run, by the seed: above 0 and up to 1")
)

// some returns a random sample of the size that -sample gives; all of them in full runs.
func some[T any](t *testing.T, all []T) []T {
	t.Helper()
	if *fraction <= 0 || *fraction > 1 {
		t.Fatalf("-sample=%g: must be above 0 and up to 1", *fraction)
	}
	if *fraction == 1 { // in their order
		return all
	}
	return sampled(t, int(math.Ceil(*fraction*float64(len(all)))), all)
}

// sampled returns n of all by chance, and prints the seed; all of them in full runs.
func sampled[T any](t *testing.T, n int, all []T) []T {
	t.Helper()
	if *soak {
		return all
	}
	seed.Rand(t).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:n]
}

// mistake is something that keeps two clusters from being connected, and what is said of it.
type mistake struct {
	name string
	// make and mend are commands.
	make, mend func(t *testing.T)
	// client and server are the reasons of the Connections' conditions; of Ready, unless condition
	// says so. Empty: that side has nothing to say.
	client, server, condition string
	// kind says it in place of the Connections.
	kind string
}

func mistakes() []mistake {
	fault := func(args ...string) func(*testing.T) {
		return func(t *testing.T) { onTestbed(t, "fault", args...) }
	}
	patch := func(c *cluster, kind, name, change string) func(*testing.T) {
		return func(t *testing.T) {
			c.kubectl(t, "-n", "liqo-tenant-"+other(*c).name, "patch", kind, name, "--type=merge", "-p", change)
		}
	}
	// dial changes where the client dials, and back.
	dial := func(change string) (there, back func(*testing.T)) {
		var before string
		return func(t *testing.T) {
				before = rome.kubectl(t, "-n", "liqo-tenant-milan", "get", "gatewayclients", "milan", "-o", "jsonpath={.spec.endpoint}")
				patch(&rome, "gatewayclients", "milan", `{"spec":{"endpoint":`+change+`}}`)(t)
			}, func(t *testing.T) {
				patch(&rome, "gatewayclients", "milan", `{"spec":{"endpoint":`+before+`}}`)(t)
			}
	}
	healed := fault("heal")
	port, portBack := dial(`{"port":30999}`)
	address, addressBack := dial(`{"addresses":["172.31.20.99"]}`)
	name, nameBack := dial(`{"addresses":["nobody.test"]}`)
	clientKey, clientKeyBack := wrongKey(&rome)
	serverKey, serverKeyBack := wrongKey(&milan)
	all := []mistake{
		// The server knew where the client is, and goes on sending. The client hears it unless it was the
		// first to miss an answer: then it dials anew, from another port.
		{"UDP is blocked to the server", fault("drop", "rome", "milan", "--port", "udp/30742"), healed, "OneWay|NoAnswer", "NothingArrives", "Ready", ""},
		{"UDP is blocked from the server", fault("drop", "milan", "rome", "--port", "udp/30742"), healed, "NoAnswer", "OneWay", "Ready", ""},
		{"UDP is blocked both ways", fault("drop", "rome", "milan", "--port", "udp/30742", "--both"), healed, "NoAnswer", "NothingArrives", "Ready", ""},
		{"the port is wrong", port, portBack, "PortRefused", "NothingArrives", "Ready", ""},
		{"the address is wrong", address, addressBack, "AddressUnreachable", "NothingArrives", "Ready", ""},
		{"the name does not resolve", name, nameBack, "NameUnknown", "NothingArrives", "Ready", ""},
		// The server still knows where the client is, and sends handshakes there that do not fit the wrong key. The client
		// hears them unless it dials from another port meanwhile.
		{"the client has a wrong key", clientKey, clientKeyBack, "NoAnswer|WrongKey", "WrongKey", "Ready", ""},
		{"the server has a wrong key", serverKey, serverKeyBack, "NoAnswer|WrongKey", "WrongKey", "Ready", ""},
		{"a NAT forwards nothing",
			func(t *testing.T) { onTestbed(t, "nat", "on", "milan") }, func(t *testing.T) { onTestbed(t, "nat", "off", "milan") },
			"NoAnswer", "NothingArrives", "Ready", ""},
		{"the MTU is too large for the path", fault("mtu", "rome", "milan", "1300", "--both"), healed, "MTUTooLarge", "MTUTooLarge", "MTUFits", ""},
		{"the MTUs differ",
			patch(&milan, "gatewayservers", "rome", `{"spec":{"mtu":1200}}`), patch(&milan, "gatewayservers", "rome", `{"spec":{"mtu":1340}}`),
			"MTUsDiffer", "MTUsDiffer", "MTUFits", ""},
	}
	noRange, noRangeBack := announce(`"fd00:10::/64"`)
	var external string
	overlaps := func(t *testing.T) {
		external = rome.kubectl(t, "-n", "liqo-tenant-milan", "get", "configurations", "milan", "-o", "jsonpath={.spec.remote.cidr.external}")
		patch(&rome, "configurations", "milan", `{"spec":{"remote":{"cidr":{"external":["10.10.7.0/24"]}}}}`)(t)
	}
	overlapsNoMore := func(t *testing.T) {
		patch(&rome, "configurations", "milan", `{"spec":{"remote":{"cidr":{"external":`+external+`}}}}`)(t)
	}
	unbalanced := `{"spec":{"endpoint":{"serviceType":"LoadBalancer","loadBalancerIP":"203.0.113.9"}}}`
	return append(all,
		// Nobody gave the cluster a pool of IPv6.
		mistake{"no range is left for the peer's", noRange, noRangeBack, "PoolsExhausted", "", "Ready", "configurations"},
		mistake{"two ranges of the peer overlap", overlaps, overlapsNoMore, "InvalidCIDR", "", "Ready", "configurations"},
		mistake{"no node takes the gateway", noRoomForGateway(rome), nodesAreOpen(rome), "GatewayPodUnschedulable", "", "Ready", "gatewayclients"},
		mistake{"the Service gets no address",
			patch(&milan, "gatewayservers", "rome", unbalanced),
			patch(&milan, "gatewayservers", "rome", `{"spec":{"endpoint":{"serviceType":"NodePort","loadBalancerIP":null}}}`),
			"", "LoadBalancerPending", "Ready", "gatewayservers"},
	)
}

// wrongKey gives a cluster a wrong key of its peer, and the right one back.
func wrongKey(c *cluster) (there, back func(*testing.T)) {
	var before string
	set := func(t *testing.T, key string) {
		c.kubectl(t, "-n", "liqo-tenant-"+other(*c).name, "patch", "publickeies", other(*c).name, "--type=merge", "-p",
			`{"spec":{"publicKey":"`+key+`"}}`)
	}
	return func(t *testing.T) {
		before = c.kubectl(t, "-n", "liqo-tenant-"+other(*c).name, "get", "publickeies", other(*c).name, "-o", "jsonpath={.spec.publicKey}")
		set(t, newKey(t).public)
	}, func(t *testing.T) { set(t, before) }
}

// announce adds a pod CIDR to those milan tells rome, and takes it back.
func announce(cidr string) (there, back func(*testing.T)) {
	set := func(t *testing.T, list string) {
		rome.kubectl(t, "-n", "liqo-tenant-milan", "patch", "configurations", "milan", "--type=merge", "-p", `{"spec":{"remote":{"cidr":{"pod":[`+list+`]}}}}`)
	}
	return func(t *testing.T) { set(t, `"`+podCIDR+`",`+cidr) }, func(t *testing.T) { set(t, `"`+podCIDR+`"`) }
}

// noRoomForGateway closes all nodes and takes the gateway's pod away.
func noRoomForGateway(c cluster) func(*testing.T) {
	return func(t *testing.T) {
		c.kubectl(t, "cordon", c.name+"-n1", c.name+"-n2")
		c.kubectl(t, "-n", "liqo-tenant-"+other(c).name, "delete", "pods", "-l", "networking.liqo.io/component=gateway", "--wait=false")
	}
}

func nodesAreOpen(c cluster) func(*testing.T) {
	return func(t *testing.T) { c.kubectl(t, "uncordon", c.name+"-n1", c.name+"-n2") }
}

// whyNotConnected makes mistakes one after the other. Each is named by both sides' Connections, or by the
// object at fault, by liqoctl and by the map of the dashboard, and when it is mended the tunnel is up again.
func whyNotConnected(t *testing.T) {
	restored := nodesAsBefore(t)
	network(t, "connect", "--server-service-type", "NodePort", "--node-port", "30742")
	s := newScreen(t)
	for _, m := range sampled(t, 2, mistakes()) {
		t.Run(m.name, func(t *testing.T) {
			defer m.mend(t)
			m.make(t)
			for c, reason := range map[*cluster]string{&rome: m.client, &milan: m.server} {
				if reason != "" {
					m.named(t, s, *c, reason)
				}
			}
		})
		connections(t, "liqo-tenant-milan gw-milan Client Connected", "liqo-tenant-rome gw-rome Server Connected")
	}
	network(t, "reset", "--wait", "--skip-confirm")
	restored()
}

// named waits until a cluster's object has the reason, and liqoctl and the map say what it says: of two
// reasons that are right one may follow the other.
func (m mistake) named(t *testing.T, s *screen, c cluster, reason string) {
	t.Helper()
	s.open(t, c)
	condition := `{.items[0].status.conditions[?(@.type=="` + m.condition + `")]`
	eventually(t, c.name+" says "+reason+", and liqoctl why", func() (string, bool) {
		got, err := c.ask("get", cmp.Or(m.kind, "connections"), "-A", "-o", "jsonpath="+condition+`.reason} `+condition+`.message}`)
		said, message, _ := strings.Cut(got, " ")
		if err != nil || !slices.Contains(strings.Split(reason, "|"), said) {
			return got, false
		}
		out, _ := c.must(t, "info", "peer", other(c).name)
		red := s.red()
		return got + "\n" + out + red, message != "" && strings.Contains(out, message) && strings.Contains(red, message)
	})
}
