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

// forwards reads the static entries of the overlay device. It parses the messages itself: the
// library does not expose the output device of an entry.
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
		if len(reply) < unix.SizeofNdMsg || int(binary.NativeEndian.Uint32(reply[4:])) != index {
			continue
		}
		attrs, err := nl.ParseRouteAttr(reply[unix.SizeofNdMsg:])
		if err != nil {
			return nil, err
		}
		f, port := plan.Forward{Device: name}, 0
		for _, a := range attrs {
			switch a.Attr.Type {
			case unix.NDA_DST:
				f.Outer = address(a.Value)
			case unix.NDA_LLADDR:
				f.MAC = net.HardwareAddr(a.Value).String()
			case unix.NDA_IFINDEX:
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

// entry identifies a neighbour by the index of its device and its address.
type entry struct {
	link int
	addr netip.Addr
}

// permanent returns the MAC addresses of permanent neighbours.
func permanent(neighbors []netlink.Neigh) map[entry]string {
	out := map[entry]string{}
	for _, n := range neighbors {
		if n.State == netlink.NUD_PERMANENT {
			out[entry{n.LinkIndex, address(n.IP)}] = n.HardwareAddr.String()
		}
	}
	return out
}

// port returns the device with an index. A missing device gets a name made of the index, which is
// never desired.
func (d *Dataplane) port(index int) plan.Port {
	l, err := d.netlink.LinkByIndex(index)
	if err != nil {
		return plan.Port{Device: fmt.Sprintf("if%d", index)}
	}
	return plan.Port{Device: l.Attrs().Name}
}

// writeForward creates or replaces an entry. Replacing moves a member without losing packets.
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
	req.AddData(nl.NewRtAttr(unix.NDA_DST, new.Outer.AsSlice()))
	if new.Port != (plan.Port{}) {
		port, err := d.netlink.LinkByName(new.Port.Device)
		if err != nil {
			return err
		}
		if err := d.writeNeighbor(nil, behind(new)); err != nil {
			return err
		}
		req.AddData(nl.NewRtAttr(unix.NDA_IFINDEX, nl.Uint32Attr(uint32(port.Attrs().Index))))
	}
	if err := d.execute(req); err != nil {
		return err
	}
	if old != nil && old.Port.Device != new.Port.Device {
		return d.deleteBehind(old)
	}
	return nil
}

// deleteForward deletes an entry. The request names no destination, so any destination matches.
func (d *Dataplane) deleteForward(old, _ *plan.Forward) error {
	l, err := d.netlink.LinkByName(old.Device)
	if err != nil {
		return ignoreMissing(err)
	}
	mac, err := net.ParseMAC(old.MAC)
	if err != nil {
		return err
	}
	if err := ignoreMissing(d.execute(forwardRequest(unix.RTM_DELNEIGH, 0, l, mac))); err != nil {
		return err
	}
	return d.deleteBehind(old)
}

func forwardRequest(command, flags int, l netlink.Link, mac net.HardwareAddr) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(command, flags|unix.NLM_F_ACK)
	req.AddData(&netlink.Ndmsg{
		Family: unix.AF_BRIDGE, Index: uint32(l.Attrs().Index),
		State: netlink.NUD_PERMANENT | netlink.NUD_NOARP, Flags: netlink.NTF_SELF,
	})
	req.AddData(nl.NewRtAttr(unix.NDA_LLADDR, mac))
	return req
}

// behind returns the neighbour entry that a frame for a pod needs on the port itself, where the
// kernel does not resolve addresses.
func behind(f *plan.Forward) *plan.Neighbor {
	return &plan.Neighbor{Device: f.Port.Device, Addr: f.Outer, MAC: f.Port.MAC}
}

func (d *Dataplane) deleteBehind(f *plan.Forward) error {
	if f.Port.MAC == "" {
		return nil
	}
	return d.deleteNeighbor(behind(f), nil)
}

// Ports returns the bridge ports behind which pods of this host are. It omits pods that are not
// behind a bridge or that the bridge has not learnt yet. It also omits bridges with VLANs, whose
// ports may tag frames, and IPv6, for which the kernel needs a route for each device.
//
// The kernel lists the learnt addresses of all pods or of none, so Ports takes all pods at once.
func (d *Dataplane) Ports(pods []netip.Addr) (map[netip.Addr]plan.Port, error) {
	neighbors, err := d.netlink.NeighList(0, unix.AF_INET)
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	entries, err := d.netlink.NeighListExecute(netlink.Ndmsg{Family: unix.AF_BRIDGE})
	if err != nil {
		return nil, fmt.Errorf("list forwarding entries of bridges: %w", err)
	}
	macs, ports := reachable(neighbors), learnt(entries)
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

// BridgesFiltered reports whether frames forwarded by bridges of this host traverse nft chains.
func BridgesFiltered() bool {
	value, err := os.ReadFile("/proc/sys/net/bridge/bridge-nf-call-iptables") // no file without br_netfilter
	return err == nil && strings.TrimSpace(string(value)) != "0"
}

// bridgeTo returns the bridge to which an address is routed directly, or nil if there is none.
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

// reachable returns the MAC addresses of neighbours, on any device. Once frames for a pod go to its
// port, the bridge may have no neighbour entry any more, but our entry on the port has the address.
func reachable(neighbors []netlink.Neigh) map[netip.Addr][]string {
	out := map[netip.Addr][]string{}
	for _, n := range neighbors {
		if len(n.HardwareAddr) > 0 && n.State&(netlink.NUD_FAILED|netlink.NUD_INCOMPLETE) == 0 {
			out[address(n.IP)] = append(out[address(n.IP)], n.HardwareAddr.String())
		}
	}
	return out
}

// station is a MAC address that a bridge has learnt; bridge is its index.
type station struct {
	bridge int
	mac    string
}

// learnt returns the index of the bridge port of each station.
func learnt(entries []netlink.Neigh) map[station]int {
	out := map[station]int{}
	for _, h := range entries {
		if h.MasterIndex != 0 && h.Vlan == 0 && h.State&netlink.NUD_PERMANENT == 0 {
			out[station{h.MasterIndex, h.HardwareAddr.String()}] = h.LinkIndex
		}
	}
	return out
}
