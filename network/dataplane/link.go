// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/network/plan"
)

// tunnelPrefix is the prefix of the names of tunnel devices.
var tunnelPrefix = api.TunnelInterface(0)

// links returns our devices.
func (d *Dataplane) links() ([]netlink.Link, error) {
	var out []netlink.Link
	for n := -1; n < api.MaxTunnels; n++ {
		name := api.OverlayInterface
		if n >= 0 {
			name = api.TunnelInterface(n)
		}
		l, err := d.netlink.LinkByName(name)
		if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
			if n >= 0 {
				break // tunnels are numbered without gaps
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read link %s: %w", name, err)
		}
		out = append(out, l)
	}
	return out, nil
}

func (d *Dataplane) observeLink(s *plan.State, l netlink.Link) error {
	a := l.Attrs()
	if strings.HasPrefix(a.Name, tunnelPrefix) {
		if err := d.observeTunnel(s, l); err != nil {
			return err
		}
	} else {
		s.Overlays = append(s.Overlays, overlayOf(l))
		if err := d.observeEntries(s, l); err != nil {
			return err
		}
	}
	addrs, err := d.netlink.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, x := range addrs {
		p := prefix(x.IPNet)
		if !p.Addr().Is6() || !p.Addr().IsLinkLocalUnicast() { // the kernel makes those itself
			s.Addresses = append(s.Addresses, plan.Address{Device: a.Name, Prefix: p})
		}
	}
	return nil
}

// overlayOf returns the state of a device. A device that is not VXLAN has VNI 0, which is never
// desired.
func overlayOf(l netlink.Link) plan.Overlay {
	a := l.Attrs()
	o := plan.Overlay{Name: a.Name, MAC: a.HardwareAddr.String(), MTU: a.MTU, Down: a.Flags&net.FlagUp == 0}
	if v, ok := l.(*netlink.Vxlan); ok {
		o.VNI, o.Port, o.Local = v.VxlanId, v.Port, address(v.SrcAddr)
	}
	return o
}

// writeOverlay creates or updates the device. It recreates one that differs in more than MTU and
// state.
func (d *Dataplane) writeOverlay(old, new *plan.Overlay) error {
	if old != nil && (old.VNI != new.VNI || old.Port != new.Port || old.Local != new.Local || old.MAC != new.MAC) {
		if err := d.deleteOverlay(old, nil); err != nil {
			return err
		}
		old = nil
	}
	if old == nil {
		return d.makeOverlay(new)
	}
	return d.raise(new.Name, new.MTU)
}

func (d *Dataplane) makeOverlay(o *plan.Overlay) error {
	attrs := netlink.NewLinkAttrs()
	mac, err := net.ParseMAC(o.MAC)
	if err != nil {
		return err
	}
	attrs.Name, attrs.MTU, attrs.HardwareAddr = o.Name, o.MTU, mac
	link := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: o.VNI, SrcAddr: o.Local.AsSlice(), Port: o.Port}
	err = d.netlink.LinkAdd(link)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: the kernel has no VXLAN; run 'modprobe vxlan' on the node", err)
	}
	if err != nil {
		return err
	}
	return d.raise(o.Name, o.MTU)
}

// raise sets the MTU of a device and sets it up.
func (d *Dataplane) raise(name string, mtu int) error {
	l, err := d.netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if l.Attrs().MTU != mtu {
		if err := d.netlink.LinkSetMTU(l, mtu); err != nil {
			return fmt.Errorf("set MTU %d: %w", mtu, err)
		}
	}
	return d.netlink.LinkSetUp(l)
}

func (d *Dataplane) deleteOverlay(old, _ *plan.Overlay) error { return d.deleteLink(old.Name) }

func (d *Dataplane) deleteLink(name string) error {
	l, err := d.netlink.LinkByName(name)
	if err != nil {
		return ignoreMissing(err)
	}
	return ignoreMissing(d.netlink.LinkDel(l))
}

