// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// What the verbs between clusters make of the kernel, and what they say.
func TestInternet(t *testing.T) {
	rome, milan := cluster(t, "rome", 0, 2, false), cluster(t, "milan", 1, 2, false)
	clusters := []Cluster{rome, milan}
	fault := func(flags faultFlags, args ...string) fault {
		t.Helper()
		f, err := parseFault(args, flags)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	show := func(claim, story string, in internet) {
		t.Helper()
		golden(t, claim, story, map[string]string{
			"rules.nft": internetRules(in, clusters), "status": strings.Join(in.describe(clusters), "\n"), "hosts": namesFile(in),
		})
	}
	show("nothing-wrong-between-clusters", "No table, so no packet pays for it.", internet{})
	port := faultFlags{only: "udp/30123"}
	var in internet
	for _, f := range []struct {
		flags faultFlags
		args  []string
	}{
		{port, []string{"drop", "rome", "milan"}},
		{faultFlags{only: "icmp", loss: 30}, []string{"drop", "milan", "rome"}},
		{faultFlags{}, []string{"mtu", "rome", "milan", "1300"}},
		{faultFlags{}, []string{"delay", "milan", "rome", "100"}},
		{faultFlags{answer: true}, []string{"mtu", "milan", "rome", "1400"}}, // in place of the delay
		{port, []string{"drop", "rome", "milan"}},                            // again: in place of the first
	} {
		in = in.with(fault(f.flags, f.args...))
	}
	routes, err := shortRoutes(in.Faults[1], firstTable+1, rome, milan, `[{"dst":"172.31.21.1","gateway":"172.31.20.11","dev":"br-milan","flags":[]}]`)
	if err != nil {
		t.Fatal(err)
	}
	show("faults-between-clusters", "A port, a share of a protocol, and narrow paths without and with an answer.\nRouting does the rest of a narrow path:\n"+routes, in)
	slow := internet{}.with(fault(faultFlags{loss: 2}, "drop", "rome", "milan")).with(fault(faultFlags{}, "delay", "rome", "milan", "100"))
	late, err := shortRoutes(slow.Faults[1], firstTable+1, rome, milan, `[{"dst":"172.31.21.1","gateway":"172.31.20.11"}]`)
	if err != nil {
		t.Fatal(err)
	}
	show("packets-that-come-later", "Some are lost, and the relay has the others meanwhile:\n"+late, slow)
	if left := in.healed("milan", "rome"); len(left.Faults) != 0 {
		t.Errorf("healed, but %v", left.Faults)
	}
	if left := in.among([]string{"milan"}); len(left.Faults) != 0 {
		t.Errorf("rome is gone, but %v", left.Faults)
	}
	slow.NATs = []nat{{Cluster: "milan"}}
	if err := slow.check(); err == nil || !strings.Contains(err.Error(), "rome → milan: packets of a cluster behind NAT") {
		t.Errorf("a delay of packets to a cluster behind NAT: %v", err)
	}
	in = internet{Names: map[string]string{"milan-gw.test": "172.31.20.12", "gw.test": "203.0.113.1"}}
	for _, args := range [][]string{
		{"on", "rome"}, {"forward", "rome", "udp/40000", "n1:30123"}, {"forward", "rome", "tcp/6443", "cp:6443"},
		{"forward", "rome", "udp/40000", "172.31.11.1:5871"}, {"forward", "rome", "udp/1", "n1:1"}, {"close", "rome", "udp/1"},
	} {
		if err := in.changeNAT(rome, args); err != nil {
			t.Fatal(err)
		}
	}
	show("a-cluster-behind-nat", "A later mapping of a port is in place of the first. Two names are known.", in)
}

// Every refusal says what to write.
func TestRefusals(t *testing.T) {
	rome := cluster(t, "rome", 0, 2, false)
	for _, test := range []struct {
		flags faultFlags
		args  string
		want  string
	}{
		{faultFlags{}, "drop rome", "usage: fault drop"},
		{faultFlags{loss: 3}, "mtu rome milan 1400", "usage: fault drop"},
		{faultFlags{}, "mtu rome milan 1500", "use 576 to 1499"},
		{faultFlags{loss: 3}, "delay rome milan 100", "usage: fault drop"},
		{faultFlags{}, "delay rome milan 0", "use 1 to 2000 milliseconds"},
		{faultFlags{only: "53"}, "drop rome milan", "write it as udp/51820"},
		{faultFlags{only: "icmp/8"}, "drop rome milan", "write it as udp/51820"},
		{faultFlags{loss: 100}, "drop rome milan", "without --loss all is dropped"},
	} {
		_, err := parseFault(strings.Fields(test.args), test.flags)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("fault %s %+v: %v, want %q", test.args, test.flags, err, test.want)
		}
	}
	for args, want := range map[string]string{
		"forward rome udp/1 n1:1":            "run 'nat on rome' first",
		"forward behind udp n1:1":            "write it as udp/40000",
		"forward behind udp/1 n3:1":          "as n1:30123",
		"forward behind udp/1 172.31.20.1:1": "as n1:30123",
	} {
		in := internet{NATs: []nat{{Cluster: "behind"}}}
		c := rome
		c.Name = strings.Fields(args)[1]
		if err := in.changeNAT(c, strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nat %s: %v, want %q", args, err, want)
		}
	}
}

