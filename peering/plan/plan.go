// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan computes the status of a peer's ForeignCluster from the objects of the other rooms.
// It is pure, and plans nothing else.
//
// Start reading at ForeignCluster, then the file of a module.
package plan

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// Input holds everything in this cluster that concerns one peer.
type Input struct {
	Root *corev1beta1.ForeignCluster
	// Modules are those installed in this cluster.
	Modules Modules
	// Namespaces are the peer's tenant namespaces.
	Namespaces     []corev1.Namespace
	Configurations []netv1beta1.Configuration
	Connections    []netv1beta1.Connection
	GatewayServers []netv1beta1.GatewayServer
	GatewayClients []netv1beta1.GatewayClient
	Tenants        []authv1beta1.Tenant
	Identities     []authv1beta1.Identity
	// Secrets hold the kubeconfigs of this cluster's control plane at the peer; see Kubeconfigs.
	Secrets      []corev1.Secret
	VirtualNodes []offv1beta1.VirtualNode
	// Nodes are the virtual nodes of the peer.
	Nodes []corev1.Node
	// Deployments holds those that Workloads names and that exist.
	Deployments map[types.NamespacedName]*appsv1.Deployment
	// Probe is the last check of the peer's API server; nil = none.
	Probe *Probe
	Now   time.Time
}

// Modules says which modules are installed.
type Modules struct{ Networking, Authentication, Offloading bool }

// Probe is the outcome of one check of a peer's API server.
type Probe struct {
	Alive bool
	// Message says what went wrong.
	Message string
}

// ForeignCluster plans the status of one peer. The object is not deleted when the last module is no
// longer in use: its role becomes Unknown.
func ForeignCluster(in Input) desired.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	status := in.status()
	plan := desired.Plan{Verdict: verdict(status), Status: &corev1beta1.ForeignCluster{Status: status}}
	if root.Labels[api.LabelRemoteClusterID] != root.Spec.ClusterID {
		filled := root.DeepCopy()
		metav1.SetMetaDataLabel(&filled.ObjectMeta, api.LabelRemoteClusterID, root.Spec.ClusterID)
		plan.Fill = filled
	}
	return plan
}

func (in Input) status() corev1beta1.ForeignClusterStatus {
	status := corev1beta1.ForeignClusterStatus{
		Role:               in.role(),
		Modules:            &corev1beta1.Modules{},
		ObservedGeneration: in.Root.Generation,
		TenantNamespace:    in.tenantNamespace(),
	}
	if status.APIServerURL, status.ForeignProxyURL = in.apiServer(); status.APIServerURL != "" {
		status.Conditions = in.since(in.Root.Status.Conditions, in.apiServerStatus())
	}
	before := corev1beta1.Modules{}
	if in.Root.Status.Modules != nil {
		before = *in.Root.Status.Modules
	}
	if in.Modules.Networking {
		status.Modules.Networking = in.module(before.Networking, in.networking())
	}
	if in.Modules.Authentication {
		status.Modules.Authentication = in.module(before.Authentication, in.authentication())
	}
	if in.Modules.Offloading {
		status.Modules.Offloading = in.module(before.Offloading, in.offloading())
	}
	return status
}

// verdict returns Waiting with the first condition that is not fulfilled, Ready if all are.
func verdict(s corev1beta1.ForeignClusterStatus) desired.Verdict {
	network, authentication, offloading := s.Modules.Networking, s.Modules.Authentication, s.Modules.Offloading
	used := network.Enabled || authentication.Enabled || offloading.Enabled
	if !used && s.Role == corev1beta1.RoleUnknown {
		return desired.Wait("NotPeered", "no module is in use with this peer; run 'liqoctl peer'").Verdict
	}
	conditions := slices.Concat(s.Conditions, network.Conditions, authentication.Conditions, offloading.Conditions)
	for _, c := range conditions {
		if c.Status != corev1beta1.ConditionReady && c.Status != corev1beta1.ConditionEstablished {
			return desired.Wait(c.Reason, "%s", c.Message).Verdict
		}
	}
	return desired.Verdict{}
}

