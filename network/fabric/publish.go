// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

// resolvConf names the node's DNS servers: the pod has the node's file.
const resolvConf = "/etc/resolv.conf"

// publish publishes the addresses this node depends on, and logs an error.
func (f *fabric) publish(ctx context.Context, client rest.Interface) {
	daemon.LogFailedWrite(ctx, f.writeAddresses(ctx, client), "The node's addresses could not be published")
}

// writeAddresses writes the addresses this node depends on into its InternalNode if they have
// changed. Other clusters do not read InternalNodes.
func (f *fabric) writeAddresses(ctx context.Context, client rest.Interface) error {
	own := f.nodes.Get("", f.NodeName)
	if own == nil || own.Status.NodeIP.Remote == "" {
		return nil // the controller has not written the rest of the status yet, which is required
	}
	var found []netip.Prefix
	var err error
	f.With(func(d *dataplane.Dataplane) { found, err = d.Local() })
	if err != nil {
		return err
	}
	dns, err := os.ReadFile(resolvConf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a node may resolve no names
		return fmt.Errorf("read DNS servers: %w", err)
	}
	addresses := plan.LocalAddresses(found, string(dns))
	if slices.Equal(addresses, own.Status.LocalAddresses) {
		return nil
	}
	node := daemon.Reference{Kind: "InternalNode", Resource: "internalnodes", Name: f.NodeName}
	return node.ApplyStatus(ctx, client, writer(f.NodeName), map[string]any{"localAddresses": addresses})
}
