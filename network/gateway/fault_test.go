// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/gateway/plan"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// says waits until a condition of the Connection has a reason, and returns what was read.
func (w *world) says(t *testing.T, fault, condition, reason string) *netv1beta1.Connection {
	t.Helper()
	c := &netv1beta1.Connection{}
	space.Eventually(t, condition+" "+reason+" while "+fault, func() error {
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "gw-" + name}, c); err != nil {
			return err
		}
		found := meta.FindStatusCondition(c.Status.Conditions, condition)
		if found == nil || found.Reason != reason {
			return fmt.Errorf("%s has no %s but %v", c.Spec.Type, reason, c.Status.Conditions)
		}
		return nil
	})
	return c
}

// believe changes the key a cluster holds for the peer's.
func (w *world) believe(t *testing.T, key wgtypes.Key) {
	t.Helper()
	public := key.PublicKey()
	k := &netv1beta1.PublicKey{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(k), k); err != nil {
		t.Fatal(err)
	}
	k.Spec.PublicKey = public[:]
	if err := w.client.Update(t.Context(), k); err != nil {
		t.Fatal(err)
	}
}

// TestRefusalsAreTold: the kernel refuses the overlay, for its port is taken; and its bridges pass on
// what nobody filters.
func TestRefusalsAreTold(t *testing.T) {
	t.Parallel()
	_, a, b := worlds(t)
	a.trust(t, b)
	taken := fmt.Sprintf(":%d", api.OverlayPort)
	a.Gateway.Serve(taken)
	a.startGateway(t, b, true)
	a.says(t, "the overlay's port is taken", netv1beta1.ConnectionProgrammed, plan.ReasonKernelRefuses)
	a.Node.Serve(taken)
	a.startFabric(t)
	a.nodeSays(t, "write link")

	filtered := func(value int) { b.Node.Run(fmt.Sprint(value), "tee", "/proc/sys/net/bridge/bridge-nf-call-iptables") }
	filtered(0)
	b.Node.PingsUntilAnswered(t, b.GatewayIP.String()) // the bridge must have heard of the pod
	b.startFabric(t)
	b.nodeSays(t, "modprobe br_netfilter")
	filtered(1)
	b.nodeSays(t, "")

	removed := func(kind string) client.Patch {
		return client.RawPatch(types.ApplyPatchType, fmt.Appendf(nil, `{apiVersion: networking.liqo.io/v1beta1, kind: %s,
			status: {conditions: [{host: n0, type: Error, status: "True", message: of a node that was removed}]}}`, kind))
	}
	on := &netv1beta1.InternalFabric{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}
	if err := b.client.Status().Patch(t.Context(), on, removed("InternalFabric"), client.FieldOwner("liqo/fabric-n0")); err != nil {
		t.Fatal(err)
	}
	guard := &netv1beta1.FirewallConfiguration{ObjectMeta: metav1.ObjectMeta{
		Namespace: tenant, Name: "guard", Labels: map[string]string{api.LabelFirewallCategory: api.CategoryFabric},
	}}
	guard.Spec.Table = netv1beta1.FirewallTable{Name: "guard", Family: netv1beta1.FamilyINET, Chains: []netv1beta1.FirewallChain{}}
	if err := b.client.Create(t.Context(), guard); err != nil {
		t.Fatal(err)
	}
	if err := b.client.Status().Patch(t.Context(), guard, removed("FirewallConfiguration"), client.FieldOwner("liqo/fabric-n0")); err != nil {
		t.Fatal(err)
	}
	space.Eventually(t, "conditions of rules from the node that is there alone", func() error {
		if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(guard), guard); err != nil {
			return err
		}
		if said := guard.Status.Conditions; len(said) != 1 || said[0].Host != "n1" {
			return fmt.Errorf("it says %v", said)
		}
		return nil
	})
}

