// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

// Contents holds the FirewallConfigurations and RouteConfigurations of users. The daemon applies
// those for its host, and reports the result for this host in the status of each.
type Contents struct {
	ContentsOptions
	client    rest.Interface
	firewalls *Objects[netv1beta1.FirewallConfiguration]
	routings  *Objects[netv1beta1.RouteConfiguration]

	changed chan struct{}
	mu      sync.Mutex // guards outcome
	// outcome holds the message to report for each content; empty = it is applied.
	outcome []outcome
}

// ContentsOptions describe the host that contents are applied on.
type ContentsOptions struct {
	// Host selects the objects that are applied.
	Host plan.Host
	// Name is the name of the host in a status.
	Name string
	// Writer returns the field manager of a host's conditions. It takes over from an earlier
	// process of the same name, whose conditions are removed.
	Writer func(host string) string
	// Gone returns those hosts among the conditions of an object for this category that no longer
	// exist. This host removes their conditions; nil = it removes none.
	Gone func([]netv1beta1.HostCondition) []string
	// Silent reports whether another process reports for the host; nil = never.
	Silent func() bool
}

type outcome struct {
	plan.Content
	message string
}

// WatchContents starts to watch the objects.
func WatchContents(client API, o ContentsOptions) *Contents {
	return &Contents{
		ContentsOptions: o, client: client.Networking, changed: make(chan struct{}, 1),
		firewalls: Watch[netv1beta1.FirewallConfiguration](client.Networking, plan.Firewalls, Selection{}),
		routings:  Watch[netv1beta1.RouteConfiguration](client.Networking, plan.Routings, Selection{}),
	}
}

// wanted returns the contents that users request for this host.
func (c *Contents) wanted() []plan.Content {
	if c == nil {
		return nil
	}
	return c.Host.Contents(c.firewalls.List(), c.routings.List())
}

// Track reports whether rules of users use connection tracking.
func (c *Contents) Track() bool {
	return plan.Track(c.wanted())
}

// found records the result of applying contents.
func (c *Contents) found(contents []plan.Content, p *dataplane.Dataplane) {
	if c == nil {
		return
	}
	var out []outcome
	for _, x := range contents {
		out = append(out, outcome{x, strings.Join(append(x.Problems, p.Refused(x)...), "; ")})
	}
	c.mu.Lock()
	c.outcome = out
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// report writes the status of each object whose result changed, until the context ends.
func (c *Contents) report(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.changed:
		}
		if c.Silent != nil && c.Silent() {
			continue
		}
		c.mu.Lock()
		outcomes := c.outcome
		c.mu.Unlock()
		for _, on := range c.told() {
			said := map[string][]netv1beta1.HostCondition{c.Name: c.became(on, outcomes)}
			if c.Gone != nil && on.category == c.Host.Category {
				for _, host := range c.Gone(on.said) {
					said[host] = nil
				}
			}
			for host, want := range said {
				if err := on.Say(ctx, c.client, c.Writer(host), host, want); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
					klog.FromContext(ctx).Error(err, "The state of a user's rules could not be written") // the next look tries again
				}
			}
		}
	}
}

// told returns all objects, whether they select this host or not.
func (c *Contents) told() (out []Told) {
	for _, f := range c.firewalls.List() {
		out = append(out, Told{"FirewallConfiguration", plan.Firewalls, f.Namespace, f.Name, f.Status.Conditions, f.Labels[api.LabelFirewallCategory]})
	}
	for _, r := range c.routings.List() {
		out = append(out, Told{"RouteConfiguration", plan.Routings, r.Namespace, r.Name, r.Status.Conditions, r.Labels[api.LabelRouteCategory]})
	}
	return out
}

// became returns the conditions of this host for an object; none if the object does not select the
// host.
func (c *Contents) became(on Told, outcomes []outcome) []netv1beta1.HostCondition {
	i := slices.IndexFunc(outcomes, func(o outcome) bool {
		return o.Resource == on.Resource && o.Namespace == on.Namespace && o.Name == on.Name
	})
	if i < 0 {
		return nil
	}
	x := netv1beta1.HostCondition{Host: c.Name, Type: netv1beta1.HostApplied, Status: metav1.ConditionTrue, Message: outcomes[i].message}
	if x.Message != "" {
		x.Type = netv1beta1.HostError
	}
	return []netv1beta1.HostCondition{x}
}

// Told is an object in whose status each host reports its own conditions.
type Told struct {
	Kind, Resource, Namespace, Name string
	said                            []netv1beta1.HostCondition
	// category is the category of hosts that an object of a user selects.
	category string
}

// FabricTold returns the Told of an InternalFabric.
func FabricTold(f netv1beta1.InternalFabric) Told {
	return Told{"InternalFabric", "internalfabrics", f.Namespace, f.Name, f.Status.Conditions, ""}
}

// Say replaces the conditions of a host in the object's status. It writes nothing if they differ in
// their times only.
func (t Told) Say(ctx context.Context, client rest.Interface, writer, host string, conditions []netv1beta1.HostCondition) error {
	said := slices.DeleteFunc(slices.Clone(t.said), func(c netv1beta1.HostCondition) bool { return c.Host != host })
	if slices.EqualFunc(conditions, said, func(a, b netv1beta1.HostCondition) bool {
		b.LastTransitionTime = a.LastTransitionTime
		return a == b
	}) {
		return nil
	}
	conditions = append([]netv1beta1.HostCondition{}, conditions...) // null would not be a list
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.NewTime(time.Now())
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": netv1beta1.GroupVersion.String(), "kind": t.Kind,
		"metadata": map[string]any{"namespace": t.Namespace, "name": t.Name},
		"status":   map[string]any{"conditions": conditions},
	})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	err = client.Patch(types.ApplyPatchType).Namespace(t.Namespace).Resource(t.Resource).Name(t.Name).SubResource("status").
		Param("fieldManager", writer).Param("force", "true").Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write status of %s %s/%s: %w", t.Kind, t.Namespace, t.Name, err)
	}
	return nil
}
