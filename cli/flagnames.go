// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

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

// remotely completes with what from returns for the remote cluster that the flags of cmd select.
func (e *env) remotely(cmd *cobra.Command, from names) names {
	return func(ctx context.Context, e *env) []string {
		flags, other := pflag.NewFlagSet("", pflag.ContinueOnError), *e
		other.local = addConnectionFlags(flags, remotePrefix)
		flags.VisitAll(func(f *pflag.Flag) {
			if given := cmd.Flag(f.Name); given != nil && given.Changed {
				_ = f.Value.Set(given.Value.String()) // it was parsed once
			}
		})
		return from(ctx, &other)
	}
}

// templateKinds completes with the kinds of templates for one end of a tunnel, as group/version/resource.
func templateKinds(end string) names {
	return objects(&apiextensionsv1.CustomResourceDefinitionList{}, func(o client.Object) string {
		spec := o.(*apiextensionsv1.CustomResourceDefinition).Spec
		if !strings.HasSuffix(spec.Names.Plural, end+"templates") || len(spec.Versions) == 0 {
			return ""
		}
		return spec.Group + "/" + spec.Versions[0].Name + "/" + spec.Names.Plural
	})
}

// ofSlices completes with what pick returns for the resource slices.
func ofSlices(pick func(*authv1beta1.ResourceSlice) []string) names {
	return func(ctx context.Context, e *env) (out []string) {
		objects(&authv1beta1.ResourceSliceList{}, func(o client.Object) string {
			out = append(out, pick(o.(*authv1beta1.ResourceSlice))...)
			return ""
		})(ctx, e)
		return out
	}
}

// fieldsOf lists the fields of data, and of the types of its package within, as dotted paths.
func fieldsOf(data reflect.Type) (out []string) {
	for i := range data.NumField() {
		field := data.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		out = append(out, name)
		of := field.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() == reflect.Struct && of.PkgPath() == data.PkgPath() {
			for _, below := range fieldsOf(of) {
				out = append(out, name+"."+below)
			}
		}
	}
	return out
}

// flagNames returns the completions of the flags of a command by the name of the flag.
func (e *env) flagNames(cmd *cobra.Command) map[string]names {
	out := e.networkFlagNames(cmd)
	contexts := contextual(func(c clientcmdapi.Config) []string { return keys(c.Contexts) })
	clusters := contextual(func(c clientcmdapi.Config) []string { return keys(c.Clusters) })
	users := contextual(func(c clientcmdapi.Config) []string { return keys(c.AuthInfos) })
	namespaces := namespaceNames()
	classes := ofSlices(func(s *authv1beta1.ResourceSlice) []string {
		return []string{string(s.Spec.Class), api.DefaultResourceSliceClass}
	})
	maps.Copy(out, map[string]names{
		"context": contexts, "remote-context": e.remotely(cmd, contexts),
		"cluster": clusters, "remote-cluster": e.remotely(cmd, clusters),
		"user": users, "remote-user": e.remotely(cmd, users),
		"namespace": namespaces, "remote-namespace": e.remotely(cmd, namespaces),
		"liqo-namespace": namespaces, "remote-liqo-namespace": e.remotely(cmd, namespaces),
		"remote-cluster-id":      knownIDs(),
		"consumer-cluster-id":    knownIDs(),
		"target-node":            objects(&corev1.NodeList{}, byName),
		"vk-options-template":    objects(&offv1beta1.VkOptionsTemplateList{}, placeOf),
		"kubeconfig-secret-name": objects(&corev1.SecretList{}, byName, client.HasLabels{api.LabelIdentityType}),
		"resource-slice-name": objects(&authv1beta1.ResourceSliceList{}, byName,
			client.HasLabels{api.LabelReplication}),
		"class": classes, "resource-slice-class": classes,
		"storage-classes": ofSlices(func(s *authv1beta1.ResourceSlice) (out []string) {
			for _, class := range s.Status.StorageClasses {
				out = append(out, class.StorageClassName)
			}
			return out
		}),
		"ingress-classes": ofSlices(func(s *authv1beta1.ResourceSlice) (out []string) {
			for _, class := range s.Status.IngressClasses {
				out = append(out, class.IngressClassName)
			}
			return out
		}),
		"load-balancer-classes": ofSlices(func(s *authv1beta1.ResourceSlice) (out []string) {
			for _, class := range s.Status.LoadBalancerClasses {
				out = append(out, class.LoadBalancerClassName)
			}
			return out
		}),
		"remote-tenant-namespace": objects(&corev1beta1.ForeignClusterList{}, func(o client.Object) string {
			if at := o.(*corev1beta1.ForeignCluster).Status.TenantNamespace; at != nil {
				return at.Remote
			}
			return ""
		}),
	})
	return out
}

// networkFlagNames is flagNames for gateways and their templates. The server of a connection is at
// the remote cluster.
func (e *env) networkFlagNames(cmd *cobra.Command) map[string]names {
	servers := objects(&netv1beta1.WgGatewayServerTemplateList{}, byName)
	clients := objects(&netv1beta1.WgGatewayClientTemplateList{}, byName)
	out := map[string]names{
		"gateway-name": anyOf(
			objects(&netv1beta1.GatewayServerList{}, byName),
			objects(&netv1beta1.GatewayClientList{}, byName)),
		"gw-server-type":               e.remotely(cmd, templateKinds("server")),
		"gw-server-template-name":      e.remotely(cmd, servers),
		"gw-server-template-namespace": e.remotely(cmd, namespaceNames()),
		"gw-client-type":               templateKinds("client"),
		"gw-client-template-name":      clients,
		"gw-client-template-namespace": namespaceNames(),
		"type":                         templateKinds("client"),
		"template-name":                clients,
		"template-namespace":           namespaceNames(),
		"only-namespaces":              namespaceNames(),
	}
	if cmd.Name() == "gatewayserver" {
		out["type"], out["template-name"] = templateKinds("server"), servers
	}
	return out
}

// completeFlags completes the values of all flags of a command that take a name or one of a few
// words.
func (e *env) completeFlags(cmd *cobra.Command) {
	known := e.flagNames(cmd)
	add := func(f *pflag.Flag) {
		from, ok := known[f.Name]
		if words, is := f.Value.(interface{ words() []string }); is {
			from, ok = func(context.Context, *env) []string { return words.words() }, true
		}
		if !ok {
			return
		}
		if err := cmd.RegisterFlagCompletionFunc(f.Name, listed(f, e.completion(from))); err != nil {
			panic(err) // completed twice: a programming error
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.PersistentFlags().VisitAll(add)
}

// listed completes the last of several values that are separated by commas, if the flag takes them.
func listed(f *pflag.Flag, complete cobra.CompletionFunc) cobra.CompletionFunc {
	if _, ok := f.Value.(pflag.SliceValue); !ok {
		return complete
	}
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		offered, directive := complete(cmd, args, typed)
		before := typed[:strings.LastIndex(typed, ",")+1]
		for i := range offered {
			offered[i] = before + offered[i]
		}
		return offered, directive
	}
}
