// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// completeTimeout bounds one completion.
const completeTimeout = 3 * time.Second

// names returns completions of an argument or of the value of a flag.
type names func(ctx context.Context, e *env) []string

// completion completes an argument or a flag with names, never with files.
func (e *env) completion(from names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), completeTimeout)
		defer cancel()
		e.In = strings.NewReader("") // a kubeconfig from standard input is not there yet
		offered := slices.DeleteFunc(from(ctx, e), func(name string) bool { return slices.Contains(args, name) })
		slices.Sort(offered)
		return slices.Compact(offered), cobra.ShellCompDirectiveNoFileComp
	}
}

// firstOnly completes only the first argument.
func firstOnly(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}

// objects completes with what name returns for each object of a list, except empty texts.
func objects(list client.ObjectList, name func(client.Object) string, opts ...client.ListOption) names {
	return func(ctx context.Context, e *env) []string {
		c, err := e.cluster(e.local, noCluster, api.Namespace)
		if err != nil {
			return nil
		}
		found, _ := c.all(ctx, list.DeepCopyObject().(client.ObjectList), opts...)
		return slices.DeleteFunc(textsOf(found, name), func(text string) bool { return text == "" })
	}
}

// anyOf completes with the names of all.
func anyOf(all ...names) names {
	return func(ctx context.Context, e *env) []string {
		var out []string
		for _, from := range all {
			out = append(out, from(ctx, e)...)
		}
		return out
	}
}

var byName = client.Object.GetName

// peerIDs completes with the peers of this cluster.
func peerIDs() names {
	return objects(&corev1beta1.ForeignClusterList{}, byName)
}

// activeIDs completes with the peers for which a module is enabled.
func activeIDs() names {
	return objects(&corev1beta1.ForeignClusterList{}, func(o client.Object) string {
		if !enabledPeer(o) {
			return ""
		}
		return o.GetName()
	})
}

// knownIDs completes with the peers, and with clusters that have only a tenant namespace.
func knownIDs() names {
	return anyOf(peerIDs(), objects(&corev1.NamespaceList{},
		func(o client.Object) string { return o.GetLabels()[api.LabelRemoteClusterID] },
		client.HasLabels{api.LabelTenantNamespace}))
}

func namespaceNames() names {
	return objects(&corev1.NamespaceList{}, byName)
}

// offloadable completes with the namespaces that a selector can match.
func offloadable() names {
	return objects(&corev1.NamespaceList{}, func(o client.Object) string {
		if !isUserNamespace(o, api.Namespace) {
			return ""
		}
		return o.GetName()
	})
}

// contextual completes with entries of the kubeconfig.
func contextual(pick func(clientcmdapi.Config) []string) names {
	return func(_ context.Context, e *env) []string {
		config, err := e.local.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil
		}
		return pick(config)
	}
}

func keys[V any](m map[string]V) []string { return slices.Collect(maps.Keys(m)) }

// flagNames returns the completions of flags by the name of the flag.
func flagNames() map[string]names {
	return map[string]names{
		"remote-cluster-id":   knownIDs(),
		"consumer-cluster-id": knownIDs(),
		"namespace":           namespaceNames(),
		"liqo-namespace":      namespaceNames(),
		"only-namespaces":     namespaceNames(),
		"context":             contextual(func(c clientcmdapi.Config) []string { return keys(c.Contexts) }),
		"cluster":             contextual(func(c clientcmdapi.Config) []string { return keys(c.Clusters) }),
		"user":                contextual(func(c clientcmdapi.Config) []string { return keys(c.AuthInfos) }),
		"output":              func(context.Context, *env) []string { return []string{"json", "yaml"} },
		"resource-slice-name": objects(&authv1beta1.ResourceSliceList{}, byName,
			client.HasLabels{api.LabelReplication}),
		"target-node": objects(&corev1.NodeList{}, byName),
		"gateway-name": anyOf(
			objects(&netv1beta1.GatewayServerList{}, byName),
			objects(&netv1beta1.GatewayClientList{}, byName)),
	}
}

// completeFlags completes the values of all flags below a command that take a name or one of a few
// words.
func (e *env) completeFlags(cmd *cobra.Command) {
	known := flagNames()
	add := func(f *pflag.Flag) {
		from, ok := known[f.Name]
		if words, is := f.Value.(interface{ words() []string }); is {
			from, ok = func(context.Context, *env) []string { return words.words() }, true
		}
		if !ok {
			return
		}
		if err := cmd.RegisterFlagCompletionFunc(f.Name, e.completion(from)); err != nil {
			panic(err) // completed twice: a programming error
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.PersistentFlags().VisitAll(add)
	for _, sub := range cmd.Commands() {
		e.completeFlags(sub)
	}
}

// namesOf completes with the objects of a kind.
func (e *env) namesOf(kind client.Object) names {
	list, err := listFor(kind, e.scheme)
	if err != nil {
		panic(err) // a kind without a list: a programming error
	}
	return objects(list, byName)
}
