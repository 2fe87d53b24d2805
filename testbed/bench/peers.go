// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Many peers of rome beside milan, made as users make them by manifests. Nobody is at their
// other side, and fake nodes play that their gateways run: the controller, the fabrics of the
// real nodes and the gateway to milan see what they would see of real ones.
const (
	// A change with 100 peers beside one with one peer. Not once, because medians of two runs
	// differ by a fifth; what would grow with peers grows a hundredfold.
	changeTarget = 1.3
	// What a peer takes when there are 100, beside what it takes when there are 10.
	countTarget = 1.1
	// The same of memory. Not closer, because the collector lets a heap grow before it frees; what grows with the
	// square of the peers takes ten times as much.
	memoryTarget = 1.5
	// The CPU of such a change with 1000 peers.
	thousandTarget = 2.0
	// The seconds in which 100 peers are gone.
	leaveTarget = 30.0
	// memoryNoise in MB is taken for what 10 peers take where they take less, for the same reason: tenfold, and by
	// half more, 100 may always take 30 MB.
	memoryNoise = 2.0
	// changes are made at each number of peers, and each is taken back. The kernel counts CPU in steps of 10 ms, and a
	// change of one may take a gateway 1.3 ms.
	changes = 100

	peersLabel    = "bench"
	peersTemplate = "bench-fake"
	networking    = "/apis/networking.liqo.io/v1beta1"
	liqoTable     = "6091" // routes
	// The ranges of an installation nobody thought about are those of rome itself, so each has
	// to be given another one here. They are small, so that the pools of IPAM have room for a thousand.
	peerPods, peerExternal = "10.10.0.0/24", "10.70.0.0/24"
)

// peersSteps are the numbers of peers; a thousand if they are asked for, because they take many minutes.
func (b *bed) peersSteps() []int {
	if b.thousand {
		return []int{0, 1, 10, 100, 1000}
	}
	return []int{0, 1, 10, 100}
}

// crowd is what was measured with a number of made-up peers.
type crowd struct {
	peers           int
	joined          float64   // seconds until all that came last were in the kernels
	nodes, gateway  []float64 // ms until a change is in the kernel: of both nodes, of the gateway to milan
	counts          map[string]map[string]float64
	memory, changed map[string]float64 // MB, and CPU in ms for each change, of a process
}

// kernel is where one of our processes programs routes.
type kernel struct {
	process
	routes *routeWatch
}

// measurePeers adds peers step by step, changes one at each, and removes all.
func measurePeers(ctx context.Context, b *bed) (err error) {
	if err := b.ensureFakes(ctx); err != nil {
		return err
	}
	if err := b.removePeers(ctx); err != nil {
		return fmt.Errorf("remove what an earlier run left: %w", err)
	}
	defer func() { err = errors.Join(err, b.removePeers(context.WithoutCancel(ctx))) }()
	if err := b.ensureTemplate(ctx); err != nil {
		return err
	}
	kernels, stop, err := b.watchKernels(ctx)
	if err != nil {
		return err
	}
	defer stop()
	var crowds []crowd
	for _, n := range b.peersSteps() {
		c, err := b.measureCrowd(ctx, kernels, crowds, n)
		if err != nil {
			return fmt.Errorf("%d peers: %w", n, err)
		}
		crowds = append(crowds, c)
	}
	b.reportPeers(crowds)
	return b.measureLeaving(ctx, kernels, crowds[0], crowds[len(crowds)-1].peers)
}

// measureCrowd lets peers come until there are n.
func (b *bed) measureCrowd(ctx context.Context, kernels []kernel, earlier []crowd, n int) (crowd, error) {
	c := crowd{peers: n, memory: map[string]float64{}, changed: map[string]float64{}}
	if n > 0 {
		began := time.Now()
		if err := b.addPeers(ctx, earlier[len(earlier)-1].peers, n); err != nil {
			return c, err
		}
		if err := awaitPeers(ctx, kernels, earlier[0], n); err != nil {
			return c, err
		}
		c.joined = time.Since(began).Seconds()
	}
	if err := pause(ctx, settleTime); err != nil {
		return c, err
	}
	before, err := b.rome.processes(ctx)
	if err != nil {
		return c, err
	}
	for _, p := range before {
		c.memory[p.title()] = p.anon
	}
	if c.counts, err = countAll(ctx, kernels); err != nil || n == 0 {
		return c, err
	}
	for i := range changes {
		if err := b.changeOne(ctx, kernels, &c, i*n/changes); err != nil {
			return c, err
		}
	}
	after, err := b.rome.processes(ctx)
	for _, p := range since(before, after) {
		c.changed[p.title()] = p.cpu * 1000 / (2 * changes)
	}
	return c, err
}

