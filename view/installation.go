// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
)

// Local describes this cluster.
type Local struct {
	ClusterID     string            `json:"clusterID"`
	Version       string            `json:"version"`
	Labels        map[string]string `json:"labels"`
	APIServerAddr string            `json:"APIServerAddr"`
}

// UnreadyPod describes a pod that is not ready.
type UnreadyPod struct {
	Status          string `json:"status"`
	ReadyContainers int    `json:"readyContainers"`
	TotalContainers int    `json:"totalContainers"`
	Restarts        int    `json:"restarts"`
}

// Health reports whether all pods of the installation are ready, and which are not.
type Health struct {
	Healthy       bool                  `json:"healthy"`
	UnhealthyPods map[string]UnreadyPod `json:"unhealthyPods"`
}

// Ranges holds the CIDRs of this cluster; empty ones are not known.
type Ranges struct {
	PodCIDRs     []string `json:"podCIDRs"`
	ServiceCIDR  string   `json:"serviceCIDR"`
	ExternalCIDR string   `json:"externalCIDR"`
	InternalCIDR string   `json:"internalCIDR"`
}

// ModuleStatus is Healthy, Unhealthy or Disabled.
type ModuleStatus string

// States of a module.
const (
	Healthy   ModuleStatus = "Healthy"
	Unhealthy ModuleStatus = "Unhealthy"
	Disabled  ModuleStatus = "Disabled"
)

// Peering sums up one peering.
type Peering struct {
	ClusterID            string           `json:"clusterID"`
	Role                 corev1beta1.Role `json:"role"`
	NetworkingStatus     ModuleStatus     `json:"networkingStatus"`
	AuthenticationStatus ModuleStatus     `json:"authenticationStatus"`
	OffloadingStatus     ModuleStatus     `json:"offloadingStatus"`
}

// Peerings lists the active peerings.
type Peerings struct {
	Peers []Peering `json:"peers"`
}

// Installation holds the output of info.
type Installation struct {
	Local    Local    `json:"local"`
	Health   Health   `json:"health"`
	Network  Ranges   `json:"network"`
	Peerings Peerings `json:"peerings"`
}

// authenticationStatus is the worse status of the module and of the peer's API server.
func authenticationStatus(f *corev1beta1.ForeignCluster) ModuleStatus {
	if status := statusOf(f.Status.Modules.Authentication); status != Healthy || len(authenticationAlerts(f)) == 0 {
		return status
	}
	return Unhealthy
}

// authenticationAlerts returns the alerts of the peer's API server and of the module.
func authenticationAlerts(f *corev1beta1.ForeignCluster) []string {
	peer := corev1beta1.Module{Enabled: f.Status.Modules.Authentication.Enabled}
	for _, condition := range f.Status.Conditions {
		if condition.Type == corev1beta1.APIServerStatusCondition {
			peer.Conditions = append(peer.Conditions, condition)
		}
	}
	return append(alertsOf(peer), alertsOf(f.Status.Modules.Authentication)...)
}

func statusOf(m corev1beta1.Module) ModuleStatus {
	switch {
	case !m.Enabled:
		return Disabled
	case len(alertsOf(m)) > 0:
		return Unhealthy
	}
	return Healthy
}

// alertsOf returns the conditions of a module that are neither Ready nor Established.
func alertsOf(m corev1beta1.Module) []string {
	alerts := []string{}
	for _, c := range m.Conditions {
		if m.Enabled && c.Status != corev1beta1.ConditionReady && c.Status != corev1beta1.ConditionEstablished {
			alerts = append(alerts, fmt.Sprintf("%s: %s (%s)", c.Type, c.Message, c.Status))
		}
	}
	slices.Sort(alerts)
	return alerts
}

// InstallationHealth checks the pods of the installation. The peerings show those of gateways and virtual
// kubelets. An installation without pods is not healthy.
func InstallationHealth(pods []corev1.Pod) Health {
	out := Health{Healthy: len(pods) > 0, UnhealthyPods: map[string]UnreadyPod{}}
	for i := range pods {
		if pod := &pods[i]; !isHealthy(pod) {
			out.Healthy = false
			out.UnhealthyPods[pod.Name] = infoOf(pod)
		}
	}
	return out
}

// isHealthy reports whether a pod has succeeded or has all containers ready.
func isHealthy(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded || PodReady(pod) }

func infoOf(pod *corev1.Pod) UnreadyPod {
	out := UnreadyPod{Status: string(pod.Status.Phase), TotalContainers: len(pod.Spec.Containers)}
	for _, s := range pod.Status.ContainerStatuses {
		if s.Ready {
			out.ReadyContainers++
		}
		out.Restarts += int(s.RestartCount)
		if s.State.Waiting != nil {
			out.Status = s.State.Waiting.Reason
		}
	}
	return out
}

// OwnRanges returns the CIDRs of this cluster from the Networks of the installation.
func OwnRanges(networks []ipamv1alpha1.Network) Ranges {
	out := Ranges{PodCIDRs: []string{}}
	for _, n := range networks {
		cidr := cmp.Or(n.Status.CIDR, n.Spec.CIDR)
		switch n.Labels[api.LabelNetworkType] {
		case api.NetworkTypePodCIDR:
			out.PodCIDRs = append(out.PodCIDRs, cidr)
		case api.NetworkTypeServiceCIDR:
			out.ServiceCIDR = cidr
		case api.NetworkTypeExternalCIDR:
			out.ExternalCIDR = cidr
		case api.NetworkTypeInternalCIDR:
			out.InternalCIDR = cidr
		}
	}
	return out
}

// PeeringsOf sums up the peerings of ForeignClusters that IsActive holds for.
func PeeringsOf(active []corev1beta1.ForeignCluster) Peerings {
	out := Peerings{Peers: []Peering{}}
	for _, f := range active {
		out.Peers = append(out.Peers, Peering{
			ClusterID: f.Spec.ClusterID, Role: f.Status.Role,
			NetworkingStatus:     statusOf(f.Status.Modules.Networking),
			AuthenticationStatus: authenticationStatus(&f),
			OffloadingStatus:     statusOf(f.Status.Modules.Offloading),
		})
	}
	return out
}

// IsActive reports whether a module is in use with a peer.
func IsActive(f *corev1beta1.ForeignCluster) bool {
	modules := f.Status.Modules
	return modules != nil &&
		(modules.Networking.Enabled || modules.Authentication.Enabled || modules.Offloading.Enabled)
}
