// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/why"
)

// whyOptions holds the flags of why.
type whyOptions struct {
	remote            access
	namespace, output string
}

// subjects lists the kinds that why explains, by the names that kubectl takes.
var subjects = map[string]string{
	"pod": why.Pod, "pods": why.Pod, "po": why.Pod,
	"node": why.Node, "nodes": why.Node, "no": why.Node,
	"service": why.Service, "services": why.Service, "svc": why.Service,
	"namespace": why.Namespace, "namespaces": why.Namespace, "ns": why.Namespace,
	"peer": why.Peer, "peers": why.Peer, "foreigncluster": why.Peer, "fc": why.Peer,
}

func (e *env) whyCommand() *cobra.Command {
	o := &whyOptions{}
	cmd := &cobra.Command{Use: "why <kind>/<name>", Args: oneSubject,
		Short: "Explain why something waits or does not work",
		Long: "Explain where a pod, node, service, namespace or peer is, which decisions led there, what is missing " +
			"first, and what to type. Without access to the other cluster, by --remote-kubeconfig or " +
			"--remote-context, the answer has only what the local cluster knows.",
		Example: "  liqoctl why pod/web -n shop\n" +
			"  liqoctl why pod web -n shop --remote-kubeconfig milan.yaml\n" +
			"  liqoctl why node/milan -o yaml\n" +
			"  liqoctl why peer/milan",
		RunE: func(cmd *cobra.Command, args []string) error { return e.explain(cmd, o, args) }}
	o.remote = addConnectionFlags(cmd.Flags(), remotePrefix)
	flags := cmd.Flags()
	flags.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the object (default: that of the kubeconfig)")
	flags.VarP(choice(&o.output, "", "json", "yaml"), "output", "o", "Print the answer as data")
	addLiqoFlag(flags, "liqo-namespace", "", "")
	addLiqoFlag(flags, "remote-liqo-namespace", "", ofRemote)
	addTimeoutFlag(flags, 30*time.Second)
	cmd.ValidArgsFunction = e.completeSubject(o)
	return cmd
}

// oneSubject refuses other numbers of arguments than those of "kind/name" and "kind name".
func oneSubject(cmd *cobra.Command, args []string) error {
	if len(args) == 1 || len(args) == 2 {
		return nil
	}
	return forHelp(cmd, fmt.Errorf("name one object, like pod/web, got %d arguments", len(args)))
}

// subject parses the arguments, "kind/name" or "kind name".
func subject(args []string) (why.Subject, error) {
	kind, name, _ := strings.Cut(strings.Join(args, "/"), "/")
	known := subjects[strings.ToLower(kind)]
	switch {
	case known == "":
		return why.Subject{}, fmt.Errorf("cannot explain %q; name a pod, node, service, namespace or peer, like "+
			"pod/web", args[0])
	case name == "" || strings.Contains(name, "/"):
		return why.Subject{}, fmt.Errorf("%q names no %s; give its name, like %s/web", strings.Join(args, " "), known,
			known)
	}
	return why.Subject{Kind: known, Name: name}, nil
}

// explain prints the answer about one subject.
func (e *env) explain(cmd *cobra.Command, o *whyOptions, args []string) error {
	asked, err := subject(args)
	if err != nil {
		return err
	}
	s, stop := e.scriptOf(cmd)
	defer stop()
	c, remote, err := e.clustersToAsk(s.ctx, cmd, o)
	if err != nil {
		return err
	}
	if asked.Kind == why.Pod || asked.Kind == why.Service {
		asked.Namespace = cmp.Or(o.namespace, c.current)
	}
	s.busy(noCluster, "Reading what is known about "+asked.String())
	in, err := c.question(s.ctx, asked, remote)
	if err != nil {
		return err
	}
	answer := why.Explain(*in)
	for i := range answer.Cause.Remedies {
		e.complete(cmd.Flags(), &answer.Cause.Remedies[i], in)
	}
	if o.output != "" {
		text, err := encode(answer, o.output)
		fmt.Fprint(e.Out, text)
		return err
	}
	for _, line := range answer.Lines(c.id) {
		fmt.Fprintln(e.Out, api.Printable(line))
	}
	return nil
}

