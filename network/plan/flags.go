// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
)

// AddOverlaySources adds the flag for further source addresses of overlay frames.
func AddOverlaySources(fs *pflag.FlagSet, to *[]netip.Prefix) {
	const usage = "further CIDRs that frames of the overlay come from, beside nodes and gateways; comma-separated"
	fs.Func("overlay-sources", usage, func(text string) error {
		for cidr := range strings.SplitSeq(text, ",") {
			p, err := netip.ParsePrefix(cidr)
			if err != nil {
				return err
			}
			*to = append(*to, p.Masked())
		}
		return nil
	})
}

// AddIgnored accepts documented flags that have no effect, so that existing templates and extra
// arguments keep working. They are hidden.
func AddIgnored(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		fs.StringArray(name, nil, "accepted and ignored")
		flag := fs.Lookup(name)
		flag.Hidden, flag.NoOptDefVal = true, "true"
	}
}
