// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// ConfigurationInput holds the input of Configuration.
type ConfigurationInput struct {
	Root *netv1beta1.Configuration
	// Configurations are the peer's; others are ignored.
	Configurations []netv1beta1.Configuration
	// Networks are those of the root's namespace, the peer's made from the root among them, and this
	// cluster's.
	Networks []ipamv1alpha1.Network
	// UnknownSource is the root's IP of that name; nil when absent.
	UnknownSource *ipamv1alpha1.IP
	// LiqoNamespace holds this cluster's own Networks.
	LiqoNamespace string
	// UsersLocal reports whether a user wrote spec.local.
	UsersLocal bool
	// Now is the transition time of conditions that change.
	Now time.Time
}

// Configuration plans a Network for every CIDR of the peer, reports the CIDRs they are remapped to,
// and fills in this cluster's own CIDRs for the peer to read.
func Configuration(in ConfigurationInput) desired.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	if root.Labels[api.LabelRemoteClusterID] == "" {
		return desired.Block("PeerMissing", "the peer is not named; add the label %s", api.LabelRemoteClusterID)
	}
	for i := range in.Configurations {
		if c := &in.Configurations[i]; samePeer(c, root) && api.Older(c, root) {
			return desired.Block("DuplicateConfiguration",
				"Configuration %s/%s is already there for this peer; delete one of the two", c.Namespace, c.Name)
		}
	}
	remote, err := remoteCIDRs(root)
	if err != nil {
		return desired.Block("InvalidCIDR", "spec.remote.cidr: %v; correct it", err)
	}
	if kind := tooLarge(remote); kind != "" {
		return desired.Block("CIDRsTooLarge",
			"the peer's %s CIDRs hold more addresses than a /%d, which would leave too few for other peers; what was "+
				"granted before stays; let the peer announce smaller ones", kind, widest)
	}
	if stale := in.stale(remote); len(stale) > 0 {
		return in.shrink(remote, stale)
	}
	return in.grow(remote)
}

// shrink deletes Networks of CIDRs that are no longer announced before others are created, so that
// their ranges are free again.
func (in ConfigurationInput) shrink(remote []remoteCIDR, stale []desired.Object) desired.Plan {
	plan := desired.Wait("NetworksChanging", "Networks of CIDRs that are no longer announced, or were approved "+
		"since, are going; wait")
	plan.Actions = desired.Deletes(stale...)
	for _, r := range remote {
		if in.granted(r) != "" {
			plan.Objects = append(plan.Objects, in.network(r))
		}
	}
	plan.Status = in.status(remote, false)
	return plan
}

// grow plans a Network for each CIDR and reports the granted ones.
func (in ConfigurationInput) grow(remote []remoteCIDR) desired.Plan {
	var plan desired.Plan
	complete := true
	for _, r := range remote {
		plan.Objects = append(plan.Objects, in.network(r))
		complete = complete && in.granted(r) != ""
		if plan.State == desired.Ready {
			plan.Verdict = in.trouble(r)
		}
	}
	plan.Status = in.status(remote, complete)
	if filled := in.filled(); filled != nil {
		plan.Fill = filled
	} else if plan.State == desired.Ready {
		plan.Verdict = desired.Wait("OwnCIDRsPending",
			"this cluster's own Networks in namespace %s have no CIDR yet; see their conditions",
			in.LiqoNamespace).Verdict
	}
	if complete {
		in.addUnknownSource(&plan)
	}
	return plan
}

// trouble returns the verdict of a CIDR's Network; Ready = no problem.
func (in ConfigurationInput) trouble(r remoteCIDR) desired.Verdict {
	name := in.networkName(r)
	for i := range in.Networks {
		n := &in.Networks[i]
		c := meta.FindStatusCondition(n.Status.Conditions, desired.ConditionReady)
		if n.Namespace == in.Root.Namespace && n.Name == name && c != nil && c.Status != metav1.ConditionTrue {
			return desired.Wait(c.Reason, "Network %s, of the peer's %s, says: %s", name, r.cidr, c.Message).Verdict
		}
	}
	if in.granted(r) != "" {
		return desired.Verdict{}
	}
	return desired.Wait("NetworksPending", "%s is granted no CIDR yet; see the conditions of Network %s", r.cidr,
		name).Verdict
}

// remoteCIDR is one CIDR the peer announces.
type remoteCIDR struct {
	cidr netip.Prefix
	// kind is the value of the CIDR-type label.
	kind string
}

