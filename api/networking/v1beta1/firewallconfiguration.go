// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FirewallFamily is the address family of a table, upper case.
// +kubebuilder:validation:Enum=INET;IPV4;IPV6;ARP;NETDEV;BRIDGE
type FirewallFamily string

// Address families.
const (
	FamilyINET   FirewallFamily = "INET"
	FamilyIPV4   FirewallFamily = "IPV4"
	FamilyIPV6   FirewallFamily = "IPV6"
	FamilyARP    FirewallFamily = "ARP"
	FamilyNETDEV FirewallFamily = "NETDEV"
	FamilyBRIDGE FirewallFamily = "BRIDGE"
)

// ChainType decides which rules a chain may hold.
// +kubebuilder:validation:Enum=filter;route;nat
type ChainType string

// Types of chains.
const (
	ChainTypeFilter ChainType = "filter"
	ChainTypeRoute  ChainType = "route"
	ChainTypeNAT    ChainType = "nat"
)

// ChainHook is where in the kernel a chain is called.
// +kubebuilder:validation:Enum=prerouting;input;forward;output;postrouting;ingress
type ChainHook string

// Hooks.
const (
	HookPrerouting  ChainHook = "prerouting"
	HookInput       ChainHook = "input"
	HookForward     ChainHook = "forward"
	HookOutput      ChainHook = "output"
	HookPostrouting ChainHook = "postrouting"
	HookIngress     ChainHook = "ingress"
)

// ChainPolicy is the verdict when no rule matches.
// +kubebuilder:validation:Enum=drop;accept
type ChainPolicy string

// Policies.
const (
	PolicyDrop   ChainPolicy = "drop"
	PolicyAccept ChainPolicy = "accept"
)

// FilterAction is the action of a filter rule.
// +kubebuilder:validation:Enum=ctmark;metamarkfromctmark;tcpmssclamp;accept;drop;reject;notrack
type FilterAction string

// Actions.
const (
	// ActionCtMark sets the connection's mark to Value.
	ActionCtMark FilterAction = "ctmark"
	// ActionMetaMarkFromCtMark copies the connection's mark to the packet.
	ActionMetaMarkFromCtMark FilterAction = "metamarkfromctmark"
	// ActionTCPMSSClamp lowers the TCP MSS to Value; empty = to the MTU of the route.
	ActionTCPMSSClamp FilterAction = "tcpmssclamp"
	// ActionAccept lets the packet pass.
	ActionAccept FilterAction = "accept"
	// ActionDrop drops the packet.
	ActionDrop FilterAction = "drop"
	// ActionReject drops the packet and says so to the sender.
	ActionReject FilterAction = "reject"
	// ActionNoTrack keeps the packet out of connection tracking.
	ActionNoTrack FilterAction = "notrack"
)

// NATType is which address a NAT rule changes.
// +kubebuilder:validation:Enum=dnat;snat;masquerade
type NATType string

// Types of address changes.
const (
	// NATTypeDNAT changes the destination to To.
	NATTypeDNAT NATType = "dnat"
	// NATTypeSNAT changes the source to To.
	NATTypeSNAT NATType = "snat"
	// NATTypeMasquerade changes the source to the address of the output device.
	NATTypeMasquerade NATType = "masquerade"
)

// MatchOperation compares a packet with a value.
// +kubebuilder:validation:Enum=eq;neq
type MatchOperation string

// Comparisons.
const (
	MatchEqual    MatchOperation = "eq"
	MatchNotEqual MatchOperation = "neq"
)

// MatchPosition is the side of a packet that is compared.
// +kubebuilder:validation:Enum=src;dst
type MatchPosition string

// Sides of a packet.
const (
	PositionSrc MatchPosition = "src"
	PositionDst MatchPosition = "dst"
)

// DevPosition is the device that is compared.
// +kubebuilder:validation:Enum=in;out
type DevPosition string

// Devices of a packet.
const (
	PositionIn  DevPosition = "in"
	PositionOut DevPosition = "out"
)

// L4Protocol is a transport protocol.
// +kubebuilder:validation:Enum=tcp;udp
type L4Protocol string

// Transport protocols.
const (
	L4ProtocolTCP L4Protocol = "tcp"
	L4ProtocolUDP L4Protocol = "udp"
)

// MatchIP compares an address.
type MatchIP struct {
	// Value is an address, a CIDR, or an ascending range a-b.
	// 91 = two IPv6 addresses of 45 characters and a dash.
	// +kubebuilder:validation:MaxLength=91
	// +kubebuilder:validation:XValidation:rule="isIP(self) || isCIDR(self) || (self.contains('-') && isIP(self.substring(0, self.indexOf('-'))) && isIP(self.substring(self.indexOf('-') + 1)))",message="must be an IP address, a CIDR, or a range of addresses a-b"
	Value string `json:"value"`
	// Position is the side compared.
	Position MatchPosition `json:"position"`
}

