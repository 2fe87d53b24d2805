// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RouteScope is the scope of a route.
// +kubebuilder:validation:Enum=global;link;host;site;nowhere
type RouteScope string

// Scopes of routes.
const (
	ScopeGlobal  RouteScope = "global"
	ScopeLink    RouteScope = "link"
	ScopeHost    RouteScope = "host"
	ScopeSite    RouteScope = "site"
	ScopeNowhere RouteScope = "nowhere"
)

// Route is one route of a table.
type Route struct {
	// Dst is the destination, unique in the rule.
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be a CIDR"
	Dst string `json:"dst"`
	// Src is the preferred source; empty = the kernel's choice.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
	Src string `json:"src,omitempty"`
	// Gw is the next hop; empty = directly on Dev.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
	Gw string `json:"gw,omitempty"`
	// Dev is the output device; empty = the kernel's choice.
	// +optional
	Dev string `json:"dev,omitempty"`
	// Onlink treats the next hop as reachable on Dev.
	// +optional
	Onlink bool `json:"onlink,omitempty"`
	// Scope of the route; empty = global with a next hop, else link.
	// +optional
	Scope RouteScope `json:"scope,omitempty"`
	// TargetRef tells people what the route is for; nothing follows from it.
	// +optional
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`
}

// RouteRule is one policy rule that leads to the table.
type RouteRule struct {
	// Src selects by source; empty = any.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be a CIDR"
	Src string `json:"src,omitempty"`
	// Dst selects by destination; empty = any.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be a CIDR"
	Dst string `json:"dst,omitempty"`
	// Iif selects by input device; empty = any.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	Iif string `json:"iif,omitempty"`
	// Oif selects by output device; empty = any.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	Oif string `json:"oif,omitempty"`
	// Fwmark selects by packet mark; 0 = any.
	// +optional
	Fwmark int `json:"fwmark,omitempty"`
	// Priority orders rules, low first; 0 = 89, just before the rule of peerings (90).
	// +optional
	Priority int `json:"priority,omitempty"`
	// Routes are installed in the table.
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=dst
	Routes []Route `json:"routes"`
	// TargetRef tells people what the rule is for; nothing follows from it.
	// +optional
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`
}

// RouteTable is one policy routing table.
type RouteTable struct {
	// Name is mapped to the number of the table. It never changes.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the name of the table is immutable"
	Name string `json:"name"`
	// Rules lead to the table.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, has(a.src) == has(b.src) && (!has(a.src) || a.src == b.src) && has(a.dst) == has(b.dst) && (!has(a.dst) || a.dst == b.dst) && has(a.iif) == has(b.iif) && (!has(a.iif) || a.iif == b.iif) && has(a.oif) == has(b.oif) && (!has(a.oif) || a.oif == b.oif) && has(a.fwmark) == has(b.fwmark) && (!has(a.fwmark) || a.fwmark == b.fwmark)))",message="no two rules may have the same src, dst, iif, oif and fwmark"
	Rules []RouteRule `json:"rules"`
	// TargetRef tells people what the table is for; nothing follows from it.
	// +optional
	TargetRef *corev1.ObjectReference `json:"targetRef,omitempty"`
}

// RouteConfigurationSpec is routing content; written by a user.
type RouteConfigurationSpec struct {
	// Table is the content.
	// +optional
	Table *RouteTable `json:"table,omitempty"`
}

// RouteConfigurationStatus is written by the hosts that apply the content.
type RouteConfigurationStatus struct {
	// Conditions hold what happened, by host.
	// +optional
	// +listType=map
	// +listMapKey=host
	// +listMapKey=type
	Conditions []HostCondition `json:"conditions,omitempty"`
}

// RouteConfiguration is policy routing for gateways or nodes, chosen by the labels
// networking.liqo.io/route-category, -subcategory and -unique.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=routeconfigurations,singular=routeconfiguration,categories=liqo,shortName=rcnf;rcnfg;rcfg;routecfg
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RouteConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the content.
	// +optional
	Spec RouteConfigurationSpec `json:"spec,omitzero"`
	// Status reports the results.
	// +optional
	Status RouteConfigurationStatus `json:"status,omitzero"`
}

// RouteConfigurationList is a list of RouteConfiguration.
// +kubebuilder:object:root=true
type RouteConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []RouteConfiguration `json:"items"`
}
