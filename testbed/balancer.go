// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The load balancer of a cluster is a loop in the first process of its control plane. It
// gives Services of type LoadBalancer addresses, writes them to their status, and routes
// each address, in the namespace "inet", to a worker whose kube-proxy is healthy; there
// kube-proxy knows what to do. Workers notice nothing of it.

// balancedNet is where the addresses come from, 172.31.<10·(index+1)+1>.0/24.
func (c Cluster) balancedNet() netip.Prefix {
	return netip.PrefixFrom(addrAt(c.nodeNet(), 256), 24)
}

// network is all that other clusters see of this one: nodes and load balancer.
func (c Cluster) network() netip.Prefix { return netip.PrefixFrom(c.nodeNetAddr(0), 23) }

// addressAnnotation asks for an address, before spec.loadBalancerIP. A word that is no
// free address of the range leaves the Service without one.
const addressAnnotation = "testbed/address"

// service is what the load balancer reads of a Service.
type service struct {
	Metadata struct {
		Namespace, Name, UID string
		Annotations          map[string]string
	}
	Spec struct {
		LoadBalancerIP, LoadBalancerClass, ExternalTrafficPolicy string

		HealthCheckNodePort int
	}
	Status struct {
		LoadBalancer struct{ Ingress []struct{ IP string } }
	}
}

func (s service) wants() string {
	return cmp.Or(s.Metadata.Annotations[addressAnnotation], s.Spec.LoadBalancerIP)
}

// has is the address in the status, "" without one.
func (s service) has() string {
	if len(s.Status.LoadBalancer.Ingress) == 0 {
		return ""
	}
	return s.Status.LoadBalancer.Ingress[0].IP
}

// health is where a worker tells whether traffic for the Service is welcome: at its own
// kube-proxy, or, when only Pods of the same node count, at the Service's port there.
func (s service) health() string {
	if s.Spec.ExternalTrafficPolicy == "Local" {
		return fmt.Sprintf(":%d/", s.Spec.HealthCheckNodePort)
	}
	return ":10256/healthz"
}

// assign gives Services addresses, by UID. Who has an address keeps it unless it wants
// another. New ones follow the last one given: a freed address comes back late, as
// clouds do it.
func assign(c Cluster, services []service, last netip.Addr) (given map[string]netip.Addr, newest netip.Addr) {
	given = map[string]netip.Addr{}
	taken := map[netip.Addr]bool{}
	give := func(s service, address string) {
		a, err := netip.ParseAddr(address)
		if _, served := given[s.Metadata.UID]; err == nil && !served && !taken[a] && c.balances(a) {
			given[s.Metadata.UID], taken[a] = a, true
		}
	}
	for _, s := range services {
		if s.wants() == "" || s.wants() == s.has() {
			give(s, s.has())
		}
	}
	for _, s := range services {
		give(s, s.wants())
	}
	for _, s := range services {
		if _, served := given[s.Metadata.UID]; !served && s.wants() == "" && len(taken) < 254 {
			last = c.free(last, taken)
			give(s, last.String())
		}
	}
	return given, last
}

// free is the first address after last that nobody has. There must be one.
func (c Cluster) free(last netip.Addr, taken map[netip.Addr]bool) netip.Addr {
	for {
		if last = last.Next(); !c.balances(last) {
			last = addrAt(c.balancedNet(), 1)
		}
		if !taken[last] {
			return last
		}
	}
}

// balances tells whether an address can be given: neither the network's nor its last.
func (c Cluster) balances(a netip.Addr) bool {
	return c.balancedNet().Contains(a) && a != c.balancedNet().Addr() && a != addrAt(c.balancedNet(), 255)
}

// chosen is the worker an address leads to: the one it leads to now while that one is
// healthy, or when none is, so that connections stay; else the first healthy one.
func chosen(now string, healthy []string) string {
	if len(healthy) == 0 || slices.Contains(healthy, now) {
		return now
	}
	return healthy[0]
}

const (
	probeEvery   = 500 * time.Millisecond
	probeTimeout = 700 * time.Millisecond // far above what a busy machine needs
	// probeFailures in a row make a worker unhealthy: one may be an accident, and moving
	// an address breaks what was connected.
	probeFailures = 2
	inetFile      = 4 // the file by which the control plane reaches the namespace "inet"
)

// balancer is the loop's memory.
type balancer struct {
	cluster  Cluster
	api      client
	web      *http.Client // probes
	ip       func(batch string) error
	services []service
	given    map[string]netip.Addr // by UID
	last     netip.Addr            // the newest one
	failures map[string]int        // of probes, by URL
	via      map[netip.Addr]string // the workers that addresses lead to; nil: nobody knows yet
	said     string                // the last error, said once
}

func newBalancer(s *supervisor, c Cluster, api client) *balancer {
	syscall.CloseOnExec(inetFile)
	return &balancer{
		cluster: c, api: api, last: c.balancedNet().Addr(), failures: map[string]int{},
		web: &http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true}},
		ip: func(batch string) error {
			const file = "/run/load-balancer.ip"
			if err := os.WriteFile(file, []byte(batch), 0o600); err != nil {
				return err
			}
			return s.run(process{name: "load-balancer", args: []string{"nsenter", fmt.Sprintf("--net=/proc/1/fd/%d", inetFile), "ip", "-batch", file}})
		},
	}
}

