// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/offloading/plan"
)

// offloadOptions holds the flags of offload namespace.
type offloadOptions struct {
	spec       offv1beta1.NamespaceOffloadingSpec
	selectors  []string
	namespaces string
	output     string
	// prints reports that the objects are printed and no cluster is changed.
	prints bool
}

func (e *env) offloadCommand() *cobra.Command {
	cmd := group("offload", "Let pods of a namespace run in other clusters")
	o := &offloadOptions{}
	sub := &cobra.Command{Use: "namespace [name…]", Aliases: []string{"ns", "namespaces"},
		Short: "Offload namespaces",
		Example: "  liqoctl offload namespace shop\n" +
			"  liqoctl offload namespace shop --pod-offloading-strategy Remote -l region=eu\n" +
			"  liqoctl offload namespace --ns-selector team=blue --dry-run=server -o yaml"}
	flags := sub.Flags()
	flags.Var(choice(&o.spec.PodOffloadingStrategy, "LocalAndRemote", "Local", "Remote"), "pod-offloading-strategy",
		"Where pods may run")
	flags.Var(choice(&o.spec.NamespaceMappingStrategy, "DefaultName", "EnforceSameName", "SelectedName"),
		"namespace-mapping-strategy", "How the remote namespace is named")
	flags.StringVar(&o.spec.RemoteNamespaceName, "remote-namespace-name", "",
		"Name of the remote namespace, for SelectedName")
	flags.StringArrayVarP(&o.selectors, "selector", "l", nil,
		"Labels of the virtual nodes to use; given several times, one of them must match")
	flags.StringVar(&o.namespaces, "ns-selector", "", "Choose local namespaces by their labels")
	flags.VarP(choice(&o.output, "", "json", "yaml", "name"), "output", "o", usageManifest)
	e.addDryRunFlag(flags)
	addLiqoFlag(flags, "liqo-namespace", "", "")
	addTimeoutFlag(flags, 20*time.Second)
	sub.ValidArgsFunction = e.completion(offloadable())
	sub.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.complete(args); err != nil {
			return err
		}
		o.prints = e.printsOnly(cmd, o.output)
		if o.prints && o.namespaces == "" {
			return e.printOffloadings(args, o)
		}
		return e.onInstallation(cmd, func(s *script, c *cluster) error { return s.offload(c, args, o) })
	}
	cmd.AddCommand(sub)
	return cmd
}

// complete checks the arguments and parses the selectors. Without selectors, all virtual nodes are
// selected.
func (o *offloadOptions) complete(names []string) error {
	if err := validateNames(names, o.namespaces); err != nil {
		return err
	}
	named := o.spec.RemoteNamespaceName != ""
	switch selected := o.spec.NamespaceMappingStrategy == offv1beta1.SelectedNameMapping; {
	case named && (len(names) > 1 || o.namespaces != ""):
		return errors.New("the remote namespace name cannot be specified when offloading multiple namespaces at once")
	case selected && !named:
		return errors.New("the strategy SelectedName needs --remote-namespace-name")
	case !selected && named:
		return errors.New("--remote-namespace-name needs --namespace-mapping-strategy=SelectedName")
	}
	terms := []corev1.NodeSelectorTerm{}
	for _, text := range o.selectors {
		term, err := selectorTerm(text)
		if err != nil {
			return err
		}
		terms = append(terms, term)
	}
	o.spec.ClusterSelector = &corev1.NodeSelector{NodeSelectorTerms: terms}
	return nil
}

// validateNames checks that namespaces are named in exactly one way.
func validateNames(names []string, selector string) error {
	switch {
	case len(names) == 0 && selector == "":
		return errors.New("namespace name or label selector must be specified")
	case len(names) > 0 && selector != "":
		return errors.New("namespace name and label selector must not be specified together")
	}
	return nil
}

// selectorTerm converts a label selector to a term of node affinity.
func selectorTerm(text string) (corev1.NodeSelectorTerm, error) {
	parsed, err := labels.Parse(text)
	if err != nil {
		return corev1.NodeSelectorTerm{}, fmt.Errorf("selector %q: %w", text, err)
	}
	requirements, _ := parsed.Requirements()
	var term corev1.NodeSelectorTerm
	for _, r := range requirements {
		operators := map[selection.Operator]corev1.NodeSelectorOperator{
			selection.Equals: corev1.NodeSelectorOpIn, selection.DoubleEquals: corev1.NodeSelectorOpIn,
			selection.In:        corev1.NodeSelectorOpIn,
			selection.NotEquals: corev1.NodeSelectorOpNotIn, selection.NotIn: corev1.NodeSelectorOpNotIn,
			selection.Exists: corev1.NodeSelectorOpExists, selection.DoesNotExist: corev1.NodeSelectorOpDoesNotExist,
			selection.GreaterThan: corev1.NodeSelectorOpGt, selection.LessThan: corev1.NodeSelectorOpLt,
		}
		values := r.Values().UnsortedList()
		slices.Sort(values)
		term.MatchExpressions = append(term.MatchExpressions,
			corev1.NodeSelectorRequirement{Key: r.Key(), Operator: operators[r.Operator()], Values: values})
	}
	return term, nil
}

