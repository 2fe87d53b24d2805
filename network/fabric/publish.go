// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

// resolvConf names the node's DNS servers: the pod has the node's file.
const resolvConf = "/etc/resolv.conf"

// publish writes into this node's InternalNode which addresses the node depends on, whenever they change, until the
// context ends. The controller sees no peer there.
func (f *fabric) publish(client rest.Interface) daemon.Task {
	return func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(reportEvery):
			}
			nodes := f.nodes.List()
			i := slices.IndexFunc(nodes, func(n netv1beta1.InternalNode) bool { return n.Name == f.NodeName })
			if i < 0 || nodes[i].Status.NodeIP.Remote == "" {
				continue // the controller has not written the rest of the status yet, which is required
			}
			err := f.publishIn(ctx, client, nodes[i])
			if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				klog.FromContext(ctx).Error(err, "The node's addresses could not be published") // it is tried again
			}
		}
	}
}

func (f *fabric) publishIn(ctx context.Context, client rest.Interface, node netv1beta1.InternalNode) error {
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
	if slices.Equal(addresses, node.Status.LocalAddresses) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": netv1beta1.GroupVersion.String(), "kind": "InternalNode",
		"metadata": map[string]any{"name": f.NodeName},
		"status":   map[string]any{"localAddresses": addresses},
	})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	err = client.Patch(types.ApplyPatchType).Resource("internalnodes").Name(f.NodeName).SubResource("status").
		Param("fieldManager", writer(f.NodeName)).Param("force", "true").Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write status of InternalNode %s: %w", f.NodeName, err)
	}
	return nil
}