// remoteCIDRs reads the peer's CIDRs, pods first, in their order. They must not overlap.
func remoteCIDRs(c *netv1beta1.Configuration) ([]remoteCIDR, error) {
	if c.Spec.Remote == nil || len(c.Spec.Remote.CIDR.Pod) == 0 {
		return nil, fmt.Errorf("no pod CIDR is given")
	}
	var list []remoteCIDR
	add := func(kind string, cidrs []string) error {
		for _, s := range cidrs {
			p, err := netip.ParsePrefix(s)
			if err != nil {
				return fmt.Errorf("%q is not a CIDR", s)
			}
			for _, other := range list {
				if other.cidr.Overlaps(p) {
					return fmt.Errorf("%s and %s overlap", other.cidr, p)
				}
			}
			list = append(list, remoteCIDR{p.Masked(), kind})
		}
		return nil
	}
	if err := add(api.CIDRTypePod, c.Spec.Remote.CIDR.Pod); err != nil {
		return nil, err
	}
	return list, add(api.CIDRTypeExternal, c.Spec.Remote.CIDR.External)
}

// widest is the prefix length that bounds the total size of a peer's CIDRs of one kind. The largest
// clusters, 15 000 nodes with a /24 each, need a /10. Peers announce CIDRs themselves, so a
// compromised one could take the whole space. IPv6 space is not limited.
const widest = 10

// tooLarge returns the first kind of CIDR whose sum is too large; empty = none.
func tooLarge(remote []remoteCIDR) string {
	sum := map[string]uint64{}
	for _, r := range remote {
		if r.cidr.Addr().Is4() {
			sum[r.kind] += 1 << (32 - r.cidr.Bits())
		}
		if sum[r.kind] > 1<<(32-widest) {
			return r.kind
		}
	}
	return ""
}

// agreed returns the CIDRs that the peer announced first. If they are not recorded yet, it returns
// all: this is the first agreement, or one of a version that did not record them.
func agreed(c *netv1beta1.Configuration) []string {
	if c.Status.AgreedCIDRs != nil || c.Spec.Remote == nil {
		return c.Status.AgreedCIDRs
	}
	return slices.Concat(c.Spec.Remote.CIDR.Pod, c.Spec.Remote.CIDR.External)
}

// UnapprovedCIDRs returns the CIDRs that the peer announced after the peering was agreed, and that
// nobody in this cluster has approved. They are always remapped.
func UnapprovedCIDRs(c *netv1beta1.Configuration) []string {
	remote, _ := remoteCIDRs(c)
	var out []string
	for _, r := range remote {
		if !approved(c, r.cidr) {
			out = append(out, r.cidr.String())
		}
	}
	return out
}

func approved(c *netv1beta1.Configuration, cidr netip.Prefix) bool {
	list := append(strings.Split(c.Annotations[api.AnnotationApprovedCIDRs], ","), agreed(c)...)
	return slices.ContainsFunc(list, func(text string) bool {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		return err == nil && p.Masked() == cidr
	})
}

// networkName returns "<configuration>-<kind>-<cidr>", with the CIDR written with dashes.
func (in ConfigurationInput) networkName(r remoteCIDR) string {
	cidr := strings.NewReplacer(".", "-", "/", "-", ":", "-").Replace(r.cidr.String())
	return in.Root.Name + "-" + r.kind + "-" + cidr
}

func (in ConfigurationInput) network(r remoteCIDR) *ipamv1alpha1.Network {
	n := &ipamv1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{
			Name: in.networkName(r), Namespace: in.Root.Namespace,
			Labels: map[string]string{
				api.LabelCIDRType:        r.kind,
				api.LabelRemoteClusterID: in.Root.Labels[api.LabelRemoteClusterID],
			},
		},
		Spec: ipamv1alpha1.NetworkSpec{CIDR: r.cidr.String()},
	}
	if !approved(in.Root, r.cidr) {
		n.Labels[api.LabelNetworkRemapped] = "true"
	}
	return n
}

// isCurrent reports whether n is the Network of r, and not one made before r was approved.
func (in ConfigurationInput) isCurrent(n *ipamv1alpha1.Network, r remoteCIDR) bool {
	return n.Name == in.networkName(r) && (n.Labels[api.LabelNetworkRemapped] != "true" || !approved(in.Root, r.cidr))
}

// granted returns the CIDR that r is remapped to; empty when none is granted yet.
func (in ConfigurationInput) granted(r remoteCIDR) string {
	for i := range in.Networks {
		n := &in.Networks[i]
		if n.Namespace == in.Root.Namespace && in.isCurrent(n, r) && n.DeletionTimestamp == nil {
			return n.Status.CIDR
		}
	}
	return ""
}

// stale returns the root's Networks for CIDRs the peer no longer announces, and those of CIDRs
// approved since.
func (in ConfigurationInput) stale(remote []remoteCIDR) []desired.Object {
	var list []desired.Object
	for i := range in.Networks {
		n := &in.Networks[i]
		wanted := slices.ContainsFunc(remote, func(r remoteCIDR) bool { return in.isCurrent(n, r) })
		if metav1.IsControlledBy(n, in.Root) && !wanted {
			list = append(list, n)
		}
	}
	return list
}

