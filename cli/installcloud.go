// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cloudOptions holds the flags of install that name a cluster in a cloud.
type cloudOptions struct {
	// group, name, subscription and vnetGroup name an AKS cluster and its virtual network.
	group, name, subscriptionID, subscriptionName, vnetGroup string
	// fqdn is the API server's name for peers; privateLink selects its private name.
	fqdn        string
	privateLink bool
	// region and zone are the place of an EKS or a GKE cluster.
	region, zone string
	// project and credentials are a GKE cluster's project and the file of a service account's key.
	project, credentials string
}

// addCloudFlags adds the flags of the provider's subcommand.
func (o *installOptions) addCloudFlags(cmd *cobra.Command) {
	flags, required := cmd.Flags(), []string{}
	switch o.provider {
	case "aks":
		flags.StringVar(&o.cloud.group, "resource-group-name", "", "Resource group of the AKS cluster")
		flags.StringVar(&o.cloud.name, "resource-name", "", "Name of the AKS cluster")
		flags.StringVar(&o.cloud.subscriptionID, "subscription-id", "", "ID of its subscription")
		flags.StringVar(&o.cloud.subscriptionName, "subscription-name", "", "Name of its subscription")
		flags.StringVar(&o.cloud.vnetGroup, "vnet-resource-group-name", "",
			"Resource group of its virtual network (default: that of its nodes)")
		flags.StringVar(&o.cloud.fqdn, "fqdn", "", "Name of the API server for peers")
		flags.BoolVar(&o.cloud.privateLink, "private-link", false, "Give peers the private name of the API server")
		flags.Var(&o.pods, "pod-cidr", "Address ranges of the cluster's pods (default: read by az)")
		required = []string{"resource-group-name", "resource-name"}
		cmd.MarkFlagsMutuallyExclusive("subscription-id", "subscription-name")
	case "eks":
		flags.StringVar(&o.cloud.region, "eks-cluster-region", "", "Region of the EKS cluster")
		flags.StringVar(&o.cloud.name, "eks-cluster-name", "", "Name of the EKS cluster")
		for _, name := range []string{"user-name", "policy-name", "access-key-id", "secret-access-key"} {
			flags.String(name, "", "Accepted for compatibility; peers get no IAM user")
		}
		required = []string{"eks-cluster-region", "eks-cluster-name"}
	case "gke":
		flags.Lookup("cluster-id").Usage = "Name of the GKE cluster, and of this cluster at its peers unless installed"
		flags.StringVar(&o.cloud.project, "project-id", "", "Project of the GKE cluster")
		flags.StringVar(&o.cloud.credentials, "credentials-path", "", "File with the key of a service account")
		flags.StringVar(&o.cloud.region, "region", "", "Region of a regional cluster")
		flags.StringVar(&o.cloud.zone, "zone", "", "Zone of a zonal cluster")
		required = []string{"project-id", "cluster-id", "credentials-path"}
		cmd.MarkFlagsMutuallyExclusive("region", "zone")
		cmd.MarkFlagsOneRequired("region", "zone")
	}
	for _, name := range required {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // no such flag: a programming error
		}
	}
}

// readCloud completes the facts by what the provider's own command or kinds tell of the cluster.
// What is known already stays.
func (c *cluster) readCloud(ctx context.Context, o *installOptions, f *facts) (err error) {
	found := facts{}
	switch o.provider {
	case "aks":
		found, err = o.cloud.readAKS(ctx)
	case "eks":
		found, err = o.cloud.readEKS(ctx)
	case "gke":
		found, err = o.cloud.readGKE(ctx, string(o.id))
	case "openshift":
		found, err = c.readOpenShift(ctx)
	}
	if len(f.pods) == 0 {
		f.pods = found.pods
	}
	f.reserved = append(f.reserved, found.reserved...)
	f.services, f.apiServerURL = cmp.Or(f.services, found.services), cmp.Or(f.apiServerURL, found.apiServerURL)
	return err
}

// cloudTimeout bounds one command of a cloud.
const cloudTimeout = time.Minute

// ask runs a command of a cloud, with further variables in its environment, and decodes the JSON
// that it prints.
func ask(ctx context.Context, into any, env []string, name string, args ...string) error {
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("command %s, which reads the ranges of the cluster, is not on PATH; install it, or use "+
			"'install generic --pod-cidr … --service-cidr … --api-server-url …'", name)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cloudTimeout, fmt.Errorf("no answer in %s", cloudTimeout))
	defer cancel()
	var complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Stderr, cmd.WaitDelay = append(os.Environ(), env...), &complaint, time.Second
	text, err := cmd.Output()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		line := strings.Join(append([]string{name}, args...), " ")
		return fmt.Errorf("run '%s': %w: %s", line, err, oneLine(complaint.String()))
	}
	return nil
}

