// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	"github.com/liqo-go/liqo/view"
)

// infoFlags holds the flags common to info and info peer.
type infoFlags struct{ output, get string }

// isData reports that everything is printed for programs.
func (f *infoFlags) isData() bool { return f.output == "json" || f.output == "yaml" }

// completeField completes --get, for info peer if the paths begin below its only peer.
func completeField(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch {
	case cmd.Name() != "peer":
		return fieldsOf(reflect.TypeFor[view.Installation]()), cobra.ShellCompDirectiveNoFileComp
	case len(args) == 1:
		return fieldsOf(reflect.TypeFor[view.Peer]()), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// validate refuses formats in which a part of the data cannot be printed.
func (f *infoFlags) validate() error {
	if f.get != "" && f.output != "" && !f.isData() {
		return fmt.Errorf("--get prints json or yaml, not %s", f.output)
	}
	return nil
}

// peerName returns the name of a peer as a line, as kubectl has it.
func peerName(id string) string {
	return "foreigncluster." + corev1beta1.GroupVersion.Group + "/" + api.Printable(id) + "\n"
}

func (e *env) infoCommand() *cobra.Command {
	f := &infoFlags{}
	cmd := &cobra.Command{Use: "info", Short: "Show the installation and its peerings",
		Example: "  liqoctl info\n  liqoctl info -o wide\n  liqoctl info --get clusterid",
		PreRunE: func(*cobra.Command, []string) error { return f.validate() },
		RunE:    func(cmd *cobra.Command, _ []string) error { return e.showInfo(cmd, f) }}
	flags := cmd.PersistentFlags()
	addLiqoFlag(flags, "namespace", "n", "")
	flags.VarP(choice(&f.output, "", "json", "yaml", "name", "wide"), "output", "o",
		"Print all as data, only the names of the peers, or the boxes with more in them")
	flags.StringVarP(&f.get, "get", "g", "", "Print one field, e.g. local.clusterID")
	if err := cmd.RegisterFlagCompletionFunc("get", completeField); err != nil {
		panic(err) // completed twice: a programming error
	}
	cmd.AddCommand(e.infoPeerCommand(f))
	return cmd
}

func (e *env) showInfo(cmd *cobra.Command, f *infoFlags) error {
	ctx := cmd.Context()
	c, err := e.localCluster(ctx, cmd)
	if err != nil {
		return err
	}
	have := &view.Installation{}
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
	switch {
	case f.output == "name" && query == "":
		for _, p := range have.Peerings.Peers {
			fmt.Fprint(e.Out, peerName(p.ClusterID))
		}
		return nil
	case f.isData() || query != "":
		return e.printQuery(have, query, f.output)
	}
	for _, b := range installationBoxes(have, e.verbose || f.output == "wide") {
		fmt.Fprint(e.Out, b)
	}
	return nil
}

func (c *cluster) localInfo(ctx context.Context) (view.Local, error) {
	d, err := c.controller(ctx)
	if err != nil {
		return view.Local{}, err
	}
	out := view.Local{
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

// healthInfo checks the pods of the installation.
func (c *cluster) healthInfo(ctx context.Context) (view.Health, error) {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(c.namespace)); err != nil {
		return view.Health{}, fmt.Errorf("list pods in namespace %s: %w", c.namespace, err)
	}
	return view.InstallationHealth(pods.Items), nil
}

func (c *cluster) networkInfo(ctx context.Context) (view.Ranges, error) {
	list := &ipamv1alpha1.NetworkList{}
	if err := c.List(ctx, list, client.InNamespace(c.namespace), hasNetworkType); err != nil {
		return view.Ranges{}, fmt.Errorf("list networks: %w", err)
	}
	return view.OwnRanges(list.Items), nil
}

func (c *cluster) peerings(ctx context.Context) (view.Peerings, error) {
	active, err := c.peers(ctx, nil)
	return view.PeeringsOf(active), err
}

// installationBoxes draws the boxes of info; verbose adds the network.
func installationBoxes(i *view.Installation, verbose bool) []string {
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

func describePods(pods map[string]view.UnreadyPod) map[string]string {
	out := map[string]string{}
	for name, p := range pods {
		out[name] = fmt.Sprintf("%s, containers ready: %d/%d, restarts: %d", p.Status, p.ReadyContainers,
			p.TotalContainers, p.Restarts)
	}
	return out
}
