// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
)

// names returns completions of an argument or of the value of a flag.
type names func(ctx context.Context, e *env) []string

// completion completes an argument or a flag with names, never with files.
func (e *env) completion(from names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), limits.complete)
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

// namesOf completes with the objects of a kind.
func (e *env) namesOf(kind client.Object) names {
	list, err := listFor(kind, e.scheme)
	if err != nil {
		panic(err) // a kind without a list: a programming error
	}
	return objects(list, byName)
}
