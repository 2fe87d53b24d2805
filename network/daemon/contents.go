// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package daemon

import (
	"context"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

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
	notify(c.changed)
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
		for _, s := range c.statuses() {
			want := map[string][]netv1beta1.HostCondition{c.Name: c.conditions(s, outcomes)}
			if c.Gone != nil && s.category == c.Host.Category {
				for _, host := range c.Gone(s.conditions) {
					want[host] = nil
				}
			}
			s.Report(ctx, c.client, c.Writer, want, "The state of a user's rules could not be written")
		}
	}
}

// statuses returns the statuses of all objects, whether they select this host or not.
func (c *Contents) statuses() (out []HostStatus) {
	for _, f := range c.firewalls.List() {
		ref := Reference{"FirewallConfiguration", plan.Firewalls, f.Namespace, f.Name}
		out = append(out, HostStatus{ref, f.Status.Conditions, f.Labels[api.LabelFirewallCategory]})
	}
	for _, r := range c.routings.List() {
		ref := Reference{"RouteConfiguration", plan.Routings, r.Namespace, r.Name}
		out = append(out, HostStatus{ref, r.Status.Conditions, r.Labels[api.LabelRouteCategory]})
	}
	return out
}

// conditions returns the conditions of this host for an object; none if the object does not select
// the host.
func (c *Contents) conditions(s HostStatus, outcomes []outcome) []netv1beta1.HostCondition {
	i := slices.IndexFunc(outcomes, func(o outcome) bool {
		return o.Resource == s.Resource && o.Namespace == s.Namespace && o.Name == s.Name
	})
	if i < 0 {
		return nil
	}
	x := netv1beta1.HostCondition{Host: c.Name, Type: netv1beta1.HostApplied, Status: metav1.ConditionTrue}
	if x.Message = outcomes[i].message; x.Message != "" {
		x.Type = netv1beta1.HostError
	}
	return []netv1beta1.HostCondition{x}
}
