// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/liqo-go/liqo/network/plan"
)

// Attributes of a forwarding entry, from linux/neighbour.h.
const (
	ndaDst     = 1
	ndaLladdr  = 2
	ndaIfindex = 8
)

// ndmsgSize is the size of struct ndmsg: family, three bytes of padding, interface, state, flags
// and type.
const ndmsgSize = 12

// forwards reads the static entries of the overlay device. The library does not know the device
// an entry leads through, hence the bytes.
func (d *Dataplane) forwards(index int, name string) ([]plan.Forward, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
	req.AddData(&netlink.Ndmsg{Family: unix.AF_BRIDGE, Index: uint32(index)})
	replies, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	if err != nil {
		return nil, err
	}
	neighbors, err := d.netlink.NeighList(0, unix.AF_UNSPEC)
	if err != nil {
		return nil, err
	}
	known := permanent(neighbors)
	var out []plan.Forward
	for _, reply := range replies {
		if len(reply) < ndmsgSize || int(binary.NativeEndian.Uint32(reply[4:])) != index {
			continue
		}
		attrs, err := nl.ParseRouteAttr(reply[ndmsgSize:])
		if err != nil {
			return nil, err
		}
		f, port := plan.Forward{Device: name}, 0
		for _, a := range attrs {
			switch a.Attr.Type {
			case ndaDst:
				f.Outer = address(a.Value)
			case ndaLladdr:
				f.MAC = net.HardwareAddr(a.Value).String()
			case ndaIfindex:
				port = int(binary.NativeEndian.Uint32(a.Value))
			}
		}
		if port != 0 {
			f.Port = d.port(port)
			f.Port.MAC = known[entry{port, f.Outer}]
		}
		if f.Outer.IsValid() {
			out = append(out, f)
		}
	}
	return out, nil
}

// entry is the place of a neighbour: a device, by number, and an address on it.
type entry struct {
	link int
	addr netip.Addr
}

// permanent are the MAC addresses of the neighbours that somebody wrote.
func permanent(neighbors []netlink.Neigh) map[entry]string {
	out := map[entry]string{}
	for _, n := range neighbors {
		if n.State == netlink.NUD_PERMANENT {
			out[entry{n.LinkIndex, address(n.IP)}] = n.HardwareAddr.String()
		}
	}
	return out
}

// port names a device; one that is gone by its number, which is never wanted.
func (d *Dataplane) port(index int) plan.Port {
	l, err := d.netlink.LinkByIndex(index)
	if err != nil {
		return plan.Port{Device: fmt.Sprintf("if%d", index)}
	}
	return plan.Port{Device: l.Attrs().Name}
}

// writeForward writes an entry; replacing it moves a member without a gap.
func (d *Dataplane) writeForward(old, new *plan.Forward) error {
	l, err := d.netlink.LinkByName(new.Device)
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(new.MAC)
	if err != nil {
		return err
	}
	req := forwardRequest(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, l, mac)
	req.AddData(nl.NewRtAttr(ndaDst, new.Outer.AsSlice()))
	if new.Port != (plan.Port{}) {
		port, err := d.netlink.LinkByName(new.Port.Device)
		if err != nil {
			return err
		}
		if err := d.writeNeighbor(nil, behind(new)); err != nil {
			return err
		}
		req.AddData(nl.NewRtAttr(ndaIfindex, nl.Uint32Attr(uint32(port.Attrs().Index))))
	}
	if err := d.execute(req); err != nil {
		return err
	}
	if old != nil && old.Port.Device != new.Port.Device {
		return d.deleteBehind(old)
	}
	return nil
}

// deleteForward removes an entry; without a destination it is removed whichever it has.
func (d *Dataplane) deleteForward(old, _ *plan.Forward) error {
	l, err := d.netlink.LinkByName(old.Device)
	if err != nil {
		return gone(err)
	}
	mac, err := net.ParseMAC(old.MAC)
	if err != nil {
		return err
	}
	if err := gone(d.execute(forwardRequest(unix.RTM_DELNEIGH, 0, l, mac))); err != nil {
		return err
	}
	return d.deleteBehind(old)
}

