// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/bundle"
	"github.com/liqo-go/liqo/deploy"
)

// pageSize is the number of objects that one request lists.
const pageSize = 500

// source is a list of objects to gather.
type source struct {
	resource   string
	kind       schema.GroupVersionKind
	namespaced bool
	// own limits the list to the namespaces of Liqo and of its peerings.
	own bool
	// label limits the list to objects with the label; empty = all.
	label string
	// keep selects objects; nil = all.
	keep func(*unstructured.Unstructured) bool
}

// gathered holds the objects of one resource.
type gathered struct {
	resource string
	objects  []unstructured.Unstructured
}

// kubernetesSources lists what is gathered of Kubernetes' own kinds: what the namespaces of Liqo and of its peerings
// hold, and elsewhere what Liqo made or labelled.
func (c *contribution) kubernetesSources() []source {
	kind := func(group, version, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
	pod, service, claim := kind("", "v1", "Pod"), kind("", "v1", "Service"), kind("", "v1", "PersistentVolumeClaim")
	endpoints := kind("discovery.k8s.io", "v1", "EndpointSlice")
	lease, binding := kind("coordination.k8s.io", "v1", "Lease"), kind("rbac.authorization.k8s.io", "v1", "RoleBinding")
	isLiqos := func(o *unstructured.Unstructured) bool { return strings.Contains(o.GetName(), "liqo") }
	isGateway := func(o *unstructured.Unstructured) bool { return c.isGateway(o) }
	return []source{
		{resource: "namespaces", kind: kind("", "v1", "Namespace"), keep: func(o *unstructured.Unstructured) bool {
			return isMarked(o) || slices.Contains(c.own, o.GetName())
		}},
		{resource: "nodes", kind: kind("", "v1", "Node")},
		{resource: "pods", kind: pod, namespaced: true, own: true},
		{resource: "pods", kind: pod, namespaced: true, label: api.LabelShadowPod},
		{resource: "pods", kind: pod, namespaced: true, label: api.LabelManagedBy},
		{resource: "pods", kind: pod, namespaced: true, label: api.LabelNetworkingComponent, keep: isGateway},
		{resource: "deployments.apps", kind: kind("apps", "v1", "Deployment"), namespaced: true, own: true},
		{resource: "daemonsets.apps", kind: kind("apps", "v1", "DaemonSet"), namespaced: true, own: true},
		{resource: "jobs.batch", kind: kind("batch", "v1", "Job"), namespaced: true, own: true},
		{resource: "services", kind: service, namespaced: true, own: true},
		{resource: "services", kind: service, namespaced: true, label: api.LabelOrigin},
		{resource: "endpointslices.discovery.k8s.io", kind: endpoints, namespaced: true, own: true},
		{resource: "endpointslices.discovery.k8s.io", kind: endpoints, namespaced: true, label: api.LabelOrigin},
		{resource: "persistentvolumeclaims", kind: claim, namespaced: true, own: true},
		{resource: "persistentvolumeclaims", kind: claim, namespaced: true, label: api.LabelOrigin},
		{resource: "configmaps", kind: kind("", "v1", "ConfigMap"), namespaced: true, own: true},
		{resource: "secrets", kind: kind("", "v1", "Secret"), namespaced: true, own: true},
		{resource: "leases.coordination.k8s.io", kind: lease, namespaced: true, own: true},
		{resource: "rolebindings.rbac.authorization.k8s.io", kind: binding, namespaced: true, own: true},
		{resource: "certificatesigningrequests.certificates.k8s.io",
			kind: kind("certificates.k8s.io", "v1", "CertificateSigningRequest"), label: api.LabelRemoteTenantCSR},
		{resource: "mutatingwebhookconfigurations.admissionregistration.k8s.io",
			kind: kind("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"), keep: isLiqos},
		{resource: "validatingwebhookconfigurations.admissionregistration.k8s.io",
			kind: kind("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"), keep: isLiqos},
	}
}

// isMarked reports whether Liqo put a label, an annotation or a finalizer on an object.
func isMarked(o *unstructured.Unstructured) bool {
	keys := slices.Concat(slices.Collect(maps.Keys(o.GetLabels())), slices.Collect(maps.Keys(o.GetAnnotations())),
		o.GetFinalizers())
	return slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, "liqo.io/") })
}