// TestAMissingKernelIsTold: without nf_tables, which nft would say so, gateway and node name what to do, do
// not end, and go on by themselves when it is there.
func TestAMissingKernelIsTold(t *testing.T) {
	_, a, b := worlds(t)
	a.trust(t, b)
	lacks := t.TempDir()
	nft := filepath.Join(lacks, "nft")
	if err := os.WriteFile(nft, []byte("#!/bin/sh\necho 'netlink: Error: cache initialization failed: Protocol not supported' >&2\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	kernel := os.Getenv("PATH")
	t.Setenv("PATH", lacks+":"+kernel)
	node := a.startFabric(t)
	pod := a.startGateway(t, b, true)
	t.Setenv("PATH", kernel)
	a.nodeSays(t, "modprobe -a nf_tables")
	a.says(t, "the kernel has no nf_tables", netv1beta1.ConnectionProgrammed, plan.ReasonKernelRefuses)
	if err := os.Remove(nft); err != nil {
		t.Fatal(err)
	}
	a.nodeSays(t, "")
	for _, p := range []process{node, pod} {
		select {
		case <-p.ends:
			t.Error("a process ended")
		default:
		}
	}
}

// TestTimedAGatewayIsHeardOf: frames for a gateway on the same node go past the bridge as soon as the node has
// heard of the pod, which is after it joined the overlay.
func TestTimedAGatewayIsHeardOf(t *testing.T) {
	_, a, _ := worlds(t)
	a.startFabric(t)
	leads := func(what string) func() error {
		return func() error {
			if out := a.Node.Run("", "bridge", "fdb", "show"); !strings.Contains(out, "dst "+a.GatewayIP.String()+what) {
				return fmt.Errorf("the entries are\n%s", out)
			}
			return nil
		}
	}
	space.Eventually(t, "the gateway in the forwarding table", leads(""))
	a.Node.PingsUntilAnswered(t, a.GatewayIP.String())
	heard := time.Now()
	space.Eventually(t, "a way past the bridge", leads(" via "))
	if took := time.Since(heard); took > 5*time.Second {
		t.Errorf("frames took the bridge for %v", took)
	}
}

// nodeSays waits until the node says of the gateway that something is wrong; an empty text is nothing.
func (w *world) nodeSays(t *testing.T, what string) {
	t.Helper()
	space.Eventually(t, fmt.Sprintf("the condition %q of the node", what), func() error {
		f := &netv1beta1.InternalFabric{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: name}, f); err != nil {
			return err
		}
		said := f.Status.Conditions
		if len(said) == 0 && what == "" || len(said) == 1 && what != "" && said[0].Host == "n1" && strings.Contains(said[0].Message, what) {
			return nil
		}
		return fmt.Errorf("it says %v", said)
	})
}

// trusting returns two worlds with fabrics, each with the other's public key.
func trusting(t *testing.T) (internet *space.Space, a, b *world) {
	t.Helper()
	internet, a, b = worlds(t)
	a.startFabric(t)
	b.startFabric(t)
	a.trust(t, b)
	b.trust(t, a)
	return internet, a, b
}

// TestAPortFallsSilent: of two ports one is blocked. It is named, and everything takes the other.
func TestAPortFallsSilent(t *testing.T) {
	t.Parallel()
	internet, a, b := trusting(t)
	a.Node.NFT("table ip more { chain in { type nat hook prerouting priority dstnat; fib daddr type local udp dport 51841 dnat to 10.10.1.5; }; }")
	more := func(o *plan.Options) {
		o.Ping.Interval = 500 * time.Millisecond
		if o.Server {
			o.MoreListenPorts = []int{51841}
		} else {
			o.MoreEndpointPorts = []int{51841}
		}
	}
	a.startGatewayPod(t, a.Gateway, "gw", b, true, more)
	b.startGatewayPod(t, b.Gateway, "gw", a, false, more)
	b.Pod.Serve("10.10.1.2:80")
	for _, c := range []struct{ claim, rule, reason string }{
		{"both ports answer", "", plan.ReasonPortsAnswer},
		{"the second port is blocked", "udp dport 51841 drop", plan.ReasonPortSilent},
		{"the second port is open again", "", plan.ReasonPortsAnswer},
		{"the first port is blocked", "udp dport 51840 drop", plan.ReasonPortSilent},
		{"the first port is open again", "", plan.ReasonPortsAnswer},
	} {
		internet.NFT("table ip fault {\nchain forward {\ntype filter hook forward priority 0\n}\n}\nflush chain ip fault forward")
		if c.rule != "" {
			internet.NFT("add rule ip fault forward " + c.rule)
		}
		for _, w := range []*world{a, b} {
			w.says(t, c.claim, netv1beta1.ConnectionPortsAnswer, c.reason)
		}
		space.Eventually(t, "connections while "+c.claim, func() (err error) {
			for i := 0; i < 20 && err == nil; i++ {
				_, err = a.Pod.Asks("tcp", "", "10.71.1.2:80", 0)
			}
			return err
		})
		space.Eventually(t, "answers to pings while "+c.claim, func() error {
			out, err := a.Pod.Try("", "ping", "-c20", "-i0.1", "-W1", "10.71.1.2")
			if err == nil && !strings.Contains(out, " 0% packet loss") {
				err = errors.New(out)
			}
			return err
		})
	}
}

// TestTheOldFlowIsTakenUp: the path is blocked for a while, and then to new flows only, as a node port that changed. The
// client goes back to the flow it had.
func TestTheOldFlowIsTakenUp(t *testing.T) {
	t.Parallel()
	internet, a, b := trusting(t)
	rules := func(rule string) {
		internet.NFT("table ip fault {\nchain forward {\ntype filter hook forward priority 0\n}\n}\nflush chain ip fault forward\n" +
			"add rule ip fault forward ct state established accept\nadd rule ip fault forward udp dport 51840 " + rule)
	}
	rules("accept")
	a.startGateway(t, b, true)
	b.startGateway(t, a, false)
	b.Pod.Serve("10.10.1.2:80")
	asks := func(claim string) {
		t.Helper()
		space.Eventually(t, "pod to pod: "+claim, func() error { _, err := a.Pod.Asks("tcp", "", "10.71.1.2:80", 0); return err })
	}
	asks("it is connected")
	down := func() error {
		for _, w := range []*world{a, b} {
			var c netv1beta1.Connection
			if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "gw-" + name}, &c); err != nil || c.Status.Value != netv1beta1.ConnectionError {
				return fmt.Errorf("it is %s: %w", c.Status.Value, err)
			}
		}
		return nil
	}
	internet.NFT("insert rule ip fault forward meta l4proto udp drop")
	space.Eventually(t, "an error on both sides", down)
	rules("drop")
	asks("the flow of before leads to the server")
}

