// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/view"
)

func (e *env) infoPeerCommand(f *infoFlags) *cobra.Command {
	return &cobra.Command{Use: "peer [cluster-id…]", Short: "Show the peerings with some or all clusters",
		Example: "  liqoctl info peer\n  liqoctl info peer milan -o yaml\n" +
			"  liqoctl info peer milan --get network.gateway",
		PreRunE:           func(*cobra.Command, []string) error { return f.validate() },
		ValidArgsFunction: e.completion(activeIDs()),
		RunE:              func(cmd *cobra.Command, ids []string) error { return e.infoPeers(cmd, ids, f) }}
}

func (e *env) infoPeers(cmd *cobra.Command, ids []string, f *infoFlags) error {
	ctx := cmd.Context()
	c, err := e.localCluster(ctx, cmd)
	if err != nil {
		return err
	}
	found, err := c.peers(ctx, ids)
	if err != nil {
		return err
	}
	inspected, err := collect(found,
		func(f corev1beta1.ForeignCluster) (*view.Peer, error) {
			objects, err := c.objectsOfPeer(ctx, f.Spec.ClusterID)
			if err != nil {
				return nil, err
			}
			return view.InspectPeer(&f, objects, c.source(ctx)), nil
		})
	if err != nil {
		return err
	}
	infos := map[string]*view.Peer{}
	for _, info := range inspected {
		infos[info.Info.ClusterID] = info
	}
	switch {
	case f.get != "" && len(ids) == 1:
		return e.printQuery(infos[ids[0]], f.get, f.output)
	case f.get != "" || f.isData():
		return e.printQuery(infos, f.get, f.output)
	}
	for _, id := range slices.Sorted(maps.Keys(infos)) {
		if f.output == "name" {
			fmt.Fprint(e.Out, peerName(id))
			continue
		}
		for _, b := range peerBoxes(infos[id]) {
			fmt.Fprint(e.Out, b)
		}
	}
	return nil
}

// peers returns the ForeignClusters of the active peerings, of all clusters if ids is empty.
func (c *cluster) peers(ctx context.Context, ids []string) ([]corev1beta1.ForeignCluster, error) {
	list := &corev1beta1.ForeignClusterList{}
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list foreignclusters: %w", err)
	}
	missing := slices.Clone(ids)
	var out []corev1beta1.ForeignCluster
	for _, f := range list.Items {
		if view.IsActive(&f) && (len(ids) == 0 || slices.Contains(ids, f.Spec.ClusterID)) {
			out = append(out, f)
			missing = slices.DeleteFunc(missing, func(id string) bool { return id == f.Spec.ClusterID })
		}
	}
	if len(missing) > 0 {
		//lint:ignore ST1005 scripts look for this sentence
		return nil, fmt.Errorf("Peer clusters %q not found in active peerings", strings.Join(missing, ", "))
	}
	return out, nil
}

