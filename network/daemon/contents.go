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

// Contents are the FirewallConfigurations and RouteConfigurations users made. The daemon makes those
// for its host act, and tells in the status of each what became of it here.
type Contents struct {
	ContentsOptions
	client    rest.Interface
	firewalls *Objects[netv1beta1.FirewallConfiguration]
	routings  *Objects[netv1beta1.RouteConfiguration]

	changed chan struct{}
	mu      sync.Mutex // guards outcome
	// outcome has what to tell of each content, an empty text where all is well.
	outcome []outcome
}

// ContentsOptions say for whom contents are.
type ContentsOptions struct {
	// Host decides which objects are taken.
	Host plan.Host
	// Name is the host's in the status.
	Name string
	// Writer owns what a host says in a status, and takes over from an earlier process of the same
	// name: what that said of itself goes.
	Writer func(host string) string
	// Gone picks of hosts that said something of an object for this kind of host those that are no more,
	// for which this one speaks; nil = none.
	Gone func([]netv1beta1.HostCondition) []string
	// Silent tells whether another process speaks for the host; nil = never.
	Silent func() bool
}

type outcome struct {
	plan.Content
	message string
}

// WatchContents begins to copy the objects.
func WatchContents(client API, o ContentsOptions) *Contents {
	return &Contents{
		ContentsOptions: o, client: client.Networking, changed: make(chan struct{}, 1),
		firewalls: Watch[netv1beta1.FirewallConfiguration](client.Networking, plan.Firewalls, Selection{}),
		routings:  Watch[netv1beta1.RouteConfiguration](client.Networking, plan.Routings, Selection{}),
	}
}

// wanted plans what users want here.
func (c *Contents) wanted() []plan.Content {
	if c == nil {
		return nil
	}
	return c.Host.Contents(c.firewalls.List(), c.routings.List())
}

// Track tells whether users' rules speak of connections.
func (c *Contents) Track() bool {
	return plan.Track(c.wanted())
}

// found takes what became of it.
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

// report writes the status of each object that does not say yet what became of it, until the
// context ends.
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

// told are all objects, for this host or not.
func (c *Contents) told() (out []Told) {
	for _, f := range c.firewalls.List() {
		out = append(out, Told{"FirewallConfiguration", plan.Firewalls, f.Namespace, f.Name, f.Status.Conditions, f.Labels[api.LabelFirewallCategory]})
	}
	for _, r := range c.routings.List() {
		out = append(out, Told{"RouteConfiguration", plan.Routings, r.Namespace, r.Name, r.Status.Conditions, r.Labels[api.LabelRouteCategory]})
	}
	return out
}

// became is what this host has to say of an object; nothing when the object is not for it.
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

// Told is an object of a group in whose status hosts say what became of it, each for itself.
type Told struct {
	Kind, Resource, Namespace, Name string
	said                            []netv1beta1.HostCondition
	// category of the hosts it is for, of an object of a user.
	category string
}

// FabricTold is an InternalFabric.
func FabricTold(f netv1beta1.InternalFabric) Told {
	return Told{"InternalFabric", "internalfabrics", f.Namespace, f.Name, f.Status.Conditions, ""}
}

// Say makes conditions all that a host says in the object's status, unless they are, whenever they were written.
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