// title tells processes of a role apart.
func (p process) title() string { return p.role + " " + p.pod }

// watchKernels finds the fabrics of rome's nodes and its gateway to milan, and listens to
// their kernels.
func (b *bed) watchKernels(ctx context.Context) (kernels []kernel, stop func(), err error) {
	stop = func() {
		for _, k := range kernels {
			k.routes.stop()
		}
	}
	all, err := b.rome.processes(ctx)
	if err != nil {
		return nil, stop, err
	}
	for _, p := range all {
		if p.role != "fabric" && p.role != "gateway" {
			continue
		}
		w, err := watchRoutes(ctx, p.pid)
		if err != nil {
			stop()
			return nil, stop, fmt.Errorf("watch routes of %s: %w", p.title(), err)
		}
		kernels = append(kernels, kernel{p, w})
	}
	return kernels, stop, nil
}

// changeOne adds a range to what a peer announces, takes it away again, and stops the time of
// both.
func (b *bed) changeOne(ctx context.Context, kernels []kernel, c *crowd, peer int) error {
	name := peerName(peer)
	var fabric struct {
		Spec struct {
			Interface struct{ Gateway struct{ IP string } }
		}
	}
	if err := b.rome.api.get(ctx, networking+"/namespaces/"+name+"/internalfabrics/"+name, &fabric); err != nil {
		return err
	}
	for _, step := range []struct {
		pods []string
		gone bool
	}{{[]string{peerPods, "10.200.0.0/24"}, false}, {[]string{peerPods}, true}} {
		for _, k := range kernels {
			k.routes.forget()
		}
		began := time.Now()
		change := map[string]any{"spec": map[string]any{"remote": map[string]any{"cidr": map[string]any{"pod": step.pods}}}}
		if err := b.rome.api.patch(ctx, networking+"/namespaces/"+name+"/configurations/"+name, change); err != nil {
			return err
		}
		took := map[string]float64{}
		for _, k := range kernels {
			at, err := k.routes.await(ctx, fabric.Spec.Interface.Gateway.IP, step.gone)
			if err != nil {
				return fmt.Errorf("change of peer %s at %s: %w", name, k.title(), err)
			}
			took[k.role] = max(took[k.role], float64(at.Sub(began).Microseconds())/1000)
		}
		c.nodes, c.gateway = append(c.nodes, took["fabric"]), append(c.gateway, took["gateway"])
	}
	return nil
}

func peerName(i int) string { return fmt.Sprintf("bench-peer-%03d", i) }

// addPeers makes the peers from one number up to another.
func (b *bed) addPeers(ctx context.Context, from, to int) error {
	return inParallel(to-from, func(i int) error { return b.addPeer(ctx, peerName(from+i)) })
}

// addPeer applies what docs/declarative.md shows for the network.
func (b *bed) addPeer(ctx context.Context, name string) error {
	own, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	its, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	type fields = map[string]any
	cidr := fields{"pod": []string{peerPods}, "external": []string{peerExternal}}
	in := networking + "/namespaces/" + name
	for _, o := range []struct {
		path, kind string
		more       fields
	}{
		{"/api/v1/namespaces", "Namespace", nil},
		{in + "/configurations", "Configuration", fields{"spec": fields{"remote": fields{"cidr": cidr}}}},
		{"/api/v1/namespaces/" + name + "/secrets", "Secret", fields{"data": fields{"privateKey": own.Bytes(), "publicKey": own.PublicKey().Bytes()}}},
		{in + "/publickeies", "PublicKey", fields{"spec": fields{"publicKey": its.PublicKey().Bytes()}}},
		{in + "/gatewayclients", "GatewayClient", fields{"spec": fields{
			"clientTemplateRef": fields{"apiVersion": "networking.liqo.io/v1beta1", "kind": "WgGatewayClientTemplate", "name": peersTemplate, "namespace": "liqo"},
			"secretRef":         fields{"name": name},
			// An address that RFC 5737 keeps for documents: nobody answers.
			"endpoint": fields{"addresses": []string{"203.0.113.20"}, "port": 51840, "protocol": "UDP"},
		}}},
	} {
		object := fields{"apiVersion": "v1", "kind": o.kind, "metadata": fields{"name": name, "labels": fields{
			"liqo.io/remote-cluster-id": name, "liqo.io/tenant-namespace": "true", "networking.liqo.io/gateway-resource": "true", "type": peersLabel,
		}}}
		if strings.HasPrefix(o.path, networking) {
			object["apiVersion"] = "networking.liqo.io/v1beta1"
		}
		for k, v := range o.more {
			object[k] = v
		}
		if err := b.rome.api.create(ctx, o.path, object); err != nil {
			return err
		}
	}
	return nil
}

