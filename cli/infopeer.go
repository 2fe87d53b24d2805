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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

type whoInfo struct {
	ClusterID string           `json:"clusterID"`
	Role      corev1beta1.Role `json:"role"`
}

type cidrPair struct {
	Pod      []string `json:"pod"`
	External []string `json:"external"`
}

type cidrInfo struct {
	Remote   cidrPair  `json:"remote"`
	Remapped *cidrPair `json:"remapped,omitempty"`
	// Unapproved lists the CIDRs announced after the peering was agreed. They are remapped until an
	// administrator approves them.
	Unapproved []string `json:"unapproved,omitempty"`
}

// gatewayInfo describes the server of the tunnel. Role is the role of the peer's gateway. Port is
// the first port.
type gatewayInfo struct {
	Address []string `json:"address"`
	Port    int32    `json:"port"`
	Ports   []int32  `json:"ports,omitempty"`
	Role    string   `json:"role"`
	// Announced is the endpoint the server announced last; nil if the client dials it, or nothing
	// was announced.
	Announced *netv1beta1.EndpointStatus `json:"announced,omitempty"`
	// client is the GatewayClient of this cluster; nil if the peer dials this one.
	client *netv1beta1.GatewayClient
}

// connectionInfo is the state of the tunnel, and since when. Latency is the last one measured.
type connectionInfo struct {
	Status  string      `json:"status"`
	Latency string      `json:"latency,omitempty"`
	Since   metav1.Time `json:"since,omitzero"`
}

type peerNetwork struct {
	Status  moduleStatus `json:"status"`
	Alerts  []string     `json:"alerts"`
	CIDRs   cidrInfo     `json:"CIDRs"`
	Gateway gatewayInfo  `json:"gateway"`
	// Connection is nil before the gateway knows the peer's key.
	Connection *connectionInfo `json:"connection,omitempty"`
}

// consuming is the action of a slice that this cluster requested.
const consuming = "Consuming"

// sliceInfo describes a slice that this cluster consumes or provides.
type sliceInfo struct {
	Name      string              `json:"name"`
	Action    string              `json:"action"`
	Accepted  bool                `json:"accepted"`
	Alerts    []string            `json:"alerts"`
	Resources corev1.ResourceList `json:"resources"`
}

type peerAuth struct {
	Status        moduleStatus `json:"status"`
	Alerts        []string     `json:"alerts"`
	APIServerAddr string       `json:"APIServerAddr"`
	// APIServerStatus is empty if the peer's API server is not probed.
	APIServerStatus moduleStatus `json:"APIServerStatus,omitempty"`
	ResourceSlices  []sliceInfo  `json:"resourceSlices"`
	// SharedKey reports that this cluster authenticates with the key that former versions used for
	// all peers.
	SharedKey bool `json:"sharedKey,omitempty"`
	// UserSecrets lists Secrets with keys or kubeconfigs that users supplied, as "namespace/name".
	// A peering user of the peer can read the ones in the tenant namespace.
	UserSecrets []string `json:"userSecrets,omitempty"`
}

type nodeInfo struct {
	Name          string              `json:"name"`
	Status        moduleStatus        `json:"status"`
	Secret        string              `json:"secret"`
	ResourceSlice string              `json:"resourceSlice,omitempty"`
	Resources     corev1.ResourceList `json:"resources"`
}

type peerOffloading struct {
	Status       moduleStatus `json:"status"`
	Alerts       []string     `json:"alerts"`
	VirtualNodes []nodeInfo   `json:"virtualNodes"`
}

// peerInfo holds the output of info peer about one peer.
type peerInfo struct {
	Info           whoInfo        `json:"info"`
	Network        peerNetwork    `json:"network"`
	Authentication peerAuth       `json:"authentication"`
	Offloading     peerOffloading `json:"offloading"`
}

