// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
)

// fault is something wrong with the way from one cluster to another, one direction.
type fault struct {
	From, To string
	Only     *transport `json:",omitempty"` // nil: all traffic
	Loss     int        `json:",omitempty"` // percent of packets dropped; 0: all
	MTU      int        `json:",omitempty"` // larger packets are dropped, and nothing else
	Answer   bool       `json:",omitempty"` // routers say that a packet was too large
	Delay    int        `json:",omitempty"` // packets are delayed by this, in ms; 0: no delay
}

func (f fault) String() string {
	way := f.From + " → " + f.To
	if f.MTU > 0 {
		how := "larger packets vanish"
		if f.Answer {
			how = "larger packets are answered by 'fragmentation needed'"
		}
		return fmt.Sprintf("fault %s: MTU %d, %s", way, f.MTU, how)
	}
	if f.Delay > 0 {
		return fmt.Sprintf("fault %s: %d ms later", way, f.Delay)
	}
	what := "everything"
	if f.Only != nil {
		what = f.Only.String()
	}
	if f.Loss > 0 {
		return fmt.Sprintf("fault %s: %s, %d %% lost", way, what, f.Loss)
	}
	return fmt.Sprintf("fault %s: %s dropped", way, what)
}

// replaces tells whether f takes the place of an older fault.
func (f fault) replaces(old fault) bool {
	same := f.Only == old.Only || f.Only != nil && old.Only != nil && *f.Only == *old.Only
	return f.From == old.From && f.To == old.To && same && f.routes() == old.routes()
}

// routes reports whether f changes the route of packets. Such faults replace each other, because a
// packet has one route.
func (f fault) routes() bool { return f.MTU > 0 || f.Delay > 0 }

// with is the internet with one more fault.
func (in internet) with(f fault) internet {
	in.Faults = append(slices.DeleteFunc(slices.Clone(in.Faults), f.replaces), f)
	return in
}

// healed is the internet without faults between two clusters; without names, without any.
func (in internet) healed(names ...string) internet {
	in.Faults = slices.DeleteFunc(slices.Clone(in.Faults), func(f fault) bool {
		return len(names) == 0 || slices.Contains(names, f.From) && slices.Contains(names, f.To)
	})
	return in
}

func faultChains(faults []fault, clusters []Cluster) string {
	var drops, silence []string
	for _, f := range faults {
		from, to := byName(clusters, f.From), byName(clusters, f.To)
		way := fmt.Sprintf("iifname %q oifname %q ", from.bridge(), outDevice(faults, f, to))
		switch {
		case f.MTU > 0 && !f.Answer:
			// limitPaths drops what must not be fragmented, segment by segment, which
			// a rule cannot: it sees many segments as one packet. The rest is dropped here.
			drops = append(drops, fmt.Sprintf("%sip frag-off & 0x4000 == 0 meta length > %d drop", way, f.MTU))
			silence = append(silence, silenced(from, to))
		case !f.routes():
			for _, match := range f.matches() {
				drops = append(drops, way+match+f.chance()+"drop")
			}
		}
	}
	return chain("faults", "filter hook forward priority filter - 10", drops) +
		chain("silence", "filter hook output priority filter", silence)
}

// outDevice returns the device through which packets of a fault's way leave "inet" at first: that of the
// cluster they go to, or of the relay.
func outDevice(faults []fault, way fault, to Cluster) string {
	relayed := slices.IndexFunc(faults, func(f fault) bool {
		return f.Delay > 0 && f.From == way.From && f.To == way.To
	})
	if relayed < 0 {
		return to.bridge()
	}
	return relayDevice(relayed)
}

// matches: a port stands at either end, so that answers can be dropped too.
func (f fault) matches() []string {
	switch {
	case f.Only == nil:
		return []string{""}
	case f.Only.Port == 0:
		return []string{"meta l4proto " + f.Only.Protocol + " "}
	}
	return []string{
		fmt.Sprintf("%s dport %d ", f.Only.Protocol, f.Only.Port),
		fmt.Sprintf("%s sport %d ", f.Only.Protocol, f.Only.Port),
	}
}

func (f fault) chance() string {
	if f.Loss == 0 {
		return ""
	}
	return fmt.Sprintf("numgen random mod 100 < %d ", f.Loss)
}

// silenced drops the router's message to from that a packet to to was too large. The
// message carries the packet's head: 8 bytes of ICMP, and the destination after 16 more.
func silenced(from, to Cluster) string {
	b := to.network().Addr().As4()
	return fmt.Sprintf("oifname %q icmp type destination-unreachable icmp code frag-needed @th,192,32 & 0xfffffe00 == 0x%02x%02x%02x%02x drop",
		from.bridge(), b[0], b[1], b[2], b[3])
}

// firstTable numbers the routing tables of short paths; the rules have the same numbers.
const firstTable = 1000

// limitPaths routes from one cluster to another with a fixed MTU, as a router in front
// of a narrower link does, or to the relay.
func (t Testbed) limitPaths(in internet, clusters []Cluster) error {
	out, err := t.inNet(inetSpace, "", "ip", "-j", "rule")
	if err != nil {
		return err
	}
	var rules []struct{ Priority int }
	if err := json.Unmarshal([]byte(out), &rules); err != nil {
		return fmt.Errorf("read routing rules: %w", err)
	}
	var batch strings.Builder
	for _, r := range rules {
		if r.Priority >= firstTable && r.Priority < 2*firstTable {
			fmt.Fprintf(&batch, "rule del pref %[1]d\nroute flush table %[1]d\n", r.Priority)
		}
	}
	for i, f := range in.Faults {
		if !f.routes() {
			continue
		}
		to := byName(clusters, f.To)
		balanced, err := t.inNet(inetSpace, "", "ip", "-j", "route", "show", "root", to.balancedNet().String())
		if err != nil {
			return err
		}
		routes, err := shortRoutes(f, firstTable+i, byName(clusters, f.From), to, balanced)
		if err != nil {
			return err
		}
		batch.WriteString(routes)
	}
	_, err = t.inNet(inetSpace, batch.String(), "ip", "-batch", "-")
	return err
}

