// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fabric

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

// reportEvery is the interval between two reports.
const reportEvery = 3 * time.Second

// writer returns the field manager of a node's reports.
func writer(node string) string { return "liqo/fabric-" + node }

// repeatedly returns a task that calls f at the interval of reports, until the context ends.
func repeatedly(f func(context.Context)) daemon.Task {
	return func(ctx context.Context) error {
		wait.UntilWithContext(ctx, f, reportEvery)
		return nil
	}
}

// report writes into every InternalFabric what this node cannot do for the gateway, and removes it
// later. A node without problems writes nothing, because there may be very many nodes.
func (f *fabric) report(ctx context.Context, client rest.Interface) {
	problems := f.problems(time.Now())
	for _, x := range f.fabrics.List() {
		if x.DeletionTimestamp != nil {
			continue
		}
		want := map[string][]netv1beta1.HostCondition{f.NodeName: problems}
		for _, host := range f.gone(x.Status.Conditions) {
			want[host] = nil
		}
		daemon.FabricStatus(x).Report(ctx, client, writer, want, "What the node cannot do could not be written")
	}
}

// gone returns the hosts among the conditions that are no nodes any more. It returns none except on
// the first node by name, which removes their conditions.
func (f *fabric) gone(conditions []netv1beta1.HostCondition) (out []string) {
	if len(conditions) == 0 {
		return nil
	}
	first, nodes := f.NodeName, map[string]bool{}
	for _, n := range f.nodes.List() {
		nodes[n.Name], first = true, min(first, n.Name)
	}
	for _, c := range conditions {
		if nodes[f.NodeName] && first == f.NodeName && !nodes[c.Host] {
			out = append(out, c.Host)
		}
	}
	return out
}

// problems returns a condition that names what this node cannot do; nil if there is nothing.
func (f *fabric) problems(now time.Time) []netv1beta1.HostCondition {
	var all []string
	if failing := f.Failing(); failing != nil && now.Sub(failing.Since) > plan.RefusedFor {
		all = append(all, fmt.Sprintf("the node's network cannot be made as wanted: %v; allow it on the node, it is "+
			"tried again", failing.Err))
	}
	if f.bridged.Load() && !dataplane.BridgesFiltered() {
		all = append(all, "a pod behind the same bridge as the gateway can forge traffic of the peer: filtering on "+
			"bridges is off; on the node run 'modprobe br_netfilter' and "+
			"'sysctl -w net.bridge.bridge-nf-call-iptables=1'")
	}
	if len(all) == 0 {
		return nil
	}
	return []netv1beta1.HostCondition{{
		Host: f.NodeName, Type: netv1beta1.HostError, Status: metav1.ConditionTrue, Message: strings.Join(all, "; "),
	}}
}
