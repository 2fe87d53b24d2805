// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"strings"
)

// LocalAddresses returns the addresses that a node publishes, sorted: those found in its kernel,
// and those of the DNS servers in its resolv.conf. Loopback and link-local addresses are left out,
// because they cannot be routed to.
func LocalAddresses(found []netip.Prefix, resolvConf string) []string {
	for line := range strings.Lines(resolvConf) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a := parseAddr(words[1]).WithZone(""); a.IsValid() {
			found = append(found, host(a))
		}
	}
	var out []string
	for _, p := range found {
		if a := p.Addr(); a.IsGlobalUnicast() {
			out = append(out, p.String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