// azSubnet is a subnet as az prints it: with one range, or several.
type azSubnet struct {
	AddressPrefix   string   `json:"addressPrefix"`
	AddressPrefixes []string `json:"addressPrefixes"`
}

// azRanges reads the ranges of the subnets with these IDs, or without any of all in the resource
// group. az runs the command.
func azRanges(az func(into any, args ...string) error, group string, ids []string) ([]string, error) {
	var subnets []azSubnet
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		if id == "" {
			continue
		}
		subnet := azSubnet{}
		if err := az(&subnet, "network", "vnet", "subnet", "show", "--ids", id); err != nil {
			return nil, err
		}
		subnets = append(subnets, subnet)
	}
	if len(ids) == 0 {
		var networks []struct {
			Subnets []azSubnet `json:"subnets"`
		}
		if err := az(&networks, "network", "vnet", "list", "--resource-group", group); err != nil {
			return nil, err
		}
		for _, network := range networks {
			subnets = append(subnets, network.Subnets...)
		}
	}
	var ranges []string
	for _, subnet := range subnets {
		if subnet.AddressPrefix != "" {
			ranges = append(ranges, subnet.AddressPrefix)
		} else {
			ranges = append(ranges, subnet.AddressPrefixes...)
		}
	}
	return ranges, nil
}

// readAKS reads an AKS cluster with az. Pods without a range of their own have addresses of subnets.
func (o *cloudOptions) readAKS(ctx context.Context) (facts, error) {
	var found struct {
		FQDN              string `json:"fqdn"`
		PrivateFQDN       string `json:"privateFqdn"`
		NodeResourceGroup string `json:"nodeResourceGroup"`
		NetworkProfile    struct {
			PodCIDR     string `json:"podCidr"`
			ServiceCIDR string `json:"serviceCidr"`
		} `json:"networkProfile"`
		AgentPoolProfiles []struct {
			VnetSubnetID string `json:"vnetSubnetId"`
			PodSubnetID  string `json:"podSubnetId"`
		} `json:"agentPoolProfiles"`
	}
	az := func(into any, args ...string) error {
		if subscription := cmp.Or(o.subscriptionID, o.subscriptionName); subscription != "" {
			args = append(args, "--subscription", subscription)
		}
		return ask(ctx, into, nil, "az", append(args, "--output", "json")...)
	}
	if err := az(&found, "aks", "show", "--resource-group", o.group, "--name", o.name); err != nil {
		return facts{}, err
	}
	var nodeSubnets, podSubnets []string
	for _, pool := range found.AgentPoolProfiles {
		nodeSubnets = append(nodeSubnets, pool.VnetSubnetID)
		podSubnets = append(podSubnets, cmp.Or(pool.PodSubnetID, pool.VnetSubnetID))
	}
	if !slices.ContainsFunc(nodeSubnets, func(id string) bool { return id != "" }) {
		nodeSubnets, podSubnets = nil, nil // AKS made the virtual network
	}
	group := cmp.Or(o.vnetGroup, found.NodeResourceGroup)
	nodes, err := azRanges(az, group, nodeSubnets)
	if err != nil {
		return facts{}, err
	}
	out := facts{pods: []string{found.NetworkProfile.PodCIDR}, services: found.NetworkProfile.ServiceCIDR}
	if found.NetworkProfile.PodCIDR == "" {
		if out.pods, err = azRanges(az, group, podSubnets); err != nil {
			return facts{}, err
		}
	}
	out.reserved = slices.DeleteFunc(nodes, func(node string) bool { return slices.Contains(out.pods, node) })
	host := cmp.Or(found.FQDN, found.PrivateFQDN)
	if o.privateLink {
		host = found.PrivateFQDN
	}
	if host = cmp.Or(o.fqdn, host); host != "" {
		out.apiServerURL = "https://" + host + ":443"
	}
	return out, nil
}