// liqoSources lists the kinds of this version of Liqo.
func liqoSources() ([]source, error) {
	crds, err := deploy.CRDs()
	if err != nil {
		return nil, err
	}
	var out []source
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			if version.Storage {
				kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
				out = append(out, source{resource: crd.Name, kind: kind,
					namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped})
			}
		}
	}
	return out, nil
}

// gatherObjects reads the objects and puts them into a new part of at most bound bytes.
func (c *contribution) gatherObjects(ctx context.Context, bound int64) {
	var missing []bundle.Missing
	miss := func(what string, err error) {
		if err != nil {
			missing = append(missing, bundle.Missing{What: what, Why: oneLine(err.Error())})
		}
	}
	liqos, err := liqoSources()
	miss("kinds of Liqo", err)
	c.own = []string{c.namespace}
	if c.other != nil && c.other.id != "" {
		c.own = append(c.own, api.TenantNamespace(c.other.id))
	}
	lists := c.lists(ctx, liqos, miss)
	c.own = c.ownNamespaces(ctx)
	c.gateways = gatewayNamespaces(lists)
	lists = append(lists, c.lists(ctx, c.kubernetesSources(), miss)...)
	c.found = append(merged(lists), gathered{"events", c.events(ctx, lists, miss)})
	c.part = bundle.NewPart(string(cmp.Or(c.side, local)), c.own, bound)
	c.part.ID, c.part.Namespace = c.id, c.namespace
	if d, err := c.controller(ctx); err != nil {
		miss("version of Liqo", err)
	} else {
		c.part.Liqo = d.Labels[api.LabelAppVersion]
	}
	c.part.Kubernetes, err = c.kubernetesVersion(ctx)
	miss("version of Kubernetes", err)
	for _, m := range missing {
		c.part.Miss(m.What, errors.New(m.Why))
	}
	for _, g := range c.found {
		c.part.AddObjects(g.resource, g.objects)
	}
	c.part.AddSummary()
}

func (c *contribution) count() (n int) {
	for _, g := range c.found {
		n += len(g.objects)
	}
	return n
}

// lists reads all sources. What it cannot read, it reports to miss.
func (c *contribution) lists(ctx context.Context, sources []source, miss func(string, error)) []gathered {
	errs := make([]error, len(sources))
	out := make([]gathered, len(sources))
	indexes := make([]int, len(sources))
	for i := range indexes {
		indexes[i] = i
	}
	_ = onEach(indexes, func(i int) error { // each error is kept
		show(ctx, sources[i].resource)
		out[i].resource = sources[i].resource
		out[i].objects, errs[i] = c.listSource(ctx, sources[i])
		return nil
	})
	for i, err := range errs {
		miss(sources[i].resource, err)
	}
	return out
}

// listSource lists the objects of a source. A user without the right to list them in all namespaces gets those in the
// namespaces of Liqo, and the error.
func (c *contribution) listSource(ctx context.Context, of source) ([]unstructured.Unstructured, error) {
	var opts []client.ListOption
	if of.label != "" {
		opts = append(opts, client.HasLabels{of.label})
	}
	var out []unstructured.Unstructured
	var err error
	if !of.own {
		out, err = c.listPages(ctx, of, opts...)
	}
	if of.own || of.namespaced && apierrors.IsForbidden(err) {
		for _, namespace := range c.own {
			found, failed := c.listPages(ctx, of, append(slices.Clone(opts), client.InNamespace(namespace))...)
			out, err = append(out, found...), cmp.Or(err, failed)
		}
	}
	if of.keep != nil {
		out = slices.DeleteFunc(out, func(o unstructured.Unstructured) bool { return !of.keep(&o) })
	}
	return out, err
}