// status reports the granted CIDRs, in the order of spec.remote. A CIDR without a grant does not
// affect others.
func (in ConfigurationInput) status(remote []remoteCIDR, complete bool) *netv1beta1.Configuration {
	local := &netv1beta1.ClusterConfig{}
	var views []netv1beta1.CIDRView
	for _, r := range remote {
		cidr := in.granted(r)
		switch {
		case cidr == "":
			continue
		case r.kind == api.CIDRTypePod:
			local.CIDR.Pod = append(local.CIDR.Pod, cidr)
		default:
			local.CIDR.External = append(local.CIDR.External, cidr)
		}
		views = append(views, netv1beta1.CIDRView{CIDR: r.cidr.String(), SeenAs: cidr})
	}
	c := metav1.Condition{
		Type: netv1beta1.NetworkCIDRsConfigured, Status: metav1.ConditionFalse,
		Reason: netv1beta1.ReasonWaitingForNetworks, Message: "not every CIDR of the peer is granted yet",
		ObservedGeneration: in.Root.Generation,
	}
	if complete {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, netv1beta1.ReasonNetworkCIDRsConfigured,
			"every CIDR of the peer is granted"
	}
	return &netv1beta1.Configuration{Status: netv1beta1.ConfigurationStatus{
		Remote:      local,
		Views:       views,
		AgreedCIDRs: agreed(in.Root),
		Conditions:  []metav1.Condition{stamped(in.Root.Status.Conditions, c, in.Now)},
	}}
}

// filled returns the root with this cluster's own CIDRs, including those added later; nil while
// they are not known. Values of the user are kept.
func (in ConfigurationInput) filled() *netv1beta1.Configuration {
	out := in.Root.DeepCopy()
	l := out.Spec.Local
	given := l != nil && (len(l.CIDR.Pod) > 0 || len(l.CIDR.External) > 0)
	pod, external := in.own(api.NetworkPodCIDR), in.own(api.NetworkExternalCIDR)
	switch known := len(pod) > 0 && len(external) > 0; {
	case given && (in.UsersLocal || !known):
		return out
	case !known:
		return nil
	}
	out.Spec.Local = &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: pod, External: external}}
	return out
}

// own returns the CIDRs granted to this cluster's Networks of one type, sorted by name; none while
// one of them has no grant.
func (in ConfigurationInput) own(networkType string) []string {
	var list []*ipamv1alpha1.Network
	for i := range in.Networks {
		if n := &in.Networks[i]; n.Namespace == in.LiqoNamespace && ofType(n, networkType) {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b *ipamv1alpha1.Network) int { return strings.Compare(a.Name, b.Name) })
	var cidrs []string
	for _, n := range list {
		if n.Status.CIDR == "" {
			return nil
		}
		cidrs = append(cidrs, n.Status.CIDR)
	}
	return cidrs
}

// addUnknownSource requests the first address of the peer's remapped external CIDR. It is the
// source of the peer's traffic from outside its CIDRs, such as from its nodes.
func (in ConfigurationInput) addUnknownSource(plan *desired.Plan) {
	external := plan.Status.(*netv1beta1.Configuration).Status.Remote.CIDR.External
	if len(external) == 0 {
		return
	}
	p, err := netip.ParsePrefix(external[0])
	if err != nil {
		return
	}
	if in.UnknownSource != nil && in.UnknownSource.Spec.IP != kernel.First(p).String() {
		plan.Actions = append(plan.Actions, desired.Deletes(in.UnknownSource)...)
		plan.Verdict = desired.Wait("UnknownSourceChanging",
			"the IP for unknown sources is being replaced; wait").Verdict
		return
	}
	plan.Objects = append(plan.Objects, &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{
			Name: api.UnknownSourceIPName(in.Root.Name), Namespace: in.Root.Namespace,
			Labels: map[string]string{api.LabelRemoteClusterID: in.Root.Labels[api.LabelRemoteClusterID]},
		},
		Spec: ipamv1alpha1.IPSpec{IP: kernel.First(p).String()},
	})
}

// samePeer reports whether two objects carry the same peer's ID.
func samePeer(a, b metav1.Object) bool {
	peer := a.GetLabels()[api.LabelRemoteClusterID]
	return peer != "" && peer == b.GetLabels()[api.LabelRemoteClusterID]
}

// ofType reports whether a Network of the Liqo namespace is of a type, by label or by name.
func ofType(n *ipamv1alpha1.Network, networkType string) bool {
	return n.Labels[api.LabelNetworkType] == networkType || n.Name == networkType
}

// stamped sets a condition's transition time: now, or the old time if its status is the same.
func stamped(before []metav1.Condition, c metav1.Condition, now time.Time) metav1.Condition {
	c.LastTransitionTime = metav1.NewTime(now)
	if old := meta.FindStatusCondition(before, c.Type); old != nil && old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	return c
}
