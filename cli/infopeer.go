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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	identityplan "github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/network/objects/plan"
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
	// Unapproved lists the CIDRs announced after the peering was agreed. They are remapped until an administrator
	// approves them.
	Unapproved []string `json:"unapproved,omitempty"`
}

// gatewayInfo is where the tunnel's server is; Role is that of the peer's gateway. Of several ports Port
// is the first.
type gatewayInfo struct {
	Address []string `json:"address"`
	Port    int32    `json:"port"`
	Ports   []int32  `json:"ports,omitempty"`
	Role    string   `json:"role"`
	// Announced is the endpoint the server announced last; nil if the client dials it, or nothing was announced.
	Announced *netv1beta1.EndpointStatus `json:"announced,omitempty"`
	// client is the GatewayClient of this cluster; nil if the peer dials this one.
	client *netv1beta1.GatewayClient
}

// connectionInfo is how the tunnel is, and since when. Latency is that of the last measure.
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

// consuming is the action of a slice that this cluster asked for.
const consuming = "Consuming"

// sliceInfo is a slice we consume or provide.
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
	// APIServerStatus is empty where nobody looks at the peer's API server.
	APIServerStatus moduleStatus `json:"APIServerStatus,omitempty"`
	ResourceSlices  []sliceInfo  `json:"resourceSlices"`
	keyInfo
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

// peerInfo is all info peer shows of one peer.
type peerInfo struct {
	Info           whoInfo        `json:"info"`
	Network        peerNetwork    `json:"network"`
	Authentication peerAuth       `json:"authentication"`
	Offloading     peerOffloading `json:"offloading"`
}

func (e *env) infoPeerCommand(f *infoFlags) *cobra.Command {
	return &cobra.Command{Use: "peer [cluster-id…]", Short: "Show the peerings with some or all clusters",
		ValidArgsFunction: e.completion(activeIDs()),
		RunE:              func(cmd *cobra.Command, ids []string) error { return e.infoPeers(cmd.Context(), ids, f) }}
}