func (s *script) offload(c *cluster, names []string, o *offloadOptions) error {
	names, err := c.namespaces(s.ctx, names, o.namespaces)
	if err != nil {
		return err
	}
	if o.prints {
		return s.env.printOffloadings(names, o)
	}
	if len(names) == 0 {
		s.info(noCluster, "No namespaces can be offloaded")
		return nil
	}
	for _, name := range names {
		remote := plan.RemoteNamespaceName(name, o.spec, c.id)
		if refusal := plan.RemoteNameRefusal(remote, o.spec.NamespaceMappingStrategy); refusal != "" {
			return fmt.Errorf("namespace %q cannot be offloaded: %s with --remote-namespace-name", name, refusal)
		}
	}
	reports := make([]func(*script), len(names))
	for i, name := range names {
		if reports[i], err = s.confirmChange(c, offloading(name, o.spec)); err != nil {
			return err
		}
	}
	for i, name := range names {
		if err := s.offloadNamespace(c, offloading(name, o.spec), o.output, reports[i]); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) printOffloadings(names []string, o *offloadOptions) error {
	var objects []client.Object
	for _, name := range names {
		objects = append(objects, offloading(name, o.spec))
	}
	return e.print(o.output, objects...)
}

// offloadNamespace applies a NamespaceOffloading and waits for the remote namespaces. output is the
// format in which it is printed; report prints what happens to the pods of the namespace.
func (s *script) offloadNamespace(
	c *cluster, wanted *offv1beta1.NamespaceOffloading, output string, report func(*script),
) error {
	name := wanted.Namespace
	before := &offv1beta1.NamespaceOffloading{ObjectMeta: metaOf(name, wanted.Name)}
	err := c.read(s.ctx, before)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	if err := c.Get(s.ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}); apierrors.IsNotFound(err) {
		return fmt.Errorf("namespace %q does not exist; create it first", name)
	}
	applied, err := c.applied(s.ctx, wanted)
	if err != nil {
		return err
	}
	if isStricter(before.Spec.PodOffloadingStrategy, wanted.Spec.PodOffloadingStrategy) {
		s.warn(noCluster, "The PodOffloadingStrategy was mutated to a more restrictive setting")
		s.warn(noCluster, "Existing pods violating this policy might still be running")
	}
	report(s)
	s.info(noCluster, "Offloading of namespace %q correctly enabled", name)
	if err := s.env.printStored(output, applied); err != nil || s.env.dry() {
		return err
	}
	s.busy(noCluster, "Waiting for the remote namespaces")
	err = c.await(s.ctx, wanted, func() bool {
		switch wanted.Status.OffloadingPhase {
		case offv1beta1.OffloadingReady, offv1beta1.OffloadingNoClusterSelected, offv1beta1.OffloadingAllFailed,
			offv1beta1.OffloadingSomeFailed:
			return wanted.Status.ObservedGeneration >= wanted.Generation
		}
		return false
	})
	if err != nil {
		return err
	}
	switch wanted.Status.OffloadingPhase {
	case offv1beta1.OffloadingReady:
		s.info(noCluster, "Offloading completed successfully")
	case offv1beta1.OffloadingNoClusterSelected:
		s.warn(noCluster, "Offloading completed, but no cluster was selected")
	default:
		return offloadFailure(wanted)
	}
	return nil
}

