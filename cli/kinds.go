// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"

	"github.com/spf13/cobra"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// kind is a kind of object that create, generate, get or delete work on.
type kind struct {
	noun    string
	aliases []string
	// verbs are the subcommands by their verb. A verb that is missing does not exist for the kind.
	verbs map[string]subcommand
}

// subcommand is one verb of one kind.
type subcommand struct {
	// arg is the name of the argument in the usage line; empty if there is none.
	arg, short string
	// example holds the arguments of a call after verb and noun.
	example string
	// setup adds the flags and returns what the subcommand does.
	setup func(*single) work
}

// networkKinds returns the kinds that connect networks.
func networkKinds() []kind {
	const peer, pods = "milan --remote-cluster-id milan", " --pod-cidr 10.20.0.0/16 --external-cidr 10.71.0.0/16"
	return []kind{
		{"configuration", []string{"config", "configurations"}, map[string]subcommand{
			"create": {"NAME", "Tell the cluster the address ranges of a peer", peer + pods, createConfiguration},
			"generate": {"", "Print the address ranges of this cluster for a peer", "> configuration.yaml",
				generateConfiguration},
			"delete": {"NAME", "Delete a configuration", "milan",
				deleteObject(&netv1beta1.Configuration{}, "Configuration")},
		}},
		{"gatewayclient", []string{"gatewayclients", "client", "clients", "gwc"}, map[string]subcommand{
			"create": {"NAME", "Create the client end of a tunnel", peer + " --addresses 203.0.113.7 --port 32701",
				createGatewayClient},
			"delete": {"NAME", "Delete a gatewayclient", "milan",
				deleteObject(&netv1beta1.GatewayClient{}, "GatewayClient")},
		}},
		{"gatewayserver", []string{"gatewayservers", "server", "servers", "gws"}, map[string]subcommand{
			"create": {"NAME", "Create the server end of a tunnel", peer + " --service-type NodePort --wait",
				createGatewayServer},
			"delete": {"NAME", "Delete a gatewayserver", "milan",
				deleteObject(&netv1beta1.GatewayServer{}, "GatewayServer")},
		}},
		{"publickey", []string{"publickeys", "publickeies"}, map[string]subcommand{
			"create": {"NAME", "Give the gateway the public key of a peer",
				peer + " --public-key zqxVQ3yFlYV0O1m3xXbqQOsI8hyxbE7+cV3qZJm0+Qg=", createPublicKey},
			"generate": {"", "Print the public key of a gateway for the peer",
				"--gateway-type client --gateway-name milan > key.yaml", generatePublicKey},
			"delete": {"NAME", "Delete a publickey", "milan", deleteObject(&netv1beta1.PublicKey{}, "PublicKey")},
		}},
	}
}

// accessKinds returns the kinds that give access to a provider and its resources.
func accessKinds() []kind {
	return []kind{
		{"identity", []string{"identities"}, map[string]subcommand{
			"generate": {"", "Print the Identity for a consumer", "--remote-cluster-id rome > identity.yaml",
				generateIdentity},
		}},
		{"kubeconfig", []string{"kc"}, map[string]subcommand{
			"get": {"IDENTITY", "Print the kubeconfig of an identity",
				"controlplane-milan --remote-cluster-id milan > milan.yaml", getKubeconfig},
		}},
		{"nonce", nil, map[string]subcommand{
			"create": {"", "Create the challenge a consumer must sign", "--remote-cluster-id rome", createNonce},
			"delete": {"", "Delete the challenge of a consumer", "--remote-cluster-id rome", deleteNonce},
			"get":    {"", "Print the nonce a consumer must sign", "--remote-cluster-id rome", getNonce},
		}},
		{"peering-user", nil, map[string]subcommand{
			"generate": {"", "Print a kubeconfig with which one consumer can peer with this cluster, and nothing else",
				"--consumer-cluster-id rome > milan-for-rome.yaml", generatePeeringUser},
			"delete": {"", "Take the access of a peering user away", "--consumer-cluster-id rome", deletePeeringUser},
		}},
		{"resourceslice", []string{"rs", "resourceslices"}, map[string]subcommand{
			"create": {"NAME", "Ask a provider for resources",
				"big --remote-cluster-id milan --cpu 8 --memory 32Gi --resource nvidia.com/gpu=1", createResourceSlice},
			"delete": {"NAME", "Give resources of a provider back, with the virtual nodes made from them", "big",
				deleteObject(&authv1beta1.ResourceSlice{}, "ResourceSlice")},
		}},
		{"tenant", []string{"tenants"}, map[string]subcommand{
			"generate": {"", "Sign the provider's nonce and print the Tenant for the provider",
				"--remote-cluster-id milan --nonce $NONCE > tenant.yaml", generateTenant},
		}},
		{"virtualnode", []string{"vn", "virtualnodes"}, map[string]subcommand{
			"create": {"NAME", "Make a virtual node from resources of a provider",
				"big --remote-cluster-id milan --resource-slice-name big", createVirtualNode},
			"delete": {"NAME", "Delete a virtualnode", "big", deleteObject(&offv1beta1.VirtualNode{}, "Virtual node")},
		}},
	}
}

// kindCommands returns the verbs that work on one object of a kind.
func (e *env) kindCommands() []*cobra.Command {
	verbs := []*cobra.Command{
		group("create", "Create one of the objects of a peering"),
		group("delete", "Delete one of the objects of a peering"),
		group("generate", "Print an object to be applied in the other cluster"),
		group("get", "Print a secret of a peering"),
	}
	for _, verb := range verbs {
		for _, k := range slices.Concat(networkKinds(), accessKinds()) {
			if sub, ok := k.verbs[verb.Name()]; ok {
				e.addNoun(verb, k.noun, k.aliases, sub)
			}
		}
	}
	return verbs
}
