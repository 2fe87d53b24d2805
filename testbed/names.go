// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
)

// nameForm: CoreDNS answers for the whole of .test, which nobody has on the internet.
var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?\.test$`)

// runDNS changes a name that all clusters know, in pods and on workers.
func runDNS(_ context.Context, t Testbed, _ options, args []string) error {
	switch {
	case len(args) == 3 && args[0] == "set":
	case len(args) == 2 && args[0] == "unset":
	default:
		return fmt.Errorf("usage: dns set <name>.test <address>\n       dns unset <name>.test")
	}
	if !nameForm.MatchString(args[1]) {
		return fmt.Errorf("name %q: use one that ends in .test, as gateway.test", args[1])
	}
	return t.changeInternet(func(in *internet) error {
		if args[0] == "unset" {
			delete(in.Names, args[1])
			return nil
		}
		address, err := netip.ParseAddr(args[2])
		if err != nil {
			return fmt.Errorf("address %q: %w", args[2], err)
		}
		if in.Names == nil {
			in.Names = map[string]string{}
		}
		in.Names[args[1]] = address.String()
		return nil
	})
}
