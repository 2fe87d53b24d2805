// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	manyPeers     = 100
	peersAPI      = "/apis/networking.liqo.io/v1beta1/namespaces/peers/"
	changeRounds  = 5
	changeTarget  = 1.5 // × the time with one peer: noise of two runs of a second or less
	peerPodCIDR   = "10.10.0.0/16"
	peerExternal  = "10.70.0.0/16"
	peerAddedCIDR = "10.20.0.0/20"
)

// kernel is the network of one of our processes: a node's or a gateway's.
type kernel struct{ pid int }

// count counts the lines a command prints.
func (k kernel) count(ctx context.Context, command ...string) (int, error) {
	printed, err := output(inNetOf(ctx, k.pid, command...))
	return strings.Count(printed, "\n"), err
}

func (k kernel) routes(ctx context.Context) (int, error) {
	return k.count(ctx, "ip", "route", "show", "table", "6091")
}

func (k kernel) rules(ctx context.Context) (int, error) {
	return k.count(ctx, "nft", "list", "table", "inet", "liqo")
}

// measurePeers gives rome more and more peers, whose gateways run on fake nodes, and looks at what a
// change of one of them costs.
func measurePeers(ctx context.Context, b *bed) error {
	if err := b.ensureFakes(ctx); err != nil {
		return err
	}
	if err := b.cordonRome(ctx, true); err != nil {
		return err
	}
	err := b.rome.api.ensure(ctx, "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]string{"name": "peers"}})
	if err == nil {
		err = b.comparePeers(ctx)
	}
	// Everything of the peers lies in the namespace.
	return errors.Join(err, b.rome.api.remove(ctx, "/api/v1/namespaces/peers"), b.cordonRome(ctx, false))
}

func (b *bed) cordonRome(ctx context.Context, cordoned bool) error {
	var all error
	for _, node := range []string{"rome-n1", "rome-n2"} {
		all = errors.Join(all, b.rome.api.patch(ctx, "/api/v1/nodes/"+node, map[string]any{"spec": map[string]bool{"unschedulable": cordoned}}))
	}
	return all
}

// burden is what peers cost a cluster.
type burden struct {
	change          time.Duration // of one peer, until all kernels have it
	routes, rules   int           // of a node
	fabric, control float64       // MB of anonymous memory
}

func (b *bed) comparePeers(ctx context.Context) error {
	if err := b.addPeers(ctx, 0, 1); err != nil {
		return err
	}
	one, err := b.weigh(ctx)
	if err != nil {
		return err
	}
	if err := b.addPeers(ctx, 1, manyPeers); err != nil {
		return err
	}
	many, err := b.weigh(ctx)
	if err != nil {
		return err
	}
	name := func(what string) string { return fmt.Sprintf("%s, %d peers beside 1", what, manyPeers) }
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }
	b.report.add(figure{Group: "peers", Name: name("a change of one, until all kernels have it"), Value: ms(many.change), Unit: "ms"}.beside(ms(one.change)).atMost(changeTarget))
	const added = manyPeers - 1
	b.report.add(figure{Group: "peers", Name: "routes of a node, for each peer", Value: float64(many.routes-one.routes) / added, Unit: "routes"})
	b.report.add(figure{Group: "peers", Name: "lines of a node's rules, for each peer", Value: float64(many.rules-one.rules) / added, Unit: "lines"})
	b.report.add(figure{Group: "peers", Name: "memory of a node's fabric, for each peer", Value: (many.fabric - one.fabric) / added * 1024, Unit: "kB"})
	b.report.add(figure{Group: "peers", Name: "memory of the controller, for each peer", Value: (many.control - one.control) / added * 1024, Unit: "kB"})
	return nil
}

// addPeers makes peers and waits until all nodes lead to them.
func (b *bed) addPeers(ctx context.Context, from, to int) error {
	before, err := b.routesOf(ctx)
	if err != nil {
		return err
	}
	for i := from; i < to; i++ {
		if err := b.addPeer(ctx, fmt.Sprintf("peer-%d", i)); err != nil {
			return err
		}
	}
	// Each peer has two CIDRs, and an address in the overlay.
	return b.routesBecome(ctx, func(k kernel, now int) bool { return now >= before[k]+3*(to-from) })
}