// Who gets which address of a load balancer, after the newest one given.
func TestAssign(t *testing.T) {
	rome := cluster(t, "rome", 0, 2, false)
	for name, test := range map[string]struct {
		last     int
		services string // uid, has, wants
		want     string
	}{
		"the first":                           {0, `a "" ""`, "a=172.31.11.1"},
		"a freed address comes back late":     {7, `a "" ""`, "a=172.31.11.8"},
		"after the last comes the first":      {254, `a "" ""`, "a=172.31.11.1"},
		"what one has stays":                  {9, `a "172.31.11.3" "", b "" ""`, "a=172.31.11.3 b=172.31.11.10"},
		"a wish":                              {0, `a "" "172.31.11.9"`, "a=172.31.11.9"},
		"another wish moves":                  {9, `a "172.31.11.3" "172.31.11.9"`, "a=172.31.11.9"},
		"a wish for what another has waits":   {9, `a "" "172.31.11.3", b "172.31.11.3" ""`, "b=172.31.11.3"},
		"a wish comes before those without":   {0, `a "" "", b "" "172.31.11.1"`, "a=172.31.11.2 b=172.31.11.1"},
		"two with the same":                   {9, `a "172.31.11.3" "", b "172.31.11.3" ""`, "a=172.31.11.3 b=172.31.11.10"},
		"outside of the range":                {0, `a "" "192.0.2.1", b "" "172.31.11.255"`, ""},
		"an address of another time or place": {0, `a "192.0.2.1" ""`, "a=172.31.11.1"},
		"none":                                {0, `a "172.31.11.1" "none"`, ""},
	} {
		var services []service
		for line := range strings.SplitSeq(test.services, ", ") {
			var s service
			var has, wants string
			fmt.Sscanf(line, "%s %q %q", &s.Metadata.UID, &has, &wants)
			text := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}},"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`,
				s.Metadata.UID, addressAnnotation, wants, has)
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				t.Fatal(err)
			}
			services = append(services, s)
		}
		given, _ := assign(rome, services, addrAt(rome.balancedNet(), test.last))
		var got []string
		for _, s := range services {
			if a, ok := given[s.Metadata.UID]; ok {
				got = append(got, s.Metadata.UID+"="+a.String())
			}
		}
		if s := strings.Join(got, " "); s != test.want {
			t.Errorf("%s: got %q, want %q", name, s, test.want)
		}
	}
	if routes, want := balancedRoutes(rome, map[netip.Addr]string{addrAt(rome.balancedNet(), 2): "n2", addrAt(rome.balancedNet(), 1): ""}),
		"route flush root 172.31.11.0/24\nroute add 172.31.11.2 via 172.31.10.12 dev br-rome\n"; routes != want {
		t.Errorf("routes:\n%s", routes)
	}
}

// A connection breaks only when its worker is ill and another one is not.
func TestChosen(t *testing.T) {
	for _, test := range []struct{ now, healthy, want string }{
		{"", "", ""}, {"", "n1 n2", "n1"}, {"n2", "n1 n2", "n2"}, {"n1", "n2 n3", "n2"}, {"n1", "", "n1"},
	} {
		if got := chosen(test.now, strings.Fields(test.healthy)); got != test.want {
			t.Errorf("now %q, healthy %q: %q, want %q", test.now, test.healthy, got, test.want)
		}
	}
}