// balance runs for ever. While the API server is away, routes follow the workers' health.
func (b *balancer) balance(ctx context.Context) {
	for {
		version, err := b.read(ctx)
		if err == nil {
			err = b.serve(ctx)
		}
		if err == nil {
			b.said = ""
		}
		b.say(err)
		b.watch(ctx, version, err == nil)
	}
}

// say logs an error once, until all is well again.
func (b *balancer) say(err error) {
	if err != nil && err.Error() != b.said {
		log.Printf("load balancer: %v", err)
		b.said = err.Error()
	}
}

const balancedServices = "/api/v1/services?fieldSelector=spec.type%3DLoadBalancer"

// read reads the Services, in an order that does not change.
func (b *balancer) read(ctx context.Context) (version string, err error) {
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []service
	}
	if err := b.api.get(ctx, balancedServices, &list); err != nil {
		return "", err
	}
	b.services = slices.DeleteFunc(list.Items, func(s service) bool { return s.Spec.LoadBalancerClass != "" })
	slices.SortFunc(b.services, func(x, y service) int {
		return cmp.Or(strings.Compare(x.Metadata.Namespace, y.Metadata.Namespace), strings.Compare(x.Metadata.Name, y.Metadata.Name))
	})
	b.given, b.last = assign(b.cluster, b.services, b.last)
	return list.Metadata.ResourceVersion, nil
}

// serve routes first: an address in a status leads to a worker, whose kube-proxy also
// reads it there and takes up to a second.
func (b *balancer) serve(ctx context.Context) error {
	if err := b.route(ctx); err != nil {
		return err
	}
	for _, s := range b.services {
		address := ""
		if a, ok := b.given[s.Metadata.UID]; ok {
			address = a.String()
		}
		if address == s.has() {
			continue
		}
		path := fmt.Sprintf("/api/v1/namespaces/%s/services/%s/status", s.Metadata.Namespace, s.Metadata.Name)
		if _, err := b.api.do(ctx, http.MethodPatch, path, "application/merge-patch+json", statusPatch(s.Metadata.UID, address)); err != nil {
			return err
		}
	}
	return nil
}

// statusPatch is refused when another Service has the name by now.
func statusPatch(uid, address string) []byte {
	ingress := "null"
	if address != "" {
		ingress = fmt.Sprintf(`[{"ip":%q}]`, address)
	}
	return fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"loadBalancer":{"ingress":%s}}}`, uid, ingress)
}

// route leads every address to a healthy worker.
func (b *balancer) route(ctx context.Context) error {
	b.probe(ctx)
	want := map[netip.Addr]string{}
	for _, s := range b.services {
		address, ok := b.given[s.Metadata.UID]
		if !ok {
			continue
		}
		healthy := slices.DeleteFunc(b.cluster.workers(), func(node string) bool {
			return b.failures[b.probeURL(node, s)] >= probeFailures
		})
		want[address] = chosen(b.via[address], healthy)
	}
	if b.via != nil && maps.Equal(want, b.via) {
		return nil
	}
	if err := b.ip(balancedRoutes(b.cluster, want)); err != nil {
		return err
	}
	log.Printf("load balancer: addresses lead to %v", want)
	b.via = want
	return nil
}

// balancedRoutes replace all routes to the cluster's addresses.
func balancedRoutes(c Cluster, via map[netip.Addr]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "route flush root %s\n", c.balancedNet())
	for _, address := range slices.SortedFunc(maps.Keys(via), netip.Addr.Compare) {
		if via[address] != "" {
			fmt.Fprintf(&b, "route add %s via %s dev %s\n", address, c.nodeAddr(via[address]), c.bridge())
		}
	}
	return b.String()
}

func (b *balancer) probeURL(node string, s service) string {
	return fmt.Sprintf("http://%s%s", b.cluster.nodeAddr(node), s.health())
}

// probe asks all workers at once and counts who did not answer.
func (b *balancer) probe(ctx context.Context) {
	results := map[string]*error{}
	var probes sync.WaitGroup
	for _, s := range b.services {
		for _, node := range b.cluster.workers() {
			url := b.probeURL(node, s)
			if results[url] != nil {
				continue
			}
			result := new(error)
			results[url] = result
			probes.Go(func() { *result = b.ask(ctx, url) })
		}
	}
	probes.Wait()
	maps.DeleteFunc(b.failures, func(url string, _ int) bool { return results[url] == nil })
	for url, result := range results {
		b.failures[url]++
		if *result == nil {
			b.failures[url] = 0
		}
	}
}

func (b *balancer) ask(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := b.web.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// watch returns when a Service changed, or after some seconds. Meanwhile routes follow
// the workers' health; without Services there is nothing to do.
func (b *balancer) watch(ctx context.Context, version string, ready bool) {
	ctx, cancel := context.WithTimeout(ctx, 9*time.Second)
	defer cancel()
	changed := make(chan error, 1)
	if ready {
		go func() { changed <- b.api.firstEvent(ctx, balancedServices+"&watch=1&resourceVersion="+version) }()
	}
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-changed:
			if err == nil {
				return
			}
			ready = false // not at once: the API server has a difficulty
		case <-ctx.Done():
			return
		case <-tick.C:
			if len(b.services) > 0 {
				b.say(b.route(ctx))
			}
			if !ready {
				return
			}
		}
	}
}
