// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
)

// infoFlags holds the flags common to info and info peer.
type infoFlags struct{ output, get string }

// localInfo describes this cluster.
type localInfo struct {
	ClusterID     string            `json:"clusterID"`
	Version       string            `json:"version"`
	Labels        map[string]string `json:"labels"`
	APIServerAddr string            `json:"APIServerAddr"`
}

// podInfo describes a pod that is not ready.
type podInfo struct {
	Status          string `json:"status"`
	ReadyContainers int    `json:"readyContainers"`
	TotalContainers int    `json:"totalContainers"`
	Restarts        int    `json:"restarts"`
}

type healthInfo struct {
	Healthy       bool               `json:"healthy"`
	UnhealthyPods map[string]podInfo `json:"unhealthyPods"`
}

type networkInfo struct {
	PodCIDRs     []string `json:"podCIDRs"`
	ServiceCIDR  string   `json:"serviceCIDR"`
	ExternalCIDR string   `json:"externalCIDR"`
	InternalCIDR string   `json:"internalCIDR"`
}

// moduleStatus is Healthy, Unhealthy or Disabled.
type moduleStatus string

const (
	healthy   moduleStatus = "Healthy"
	unhealthy moduleStatus = "Unhealthy"
	disabled  moduleStatus = "Disabled"
)

type peering struct {
	ClusterID            string           `json:"clusterID"`
	Role                 corev1beta1.Role `json:"role"`
	NetworkingStatus     moduleStatus     `json:"networkingStatus"`
	AuthenticationStatus moduleStatus     `json:"authenticationStatus"`
	OffloadingStatus     moduleStatus     `json:"offloadingStatus"`
}

type peerings struct {
	Peers []peering `json:"peers"`
}

// installation holds the output of info.
type installation struct {
	Local    localInfo   `json:"local"`
	Health   healthInfo  `json:"health"`
	Network  networkInfo `json:"network"`
	Peerings peerings    `json:"peerings"`
}

func (e *env) infoCommand() *cobra.Command {
	f := &infoFlags{}
	cmd := &cobra.Command{Use: "info", Short: "Show the installation and its peerings", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.showInfo(cmd, f) }}
	flags := cmd.PersistentFlags()
	addLiqoFlag(flags, "namespace", "n", "")
	flags.StringVarP(&f.output, "output", "o", "", "Print all as json or yaml")
	flags.StringVarP(&f.get, "get", "g", "", "Print one field, e.g. local.clusterID")
	cmd.AddCommand(e.infoPeerCommand(f))
	return cmd
}

func (e *env) showInfo(cmd *cobra.Command, f *infoFlags) error {
	ctx := cmd.Context()
	c, err := e.localCluster(ctx, cmd)
	if err != nil {
		return err
	}
	have := &installation{}
	if err := inParallel(
		func() (err error) { have.Local, err = c.localInfo(ctx); return err },
		func() (err error) { have.Health, err = c.healthInfo(ctx); return err },
		func() (err error) { have.Network, err = c.networkInfo(ctx); return err },
		func() (err error) { have.Peerings, err = c.peerings(ctx); return err },
	); err != nil {
		return err
	}
	query := f.get
	if strings.EqualFold(query, "clusterid") {
		query = "local.clusterid"
	}
	if f.output != "" || query != "" {
		return e.printQuery(have, query, f.output)
	}
	for _, b := range installationBoxes(have, e.verbose) {
		fmt.Fprint(e.Out, b)
	}
	return nil
}

func (c *cluster) localInfo(ctx context.Context) (localInfo, error) {
	d, err := c.controller(ctx)
	if err != nil {
		return localInfo{}, err
	}
	out := localInfo{
		ClusterID: c.id, Version: d.Labels[api.LabelAppVersion], Labels: map[string]string{},
		APIServerAddr: c.publicURL(ctx, d),
	}
	for _, pair := range strings.Split(flagOf(d, "cluster-labels"), ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			out.Labels[k] = v
		}
	}
	return out, nil
}