// shortRoutes lead to the nodes and to the load balancer's addresses of this moment.
func shortRoutes(f fault, table int, from, to Cluster, balanced string) (string, error) {
	var routes []struct{ Dst, Gateway string }
	if err := json.Unmarshal([]byte(balanced), &routes); err != nil {
		return "", fmt.Errorf("read routes of load balancers: %w", err)
	}
	var b strings.Builder
	way := fmt.Sprintf("dev %s mtu lock %d", to.bridge(), f.MTU)
	if f.Delay > 0 {
		way = "dev " + relayDevice(table-firstTable)
	}
	fmt.Fprintf(&b, "route replace %s %s table %d\n", to.nodeNet(), way, table)
	for _, r := range routes {
		via := "via " + r.Gateway + " "
		if f.Delay > 0 {
			via = ""
		}
		fmt.Fprintf(&b, "route replace %s %s%s table %d\n", r.Dst, via, way, table)
	}
	fmt.Fprintf(&b, "rule add pref %[1]d iif %[2]s lookup %[1]d\n", table, from.bridge())
	return b.String(), nil
}

// faultFlags are the flags of the verb fault.
type faultFlags struct {
	only         string
	loss         int
	both, answer bool
}

func registerFaultFlags(f *flag.FlagSet, o *options) {
	f.StringVar(&o.fault.only, "port", "", "drop: only this `port`, as udp/51820, tcp/443, udp, tcp or icmp")
	f.IntVar(&o.fault.loss, "loss", 0, "drop: `percent` of the packets, 1 to 99 (default all)")
	f.BoolVar(&o.fault.answer, "answer", false, "mtu: routers answer 'fragmentation needed' (default: packets vanish)")
	f.BoolVar(&o.fault.both, "both", false, "also the way back")
}

const faultUsage = `usage: fault drop <from> <to> [--port udp/51820] [--loss 30] [--both]
       fault mtu <from> <to> <bytes> [--answer] [--both]
       fault delay <from> <to> <milliseconds> [--both]
       fault heal [<a> <b>]`

func runFault(_ context.Context, t Testbed, o options, args []string) error {
	if len(args) > 0 && args[0] == "heal" && (len(args) == 1 || len(args) == 3) {
		return t.heal(args[1:])
	}
	f, err := parseFault(args, o.fault)
	if err != nil {
		return err
	}
	return t.addFault(f, o.fault.both)
}

func parseFault(args []string, flags faultFlags) (fault, error) {
	var f fault
	switch {
	case len(args) == 3 && args[0] == "drop" && !flags.answer:
	case len(args) == 4 && args[0] == "mtu" && flags.only == "" && flags.loss == 0:
		// 576: what every IPv4 host must take. 1500: what the nodes' links have.
		if _, err := fmt.Sscanf(args[3], "%d", &f.MTU); err != nil || f.MTU < 576 || f.MTU >= 1500 {
			return f, fmt.Errorf("MTU %q: use 576 to 1499", args[3])
		}
	case len(args) == 4 && args[0] == "delay" && flags.only == "" && flags.loss == 0 && !flags.answer:
		if _, err := fmt.Sscanf(args[3], "%d", &f.Delay); err != nil || f.Delay < 1 || f.Delay > 2000 {
			return f, fmt.Errorf("delay %q: use 1 to 2000 milliseconds", args[3])
		}
	default:
		return f, fmt.Errorf("%s", faultUsage)
	}
	f.From, f.To, f.Loss, f.Answer = args[1], args[2], flags.loss, flags.answer
	if f.Loss < 0 || f.Loss > 99 {
		return f, fmt.Errorf("loss %d: use 1 to 99 percent; without --loss all is dropped", f.Loss)
	}
	if flags.only == "" {
		return f, nil
	}
	only, err := parseTransport(flags.only)
	f.Only = &only
	return f, err
}

// pair refuses names that are not two clusters.
func (t Testbed) pair(names []string) error {
	if _, err := t.selectClusters(names); err != nil {
		return err
	}
	if names[0] == names[1] {
		return fmt.Errorf("name two different clusters")
	}
	return nil
}

func (t Testbed) addFault(f fault, both bool) error {
	if err := t.pair([]string{f.From, f.To}); err != nil {
		return err
	}
	return t.changeInternet(func(in *internet) error {
		*in = in.with(f)
		if both {
			f.From, f.To = f.To, f.From
			*in = in.with(f)
		}
		return nil
	})
}

func (t Testbed) heal(names []string) error {
	if len(names) > 0 {
		if err := t.pair(names); err != nil {
			return err
		}
	}
	return t.changeInternet(func(in *internet) error {
		*in = in.healed(names...)
		return nil
	})
}

// runLink is the fault most wanted, by a shorter name.
func runLink(_ context.Context, t Testbed, _ options, args []string) error {
	if len(args) != 3 || args[0] != "cut" && args[0] != "heal" {
		return fmt.Errorf("usage: link cut|heal <a> <b>")
	}
	if args[0] == "heal" {
		return t.heal(args[1:])
	}
	return t.addFault(fault{From: args[1], To: args[2]}, true)
}