func forwardRequest(command, flags int, l netlink.Link, mac net.HardwareAddr) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(command, flags|unix.NLM_F_ACK)
	req.AddData(&netlink.Ndmsg{
		Family: unix.AF_BRIDGE, Index: uint32(l.Attrs().Index), State: netlink.NUD_PERMANENT | netlink.NUD_NOARP, Flags: netlink.NTF_SELF,
	})
	req.AddData(nl.NewRtAttr(ndaLladdr, mac))
	return req
}

// behind is the entry that a frame for a pod needs on the port itself: nobody asks there.
func behind(f *plan.Forward) *plan.Neighbor {
	return &plan.Neighbor{Device: f.Port.Device, Addr: f.Outer, MAC: f.Port.MAC}
}

func (d *Dataplane) deleteBehind(f *plan.Forward) error {
	if f.Port.MAC == "" {
		return nil
	}
	return d.deleteNeighbor(behind(f), nil)
}

// Ports finds the bridge ports behind which pods of this host are. Left out is what is not behind
// a bridge, what the bridge has not heard of yet, bridges with VLANs, whose ports may tag frames,
// and IPv6, where the kernel wants a route for each device.
//
// The kernel tells what it heard of all pods or of none, so it is asked once for all of them.
func (d *Dataplane) Ports(pods []netip.Addr) (map[netip.Addr]plan.Port, error) {
	neighbors, err := d.netlink.NeighList(0, unix.AF_INET)
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	heard, err := d.netlink.NeighListExecute(netlink.Ndmsg{Family: unix.AF_BRIDGE})
	if err != nil {
		return nil, fmt.Errorf("list what bridges heard: %w", err)
	}
	macs, ports := reachable(neighbors), learnt(heard)
	out := map[netip.Addr]plan.Port{}
	for _, pod := range pods {
		if len(macs[pod]) == 0 {
			continue
		}
		bridge, err := d.bridgeTo(pod)
		if err != nil || bridge == nil {
			continue // not routed: it is no pod of this host
		}
		for _, mac := range macs[pod] {
			if link, ok := ports[station{bridge.Attrs().Index, mac}]; ok {
				port := d.port(link)
				port.MAC = mac
				out[pod] = port
				break
			}
		}
	}
	return out, nil
}

// BridgesFiltered tells whether what a bridge of this host passes on goes through our chains, too.
func BridgesFiltered() bool {
	value, err := os.ReadFile("/proc/sys/net/bridge/bridge-nf-call-iptables") // no file without br_netfilter
	return err == nil && strings.TrimSpace(string(value)) != "0"
}

// bridgeTo is the bridge an address is routed to directly, nil if it is something else.
func (d *Dataplane) bridgeTo(addr netip.Addr) (*netlink.Bridge, error) {
	if !addr.Is4() {
		return nil, nil
	}
	routes, err := d.netlink.RouteGet(addr.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].Gw != nil {
		return nil, err
	}
	l, err := d.netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return nil, err
	}
	bridge, _ := l.(*netlink.Bridge)
	return bridge, nil
}

// reachable are the MAC addresses of neighbours. Once the frames for a pod go to the port the bridge
// device needs no neighbour entry any more, and ours on the port tells the address.
func reachable(neighbors []netlink.Neigh) map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	for _, n := range neighbors {
		if len(n.HardwareAddr) > 0 && n.State&(netlink.NUD_FAILED|netlink.NUD_INCOMPLETE) == 0 {
			out[address(n.IP)] = append(out[address(n.IP)], n.HardwareAddr.String())
		}
	}
	return out
}

// station is a MAC address a bridge, by number, has heard of.
type station struct {
	bridge int
	mac    string
}

// learnt are the ports, by number, at which bridges heard stations.
func learnt(heard []netlink.Neigh) map[station]int {
	out := map[station]int{}
	for _, h := range heard {
		if h.MasterIndex != 0 && h.Vlan == 0 && h.State&netlink.NUD_PERMANENT == 0 {
			out[station{h.MasterIndex, h.HardwareAddr.String()}] = h.LinkIndex
		}
	}
	return out
}
