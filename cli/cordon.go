// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// tenantChange brings a Tenant into another state:
//
//	         cordon            drain
//	Active ─────────▶ Cordoned ─────▶ Drained
//	   ▲ ◀── uncordon ──┘                │
//	   └──────────── activate ───────────┘
type tenantChange struct {
	verb, short, done string
	// shortSlice describes the verb for one slice; empty if there is none.
	shortSlice string
	to         authv1beta1.TenantCondition
	// from is the only state in which the verb applies; empty means all. In any other state the
	// verb changes nothing and prints the text of warns.
	from  authv1beta1.TenantCondition
	warns string
	// asks reports that the user must confirm.
	asks bool
}

// cordonCommands returns the verbs by which a provider limits what its consumers get.
func (e *env) cordonCommands() []*cobra.Command {
	changes := []tenantChange{
		{verb: "cordon", short: "Refuse new slices and pods of a consumer, keep the others", done: "cordoned",
			asks: true, shortSlice: "Refuse new pods of one slice of a consumer, keep the others",
			to: authv1beta1.TenantCordoned, from: authv1beta1.TenantActive,
			warns: "Tenant %q is not active. Activate the tenant to cordon it."},
		{verb: "uncordon", short: "Serve a cordoned consumer again", done: "uncordoned", asks: true,
			shortSlice: "Serve a cordoned slice again", to: authv1beta1.TenantActive,
			from: authv1beta1.TenantCordoned, warns: "Tenant %q is not cordoned"},
		{verb: "drain", short: "Delete slices and pods of a consumer, refuse new ones", done: "drained",
			asks: true, to: authv1beta1.TenantDrained},
		{verb: "activate", short: "Serve a cordoned or drained consumer again", done: "activated",
			to: authv1beta1.TenantActive},
	}
	var commands []*cobra.Command
	for _, t := range changes {
		cmd := group(t.verb, t.short)
		e.addNoun(cmd, "tenant", []string{"tenants"}, subcommand{"NAME", t.short, "rome", t.changeTenant})
		if t.shortSlice != "" {
			e.addNoun(cmd, "resourceslice", []string{"rs", "resourceslices"},
				subcommand{"NAME", t.shortSlice, "big --remote-cluster-id rome", t.changeSlice})
		}
		commands = append(commands, cmd)
	}
	return commands
}

// changeTenant returns the work of the verb on a Tenant.
func (t tenantChange) changeTenant(o *single) work {
	o.Flags().Lookup("namespace").Usage = "Namespace of the Tenant (default: looked for in all)"
	o.completes(o.env.namesOf(&authv1beta1.Tenant{}))
	return func(s *script, c *cluster) error {
		tenant := &authv1beta1.Tenant{ObjectMeta: metaOf(c.tenant, o.name)}
		if c.tenant == "" {
			if err := c.locateTenant(s.ctx, tenant); err != nil {
				return err
			}
		}
		return s.applyTenantChange(c, tenant, t)
	}
}

// locateTenant finds a Tenant in all namespaces, by its name or else by the cluster ID of its
// consumer, which is all that a consumer can tell the provider's administrator.
func (c *cluster) locateTenant(ctx context.Context, tenant *authv1beta1.Tenant) error {
	tenants, err := c.all(ctx, &authv1beta1.TenantList{})
	if err != nil {
		return err
	}
	named := slices.ContainsFunc(tenants, func(t client.Object) bool { return t.GetName() == tenant.Name })
	of := slices.DeleteFunc(tenants,
		func(t client.Object) bool { return t.(*authv1beta1.Tenant).Spec.ClusterID != tenant.Name })
	if named || len(of) != 1 {
		return c.locate(ctx, tenant)
	}
	tenant.Name, tenant.Namespace = of[0].GetName(), of[0].GetNamespace()
	return nil
}

func (s *script) confirmTenantChange(t tenantChange) error {
	if !t.asks {
		return nil
	}
	return s.confirm(t.verb)
}