func (e *env) infoPeers(ctx context.Context, ids []string, f *infoFlags) error {
	c, err := e.here(ctx, f.liqo)
	if err != nil {
		return err
	}
	found, err := c.peers(ctx, ids)
	if err != nil {
		return err
	}
	infos := map[string]*peerInfo{}
	var work []func() error
	for i := range found {
		info := &peerInfo{}
		infos[found[i].Spec.ClusterID] = info
		work = append(work, func() error { return c.inspectPeer(ctx, &found[i], info) })
	}
	if err := together(work...); err != nil {
		return err
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

// peers finds the active peerings with the clusters, or all.
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

func (c *cluster) inspectPeer(ctx context.Context, f *corev1beta1.ForeignCluster, into *peerInfo) error {
	modules, peer := f.Status.Modules, f.Spec.ClusterID
	into.Info = whoInfo{ClusterID: peer, Role: f.Status.Role}
	into.Network.Status, into.Network.Alerts = statusOf(modules.Networking), alertsOf(modules.Networking)
	into.Authentication = peerAuth{
		Status: authenticationStatus(f), Alerts: authenticationAlerts(f), APIServerAddr: f.Status.APIServerURL,
		APIServerStatus: apiServerStatus(f),
	}
	into.Offloading.Status, into.Offloading.Alerts = statusOf(modules.Offloading), alertsOf(modules.Offloading)
	var network, access, nodes []string
	err := together(
		func() (err error) { network, err = c.networkSays(ctx, peer); return err },
		func() (err error) { access, err = c.accessSays(ctx, peer); return err },
		func() (err error) { nodes, err = c.nodesSay(ctx, peer); return err },
		func() error { return c.inspectRanges(ctx, peer, &into.Network.CIDRs) },
		func() error { return c.inspectGateway(ctx, peer, &into.Network.Gateway) },
		func() (err error) { into.Network.Connection, err = c.connection(ctx, peer); return err },
		func() (err error) { into.Authentication.ResourceSlices, err = c.slices(ctx, peer); return err },
		func() (err error) { into.Authentication.keyInfo, err = c.inspectKeys(ctx, peer); return err },
		func() (err error) { into.Offloading.VirtualNodes, err = c.virtualNodes(ctx, peer); return err },
	)
	into.Network.Alerts = append(into.Network.Alerts, network...)
	into.Authentication.Alerts = append(into.Authentication.Alerts, access...)
	into.Offloading.Alerts = append(into.Offloading.Alerts, nodes...)
	return err
}

// apiServerStatus tells whether the peer's API server answers.
func apiServerStatus(f *corev1beta1.ForeignCluster) moduleStatus {
	for _, condition := range f.Status.Conditions {
		if condition.Type != corev1beta1.APIServerStatusCondition {
			continue
		}
		if condition.Status == corev1beta1.ConditionEstablished {
			return healthy
		}
		return unhealthy
	}
	return ""
}

// everywhere: networks joined by hand need no tenant namespace; the peer's label is what counts.
const everywhere = metav1.NamespaceAll

func (c *cluster) inspectRanges(ctx context.Context, peer string, into *cidrInfo) error {
	into.Remote = cidrPair{Pod: []string{}, External: []string{}}
	list := &netv1beta1.ConfigurationList{}
	if err := c.listOf(ctx, everywhere, peer, list); err != nil {
		return err
	}
	item := api.Oldest(list.Items)
	if item == nil {
		return nil
	}
	if r := item.Spec.Remote; r != nil {
		into.Remote = cidrPair{Pod: r.CIDR.Pod, External: r.CIDR.External}
	}
	if r := item.Status.Remote; r != nil {
		into.Remapped = &cidrPair{Pod: r.CIDR.Pod, External: r.CIDR.External}
	}
	into.Unapproved = plan.UnapprovedCIDRs(item)
	return nil
}

func (c *cluster) inspectGateway(ctx context.Context, peer string, into *gatewayInfo) error {
	into.Address = []string{}
	servers, clients := &netv1beta1.GatewayServerList{}, &netv1beta1.GatewayClientList{}
	if err := c.listOf(ctx, everywhere, peer, servers); err != nil {
		return err
	}
	if err := c.listOf(ctx, everywhere, peer, clients); err != nil {
		return err
	}
	if g := api.Oldest(servers.Items); g != nil && g.Status.Endpoint != nil {
		*into = gatewayAt(*g.Status.Endpoint, netv1beta1.ConnectionTypeClient)
	}
	if g := api.Oldest(clients.Items); g != nil && g.Spec.Endpoint != nil {
		*into = gatewayAt(*g.Spec.Endpoint, netv1beta1.ConnectionTypeServer)
		into.Announced, into.client = plan.UnfollowedEndpoint(g), g
	}
	return nil
}

func gatewayAt(e netv1beta1.EndpointStatus, role netv1beta1.ConnectionType) gatewayInfo {
	info := gatewayInfo{Address: e.Addresses, Port: e.Port, Ports: e.Ports, Role: string(role)}
	if len(e.Ports) > 0 {
		info.Port = e.Ports[0]
	}
	return info
}

// ports are all ports as text.
func (g gatewayInfo) ports() string {
	if len(g.Ports) == 0 {
		return fmt.Sprint(g.Port)
	}
	return strings.Trim(fmt.Sprint(g.Ports), "[]")
}

// connection tells how the tunnel to a peer is; nil when there is none.
func (c *cluster) connection(ctx context.Context, peer string) (*connectionInfo, error) {
	list := &netv1beta1.ConnectionList{}
	if err := c.listOf(ctx, everywhere, peer, list); err != nil || len(list.Items) == 0 {
		return nil, err
	}
	status := api.Oldest(list.Items).Status
	info := &connectionInfo{Status: string(status.Value)}
	if status.Latency != nil {
		info.Latency = status.Latency.Value
	}
	for _, condition := range []string{"Ready", netv1beta1.ConnectionGatewayRunning} {
		told := meta.FindStatusCondition(status.Conditions, condition)
		if told != nil && (condition == "Ready" || told.Status == metav1.ConditionFalse) {
			info.Since = told.LastTransitionTime
		}
	}
	return info, nil
}

func (c *cluster) slices(ctx context.Context, peer string) ([]sliceInfo, error) {
	list := &authv1beta1.ResourceSliceList{}
	if err := c.listOf(ctx, everywhere, peer, list); err != nil {
		return nil, err
	}
	out := []sliceInfo{}
	for _, s := range list.Items {
		info := sliceInfo{Name: s.Name, Action: "Providing", Alerts: []string{}, Resources: s.Status.Resources}
		if s.Labels[api.LabelReplication] == api.True {
			info.Action = consuming
		}
		accepted, denied := 0, 0
		for _, condition := range s.Status.Conditions {
			bad := condition.Type == authv1beta1.ResourceSliceReplicated
			switch condition.Status {
			case authv1beta1.ResourceSliceAccepted:
				if identityplan.Outdated(&s, condition) {
					bad, condition.Message = true, "the changed request is not answered; "+condition.Message
				} else {
					accepted++
					bad = condition.Reason == authv1beta1.ReasonSliceCordoned && info.Action == consuming
				}
			case authv1beta1.ResourceSliceDenied:
				denied++
				bad = true
			}
			if bad {
				info.Alerts = append(info.Alerts, fmt.Sprintf("%s: %s", condition.Type, condition.Message))
			}
		}
		info.Accepted = accepted > 1
		if accepted+denied == 0 && len(info.Alerts) == 0 {
			info.Alerts = append(info.Alerts,
				strings.TrimSuffix("not answered yet; "+cmp.Or(saysOf(&s), c.eventOf(ctx, &s)), "; "))
		}
		if s.Annotations[api.AnnotationCordon] == api.True {
			info.Alerts = append(info.Alerts, fmt.Sprintf("cordoned by an administrator here; '%s uncordon "+
				"resourceslice %s --remote-cluster-id %s' undoes it", c.env.name, s.Name, peer))
		}
		out = append(out, info)
	}
	return out, nil
}

func (c *cluster) virtualNodes(ctx context.Context, peer string) ([]nodeInfo, error) {
	list := &offv1beta1.VirtualNodeList{}
	if err := c.listOf(ctx, everywhere, peer, list); err != nil {
		return nil, err
	}
	out := []nodeInfo{}
	for _, v := range list.Items {
		info := nodeInfo{Name: v.Name, Status: unhealthy, ResourceSlice: v.Labels[api.LabelResourceSliceName],
			Resources: v.Spec.ResourceQuota.Hard}
		if v.Spec.KubeconfigSecretRef != nil {
			info.Secret = v.Spec.KubeconfigSecretRef.Name
		}
		ready, err := c.nodeWell(ctx, &v)
		if err != nil {
			return nil, err
		}
		if ready {
			info.Status = healthy
		}
		out = append(out, info)
	}
	return out, nil
}

// nodeWell tells whether the Node of a virtual node is Ready; one that has none is as its kubelet.
func (c *cluster) nodeWell(ctx context.Context, v *offv1beta1.VirtualNode) (bool, error) {
	if !wantsNode(v) {
		kubelet := virtualKubelet(v.Namespace, v.Name)
		err := c.Get(ctx, client.ObjectKeyFromObject(kubelet), kubelet)
		return kubelet.Status.ReadyReplicas > 0, c.describe("read", kubelet, client.IgnoreNotFound(err))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: v.Name}}
	err := c.Get(ctx, client.ObjectKeyFromObject(node), node)
	return nodeReady(node), c.describe("read", node, client.IgnoreNotFound(err))
}

func nodeReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// peerBoxes are the boxes of one peer.
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

// addGateway adds what is known of the tunnel's server; nothing before there is one.
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

// addUnapproved adds the ranges that wait for an administrator, and how to approve them.
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
