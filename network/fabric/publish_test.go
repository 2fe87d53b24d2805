// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fabric

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/dataplane"
)

func TestMain(m *testing.M) { space.Main(m) }

// TestNodeAddressesArePublished: the addresses of the node's devices are written into the status of its InternalNode,
// beside what the controller wrote there, and only when they change.
func TestNodeAddressesArePublished(t *testing.T) {
	t.Parallel()
	client, err := daemon.Connect(apitest.Start(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	host := space.New(t, "host")
	host.IP("link add eth0 type veth peer name eth1")
	host.IP("link set eth0 up")
	host.IP("addr add 10.10.1.5/24 dev eth0")
	var plane *dataplane.Dataplane
	host.Do(func() { plane, err = dataplane.Open(dataplane.Options{}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Close)
	f := &fabric{
		Options: Options{NodeName: "n1"}, Daemon: daemon.New(daemon.Role{Name: "fabric"}, plane),
		nodes: daemon.Watch[netv1beta1.InternalNode](client.Networking, "internalnodes", daemon.Selection{}),
	}
	go f.nodes.Keep(t.Context(), func() {})
	node := &netv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if err := client.Networking.Post().Resource("internalnodes").Body(node).Do(t.Context()).Into(node); err != nil {
		t.Fatal(err)
	}
	node.Status.NodeIP = netv1beta1.NodeIP{Local: "10.10.1.5", Remote: "10.10.1.5"}
	put := client.Networking.Put().Resource("internalnodes").Name("n1").SubResource("status").Body(node)
	if err := put.Do(t.Context()).Into(node); err != nil {
		t.Fatal(err)
	}
	written := ""
	publish := func(address string) {
		t.Helper()
		space.Eventually(t, "addresses with "+address, func() error {
			if err := f.writeAddresses(t.Context(), client.Networking); err != nil {
				return err
			}
			var now netv1beta1.InternalNode
			err := client.Networking.Get().Resource("internalnodes").Name("n1").Do(t.Context()).Into(&now)
			if err == nil && (!slices.Contains(now.Status.LocalAddresses, address) || now.Status.NodeIP != node.Status.NodeIP) {
				err = fmt.Errorf("the status is %+v", now.Status)
			}
			written = now.ResourceVersion
			return err
		})
	}
	cached := func() {
		t.Helper()
		space.Eventually(t, "the status in the cache", func() error {
			if list := f.nodes.List(); len(list) != 1 || list[0].ResourceVersion != written {
				return fmt.Errorf("it has %+v", list)
			}
			return nil
		})
	}
	publish("10.10.1.5/24")
	cached()
	before := written
	publish("10.10.1.5/24")
	if written != before {
		t.Errorf("what had not changed was written again: version %s after %s", written, before)
	}
	host.IP("addr add 10.10.1.6/24 dev eth0")
	publish("10.10.1.6/24")
}