func (e *env) infoPeerCommand(f *infoFlags) *cobra.Command {
	return &cobra.Command{Use: "peer [cluster-id…]", Short: "Show the peerings with some or all clusters",
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
		func(f corev1beta1.ForeignCluster) (*peerInfo, error) { return c.inspectPeer(ctx, &f) })
	if err != nil {
		return err
	}
	infos := map[string]*peerInfo{}
	for _, info := range inspected {
		infos[info.Info.ClusterID] = info
	}
	switch {
	case f.get != "" && len(ids) == 1:
		return e.printQuery(infos[ids[0]], f.get, f.output)
	case f.get != "" || f.output != "":
		return e.printQuery(infos, f.get, f.output)
	}
	for _, id := range slices.Sorted(maps.Keys(infos)) {
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
		if enabledPeer(&f) && (len(ids) == 0 || slices.Contains(ids, f.Spec.ClusterID)) {
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

// inspectPeer reads what this cluster holds of a peer and sums it up.
func (c *cluster) inspectPeer(ctx context.Context, f *corev1beta1.ForeignCluster) (*peerInfo, error) {
	objects, err := c.objectsOfPeer(ctx, f.Spec.ClusterID)
	if err != nil {
		return nil, err
	}
	modules, into := f.Status.Modules, &peerInfo{}
	into.Info = whoInfo{ClusterID: f.Spec.ClusterID, Role: f.Status.Role}
	into.Network = peerNetwork{
		Status: statusOf(modules.Networking),
		Alerts: append(alertsOf(modules.Networking), c.problems(&objects.configurations, &objects.servers,
			&objects.clients, &objects.fabrics, &objects.connections)...),
		CIDRs: objects.ranges(), Gateway: objects.gateway(), Connection: objects.connection(),
	}
	into.Authentication = peerAuth{
		Status: authenticationStatus(f), Alerts: append(authenticationAlerts(f), c.accessProblems(objects)...),
		APIServerAddr: f.Status.APIServerURL, APIServerStatus: apiServerStatus(f),
		SharedKey: objects.sharesKey(), UserSecrets: objects.userSecrets(), ResourceSlices: []sliceInfo{},
	}
	for i := range objects.slices.Items {
		into.Authentication.ResourceSlices = append(into.Authentication.ResourceSlices,
			c.sliceInfo(ctx, &objects.slices.Items[i], f.Spec.ClusterID))
	}
	into.Offloading = peerOffloading{
		Status: statusOf(modules.Offloading), Alerts: alertsOf(modules.Offloading), VirtualNodes: []nodeInfo{}}
	for i := range objects.nodes.Items {
		node := &objects.nodes.Items[i]
		into.Offloading.VirtualNodes = append(into.Offloading.VirtualNodes, nodeInfoOf(node))
		into.Offloading.Alerts = append(into.Offloading.Alerts, c.nodeProblems(ctx, node)...)
	}
	return into, nil
}

// peerBoxes draws the boxes of one peer.
func peerBoxes(p *peerInfo) []string {
	var who, net, auth, off lines
	who.add(0, "Cluster ID", p.Info.ClusterID)
	who.add(0, "Role", string(p.Info.Role))

	net.add(0, "Status", string(p.Network.Status))
	net.addList(0, "Alerts", p.Network.Alerts)
	if p.Network.Status != disabled {
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

// ports returns all ports as text.
func (g gatewayInfo) ports() string {
	if len(g.Ports) == 0 {
		return fmt.Sprint(g.Port)
	}
	return strings.Trim(fmt.Sprint(g.Ports), "[]")
}

// addGateway adds the server of the tunnel; nothing if there is none.
func (l *lines) addGateway(g gatewayInfo) {
	if g.Role == "" {
		return
	}
	l.text(0, "Gateway")
	l.add(1, "Role", g.Role)
	l.add(1, "Address", strings.Join(g.Address, ", "))
	l.add(1, "Port", g.ports())
	if g.Announced == nil {
		return
	}
	transport := func(e *netv1beta1.EndpointStatus) string { return string(cmp.Or(e.Protocol, netv1beta1.ProtocolUDP)) }
	l.add(1, "Protocol", transport(g.client.Spec.Endpoint))
	own, _ := json.Marshal(g.Announced) // of texts and numbers
	at := gatewayAt(*g.Announced, netv1beta1.ConnectionTypeServer)
	l.text(1, "Server's own, which is not dialled here")
	l.add(2, "Address", strings.Join(at.Address, ", "))
	l.add(2, "Port", at.ports())
	l.add(2, "Protocol", transport(g.Announced))
	l.text(2, "To dial it, and follow it when it changes:")
	l.text(2, fmt.Sprintf(`kubectl -n %s patch gatewayclient %s --field-manager=liqoctl --type=json -p `+
		`'[{"op":"add","path":"/spec/endpoint","value":%s}]'`, g.client.Namespace, g.client.Name, own))
}

func (l *lines) addRanges(key string, r *cidrPair) {
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