// applyTenantChange changes the state of a Tenant and waits until it is in effect.
func (s *script) applyTenantChange(c *cluster, tenant *authv1beta1.Tenant, t tenantChange) error {
	if err := c.read(s.ctx, tenant); err != nil {
		return err
	}
	if t.from != "" && t.from != stateOfTenant(tenant) {
		s.warn(noCluster, t.warns, tenant.Name)
		return nil
	}
	if t.to == authv1beta1.TenantDrained {
		if err := s.warnOfDrain(c, tenant); err != nil {
			return err
		}
	}
	if err := s.confirmTenantChange(t); err != nil {
		return err
	}
	before := tenant.DeepCopy()
	tenant.Spec.TenantCondition = t.to
	if err := c.describe("update", tenant, c.Patch(s.ctx, tenant, client.MergeFrom(before))); err != nil {
		return err
	}
	if !s.env.dry() {
		s.busy(noCluster, fmt.Sprintf("Waiting until tenant %s is %s", tenant.Name, t.done))
		if err := c.awaitTenantState(s.ctx, tenant); err != nil {
			return err
		}
	}
	s.info(noCluster, "Tenant %q %s", tenant.Name, t.done)
	if t.to == authv1beta1.TenantDrained && !s.env.dry() {
		return s.warnOfLeftovers(c, tenant)
	}
	return nil
}

// warnOfLeftovers names what a drained consumer still has in this cluster: pods within their grace
// period, and the network.
func (s *script) warnOfLeftovers(c *cluster, tenant *authv1beta1.Tenant) error {
	id := tenant.Spec.ClusterID
	pods, err := c.all(s.ctx, &corev1.PodList{}, client.MatchingLabels{api.LabelOrigin: id})
	if err != nil {
		return err
	}
	if len(pods) > 0 {
		s.warn(noCluster, "Pods of %s run until their grace period is over; 'kubectl delete pods -A -l %s=%s "+
			"--grace-period=1' ends them now", id, api.LabelOrigin, id)
	}
	return s.warnOfNetwork(c, tenant.Namespace, id)
}

// warnOfNetwork warns if a peer without rights is still connected.
func (s *script) warnOfNetwork(c *cluster, namespace, peer string) error {
	for _, list := range []client.ObjectList{&netv1beta1.GatewayServerList{}, &netv1beta1.GatewayClientList{}} {
		gateways, err := c.all(s.ctx, list, client.InNamespace(namespace), ofPeer(peer))
		if err != nil {
			return err
		}
		if len(gateways) > 0 {
			s.warn(c.side, "The network to %s stays; '%s network disconnect' removes it", peer, c.env.name)
			return nil
		}
	}
	return nil
}

// warnOfDrain names the volumes of the consumer in this cluster, which are deleted with its
// namespaces.
func (s *script) warnOfDrain(c *cluster, tenant *authv1beta1.Tenant) error {
	copies, err := c.all(s.ctx, &corev1.PersistentVolumeClaimList{},
		client.MatchingLabels{api.LabelOrigin: tenant.Spec.ClusterID})
	_, err = s.warnOfLostClaims(c, textsOf(copies, c.nameOf), err,
		"; its owner can move what is needed to another cluster first")
	return err
}

// stateOfTenant returns the state of a Tenant; the default is active.
func stateOfTenant(t *authv1beta1.Tenant) authv1beta1.TenantCondition {
	return cmp.Or(t.Spec.TenantCondition, authv1beta1.TenantActive)
}

// awaitTenantState waits until the state of a Tenant is in effect: its controller has observed it
// and the Quotas have been updated; if it is drained, until no object of the consumer is left.
func (c *cluster) awaitTenantState(ctx context.Context, tenant *authv1beta1.Tenant) error {
	generation, state := tenant.Generation, tenant.Spec.TenantCondition
	err := c.await(ctx, tenant, func() bool {
		ready := meta.FindStatusCondition(tenant.Status.Conditions, "Ready")
		return ready != nil && ready.ObservedGeneration >= generation &&
			(state != authv1beta1.TenantDrained || ready.Status == metav1.ConditionTrue)
	})
	if err != nil {
		return err
	}
	if state != authv1beta1.TenantDrained {
		return c.awaitQuotas(ctx, tenant.Namespace)
	}
	copies := []client.ListOption{client.InNamespace(tenant.Namespace),
		client.MatchingLabels{api.LabelReplicated: api.True}}
	return inParallel(
		func() error { return c.awaitNone(ctx, &authv1beta1.ResourceSliceList{}, copies...) },
		func() error { return c.awaitNone(ctx, &offv1beta1.NamespaceMapList{}, copies...) },
		func() error {
			return c.awaitNone(ctx, &offv1beta1.ShadowPodList{},
				client.MatchingLabels{api.LabelOrigin: tenant.Spec.ClusterID})
		},
	)
}