// TestLongPacketsFollowThePath: pods are told what gets through a path narrower than the tunnel, and that it widened.
func TestLongPacketsFollowThePath(t *testing.T) {
	t.Parallel()
	internet, a, b := trusting(t)
	internet.NFT("table ip fault { chain forward { type filter hook forward priority 0; ip length > 1000 drop; }; }")
	soon := func(o *plan.Options) { o.Ping.Interval = 500 * time.Millisecond }
	a.startGatewayPod(t, a.Gateway, "gw", b, true, soon)
	b.startGatewayPod(t, b.Gateway, "gw", a, false, soon)
	for _, w := range []*world{a, b} {
		w.says(t, "a narrow path", netv1beta1.ConnectionMTUFits, plan.ReasonMTUTooLarge)
	}
	whole := func(size string) (string, error) { // without what the pod was told before
		a.Pod.Run("", "ip", "route", "flush", "cache")
		return a.Pod.Try("", "ping", "-c2", "-i0.2", "-W1", "-M", "do", "-s", size, "10.71.1.2")
	}
	space.Eventually(t, "the MTU that a pod is told", func() error {
		out, err := whole("1200")
		if found := regexp.MustCompile(`mtu ?= ?(\d+)`).FindStringSubmatch(out); err == nil || found == nil || len(found[1]) > 3 {
			return fmt.Errorf("%v\n%s", err, out)
		}
		return nil
	})
	for _, ping := range [][]string{{"-M", "dont", "-s", "1200"}, {"-M", "do", "-s", "850"}} {
		space.Eventually(t, fmt.Sprintf("pings %v that are all answered", ping), func() error {
			out, err := a.Pod.Try("", "ping", append(ping, "-c5", "-i0.2", "-W2", "10.71.1.2")...)
			if err == nil && !strings.Contains(out, " 0% packet loss") {
				err = errors.New(out)
			}
			return err
		})
	}
	internet.NFT("delete table ip fault")
	space.Eventually(t, "answers to long pings", func() error {
		out, err := whole("1312") // 1340 with the headers of IP and ICMP
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return err
	})
}