// clustersToAsk connects to the local cluster, and to the remote one if a flag names it; else that
// is nil. A user who may not read the ID of the local cluster gets it without.
func (e *env) clustersToAsk(ctx context.Context, cmd *cobra.Command, o *whyOptions) (c, remote *cluster, err error) {
	if hasRemote(cmd) {
		c, remote, err = e.connect(ctx, cmd, &pair{remote: o.remote})
	} else if c, err = e.onlyCluster(cmd); err == nil {
		err = c.identify(ctx, liqoFlag(cmd))
	}
	if apierrors.IsForbidden(err) && c != nil && (remote == nil || remote.id != "") {
		err = nil
	}
	return c, remote, err
}

// wanted is a list to read, with its options.
type wanted struct {
	list client.ObjectList
	opts []client.ListOption
}

// lists returns the lists to read without options.
func lists(of ...client.ObjectList) (out []wanted) {
	for _, list := range of {
		out = append(out, wanted{list: list})
	}
	return out
}

// called returns the list of the one object with this name.
func called(list client.ObjectList, namespace, name string) wanted {
	opts := []client.ListOption{client.MatchingFields{"metadata.name": name}}
	if namespace != "" {
		opts = append(opts, client.InNamespace(namespace))
	}
	return wanted{list, opts}
}

// known reads lists concurrently. What the user may not read, it names in Unread; a kind that the
// cluster does not know has no objects.
func (c *cluster) known(ctx context.Context, into *why.Cluster, lists ...wanted) error {
	found, err := collect(lists, func(w wanted) ([]runtime.Object, error) {
		switch err := c.list(ctx, w.list, w.opts...); {
		case apierrors.IsForbidden(err):
			return nil, nil
		case err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
			return nil, err
		}
		items, err := meta.ExtractList(w.list)
		return append([]runtime.Object{}, items...), err // not nil, which stands for a list that may not be read
	})
	if err != nil {
		return err
	}
	for i, items := range found {
		if kind := c.kindsOf(lists[i].list); items == nil && !slices.Contains(into.Unread, kind) {
			into.Unread = append(into.Unread, kind)
		}
		into.Objects = append(into.Objects, items...)
	}
	return nil
}

// ofPeers returns the lists about peers, which every answer may need.
func ofPeers() []wanted {
	return lists(&corev1beta1.ForeignClusterList{}, &netv1beta1.ConfigurationList{}, &netv1beta1.GatewayServerList{},
		&netv1beta1.GatewayClientList{}, &netv1beta1.ConnectionList{}, &authv1beta1.TenantList{},
		&authv1beta1.IdentityList{}, &authv1beta1.ResourceSliceList{}, &offv1beta1.NamespaceMapList{},
		&offv1beta1.VirtualNodeList{})
}

// ofKubelets returns the list of the pods of virtual kubelets.
func ofKubelets() wanted {
	return wanted{&corev1.PodList{}, []client.ListOption{
		client.MatchingLabels{api.LabelOffloadingComponent: api.VirtualKubeletComponent}}}
}

// question reads what both clusters know about a subject; remote may be nil.
func (c *cluster) question(ctx context.Context, asked why.Subject, remote *cluster) (*why.Input, error) {
	in := &why.Input{Subject: asked, Local: why.Cluster{ID: c.id}}
	read := append(ofPeers(), lists(&corev1.NodeList{})...)
	namespace := asked.Namespace
	if asked.Kind == why.Namespace {
		namespace = asked.Name
		read = append(read, called(&corev1.NamespaceList{}, "", asked.Name))
	}
	if namespace != "" {
		read = append(read, called(&offv1beta1.NamespaceOffloadingList{}, namespace, api.NamespaceOffloadingName))
	}
	chosen, err := c.chosenPods(ctx, &in.Local, asked)
	if err != nil {
		return nil, err
	}
	if asked.Namespace != "" {
		read = append(read, around(asked.Namespace, chosen)...)
	}
	kubelets := &why.Cluster{} // for users who may not list pods of all namespaces, it stays empty
	err = inParallel(func() error { return c.known(ctx, &in.Local, read...) },
		func() error { return c.known(ctx, kubelets, ofKubelets()) })
	in.Local.Objects = append(in.Local.Objects, kubelets.Objects...)
	if err != nil || remote == nil {
		return in, err
	}
	in.Remote = &why.Cluster{ID: remote.id}
	read = ofPeers()
	if there := why.RemoteNamespace(&in.Local, asked.Namespace, remote.id); there != "" && asked.Namespace != "" {
		read = append(read, around(there, chosen)...)
	}
	return in, remote.known(ctx, in.Remote, read...)
}

