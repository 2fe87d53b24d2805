// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/liqo-go/liqo/view"
)

// timedOut adds the cause to errTimeout: the reason of the first object that reports one. If no
// object reports a reason, the cause is the last missing one of the objects after the first. The
// controller's Deployment is always the last object.
func (c *cluster) timedOut(err error, objects ...client.Object) error {
	if !errors.Is(err, errTimeout) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limits.explain)
	defer cancel()
	objects = append(objects, c.controllerManager())
	var missing client.Object
	for i, object := range objects {
		reason, found := c.reason(ctx, object)
		if reason != "" {
			return fmt.Errorf("%w: %s%s: %s", err, c.side, c.nameOf(object), reason)
		}
		if !found && i > 0 {
			missing = object
		}
	}
	if missing != nil {
		return fmt.Errorf("%w: %s%s: %s does not exist", err, c.side, c.nameOf(objects[0]), c.nameOf(missing))
	}
	return fmt.Errorf("%w: %s%s; look at its state with kubectl describe", err, c.side, c.nameOf(objects[0]))
}

// reason reads an object and returns whether it exists and what is wrong with it.
func (c *cluster) reason(ctx context.Context, object client.Object) (reason string, found bool) {
	return c.source(ctx).Reason(object)
}

// source returns what explains the state of objects, read from the cluster.
func (c *cluster) source(ctx context.Context) view.Source {
	return view.Source{
		Command: c.env.name,
		Read: func(object view.Object) error {
			return c.Get(ctx, client.ObjectKeyFromObject(object), object)
		},
		Pods: func(namespace string, selected labels.Selector) ([]corev1.Pod, error) {
			pods := &corev1.PodList{}
			err := c.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selected})
			return pods.Items, err
		},
		Warning: func(object view.Object) string { return c.latestWarning(ctx, object) },
	}
}

// withRemoteReason adds to errTimeout what the other cluster's Connection reports: each end of a
// tunnel observes what the other cannot.
func (c *cluster) withRemoteReason(err error) error {
	if !errors.Is(err, errTimeout) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limits.explain)
	defer cancel()
	connection, _ := c.other.tunnel()
	if reason, _ := c.other.reason(ctx, connection); reason != "" {
		return fmt.Errorf("%w; %s%s: %s", err, c.other.side, c.other.nameOf(connection), reason)
	}
	return err
}

// latestWarning returns the message of the latest warning event about an object.
func (c *cluster) latestWarning(ctx context.Context, object client.Object) string {
	gvk, err := apiutil.GVKForObject(object, c.Scheme())
	if err != nil {
		return ""
	}
	events := &corev1.EventList{}
	if err := c.List(ctx, events, client.InNamespace(cmp.Or(object.GetNamespace(), metav1.NamespaceDefault)),
		client.MatchingFields{"involvedObject.kind": gvk.Kind, "involvedObject.name": object.GetName(),
			"type": corev1.EventTypeWarning}); err != nil {
		return ""
	}
	latest := &corev1.Event{}
	for i := range events.Items {
		if event := &events.Items[i]; !view.EventTime(event).Before(view.EventTime(latest)) {
			latest = event
		}
	}
	return oneLine(latest.Message)
}