func (b *bed) addPeer(ctx context.Context, name string) error {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	object := func(kind string, labels map[string]string, spec any) map[string]any {
		labels["liqo.io/remote-cluster-id"] = name
		return map[string]any{
			"apiVersion": "networking.liqo.io/v1beta1", "kind": kind,
			"metadata": map[string]any{"name": name, "labels": labels}, "spec": spec,
		}
	}
	none, resource := map[string]string{}, map[string]string{"networking.liqo.io/gateway-resource": "true"}
	return errors.Join(
		b.rome.api.ensure(ctx, peersAPI+"configurations", object("Configuration", none, remoteCIDRs(peerPodCIDR))),
		b.rome.api.ensure(ctx, peersAPI+"publickeies", object("PublicKey", resource, map[string]any{"publicKey": key.PublicKey().Bytes()})),
		// 203.0.113.0/24 is for documentation (RFC 5737): nobody answers.
		b.rome.api.ensure(ctx, peersAPI+"gatewayclients", object("GatewayClient", none, map[string]any{
			"endpoint": map[string]any{"addresses": []string{"203.0.113.9"}, "port": 51840, "protocol": "UDP"},
		})))
}

func remoteCIDRs(pods ...string) map[string]any {
	return map[string]any{"remote": map[string]any{"cidr": map[string]any{"pod": pods, "external": []string{peerExternal}}}}
}

// kernels are those of rome's nodes and of its real gateway.
func (b *bed) kernels(ctx context.Context) ([]kernel, error) {
	processes, err := b.rome.processes(ctx)
	if err != nil {
		return nil, err
	}
	var all []kernel
	for _, p := range processes {
		if p.role == "fabric" || p.role == "gateway" {
			all = append(all, kernel{p.pid})
		}
	}
	if len(all) != 3 {
		return nil, fmt.Errorf("rome has %d nodes and gateways; want 2 and 1", len(all))
	}
	return all, nil
}

func (b *bed) routesOf(ctx context.Context) (map[kernel]int, error) {
	kernels, err := b.kernels(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[kernel]int{}
	for _, k := range kernels {
		if counts[k], err = k.routes(ctx); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

func (b *bed) routesBecome(ctx context.Context, want func(kernel, int) bool) error {
	return eventually(ctx, "all nodes and gateways know the peers", patience, func() (bool, error) {
		counts, err := b.routesOf(ctx)
		for k, n := range counts {
			if !want(k, n) {
				return false, err
			}
		}
		return err == nil, err
	})
}

// weigh changes one peer again and again, and measures.
func (b *bed) weigh(ctx context.Context) (l burden, err error) {
	var took []float64
	for range changeRounds {
		for _, change := range []struct {
			cidrs []string
			more  int
		}{{[]string{peerPodCIDR, peerAddedCIDR}, 1}, {[]string{peerPodCIDR}, -1}} {
			before, err := b.routesOf(ctx)
			if err != nil {
				return l, err
			}
			began := time.Now()
			if err := b.rome.api.patch(ctx, peersAPI+"configurations/peer-0", map[string]any{"spec": remoteCIDRs(change.cidrs...)}); err != nil {
				return l, err
			}
			if err := b.routesBecome(ctx, func(k kernel, now int) bool { return now == before[k]+change.more }); err != nil {
				return l, err
			}
			took = append(took, time.Since(began).Seconds())
		}
	}
	l.change = time.Duration(median(took) * float64(time.Second))
	processes, err := b.rome.processes(ctx)
	for _, p := range processes {
		switch p.role {
		case "fabric":
			l.fabric = max(l.fabric, p.anon)
			l.routes, err = kernel{p.pid}.routes(ctx)
			if err != nil {
				return l, err
			}
			if l.rules, err = (kernel{p.pid}).rules(ctx); err != nil {
				return l, err
			}
		case "controller":
			l.control = p.anon
		}
	}
	return l, err
}