// awaitQuotas waits until the Quotas of a tenant namespace are cordoned, or not, as its Tenant and
// the annotations of its slices demand.
func (c *cluster) awaitQuotas(ctx context.Context, namespace string) error {
	tenants, granted := &authv1beta1.TenantList{}, &authv1beta1.ResourceSliceList{}
	for _, list := range []client.ObjectList{tenants, granted} {
		if err := c.list(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
	}
	all := slices.ContainsFunc(tenants.Items,
		func(t authv1beta1.Tenant) bool { return stateOfTenant(&t) != authv1beta1.TenantActive })
	// cordoned maps the name of a slice to whether its Quota is to be cordoned.
	cordoned := map[string]bool{}
	for _, slice := range granted.Items {
		if slice.Labels[api.LabelReplicated] == api.True {
			mark, marked := slice.Annotations[api.AnnotationCordon]
			cordoned[slice.Name] = all || marked && mark != "false"
		}
	}
	return c.awaitAll(ctx, &offv1beta1.QuotaList{}, func(o client.Object) bool {
		want, known := cordoned[o.GetLabels()[api.LabelResourceSliceName]]
		return !known || o.(*offv1beta1.Quota).Spec.Cordoned == want
	}, client.InNamespace(namespace))
}

// changeSlice returns the work of the verb on a slice: it annotates the provider's copy as
// cordoned, or removes the annotation.
func (t tenantChange) changeSlice(o *single) work {
	o.needPeer("Cluster ID of the consumer")
	o.ownTenant = true
	o.completes(objects(&authv1beta1.ResourceSliceList{}, byName,
		client.MatchingLabels{api.LabelReplicated: api.True}))
	return func(s *script, c *cluster) error {
		slice, err := c.granted(s.ctx, o.peer, o.name)
		if err != nil {
			return err
		}
		if slice.Labels[api.LabelReplicated] != api.True {
			return fmt.Errorf(
				"resourceslice %q was asked for by this cluster, not by %s; cordon it where it is granted",
				slice.Name, o.peer)
		}
		if err := s.confirmTenantChange(t); err != nil {
			return err
		}
		mark := ""
		if t.to == authv1beta1.TenantCordoned {
			mark = api.True
		}
		if err := c.annotate(s.ctx, slice, api.AnnotationCordon, mark); err != nil {
			return err
		}
		if !s.env.dry() {
			s.busy(noCluster, fmt.Sprintf("Waiting until resourceslice %s is %s", slice.Name, t.done))
			if err := c.awaitQuotas(s.ctx, slice.Namespace); err != nil {
				return err
			}
		}
		s.info(noCluster, "ResourceSlice %q %s", slice.Name, t.done)
		return nil
	}
}

// granted returns the ResourceSlice with the name in a consumer's tenant namespace. If it does not
// exist, the error lists the existing ones.
func (c *cluster) granted(ctx context.Context, consumer, name string) (_ *authv1beta1.ResourceSlice, err error) {
	if c.tenant == "" {
		if c.tenant, err = c.findTenant(ctx, consumer); err != nil {
			return nil, err
		}
	}
	if c.tenant == "" {
		return nil, fmt.Errorf("the cluster has no consumer %q; '%s info' shows its peers", consumer, c.env.name)
	}
	slice := &authv1beta1.ResourceSlice{ObjectMeta: metaOf(c.tenant, name)}
	err = c.read(ctx, slice)
	if !apierrors.IsNotFound(err) {
		return slice, err
	}
	all, listing := c.all(ctx, &authv1beta1.ResourceSliceList{}, client.InNamespace(c.tenant),
		client.MatchingLabels{api.LabelReplicated: api.True})
	if listing != nil {
		return nil, listing
	}
	names := someNames(textsOf(all, client.Object.GetName))
	return nil, hint(err, "%s has %s here", consumer, cmp.Or(names, "none"))
}