// TestFaultsAreNamed makes what keeps gateways apart, one fault after the other, and reads what each
// side says.
func TestFaultsAreNamed(t *testing.T) {
	t.Parallel()
	internet, a, b := worlds(t)
	b.trust(t, a)
	a.trust(t, b)
	internet.NFT("table ip fault {\nchain forward {\ntype filter hook forward priority 0\n}\n}")
	block := func(rules ...string) {
		script := "flush chain ip fault forward\n"
		for _, r := range rules {
			script += "add rule ip fault forward " + r + "\n"
		}
		internet.NFT(script)
	}
	toServer, toClient := fmt.Sprintf("udp dport %d drop", api.WireGuardPort), fmt.Sprintf("udp sport %d drop", api.WireGuardPort)
	stranger, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	soon := func(o *plan.Options) { o.Ping.Interval = 500 * time.Millisecond }
	// settles: whoever does not get through tries for ever, and says it once all that depends on it is known.
	settles := func(fault string, said *netv1beta1.Connection) {
		t.Helper()
		began := time.Now()
		space.Eventually(t, "the same conditions for a while: "+fault, func() error {
			c := &netv1beta1.Connection{}
			if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(said), c); err != nil {
				return err
			}
			if before := said; c.ResourceVersion != before.ResourceVersion {
				said, began = c, time.Now()
				return fmt.Errorf("it said %v\nand then %v", before.Status.Conditions, c.Status.Conditions)
			}
			if quiet := time.Since(began); quiet < 6*time.Second { // each address is tried more than once
				return fmt.Errorf("nothing for %v", quiet)
			}
			return nil
		})
	}
	var dialer process
	dial := func(change func(*plan.Options)) {
		if dialer.cmd != nil {
			dialer.kill()
		}
		dialer = b.startGatewayPod(t, b.Gateway, "gw", a, false, soon, change)
	}

	block(toServer, toClient)
	a.startGatewayPod(t, a.Gateway, "gw", b, true, soon)
	dial(soon)
	for _, f := range []struct {
		fault          string
		cause          func()
		server, client string
		condition      string
	}{
		{"the port is blocked both ways", func() {}, plan.ReasonNothingArrives, plan.ReasonNoAnswer, "Ready"},
		{"the port is blocked from the server", func() { block(toClient) }, plan.ReasonOneWay, plan.ReasonNoAnswer, "Ready"},
		{"the MTU is too large for the path", func() { block("ip length > 1000 drop") }, plan.ReasonMTUTooLarge, plan.ReasonMTUTooLarge, netv1beta1.ConnectionMTUFits},
		{"the port is blocked to the server, later", func() { block(toServer) }, plan.ReasonNothingArrives, plan.ReasonNoAnswer, "Ready"},
		{"the client goes back to where it heard the server", func() {}, plan.ReasonNothingArrives, plan.ReasonOneWay, "Ready"},
		{"the MTUs differ", func() { block(); dial(func(o *plan.Options) { o.MTU = 1200 }) }, plan.ReasonMTUsDiffer, plan.ReasonMTUsDiffer, netv1beta1.ConnectionMTUFits},
		{"both have the same MTU", func() { dial(soon) }, plan.ReasonMTUFits, plan.ReasonMTUFits, netv1beta1.ConnectionMTUFits},
		{"the client comes back with another MTU", func() { dial(func(o *plan.Options) { o.MTU = 1200 }) }, plan.ReasonMTUsDiffer, plan.ReasonMTUsDiffer, netv1beta1.ConnectionMTUFits},
		{"the client dials another port", func() { dial(func(o *plan.Options) { o.EndpointPort++ }) }, plan.ReasonNothingArrives, plan.ReasonPortRefused, "Ready"},
		{"the client dials an address nobody has", func() { dial(func(o *plan.Options) { o.EndpointAddresses = []string{"192.168.1.77"} }) }, plan.ReasonNothingArrives, plan.ReasonAddressUnreachable, "Ready"},
		{"another address of the server leads to it", func() {
			dial(func(o *plan.Options) { o.EndpointAddresses = []string{"192.168.1.77", a.NodeIP.String()} })
		}, plan.ReasonMTUFits, plan.ReasonMTUFits, netv1beta1.ConnectionMTUFits},
		{"the client dials another port at one of two addresses", func() {
			dial(func(o *plan.Options) {
				o.EndpointPort++
				o.EndpointAddresses = []string{a.NodeIP.String(), "192.168.1.77"}
			})
		}, plan.ReasonNothingArrives, plan.ReasonPortRefused, "Ready"},
		{"the server has another key of the client", func() { a.believe(t, stranger); dial(soon) }, plan.ReasonWrongKey, plan.ReasonNoAnswer, "Ready"},
		{"the client has another key of the server", func() { a.believe(t, b.key); b.believe(t, stranger) }, plan.ReasonWrongKey, plan.ReasonNoAnswer, "Ready"},
		{"both have the right keys", func() { b.believe(t, a.key) }, plan.ReasonMTUFits, plan.ReasonMTUFits, netv1beta1.ConnectionMTUFits},
	} {
		f.cause()
		a.says(t, f.fault, f.condition, f.server)
		if said := b.says(t, f.fault, f.condition, f.client); f.client == plan.ReasonPortRefused {
			settles(f.fault, said)
		}
	}
}