// confirmChange asks before volumes are lost at providers that the namespace will no longer be
// extended to. It returns a function that prints what happens to its pods.
func (s *script) confirmChange(c *cluster, wanted *offv1beta1.NamespaceOffloading) (report func(*script), err error) {
	nothing, before := func(*script) {}, &offv1beta1.NamespaceOffloading{}
	if err := c.Get(s.ctx, client.ObjectKeyFromObject(wanted), before); err != nil {
		return nothing, client.IgnoreNotFound(err)
	}
	r, err := c.placement(s.ctx)
	if apierrors.IsForbidden(err) {
		s.warn(noCluster, "Which pods and volumes are affected cannot be told: %v", err)
		if selector := wanted.Spec.ClusterSelector; len(selector.NodeSelectorTerms) == 0 ||
			equality.Semantic.DeepEqual(selector, before.Spec.ClusterSelector) {
			return nothing, nil // no provider is left
		}
		return nothing, s.confirm("offload")
	}
	if err != nil {
		return nil, err
	}
	left := r.losses(func(r *placement) {
		for i := range r.offloadings.Items {
			if o := &r.offloadings.Items[i]; o.Namespace == wanted.Namespace {
				o.Spec = wanted.Spec
			}
		}
	})
	if err := s.confirmLosses(c, "offload", left); err != nil {
		return nil, err
	}
	pods := &corev1.PodList{} // read before the change, after which some are deleted at once
	if err := c.List(s.ctx, pods, client.InNamespace(wanted.Namespace)); err != nil {
		s.warn(noCluster, "Which pods run where new ones would not cannot be told: %v", err)
		return nothing, nil
	}
	return func(s *script) { s.warnOfPods(c, wanted, pods.Items, r.byName, left[wanted.Namespace]) }, nil
}

// warnOfPods names the pods that run on a node to which the namespace does not allow new ones, and
// those that are deleted since the namespace is no longer extended to their provider. virtual holds
// the virtual nodes by name.
func (s *script) warnOfPods(
	c *cluster, o *offv1beta1.NamespaceOffloading, pods []corev1.Pod, virtual map[string]corev1.Node, left []string,
) {
	var end []string
	stay := slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		ends := slices.Contains(left, virtual[p.Spec.NodeName].Labels[api.LabelRemoteClusterID])
		if ends && !api.Finished(p.Status.Phase) {
			end = append(end, p.Name)
		}
		return ends
	})
	if len(end) > 0 {
		s.warn(noCluster, "Pods of namespace %q that end, for it is not extended to %s any more: %s", o.Namespace,
			strings.Join(left, ", "), upTo(10, end))
	}
	runtimeClass := api.RuntimeClassName // the default, if the user may not read the controller's flags
	if manager, err := c.controller(s.ctx); err == nil {
		runtimeClass = cmp.Or(flagOf(manager, "liqo-runtime-class"), runtimeClass)
	}
	if names := plan.Misplaced(stay, virtual, o.Spec, runtimeClass); len(names) > 0 {
		s.warn(noCluster, "Pods of namespace %q that run where new ones would not: %s; "+
			"delete them to have them elsewhere", o.Namespace, upTo(10, names))
	}
}

// offloadFailure returns why the remote namespace could not be created, for one peer.
func offloadFailure(o *offv1beta1.NamespaceOffloading) error {
	for _, peer := range slices.Sorted(maps.Keys(o.Status.RemoteNamespacesConditions)) {
		for _, condition := range o.Status.RemoteNamespacesConditions[peer] {
			if condition.Type == offv1beta1.NamespaceReady && condition.Status == corev1.ConditionFalse {
				return fmt.Errorf("offloading of namespace %q to %s failed: %s: %s",
					o.Namespace, peer, condition.Reason, condition.Message)
			}
		}
	}
	return fmt.Errorf("offloading of namespace %q failed: %s", o.Namespace, o.Status.OffloadingPhase)
}

// isStricter reports whether the change forbids nodes on which pods could run before.
func isStricter(before, now offv1beta1.PodOffloadingStrategy) bool {
	return before != "" && before != now && now != offv1beta1.LocalAndRemoteStrategy
}

// namespaces returns names, or the user namespaces that match a selector.
func (c *cluster) namespaces(ctx context.Context, names []string, selector string) ([]string, error) {
	if selector == "" {
		return names, nil
	}
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil, fmt.Errorf("selector %q: %w", selector, err)
	}
	found := &corev1.NamespaceList{}
	if err := c.List(ctx, found, client.MatchingLabelsSelector{Selector: parsed}); err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	for _, n := range found.Items {
		if isUserNamespace(&n, c.namespace) {
			names = append(names, n.Name)
		}
	}
	return names, nil
}

// isUserNamespace reports whether a namespace belongs neither to Kubernetes nor to Liqo and is not
// being deleted.
func isUserNamespace(n client.Object, liqo string) bool {
	return n.GetDeletionTimestamp() == nil && n.GetLabels()[api.LabelTenantNamespace] == "" && n.GetName() != liqo &&
		n.GetName() != metav1.NamespaceSystem
}