// MatchPort compares a port of TCP or UDP.
type MatchPort struct {
	// Value is a port or an ascending range a-b.
	// +kubebuilder:validation:Pattern=`^[0-9]{1,5}(-[0-9]{1,5})?$`
	Value string `json:"value"`
	// Position is the side compared.
	Position MatchPosition `json:"position"`
}

// MatchProto compares the transport protocol.
type MatchProto struct {
	// Value is the protocol.
	Value L4Protocol `json:"value"`
}

// MatchDev compares a device.
type MatchDev struct {
	// Value is the name of the device.
	// +kubebuilder:validation:MaxLength=16
	Value string `json:"value"`
	// Position is the device compared.
	Position DevPosition `json:"position"`
}

// Match is one test of a packet; all that is set must hold.
type Match struct {
	// Op says whether the values must be equal or differ.
	Op MatchOperation `json:"op"`
	// IP compares an address; nil = any.
	// +optional
	IP *MatchIP `json:"ip,omitempty"`
	// Port compares a port; nil = any.
	// +optional
	Port *MatchPort `json:"port,omitempty"`
	// Proto compares the transport protocol; nil = any.
	// +optional
	Proto *MatchProto `json:"proto,omitempty"`
	// Dev compares a device; nil = any.
	// +optional
	Dev *MatchDev `json:"dev,omitempty"`
}

// FilterRule is one rule of a filter chain.
// +kubebuilder:validation:XValidation:rule="self.action != 'tcpmssclamp' || self.match.exists(m, m.op == 'eq' && has(m.proto) && m.proto.value == 'tcp')",message="action tcpmssclamp needs a match of protocol tcp"
type FilterRule struct {
	// Name is unique in the chain; empty = the controller names it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name,omitempty"`
	// Match lists the tests; all must hold.
	// +kubebuilder:validation:MaxItems=8
	Match []Match `json:"match"`
	// Action applies to each matching packet.
	Action FilterAction `json:"action"`
	// Value is the argument: the mark for ctmark, the MSS in bytes for tcpmssclamp.
	// +optional
	Value string `json:"value,omitempty"`
	// Counter counts packets and bytes.
	// +kubebuilder:default=true
	Counter bool `json:"counter"`
}

// NATRule is one rule of a nat chain.
// +kubebuilder:validation:XValidation:rule="self.natType == 'masquerade' || self.?to.orValue(\"\") != \"\"",message="to is required for dnat and snat"
// +kubebuilder:validation:XValidation:rule="self.natType != 'masquerade' || self.?to.orValue(\"\") == \"\"",message="to is forbidden for masquerade"
type NATRule struct {
	// Name is unique in the chain; empty = the controller names it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name,omitempty"`
	// Match lists the tests; all must hold.
	// +kubebuilder:validation:MaxItems=8
	Match []Match `json:"match"`
	// NATType is which address changes.
	NATType NATType `json:"natType"`
	// To is the new address for dnat and snat; forbidden with masquerade.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	To string `json:"to,omitempty"`
	// TargetRef tells people what the rule is for; nothing follows from it.
	// +optional
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`
}

// RouteChainRule is one rule of a route chain.
type RouteChainRule struct {
	// Name is unique in the chain; empty = the controller names it.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name,omitempty"`
}