// readEKS reads an EKS cluster with aws. Its pods have addresses of its VPC.
func (o *cloudOptions) readEKS(ctx context.Context) (facts, error) {
	var found struct {
		Cluster struct {
			Endpoint string `json:"endpoint"`
			Network  struct {
				Services string `json:"serviceIpv4Cidr"`
			} `json:"kubernetesNetworkConfig"`
			VPC struct {
				ID string `json:"vpcId"`
			} `json:"resourcesVpcConfig"`
		} `json:"cluster"`
	}
	if err := ask(ctx, &found, nil, "aws", "eks", "describe-cluster", "--region", o.region, "--name", o.name,
		"--output", "json"); err != nil {
		return facts{}, err
	}
	var networks struct {
		VPCs []struct {
			Blocks []struct {
				CIDR string `json:"CidrBlock"`
			} `json:"CidrBlockAssociationSet"`
		} `json:"Vpcs"`
	}
	if err := ask(ctx, &networks, nil, "aws", "ec2", "describe-vpcs", "--region", o.region,
		"--vpc-ids", found.Cluster.VPC.ID, "--output", "json"); err != nil {
		return facts{}, err
	}
	out := facts{services: found.Cluster.Network.Services, apiServerURL: found.Cluster.Endpoint}
	for _, vpc := range networks.VPCs {
		for _, block := range vpc.Blocks {
			out.pods = append(out.pods, block.CIDR)
		}
	}
	return out, nil
}

// readGKE reads a GKE cluster and the subnet of its nodes with gcloud.
func (o *cloudOptions) readGKE(ctx context.Context, name string) (facts, error) {
	var found struct {
		Pods     string `json:"clusterIpv4Cidr"`
		Services string `json:"servicesIpv4Cidr"`
		Endpoint string `json:"endpoint"`
		Network  struct {
			Subnet string `json:"subnetwork"`
		} `json:"networkConfig"`
	}
	gcloud := func(into any, args ...string) error {
		return ask(ctx, into, []string{"CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE=" + o.credentials}, "gcloud",
			append(args, "--format", "json")...)
	}
	place := []string{"--zone", o.zone}
	if o.region != "" {
		place = []string{"--region", o.region}
	}
	if err := gcloud(&found, slices.Concat([]string{"container", "clusters", "describe", name,
		"--project", o.project}, place)...); err != nil {
		return facts{}, err
	}
	out := facts{services: found.Services}
	if found.Pods != "" {
		out.pods = []string{found.Pods}
	}
	if found.Endpoint != "" {
		out.apiServerURL = "https://" + found.Endpoint
	}
	// projects/<project>/regions/<region>/subnetworks/<name>
	if at := strings.Split(found.Network.Subnet, "/"); len(at) == 6 {
		var subnet struct {
			Range string `json:"ipCidrRange"`
		}
		if err := gcloud(&subnet, "compute", "networks", "subnets", "describe", at[5], "--project", at[1],
			"--region", at[3]); err != nil {
			return facts{}, err
		}
		out.reserved = []string{subnet.Range}
	}
	return out, nil
}

// readOpenShift reads the ranges and the URL from the configuration objects of an OpenShift cluster.
func (c *cluster) readOpenShift(ctx context.Context) (facts, error) {
	var network struct {
		Status struct {
			ClusterNetwork []struct {
				CIDR string `json:"cidr"`
			} `json:"clusterNetwork"`
			ServiceNetwork []string `json:"serviceNetwork"`
		} `json:"status"`
	}
	var infrastructure struct {
		Status struct {
			APIServerURL string `json:"apiServerURL"`
		} `json:"status"`
	}
	if err := inParallel(func() error { return c.readConfig(ctx, "Network", &network) },
		func() error { return c.readConfig(ctx, "Infrastructure", &infrastructure) }); err != nil {
		return facts{}, err
	}
	out := facts{apiServerURL: infrastructure.Status.APIServerURL}
	for _, n := range network.Status.ClusterNetwork {
		out.pods = append(out.pods, n.CIDR)
	}
	if len(network.Status.ServiceNetwork) > 0 {
		out.services = network.Status.ServiceNetwork[0]
	}
	return out, nil
}

// readConfig reads the object "cluster" of a kind of OpenShift's configuration.
func (c *cluster) readConfig(ctx context.Context, kind string, into any) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: kind})
	err := c.Get(ctx, client.ObjectKey{Name: "cluster"}, object)
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Errorf("the cluster has no kind %s of config.openshift.io: it is no OpenShift cluster", kind)
	case err != nil:
		return fmt.Errorf("read %s cluster of config.openshift.io: %w", kind, err)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
}