// TestAFickleMTUIsSaidSeldom: a peer that tells another MTU with each answer changes a message, and has the Connection
// written no more often than its latency is.
func TestAFickleMTUIsSaidSeldom(t *testing.T) {
	t.Parallel()
	_, a, b := worlds(t)
	a.trust(t, b)
	a.startGatewayPod(t, a.Gateway, "gw", b, true, func(o *plan.Options) {
		o.LatencyInterval = 2 * patience.Limit // longer than the test waits
		o.Ping.Threshold = 1000                // answers that are late change nothing
	})
	answers := b.answersAnyhow(t, a)
	c := a.says(t, "the peer's MTU is another", netv1beta1.ConnectionMTUFits, plan.ReasonMTUsDiffer)
	writes, last, told := 0, c.ResourceVersion, answers.Load()
	const more = 20 // they come in about 6 s, in which the MTU is measured each second
	space.Eventually(t, fmt.Sprintf("%d more answers", more), func() error {
		if err := a.client.Get(t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		if c.ResourceVersion != last {
			writes, last = writes+1, c.ResourceVersion
		}
		if n := answers.Load() - told; n < more {
			return fmt.Errorf("%d answers", n)
		}
		return nil
	})
	if writes > 1 {
		t.Errorf("the Connection was written %d times for %d answers, last with %v", writes, more, c.Status.Conditions)
	}
}

// answersAnyhow makes a client without a process of ours: a tunnel, and somebody in it who tells another MTU with
// each answer. It counts these.
func (w *world) answersAnyhow(t *testing.T, server *world) *atomic.Int32 {
	t.Helper()
	var answers atomic.Int32
	own, peer := kernel.TunnelAddresses(false)
	want := kernel.GatewayState(kernel.GatewayStateInput{Under: kernel.Underlay{Device: "eth0", MTU: 1500}, Port: api.OverlayPort, Tunnel: kernel.TunnelInput{
		Address: own, PeerAddress: peer, MTU: 1340, PublicKey: w.key.PublicKey().String(), PeerKey: server.key.PublicKey().String(),
		Endpoint: netip.AddrPortFrom(server.NodeIP, api.WireGuardPort),
	}})
	var plane *dataplane.Dataplane
	var conn *net.UDPConn
	var err error
	w.Gateway.Do(func() {
		if plane, err = dataplane.Open(dataplane.Options{PrivateKey: w.key}); err != nil {
			return
		}
		if err = plane.Apply(t.Context(), kernel.Diff(kernel.State{}, want)); err == nil {
			conn, err = net.ListenUDP("udp", &net.UDPAddr{IP: own.Addr().AsSlice(), Port: api.PingPort})
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); plane.Close() })
	go func() {
		b := make([]byte, 2000)
		for mtu := 700; ; mtu++ {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			answer := map[string]any{}
			if json.Unmarshal(b[:n], &answer) == nil {
				answer["msgType"], answer["mtu"] = "PONG", mtu
				text, _ := json.Marshal(answer)
				conn.WriteToUDPAddrPort(text, from)
				answers.Add(1)
			}
		}
	}()
	return &answers
}