// listPages lists objects page by page, and returns what it has read when it fails.
func (c *contribution) listPages(
	ctx context.Context, of source, opts ...client.ListOption,
) (out []unstructured.Unstructured, err error) {
	for next := ""; ; {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(of.kind)
		err := c.List(ctx, page, append(opts, client.Limit(pageSize), client.Continue(next))...)
		if err != nil {
			return out, timeOver(ctx, err)
		}
		for _, item := range page.Items {
			item.SetGroupVersionKind(of.kind)
			out = append(out, item)
		}
		if next = page.GetContinue(); next == "" {
			return out, nil
		}
	}
}

// timeOver returns the cause of the end of ctx if that is why a request failed, else its error in one line.
func timeOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if meta.IsNoMatchError(err) {
		return errors.New("the cluster does not know this kind")
	}
	return err
}

// ownNamespaces returns the namespaces of Liqo and of its peerings, in order.
func (c *contribution) ownNamespaces(ctx context.Context) []string {
	own := slices.Clone(c.own)
	tenants := &corev1.NamespaceList{}
	// Without the right to list namespaces, those that are known remain.
	if err := c.List(ctx, tenants, client.HasLabels{api.LabelTenantNamespace}); err == nil {
		for _, n := range tenants.Items {
			own = append(own, n.Name)
		}
	}
	slices.Sort(own)
	return slices.Compact(own)
}

// gatewayNamespaces returns the namespaces of the gateways in the lists.
func gatewayNamespaces(lists []gathered) (out []string) {
	for _, list := range lists {
		if slices.Contains([]string{"gatewayservers", "gatewayclients"}, strings.Split(list.resource, ".")[0]) {
			for _, o := range list.objects {
				out = append(out, o.GetNamespace())
			}
		}
	}
	return out
}

// isGateway reports whether a pod is one of a gateway. The label alone does not tell: any user can set it.
func (c *contribution) isGateway(pod client.Object) bool {
	return pod.GetLabels()[api.LabelNetworkingComponent] == api.GatewayComponent &&
		slices.Contains(c.gateways, pod.GetNamespace())
}

// merged returns the lists of each resource as one, without objects that occur twice.
func merged(lists []gathered) (out []gathered) {
	seen := map[types.UID]bool{}
	for _, list := range lists {
		i := slices.IndexFunc(out, func(g gathered) bool { return g.resource == list.resource })
		if i < 0 {
			out = append(out, gathered{resource: list.resource})
			i = len(out) - 1
		}
		for _, o := range list.objects {
			if !seen[o.GetUID()] {
				out[i].objects = append(out[i].objects, o)
			}
			seen[o.GetUID()] = true
		}
	}
	return slices.DeleteFunc(out, func(g gathered) bool { return len(g.objects) == 0 })
}

// events returns the Events of the namespaces of Liqo, and those about the objects of the lists elsewhere.
func (c *contribution) events(
	ctx context.Context, lists []gathered, miss func(string, error),
) []unstructured.Unstructured {
	about, in := map[string]bool{}, map[string]bool{metav1.NamespaceDefault: true}
	for _, namespace := range c.own {
		in[namespace] = true
	}
	for _, list := range lists {
		for _, o := range list.objects {
			about[string(o.GetUID())], about[o.GetName()] = true, true // some Events have names as UIDs
			if o.GetNamespace() != "" {
				in[o.GetNamespace()] = true
			}
		}
	}
	of := source{kind: corev1.SchemeGroupVersion.WithKind("Event")}
	namespaces := slices.Sorted(maps.Keys(in))
	var out []unstructured.Unstructured
	for _, namespace := range namespaces {
		found, err := c.listPages(ctx, of, client.InNamespace(namespace))
		miss("events in namespace "+namespace, err)
		for _, e := range found {
			uid, _, _ := unstructured.NestedString(e.Object, "involvedObject", "uid")
			if about[uid] || slices.Contains(c.own, namespace) {
				out = append(out, e)
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return out
}

// kubernetesVersion returns the version of the API server.
func (c *contribution) kubernetesVersion(ctx context.Context) (string, error) {
	text, err := c.get(ctx, "/version", nil)
	if err != nil {
		return "", err
	}
	version := struct{ GitVersion string }{}
	if err := json.Unmarshal(text, &version); err != nil {
		return "", fmt.Errorf("decode the version: %w", err)
	}
	return version.GitVersion, nil
}
