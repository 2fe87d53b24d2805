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
	// Writer owns what this host says in a status, and takes over from an earlier process of the same
	// name: what that said of itself goes.
	Writer string
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
		for key, said := range c.said() {
			i := slices.IndexFunc(outcomes, func(o outcome) bool { return keyOf(o.Resource, o.Namespace, o.Name) == key })
			if err := c.tell(ctx, key, said, i, outcomes); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				klog.FromContext(ctx).Error(err, "The state of a user's rules could not be written") // the next look tries again
			}
		}
	}
}

// key of an object: resource, namespace and name.
type key [3]string

func keyOf(resource, namespace, name string) key { return key{resource, namespace, name} }

// said is what the objects' status says of this host.
func (c *Contents) said() map[key][]netv1beta1.HostCondition {
	out := map[key][]netv1beta1.HostCondition{}
	ofHost := func(list []netv1beta1.HostCondition) []netv1beta1.HostCondition {
		return slices.DeleteFunc(slices.Clone(list), func(x netv1beta1.HostCondition) bool { return x.Host != c.Name })
	}
	for _, f := range c.firewalls.List() {
		out[keyOf(plan.Firewalls, f.Namespace, f.Name)] = ofHost(f.Status.Conditions)
	}
	for _, r := range c.routings.List() {
		out[keyOf(plan.Routings, r.Namespace, r.Name)] = ofHost(r.Status.Conditions)
	}
	return out
}

// tell writes what became of the i-th outcome, or that there is none when i is negative.
func (c *Contents) tell(ctx context.Context, k key, said []netv1beta1.HostCondition, i int, outcomes []outcome) error {
	want := []netv1beta1.HostCondition{}
	if i >= 0 {
		x := netv1beta1.HostCondition{Host: c.Name, Type: netv1beta1.HostApplied, Status: metav1.ConditionTrue, Message: outcomes[i].message}
		if x.Message != "" {
			x.Type = netv1beta1.HostError
		}
		want = append(want, x)
	}
	if Same(want, said) {
		return nil
	}
	kind := map[string]string{plan.Firewalls: "FirewallConfiguration", plan.Routings: "RouteConfiguration"}[k[0]]
	return Told{Kind: kind, Resource: k[0], Namespace: k[1], Name: k[2]}.Write(ctx, c.client, c.Writer, want)
}

// Same tells whether conditions say the same, whenever they were written.
func Same(a, b []netv1beta1.HostCondition) bool {
	return slices.EqualFunc(a, b, func(a, b netv1beta1.HostCondition) bool {
		b.LastTransitionTime = a.LastTransitionTime
		return a == b
	})
}

// Told is an object of a group in whose status hosts say what became of it, each for itself.
type Told struct{ Kind, Resource, Namespace, Name string }

// Write makes conditions all that a writer says in the object's status.
func (t Told) Write(ctx context.Context, client rest.Interface, writer string, conditions []netv1beta1.HostCondition) error {
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
