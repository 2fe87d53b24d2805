// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fabric

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

// reportEvery is between two looks whether there is something to say.
const reportEvery = 3 * time.Second

// writer owns what a node says.
func writer(node string) string { return "liqo/fabric-" + node }

// report says in every InternalFabric what this node cannot do for the gateway, and takes it back, until
// the context ends. Of a node where all is well nothing is said: there can be very many.
func (f *fabric) report(client rest.Interface) daemon.Task {
	return func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(reportEvery):
			}
			wrong := f.wrong(time.Now())
			for _, x := range f.fabrics.List() {
				if x.DeletionTimestamp != nil {
					continue
				}
				say := func(host string, want []netv1beta1.HostCondition) {
					err := daemon.FabricTold(x).Say(ctx, client, writer(host), host, want)
					if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
						klog.FromContext(ctx).Error(err, "What the node cannot do could not be written") // the next look tries again
					}
				}
				say(f.NodeName, wrong)
				for _, host := range f.gone(x.Status.Conditions) {
					say(host, nil)
				}
			}
		}
	}
}

// gone are those who said something and are no nodes any more. The first node speaks for them.
func (f *fabric) gone(said []netv1beta1.HostCondition) (out []string) {
	first, nodes := f.NodeName, map[string]bool{}
	for _, n := range f.nodes.List() {
		nodes[n.Name], first = true, min(first, n.Name)
	}
	for _, c := range said {
		if nodes[f.NodeName] && first == f.NodeName && !nodes[c.Host] {
			out = append(out, c.Host)
		}
	}
	return out
}

// wrong is what this node cannot do.
func (f *fabric) wrong(now time.Time) []netv1beta1.HostCondition {
	var all []string
	if failing := f.Failing(); failing != nil && now.Sub(failing.Since) > plan.RefusedFor {
		all = append(all, fmt.Sprintf("the node's network cannot be made as wanted: %v; allow it on the node, it is tried again", failing.Err))
	}
	if f.bridged.Load() && !dataplane.BridgesFiltered() {
		all = append(all, "a pod behind the same bridge as the gateway can forge traffic of the peer: filtering on bridges is off; on the node run 'modprobe br_netfilter' and 'sysctl -w net.bridge.bridge-nf-call-iptables=1'")
	}
	if len(all) == 0 {
		return nil
	}
	return []netv1beta1.HostCondition{{Host: f.NodeName, Type: netv1beta1.HostError, Status: metav1.ConditionTrue, Message: strings.Join(all, "; ")}}
}