// ensureTemplate makes the installed template of clients anew, for fake nodes.
func (b *bed) ensureTemplate(ctx context.Context) error {
	path := networking + "/namespaces/liqo/wggatewayclienttemplates"
	var t map[string]any
	if err := b.rome.api.get(ctx, path+"/wireguard-client", &t); err != nil {
		return err
	}
	t["metadata"] = map[string]any{"name": peersTemplate}
	pod := t
	for _, field := range []string{"spec", "template", "spec", "deployment", "spec", "template", "spec"} {
		inner, ok := pod[field].(map[string]any)
		if !ok {
			return fmt.Errorf("template wireguard-client has no field %s where one is wanted", field)
		}
		pod = inner
	}
	pod["nodeSelector"] = map[string]string{"type": fakeLabel}
	return b.rome.api.ensure(ctx, path, t)
}

// patienceFor is how long something may take with a number of peers.
func patienceFor(n int) time.Duration { return patience * time.Duration(1+n/100) }

// pauseFor is the time between two polls about a number of peers. More frequent polls would use much of the CPU that is
// measured.
func pauseFor(n int) time.Duration { return 50 * time.Millisecond * time.Duration(1+n/20) }

// awaitPeers returns when the kernels have the same for each peer: a route to its gateway and
// one to each of its two ranges.
func awaitPeers(ctx context.Context, kernels []kernel, without crowd, n int) error {
	for _, k := range kernels {
		want := without.counts[k.title()]["routes"] + 3*float64(n)
		what := fmt.Sprintf("%s has %g routes", k.title(), want)
		err := eventuallyEvery(ctx, pauseFor(n), what, patienceFor(n), func() (bool, error) {
			have, err := countRoutes(ctx, k.pid)
			return have == want, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// removePeers deletes the peers' namespaces, as who ends a peering made by manifests may do,
// and returns when they are gone.
func (b *bed) removePeers(ctx context.Context) error {
	const path = "/api/v1/namespaces"
	type namespaces struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	var found namespaces
	if err := b.rome.api.get(ctx, path+"?labelSelector=type%3D"+peersLabel, &found); err != nil {
		return err
	}
	err := inParallel(len(found.Items), func(i int) error { return b.rome.api.remove(ctx, path+"/"+found.Items[i].Metadata.Name) })
	if err != nil {
		return err
	}
	n := len(found.Items)
	err = eventuallyEvery(ctx, pauseFor(n), "the namespaces of all peers are gone", patienceFor(n), func() (bool, error) {
		var left namespaces
		err := b.rome.api.get(ctx, path+"?labelSelector=type%3D"+peersLabel, &left)
		return len(left.Items) == 0, err
	})
	return errors.Join(err, b.rome.api.remove(ctx, networking+"/namespaces/liqo/wggatewayclienttemplates/"+peersTemplate))
}

// leaving are the kinds of objects that go with a peer, by the path of their lists.
func leaving() map[string]string {
	return map[string]string{
		"gateway clients": networking + "/gatewayclients", "WireGuard clients": networking + "/wggatewayclients",
		"Deployments": "/apis/apps/v1/deployments", "pods": "/api/v1/pods", "Secrets": "/api/v1/secrets",
		"Connections": networking + "/connections", "fabrics": networking + "/internalfabrics",
		"configurations": networking + "/configurations", "keys": networking + "/publickeies", "namespaces": "/api/v1/namespaces",
	}
}

// leave returns the seconds after which the last object of each kind was gone.
func (b *bed) leave(ctx context.Context, n int, began time.Time) (steps string, err error) {
	kinds := leaving()
	names := sortedKeys(kinds)
	took, errs := make([]float64, len(names)), make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			errs[i] = eventuallyEvery(ctx, pauseFor(n), name+" of all peers are gone", patienceFor(n), func() (bool, error) {
				var left struct{ Items []struct{} }
				err := b.rome.api.get(ctx, kinds[name]+"?limit=1&labelSelector=liqo.io%2Fremote-cluster-id,liqo.io%2Fremote-cluster-id%21%3Dmilan", &left)
				return len(left.Items) == 0, err
			})
			took[i] = time.Since(began).Seconds()
		})
	}
	wg.Wait()
	for i, name := range names {
		steps += fmt.Sprintf("%.1f %s ", took[i], name)
	}
	return steps, errors.Join(errs...)
}

// measureLeaving checks that kernels keep nothing of peers that are gone.
func (b *bed) measureLeaving(ctx context.Context, kernels []kernel, without crowd, n int) error {
	began := time.Now()
	var steps string
	var left error
	var wg sync.WaitGroup
	wg.Go(func() { steps, left = b.leave(ctx, n, began) })
	err := b.removePeers(ctx)
	if wg.Wait(); err != nil || left != nil {
		return errors.Join(err, left)
	}
	if err := awaitPeers(ctx, kernels, without, 0); err != nil {
		return err
	}
	f := figure{Group: "peers", Name: fmt.Sprintf("all %d gone, from objects and kernels", n), Value: time.Since(began).Seconds(), Unit: "s", Note: steps}
	if n == 100 {
		f = f.below(leaveTarget)
	}
	b.report.add(f)
	kept, err := countAll(ctx, kernels)
	if err == nil && fmt.Sprint(kept) != fmt.Sprint(without.counts) {
		err = fmt.Errorf("kernels have other things than before the peers: %v, not %v", kept, without.counts)
	}
	return err
}

// inParallel does n things, a few at a time.
func inParallel(n int, do func(i int) error) error {
	queue := make(chan int, n)
	for i := range n {
		queue <- i
	}
	close(queue)
	var wg sync.WaitGroup
	errs := make([]error, n)
	for range creators {
		wg.Go(func() {
			for i := range queue {
				errs[i] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// reportPeers compares the steps.
func (b *bed) reportPeers(crowds []crowd) {
	one, hundred := crowds[1], crowds[3]
	for i, c := range crowds[1:] {
		more := c.peers - crowds[i].peers
		b.report.add(figure{Group: "peers", Name: fmt.Sprintf("%d more, in all kernels", more), Value: c.joined, Unit: "s"})
	}
	for _, at := range []struct {
		where string
		times func(crowd) []float64
	}{
		{"both nodes", func(c crowd) []float64 { return c.nodes }},
		{"another peer's gateway", func(c crowd) []float64 { return c.gateway }},
	} {
		for _, c := range crowds[2:] {
			f := figure{Group: "peers", Name: fmt.Sprintf("a change of one, in the kernel of %s, %d beside 1", at.where, c.peers),
				Value: median(at.times(c)), Unit: "ms", Note: spread(at.times(c))}
			b.report.add(f.beside(median(at.times(one))).atMost(changeTarget))
		}
	}
	for _, title := range sortedKeys(hundred.counts) {
		for _, what := range sortedKeys(hundred.counts[title]) {
			b.reportCount(title+": "+what+" of a peer, 100 beside 10", func(c crowd) float64 { return c.counts[title][what] }, crowds)
		}
	}
	for _, title := range sortedKeys(hundred.memory) {
		b.reportMemory(title, crowds)
		for _, c := range crowds[3:] {
			target := map[bool]float64{true: changeTarget, false: thousandTarget}[c.peers == 100]
			f := figure{Group: "peers", Name: fmt.Sprintf("%s: CPU of a change, %d beside 1", title, c.peers),
				Value: c.changed[title], Unit: "ms"}.beside(one.changed[title])
			if strings.HasPrefix(title, "fabric ") || strings.HasPrefix(title, "gateway ") {
				f = f.atMost(target)
			}
			b.report.add(f)
		}
	}
}

func spread(values []float64) string {
	slices.Sort(values)
	return fmt.Sprintf("%.0f to %.0f in %d changes", values[0], values[len(values)-1], len(values))
}

// reportCount is about what each peer adds.
func (b *bed) reportCount(name string, value func(crowd) float64, crowds []crowd) {
	each := func(c crowd) float64 { return (value(c) - value(crowds[0])) / float64(c.peers) }
	f := figure{Group: "peers", Name: name, Value: each(crowds[3]), Unit: "", Note: fmt.Sprintf("with none %g", value(crowds[0]))}
	if ten := each(crowds[2]); ten != 0 {
		f = f.beside(ten).atMost(countTarget)
	} else {
		f.Target, f.Reached = "0", new(f.Value == 0)
	}
	b.report.add(f)
}

// reportMemory is about anonymous memory: the rest is the program's file.
func (b *bed) reportMemory(title string, crowds []crowd) {
	none, ten, hundred := crowds[0].memory[title], crowds[2].memory[title], crowds[3].memory[title]
	var steps []string
	for _, c := range crowds {
		steps = append(steps, fmt.Sprintf("%.1f", c.memory[title]))
	}
	f := figure{Group: "peers", Name: title + ": memory of a peer, 100 beside 10", Value: (hundred - none) * 1024 / 100, Unit: "KB",
		Note: "MB with none, 1, 10, 100 and so on: " + strings.Join(steps, " ")}
	b.report.add(f.beside(max(ten-none, memoryNoise) * 1024 / 10).atMost(memoryTarget))
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	var keys []K
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