func (d *Dataplane) writeAddress(_, new *plan.Address) error {
	l, err := d.netlink.LinkByName(new.Device)
	if err != nil {
		return err
	}
	return d.netlink.AddrReplace(l, &netlink.Addr{IPNet: ipNet(new.Prefix), Flags: unix.IFA_F_NODAD})
}

func (d *Dataplane) deleteAddress(old, _ *plan.Address) error {
	l, err := d.netlink.LinkByName(old.Device)
	if err != nil {
		return ignoreMissing(err)
	}
	return ignoreMissing(d.netlink.AddrDel(l, &netlink.Addr{IPNet: ipNet(old.Prefix)}))
}

// devconf returns the number of a setting in IFLA_INET_CONF (IPV4_DEVCONF_… of linux/ip.h), or 0 if
// it has none.
func devconf(setting string) uint16 {
	switch setting {
	case plan.SettingForwarding:
		return 1
	case plan.SettingReversePath:
		return 8
	}
	return 0
}

// writeSetting sets a sysctl through netlink: /proc/sys is read-only in containers, while this
// needs NET_ADMIN only.
func (d *Dataplane) writeSetting(_, new *plan.Setting) error {
	l, err := d.netlink.LinkByName(new.Device)
	if err != nil {
		return err
	}
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(l.Attrs().Index)
	req.AddData(msg)
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	conf := spec.AddRtAttr(unix.AF_INET, nil).AddRtAttr(unix.IFLA_INET_CONF, nil)
	conf.AddRtAttr(int(devconf(new.Name)), nl.Uint32Attr(uint32(new.Value)))
	req.AddData(spec)
	if err := d.execute(req); err != nil {
		return err
	}
	return d.confirm(*new)
}

// confirm reads a setting back: a node may ignore the write without an error.
func (d *Dataplane) confirm(want plan.Setting) error {
	found, err := d.settings(want.Device)
	if err != nil {
		return err
	}
	for _, s := range found {
		if s.Name == want.Name && s.Value != want.Value {
			return fmt.Errorf("the kernel kept %d", s.Value)
		}
	}
	return nil
}