// Kubeconfigs returns the Secrets that are in one of the peer's tenant namespaces: users or peers
// may have created the others. Those of Identities come first.
func Kubeconfigs(secrets []corev1.Secret, tenantNamespaces []corev1.Namespace) []corev1.Secret {
	out := slices.DeleteFunc(slices.Clone(secrets), func(s corev1.Secret) bool {
		return !slices.ContainsFunc(tenantNamespaces, func(n corev1.Namespace) bool { return n.Name == s.Namespace })
	})
	slices.SortFunc(out, func(a, b corev1.Secret) int {
		return cmp.Or(len(b.OwnerReferences)-len(a.OwnerReferences),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// role returns the peer's role: consumer, provider, both or unknown.
func (in Input) role() corev1beta1.Role {
	consumer := len(in.Tenants) > 0
	provider := len(in.Identities)+len(in.Secrets)+len(in.VirtualNodes) > 0
	switch {
	case consumer && provider:
		return corev1beta1.RoleConsumerAndProvider
	case consumer:
		return corev1beta1.RoleConsumer
	case provider:
		return corev1beta1.RoleProvider
	}
	return corev1beta1.RoleUnknown
}

// tenantNamespace returns the tenant namespaces in both clusters; nil while neither is known.
func (in Input) tenantNamespace() *corev1beta1.TenantNamespace {
	var names corev1beta1.TenantNamespace
	for _, namespace := range in.Namespaces {
		if names.Local == "" || namespace.Name < names.Local {
			names.Local = namespace.Name
		}
	}
	for _, secret := range in.Secrets {
		if remote := secret.Annotations[api.AnnotationRemoteTenantNamespace]; remote != "" && names.Remote == "" {
			names.Remote = remote
		}
	}
	if names == (corev1beta1.TenantNamespace{}) {
		return nil
	}
	return &names
}

// apiServerStatus returns the condition of the peer's API server; nil if it is not probed.
func (in Input) apiServerStatus() []corev1beta1.Condition {
	switch {
	case in.Probe == nil:
		return nil
	case in.Probe.Alive:
		return []corev1beta1.Condition{condition(corev1beta1.APIServerStatusCondition, corev1beta1.ConditionEstablished,
			text{"APIServerReady", "the peer's API server answers"})}
	}
	return []corev1beta1.Condition{condition(corev1beta1.APIServerStatusCondition, corev1beta1.ConditionError,
		text{"APIServerNotReady", api.Printable(in.Probe.Message)})}
}

// module returns the state of a module. It is enabled if there are conditions, or an empty list.
func (in Input) module(before corev1beta1.Module, conditions []corev1beta1.Condition) corev1beta1.Module {
	return corev1beta1.Module{Enabled: conditions != nil, Conditions: in.since(before.Conditions, conditions)}
}

// since sets the transition times of conditions. Those that keep their status keep their time.
func (in Input) since(before, now []corev1beta1.Condition) []corev1beta1.Condition {
	for i := range now {
		c := &now[i]
		c.LastTransitionTime = metav1.NewTime(in.Now)
		old := slices.IndexFunc(before, func(o corev1beta1.Condition) bool { return o.Type == c.Type })
		if old >= 0 && before[old].Status == c.Status {
			c.LastTransitionTime = before[old].LastTransitionTime
		}
	}
	return now
}

// text holds the reason and message of a condition.
type text struct{ reason, message string }

// condition returns a condition without a transition time, which since sets.
func condition(t corev1beta1.ConditionType, status corev1beta1.ConditionStatus, says text) corev1beta1.Condition {
	return corev1beta1.Condition{Type: t, Status: status, Reason: says.reason, Message: says.message}
}

// readiness returns the condition of a number of subjects, of which some are ready.
func readiness(t corev1beta1.ConditionType, ready, subjects int, all, some, none text) corev1beta1.Condition {
	switch ready {
	case subjects:
		return condition(t, corev1beta1.ConditionReady, all)
	case 0:
		return condition(t, corev1beta1.ConditionNotReady, none)
	}
	return condition(t, corev1beta1.ConditionSomeNotReady, some)
}

// Workloads returns the names of the Deployments of the peer's gateways and virtual kubelets.
func Workloads(in Input) []types.NamespacedName {
	var names []types.NamespacedName
	for _, g := range in.GatewayServers {
		names = append(names, types.NamespacedName{Namespace: g.Namespace, Name: api.GatewayResourceName(g.Name)})
	}
	for _, g := range in.GatewayClients {
		names = append(names, types.NamespacedName{Namespace: g.Namespace, Name: api.GatewayResourceName(g.Name)})
	}
	for _, n := range in.VirtualNodes {
		names = append(names, types.NamespacedName{Namespace: n.Namespace, Name: api.VirtualKubeletName(n.Name)})
	}
	return names
}
