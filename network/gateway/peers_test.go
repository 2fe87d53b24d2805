// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway_test

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/space"
)

// changePace is the time between two changes: what a change takes from a user to the kernels.
const changePace = 150 * time.Millisecond

// BenchmarkChangeOfOnePeer changes the ranges of one among many peers. It reports the CPU time that a
// node's fabric and another peer's gateway use for a change, with what their children (nft) use.
func BenchmarkChangeOfOnePeer(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { changeOnePeer(b, n) })
	}
}

func changeOnePeer(b *testing.B, n int) {
	_, w, other := worlds(b)
	fabric, gateway := w.startFabric(b), w.startGateway(b, other, true)
	var last *netv1beta1.InternalFabric
	for i := range n {
		last = fabricOf(i)
		w.create(b, unknownSourceOf(i), last)
	}
	for _, s := range []*space.Space{w.Node, w.Gateway} {
		space.Eventually(b, "all peers", func() error {
			if out, err := s.Try("", "ip", "route", "show", "table", "6091", last.Spec.RemoteCIDRs[1]); err != nil || out == "" {
				return errors.New("the last has no route")
			}
			return nil
		})
	}
	node, pod := routesOf(b, w.Node), routesOf(b, w.Gateway)
	pace := time.NewTicker(changePace)
	defer pace.Stop()
	for range 20 { // until what followed the last peer is over
		<-pace.C
	}
	before := []time.Duration{fabric.cpu(b), gateway.cpu(b)}
	for i := 0; b.Loop(); i++ {
		ranges, kind := append(fabricOf(n-1).Spec.RemoteCIDRs, "14.0.0.0/24"), uint16(unix.RTM_NEWROUTE)
		if i%2 == 1 {
			ranges, kind = ranges[:2], unix.RTM_DELROUTE
		}
		change := client.MergeFrom(last.DeepCopy())
		last.Spec.RemoteCIDRs = ranges
		if err := w.client.Patch(b.Context(), last, change); err != nil {
			b.Fatal(err)
		}
		await(b, "14.0.0.0/24", kind, node, pod)
		<-pace.C
	}
	for i, p := range []process{fabric, gateway} {
		used := p.cpu(b) - before[i]
		b.ReportMetric(float64(used.Microseconds())/1000/float64(b.N), []string{"fabric-ms/op", "gateway-ms/op"}[i])
	}
}

// fabricOf returns the InternalFabric of a peer whose gateway runs on another node.
func fabricOf(i int) *netv1beta1.InternalFabric {
	at := fmt.Sprintf("%d.%d", 1+i/250, 1+i%250)
	return &netv1beta1.InternalFabric{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: fmt.Sprintf("peer-%04d", i)},
		Spec: netv1beta1.InternalFabricSpec{
			MTU: 1340, GatewayIP: "10.50." + at, RemoteCIDRs: []string{"11." + at + ".0/24", "12." + at + ".0/24"},
			Interface: netv1beta1.InternalFabricInterface{
				Node:    netv1beta1.InternalFabricNodeInterface{Name: api.OverlayInterface},
				Gateway: netv1beta1.InternalFabricGatewayInterface{IP: "10.81." + at},
			},
		},
	}
}

// unknownSourceOf returns the IP of a peer for packets from outside its ranges.
func unknownSourceOf(i int) *ipamv1alpha1.IP {
	at := fmt.Sprintf("%d.%d", 1+i/250, 1+i%250)
	return &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: fmt.Sprintf("peer-%04d", i)},
		Spec:       ipamv1alpha1.IPSpec{IP: "12." + at + ".0"}, Status: ipamv1alpha1.IPStatus{IP: "10.90." + at},
	}
}

// routesOf reports the changes of routes in a namespace.
func routesOf(b *testing.B, s *space.Space) <-chan netlink.RouteUpdate {
	b.Helper()
	updates := make(chan netlink.RouteUpdate, 16)
	var err error
	s.Do(func() { err = netlink.RouteSubscribe(updates, b.Context().Done()) })
	if err != nil {
		b.Fatal(err)
	}
	return updates
}

// await waits for a change of the route to a destination in each namespace.
func await(b *testing.B, to string, kind uint16, namespaces ...<-chan netlink.RouteUpdate) {
	b.Helper()
	end := time.After(patience.Limit)
	for i, updates := range namespaces {
		for {
			select {
			case u := <-updates:
				if u.Type != kind || u.Dst == nil || u.Dst.String() != to {
					continue
				}
			case <-end:
				b.Fatalf("gave up after %s: waited for a route to %s in namespace %d", patience.Limit, to, i)
			}
			break
		}
	}
}

// cpu returns the CPU time that a process and its ended children have used.
func (p process) cpu(b *testing.B) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	ticks := 0
	for _, field := range strings.Fields(after)[11:15] { // utime, stime and those of children
		n, err := strconv.Atoi(field)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
