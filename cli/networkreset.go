// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

func (e *env) networkDisconnectCommand(f *networkFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "disconnect", Short: "Remove the tunnel between two clusters",
		Example: "  liqoctl network disconnect --remote-kubeconfig milan.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.resetNetwork(cmd, f, func(n *network) ([]step, error) { return n.disconnect(), nil })
		}}
	e.addDryRunFlag(cmd.Flags())
	return cmd
}

func (e *env) networkResetCommand(f *networkFlags) *cobra.Command {
	cmd := &cobra.Command{Use: "reset", Short: "Remove the tunnel and what the clusters know of each other's addresses",
		Example: "  liqoctl network reset --remote-kubeconfig milan.yaml --skip-confirm",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.resetNetwork(cmd, f, func(n *network) (_ []step, err error) {
				n.disconnected, err = n.initialised()
				return n.reset(), err
			})
		}}
	e.addDryRunFlag(cmd.Flags())
	return cmd
}

// resetNetwork asks the user, connects to both clusters and runs the steps of undo.
func (e *env) resetNetwork(cmd *cobra.Command, f *networkFlags, undo func(*network) ([]step, error)) error {
	if err := e.confirm(cmd.Name(), ""); err != nil {
		return err
	}
	return e.onNetwork(cmd, f, func(n *network) error {
		n.wait = n.wait && !e.dry()
		if err := n.findBoth(n.ctx); err != nil {
			return err
		}
		steps, err := undo(n)
		if err != nil {
			return err
		}
		return n.run(steps...)
	})
}

// findBoth finds the namespaces of the network's objects.
func (n *network) findBoth(ctx context.Context) error {
	return onEach(n.pair(), func(c *cluster) error { return c.findNetwork(ctx, c.other.id) })
}

// networkGone names the last steps of reset.
const networkGone = "network gone"

// disconnect deletes clients and servers in both clusters: either may run either end. It prints
// nothing about an end that a cluster never had, unless neither has one. The public keys stay,
// since a user may have created them; the next connect replaces those of gateways that generated
// theirs.
func (n *network) disconnect() []step {
	return []step{
		n.removeGateways(n.localCluster, &netv1beta1.GatewayClientList{}, "Gateway client"),
		n.removeGateways(n.remoteCluster, &netv1beta1.GatewayServerList{}, "Gateway server"),
	}
}

// removeGateways deletes the gateways of one kind in both clusters; usually only one has any.
func (n *network) removeGateways(usual *cluster, list client.ObjectList, what string) step {
	removed := map[side]*bool{local: new(bool), remote: new(bool)}
	return step{name: "gateways gone", at: &usual, doing: "Deleting " + what, do: func(ctx context.Context) error {
		return onEach(n.pair(), func(c *cluster) (err error) {
			*removed[c.side], err = n.removalOf(c, list.DeepCopyObject().(client.ObjectList)).removeAll(ctx)
			return err
		})
	}, report: func(string) {
		for _, c := range n.pair() {
			missing := c == usual && !*removed[c.other.side]
			switch {
			case *removed[c.side], missing && n.disconnected:
				n.info(c.side, "%s correctly deleted", what)
			case missing:
				n.info(c.side, "%s already deleted", what)
			}
		}
	}}
}

func (n *network) removalOf(c *cluster, list client.ObjectList) removal {
	return removal{cluster: c, in: c.network, list: list, wait: n.networkOptions.wait}
}

// reset also deletes the public keys and the Configurations, after the gateways.
func (n *network) reset() []step {
	rest := []step{{doing: "Deleting public keys", do: func(ctx context.Context) error {
		return onEach(n.pair(), func(c *cluster) error {
			_, err := n.removalOf(c, &netv1beta1.PublicKeyList{}).removeAll(ctx)
			return err
		})
	}}}
	for _, c := range n.pair() {
		undo := n.removalOf(c, &netv1beta1.ConfigurationList{})
		undo.doing, undo.gone = "Deleting network configuration", "Network configuration correctly deleted"
		undo.none = "Network configuration already deleted"
		rest = append(rest, n.clear(undo))
	}
	steps := n.disconnect()
	for i := range rest {
		rest[i].name, rest[i].after = networkGone, []string{steps[0].name}
	}
	return append(steps, rest...)
}