// peerBoxes draws the boxes of one peer.
func peerBoxes(p *view.Peer) []string {
	var who, net, auth, off lines
	who.add(0, "Cluster ID", p.Info.ClusterID)
	who.add(0, "Role", string(p.Info.Role))

	net.add(0, "Status", string(p.Network.Status))
	net.addList(0, "Alerts", p.Network.Alerts)
	if p.Network.Status != view.Disabled {
		if remote := p.Network.CIDRs.Remote; len(remote.Pod)+len(remote.External) > 0 {
			net.text(0, "CIDR")
			net.addRanges("Remote", &remote)
			net.addRanges("Remapped", p.Network.CIDRs.Remapped)
			net.addUnapproved(p.Info.ClusterID, p.Network.CIDRs.Unapproved)
		}
		net.addGateway(p.Network.Gateway)
	}
	if connection := p.Network.Connection; connection != nil {
		net.text(0, "Connection")
		net.add(1, "Status", connection.Status)
		net.addNonEmpty(1, "Latency", connection.Latency)
		if !connection.Since.IsZero() {
			net.add(1, "Since", connection.Since.UTC().Format(time.RFC3339))
		}
	}

	auth.add(0, "Status", string(p.Authentication.Status))
	auth.addList(0, "Alerts", p.Authentication.Alerts)
	auth.addNonEmpty(0, "API server", p.Authentication.APIServerAddr)
	auth.addNonEmpty(0, "API server status", string(p.Authentication.APIServerStatus))
	if p.Authentication.SharedKey {
		auth.add(0, "Private key",
			"shared with other peers, as in former versions; 'liqoctl authenticate' replaces it by one for this peer")
	}
	auth.addList(0, "Secrets supplied by users, which a peering user can read in the tenant namespace",
		p.Authentication.UserSecrets)
	for _, s := range p.Authentication.ResourceSlices {
		auth.text(0, "Resource slice "+s.Name)
		auth.add(1, "Action", s.Action)
		auth.add(1, "Accepted", fmt.Sprint(s.Accepted))
		auth.addList(1, "Alerts", s.Alerts)
		auth.addMap(1, "Resources", amounts(s.Resources))
	}

	off.add(0, "Status", string(p.Offloading.Status))
	off.addList(0, "Alerts", p.Offloading.Alerts)
	for _, v := range p.Offloading.VirtualNodes {
		off.text(0, "Virtual node "+v.Name)
		off.add(1, "Status", string(v.Status))
		off.add(1, "Secret", v.Secret)
		off.addNonEmpty(1, "Resource slice", v.ResourceSlice)
		off.addMap(1, "Resources", amounts(v.Resources))
	}
	return []string{box("Peer cluster info", who), box("Network", net), box("Authentication", auth),
		box("Offloading", off)}
}

// portsOf returns all ports of a gateway as text.
func portsOf(g view.Gateway) string {
	if len(g.Ports) == 0 {
		return fmt.Sprint(g.Port)
	}
	return strings.Trim(fmt.Sprint(g.Ports), "[]")
}

// addGateway adds the server of the tunnel; nothing if there is none.
func (l *lines) addGateway(g view.Gateway) {
	if g.Role == "" {
		return
	}
	l.text(0, "Gateway")
	l.add(1, "Role", g.Role)
	l.add(1, "Address", strings.Join(g.Address, ", "))
	l.add(1, "Port", portsOf(g))
	if g.Announced == nil {
		return
	}
	transport := func(e *netv1beta1.EndpointStatus) string { return string(cmp.Or(e.Protocol, netv1beta1.ProtocolUDP)) }
	l.add(1, "Protocol", transport(g.Client.Spec.Endpoint))
	own, _ := json.Marshal(g.Announced) // of texts and numbers
	at := view.GatewayAt(*g.Announced, netv1beta1.ConnectionTypeServer)
	l.text(1, "Server's own, which is not dialled here")
	l.add(2, "Address", strings.Join(at.Address, ", "))
	l.add(2, "Port", portsOf(at))
	l.add(2, "Protocol", transport(g.Announced))
	l.text(2, "To dial it, and follow it when it changes:")
	l.text(2, fmt.Sprintf(`kubectl -n %s patch gatewayclient %s --field-manager=liqoctl --type=json -p `+
		`'[{"op":"add","path":"/spec/endpoint","value":%s}]'`, g.Client.Namespace, g.Client.Name, own))
}

func (l *lines) addRanges(key string, r *view.CIDRPair) {
	if r == nil {
		return
	}
	l.text(1, key)
	l.add(2, "Pod CIDR", strings.Join(r.Pod, ", "))
	l.add(2, "External CIDR", strings.Join(r.External, ", "))
}

// addUnapproved adds the ranges that an administrator has not approved, and how to approve them.
func (l *lines) addUnapproved(peer string, ranges []string) {
	if len(ranges) == 0 {
		return
	}
	l.add(1, "Announced later, remapped until approved", strings.Join(ranges, ", "))
	l.text(1, "To see them as they are: liqoctl approve ranges "+peer)
}

func amounts(r corev1.ResourceList) map[string]string {
	out := map[string]string{}
	for name, amount := range r {
		out[string(name)] = amount.String()
	}
	return out
}