func (d *Dataplane) execute(req *nl.NetlinkRequest) error {
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// settings returns the IPv4 settings of a device; none if there is no such device.
func (d *Dataplane) settings(device string) ([]plan.Setting, error) {
	l, err := d.netlink.LinkByName(device)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(l.Attrs().Index)
	req.AddData(msg)
	replies, err := req.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	var out []plan.Setting
	for _, reply := range replies {
		values, err := inetConf(reply[unix.SizeofIfInfomsg:])
		if err != nil {
			return nil, err
		}
		for _, name := range []string{plan.SettingForwarding, plan.SettingReversePath} {
			if at := 4 * (int(devconf(name)) - 1); at+4 <= len(values) {
				value := int(binary.NativeEndian.Uint32(values[at:]))
				out = append(out, plan.Setting{Device: device, Name: name, Value: value})
			}
		}
	}
	return out, nil
}

// inetConf returns the value of IFLA_INET_CONF: an array of 32-bit values, numbered from 1.
func inetConf(attrs []byte) ([]byte, error) {
	for _, want := range []uint16{unix.IFLA_AF_SPEC, unix.AF_INET, unix.IFLA_INET_CONF} {
		list, err := nl.ParseRouteAttr(attrs)
		if err != nil {
			return nil, err
		}
		attrs = nil
		for _, a := range list {
			if a.Attr.Type&^unix.NLA_F_NESTED == want {
				attrs = a.Value
			}
		}
	}
	return attrs, nil
}

// Underlay returns the device that has an address. With an invalid address it returns the device of
// the default route, and its first address.
func (d *Dataplane) Underlay(addr netip.Addr) (plan.Underlay, netip.Addr, error) {
	if !addr.IsValid() {
		return d.defaultUnderlay()
	}
	all, err := d.netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return plan.Underlay{}, addr, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range all {
		if address(a.IP) == addr {
			l, err := d.netlink.LinkByIndex(a.LinkIndex)
			if err != nil {
				return plan.Underlay{}, addr, fmt.Errorf("read link %d: %w", a.LinkIndex, err)
			}
			return plan.Underlay{Device: l.Attrs().Name, MTU: l.Attrs().MTU}, addr, nil
		}
	}
	return plan.Underlay{}, addr, fmt.Errorf("find device of %s: no device has this address", addr)
}

// PodDevices returns the devices behind which pods of this host are: devices with routes to the pods'
// ranges, and veth devices of single pods. The latter exist before their addresses are reported.
// It omits the device except, which connects this host to others.
func (d *Dataplane) PodDevices(pods []netip.Prefix, except string) ([]string, error) {
	routes, err := d.netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	onward := map[int]bool{} // devices with routes through other hosts
	for _, r := range routes {
		onward[r.LinkIndex] = onward[r.LinkIndex] || r.Gw != nil
	}
	var out []string
	for _, r := range routes {
		to := prefix(r.Dst)
		own := to.IsValid() && slices.ContainsFunc(pods, func(p netip.Prefix) bool {
			return p.Bits() <= to.Bits() && p.Contains(to.Addr())
		})
		alone := toPod(r) && !onward[r.LinkIndex]
		if r.LinkIndex == 0 || r.Gw != nil || !own && !alone {
			continue
		}
		l, err := d.netlink.LinkByIndex(r.LinkIndex)
		if err != nil {
			if ignoreMissing(err) == nil {
				continue // removed since the routes were listed
			}
			return nil, fmt.Errorf("read link %d: %w", r.LinkIndex, err)
		}
		name := l.Attrs().Name
		if !own && l.Type() != "veth" || name == except || strings.HasPrefix(name, api.InterfacePrefix) {
			continue
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, nil
}

// toPod reports whether a route looks like the one that CNIs create for a pod with its own device: a
// direct route to a single address.
func toPod(r netlink.Route) bool {
	to := prefix(r.Dst)
	return r.Gw == nil && r.LinkIndex != 0 && r.Table == unix.RT_TABLE_MAIN && to.IsValid() && to.IsSingleIP()
}

// Here returns the addresses that are routed to the given devices of this host, each with its known
// MAC addresses.
func (d *Dataplane) Here(addrs []netip.Addr, devices []string) (map[netip.Addr][]string, error) {
	neighbors, err := d.netlink.NeighList(0, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	links := map[int]bool{}
	for _, name := range devices {
		if l, err := d.netlink.LinkByName(name); err == nil { // it may be gone since
			links[l.Attrs().Index] = true
		}
	}
	macs, out := reachable(neighbors), map[netip.Addr][]string{}
	for _, a := range addrs {
		// Without a route it is not behind these devices.
		if routes, err := d.netlink.RouteGet(a.AsSlice()); err == nil && len(routes) > 0 && links[routes[0].LinkIndex] {
			out[a] = macs[a]
		}
	}
	d.lastHere.Store(&out)
	return out, nil
}

func (d *Dataplane) defaultUnderlay() (plan.Underlay, netip.Addr, error) {
	routes, err := d.netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return plan.Underlay{}, netip.Addr{}, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if r.LinkIndex == 0 || r.Dst != nil && prefix(r.Dst).Bits() != 0 {
			continue
		}
		l, err := d.netlink.LinkByIndex(r.LinkIndex)
		if err != nil {
			return plan.Underlay{}, netip.Addr{}, fmt.Errorf("read link %d: %w", r.LinkIndex, err)
		}
		addrs, err := d.netlink.AddrList(l, r.Family)
		if err != nil {
			return plan.Underlay{}, netip.Addr{}, fmt.Errorf("list addresses of %s: %w", l.Attrs().Name, err)
		}
		for _, a := range addrs {
			if u := address(a.IP); u.IsGlobalUnicast() {
				return plan.Underlay{Device: l.Attrs().Name, MTU: l.Attrs().MTU}, u, nil
			}
		}
	}
	return plan.Underlay{}, netip.Addr{}, errors.New("find default route: there is none with an address on its device")
}

func address(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(address(n.IP), bits)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