// chosenPods reads the Service that is asked about, and returns how the pods of the subject are chosen.
func (c *cluster) chosenPods(ctx context.Context, into *why.Cluster, asked why.Subject) (client.ListOption, error) {
	if asked.Kind != why.Service {
		return client.MatchingFields{"metadata.name": asked.Name}, nil
	}
	services := &corev1.ServiceList{}
	err := c.known(ctx, into, called(services, asked.Namespace, asked.Name), wanted{&discoveryv1.EndpointSliceList{},
		[]client.ListOption{client.InNamespace(asked.Namespace),
			client.MatchingLabels{discoveryv1.LabelServiceName: asked.Name}}})
	if err != nil || len(services.Items) == 0 || len(services.Items[0].Spec.Selector) == 0 {
		return client.MatchingFields{"metadata.name": asked.Name}, err // a Service without pods
	}
	return client.MatchingLabels(services.Items[0].Spec.Selector), nil
}

// around returns the lists of what concerns the chosen pods in a namespace.
func around(namespace string, chosen client.ListOption) []wanted {
	in := client.InNamespace(namespace)
	return []wanted{
		{&corev1.PodList{}, []client.ListOption{in, chosen}},
		{&offv1beta1.ShadowPodList{}, []client.ListOption{in, chosen}},
		{&corev1.PersistentVolumeClaimList{}, []client.ListOption{in}},
		{&corev1.EventList{}, []client.ListOption{in, client.MatchingFields{"type": corev1.EventTypeWarning}}},
	}
}

// plain matches words that a shell takes as they are.
var plain = regexp.MustCompile(`^[-\w./:@=]+$`)

// complete gives a command the name by which the user calls liqoctl, and the flags by which the
// user has named its cluster.
func (e *env) complete(flags *pflag.FlagSet, r *why.Remedy, in *why.Input) {
	first, rest, _ := strings.Cut(r.Command, " ")
	if first == "liqoctl" {
		first = e.name
	}
	prefix, reached := "", r.Cluster == in.Local.ID
	if !reached && in.Remote != nil && r.Cluster == in.Remote.ID {
		prefix, reached = remotePrefix, true
	}
	for _, name := range shownFlags {
		f := flags.Lookup(prefix + name)
		if !reached || !f.Changed {
			continue
		}
		value := f.Value.String()
		if !plain.MatchString(value) {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		first += " --" + name + " " + value
	}
	r.Command = first + " " + rest
}

// completeSubject completes kinds and names.
func (e *env) completeSubject(o *whyOptions) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		kind, _, slash := strings.Cut(typed, "/")
		switch {
		case len(args) == 0 && !slash:
			var kinds []string
			for _, kind := range []string{why.Namespace, why.Node, why.Peer, why.Pod, why.Service} {
				kinds = append(kinds, kind+"/")
			}
			return kinds, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		case len(args) > 1 || len(args) == 1 && slash:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		prefix := kind + "/"
		if len(args) == 1 {
			kind, prefix = args[0], ""
		}
		from := e.subjectNames(o, subjects[strings.ToLower(kind)])
		if from == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		offered, directive := e.completion(from)(cmd, nil, typed)
		for i := range offered {
			offered[i] = prefix + offered[i]
		}
		return offered, directive
	}
}

// subjectNames returns the completions for the name of a subject; nil if why does not explain its kind.
func (e *env) subjectNames(o *whyOptions, kind string) names {
	namespace := o.namespace
	if namespace == "" {
		namespace, _, _ = e.local.ToRawKubeConfigLoader().Namespace() // an error offers all namespaces
	}
	switch kind {
	case why.Pod:
		return objects(&corev1.PodList{}, byName, client.InNamespace(namespace))
	case why.Service:
		return objects(&corev1.ServiceList{}, byName, client.InNamespace(namespace))
	case why.Node:
		return objects(&corev1.NodeList{}, byName)
	case why.Namespace:
		return namespaceNames()
	case why.Peer:
		return peerIDs()
	}
	return nil
}