// healthInfo checks the pods of the installation. The peerings show those of gateways and virtual
// kubelets.
func (c *cluster) healthInfo(ctx context.Context) (healthInfo, error) {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(c.namespace)); err != nil {
		return healthInfo{}, fmt.Errorf("list pods in namespace %s: %w", c.namespace, err)
	}
	out := healthInfo{Healthy: true, UnhealthyPods: map[string]podInfo{}}
	for i := range pods.Items {
		if pod := &pods.Items[i]; !isHealthy(pod) {
			out.Healthy = false
			out.UnhealthyPods[pod.Name] = infoOf(pod)
		}
	}
	if len(pods.Items) == 0 {
		out.Healthy = false
	}
	return out, nil
}

// isHealthy reports whether a pod has succeeded or has all containers ready.
func isHealthy(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodSucceeded || podReady(pod) }

func infoOf(pod *corev1.Pod) podInfo {
	out := podInfo{Status: string(pod.Status.Phase), TotalContainers: len(pod.Spec.Containers)}
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

func (c *cluster) networkInfo(ctx context.Context) (networkInfo, error) {
	list, out := &ipamv1alpha1.NetworkList{}, networkInfo{PodCIDRs: []string{}}
	if err := c.List(ctx, list, client.InNamespace(c.namespace), hasNetworkType); err != nil {
		return out, fmt.Errorf("list networks: %w", err)
	}
	for _, n := range list.Items {
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
	return out, nil
}

func (c *cluster) peerings(ctx context.Context) (peerings, error) {
	active, err := c.peers(ctx, nil)
	out := peerings{Peers: []peering{}}
	for _, f := range active {
		out.Peers = append(out.Peers, peering{
			ClusterID: f.Spec.ClusterID, Role: f.Status.Role,
			NetworkingStatus:     statusOf(f.Status.Modules.Networking),
			AuthenticationStatus: authenticationStatus(&f),
			OffloadingStatus:     statusOf(f.Status.Modules.Offloading),
		})
	}
	return out, err
}

// authenticationStatus is the worse status of the module and of the peer's API server.
func authenticationStatus(f *corev1beta1.ForeignCluster) moduleStatus {
	if status := statusOf(f.Status.Modules.Authentication); status != healthy || len(authenticationAlerts(f)) == 0 {
		return status
	}
	return unhealthy
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

func statusOf(m corev1beta1.Module) moduleStatus {
	switch {
	case !m.Enabled:
		return disabled
	case len(alertsOf(m)) > 0:
		return unhealthy
	}
	return healthy
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

// installationBoxes draws the boxes of info; verbose adds the network.
func installationBoxes(i *installation, verbose bool) []string {
	var who, health, net, peers lines
	who.add(0, "Cluster ID", i.Local.ClusterID)
	who.add(0, "Version", i.Local.Version)
	who.add(0, "K8s API server", i.Local.APIServerAddr)
	who.addMap(0, "Cluster labels", i.Local.Labels)
	health.text(0, "✔    Liqo is healthy")
	if !i.Health.Healthy {
		health = nil
		health.text(0, "✖    Liqo is unhealthy")
		health.addMap(0, "Unhealthy pods", describePods(i.Health.UnhealthyPods))
	}
	net.add(0, "Pod CIDRs", strings.Join(i.Network.PodCIDRs, ", "))
	net.add(0, "Service CIDR", i.Network.ServiceCIDR)
	net.add(0, "External CIDR", i.Network.ExternalCIDR)
	net.add(0, "Internal CIDR", i.Network.InternalCIDR)
	for _, p := range i.Peerings.Peers {
		peers.text(0, p.ClusterID)
		peers.add(1, "Role", string(p.Role))
		peers.add(1, "Networking status", string(p.NetworkingStatus))
		peers.add(1, "Authentication status", string(p.AuthenticationStatus))
		peers.add(1, "Offloading status", string(p.OffloadingStatus))
	}
	out := []string{box("Local installation info", who), box("Installation health", health)}
	if verbose {
		out = append(out, box("Network", net))
	}
	if len(peers) > 0 {
		out = append(out, box("Active peerings", peers))
	}
	return out
}

func describePods(pods map[string]podInfo) map[string]string {
	out := map[string]string{}
	for name, p := range pods {
		out[name] = fmt.Sprintf("%s, containers ready: %d/%d, restarts: %d", p.Status, p.ReadyContainers,
			p.TotalContainers, p.Restarts)
	}
	return out
}