// FirewallRules are the rules of a chain; only the list of the chain's type may be used.
type FirewallRules struct {
	// FilterRules are the rules of a filter chain.
	// +optional
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.all(a, a.?name.orValue(\"\") == \"\" || self.exists_one(b, b.?name.orValue(\"\") == a.name))",message="names of rules must be unique in their chain"
	FilterRules []FilterRule `json:"filterRules,omitempty"`
	// NATRules are the rules of a nat chain.
	// +optional
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.all(a, a.?name.orValue(\"\") == \"\" || self.exists_one(b, b.?name.orValue(\"\") == a.name))",message="names of rules must be unique in their chain"
	NATRules []NATRule `json:"natRules,omitempty"`
	// RouteRules are the rules of a route chain.
	// +optional
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.all(a, a.?name.orValue(\"\") == \"\" || self.exists_one(b, b.?name.orValue(\"\") == a.name))",message="names of rules must be unique in their chain"
	RouteRules []RouteChainRule `json:"routeRules,omitempty"`
}

// FirewallChain is one base chain.
// +kubebuilder:validation:XValidation:rule="self.type == 'filter' || self.rules.?filterRules.orValue([]).size() == 0",message="only a chain of type filter may have filterRules"
// +kubebuilder:validation:XValidation:rule="self.type == 'nat' || self.rules.?natRules.orValue([]).size() == 0",message="only a chain of type nat may have natRules"
// +kubebuilder:validation:XValidation:rule="self.type == 'route' || self.rules.?routeRules.orValue([]).size() == 0",message="only a chain of type route may have routeRules"
// +kubebuilder:validation:XValidation:rule="self.hook in ['prerouting', 'output'] || !has(self.rules.natRules) || self.rules.natRules.all(r, r.natType != 'dnat')",message="dnat is possible only in the hooks prerouting and output"
// +kubebuilder:validation:XValidation:rule="self.hook in ['postrouting', 'input'] || !has(self.rules.natRules) || self.rules.natRules.all(r, r.natType == 'dnat')",message="snat and masquerade are possible only in the hooks postrouting and input"
type FirewallChain struct {
	// Name is unique in the table.
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`
	// Type decides which rules the chain may hold.
	Type ChainType `json:"type"`
	// Hook is where the chain is called.
	Hook ChainHook `json:"hook"`
	// Priority orders the chains of one hook, low first (nftables numbers).
	// +kubebuilder:default=0
	Priority int32 `json:"priority"`
	// Policy is the verdict when no rule matches.
	Policy ChainPolicy `json:"policy"`
	// Rules are the rules, in order.
	Rules FirewallRules `json:"rules"`
}

// FirewallTable is one nftables table. What a chain may be depends on the family:
//
//	family    filter                            nat                         route
//	INET      all hooks but forward             prerouting, input,          output
//	IPV4      all hooks but ingress             output, postrouting
//	IPV6      all hooks but ingress, forward    (all three families)
//	ARP       input, output                     -                           -
//	BRIDGE    all hooks but ingress             -                           -
//	NETDEV    ingress                           -                           -
//
// +kubebuilder:validation:XValidation:rule="!has(self.chains) || self.chains.all(c, c.type != 'filter' || c.hook in {'INET': ['prerouting', 'input', 'output', 'postrouting', 'ingress'], 'IPV4': ['prerouting', 'input', 'forward', 'output', 'postrouting'], 'IPV6': ['prerouting', 'input', 'output', 'postrouting'], 'ARP': ['input', 'output'], 'BRIDGE': ['prerouting', 'input', 'forward', 'output', 'postrouting'], 'NETDEV': ['ingress']}[self.family])",message="the family of the table has no such hook for filter chains"
// +kubebuilder:validation:XValidation:rule="!has(self.chains) || self.chains.all(c, c.type != 'nat' || (self.family in ['INET', 'IPV4', 'IPV6'] && c.hook in ['prerouting', 'input', 'output', 'postrouting']))",message="nat chains need family INET, IPV4 or IPV6 and hook prerouting, input, output or postrouting"
// +kubebuilder:validation:XValidation:rule="!has(self.chains) || self.chains.all(c, c.type != 'route' || (self.family in ['INET', 'IPV4', 'IPV6'] && c.hook == 'output'))",message="route chains need family INET, IPV4 or IPV6 and hook output"
type FirewallTable struct {
	// Name of the table. It never changes.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the name of the table is immutable"
	Name string `json:"name"`
	// Family is the address family.
	Family FirewallFamily `json:"family"`
	// Chains are the base chains.
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	Chains []FirewallChain `json:"chains,omitempty"`
}

// FirewallConfigurationSpec is firewall content; written by a user.
type FirewallConfigurationSpec struct {
	// Table is the content.
	Table FirewallTable `json:"table"`
}

// HostConditionType names a result on one host.
type HostConditionType string

// What can happen to a content on one host.
const (
	// HostApplied: the host carries the content.
	HostApplied HostConditionType = "Applied"
	// HostError: the host could not take the content.
	HostError HostConditionType = "Error"
)

// HostCondition reports a result on one host; written by that host.
type HostCondition struct {
	// Host is the node or gateway pod.
	Host string `json:"host"`
	// Type names the result.
	Type HostConditionType `json:"type"`
	// Status is True or False.
	Status metav1.ConditionStatus `json:"status"`
	// LastTransitionTime is when Status changed last.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Message names what could not be taken and why; the rest acts.
	// +optional
	Message string `json:"message,omitempty"`
}

// FirewallConfigurationStatus is written by the hosts that apply the content.
type FirewallConfigurationStatus struct {
	// Conditions hold what happened, by host.
	// +optional
	// +listType=map
	// +listMapKey=host
	// +listMapKey=type
	Conditions []HostCondition `json:"conditions,omitempty"`
}

// FirewallConfiguration is nftables content for gateways or nodes, chosen by the labels
// networking.liqo.io/firewall-category, -subcategory and -unique.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=firewallconfigurations,singular=firewallconfiguration,categories=liqo,shortName=fw;fwconfig;fwcfg
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type FirewallConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the content.
	// +optional
	Spec FirewallConfigurationSpec `json:"spec,omitzero"`
	// Status reports the results.
	// +optional
	Status FirewallConfigurationStatus `json:"status,omitzero"`
}

// FirewallConfigurationList is a list of FirewallConfiguration.
// +kubebuilder:object:root=true
type FirewallConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []FirewallConfiguration `json:"items"`
}
