// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/internal/desired"
)

// evictions is how many pods are evicted concurrently. The API server takes 10 ms and more for each, and
// a node may have thousands.
const evictions = 10

// carryOut carries out actions in their order, evictions concurrently. If one fails, the others are
// carried out all the same.
func (l *loop) carryOut(ctx context.Context, root client.Object, actions []desired.Action) error {
	errs, slots := make([]error, len(actions)), make(chan struct{}, evictions)
	var running sync.WaitGroup
	for i, a := range actions {
		if a.Verb != desired.Evict {
			errs[i] = l.carryOutOne(ctx, root, a)
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			errs[i] = l.carryOutOne(ctx, root, a)
			<-slots
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// carryOutOne carries out an action, and records its event if that changed anything.
func (l *loop) carryOutOne(ctx context.Context, root client.Object, a desired.Action) error {
	changed, err := l.request(ctx, root, a)
	if e := a.Event; changed && e.Reason != "" {
		level := cmp.Or(e.Type, corev1.EventTypeNormal)
		l.recorder.Eventf(a.Object, nil, level, e.Reason, "Reconcile", "%s", e.Message)
	}
	return err
}

// request carries out one action, and reports whether that changed anything. A missing object is no
// error: its event starts another reconciliation.
func (l *loop) request(ctx context.Context, root client.Object, a desired.Action) (changed bool, err error) {
	c, at := l.client, "here"
	if a.Peer {
		there, err := l.Peer(root)
		if err != nil {
			return false, err
		}
		c, at = there, "the peer"
	}
	obj := a.Object.DeepCopyObject().(client.Object) // the answer is decoded into it
	kind, key := l.kind(obj).Kind, client.ObjectKeyFromObject(obj)
	logger := log.FromContext(ctx).WithValues("kind", kind, "object", key, "part", a.Subresource, "at", at)
	changed, err = l.send(ctx, c, a, obj)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil && a.Peer && apierrors.IsForbidden(err):
		logger.Error(err, "the peer refuses a change")
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s %s %s at %s: %w", a.Verb, kind, key, at, err)
	case changed && a.Verb != desired.Delete: // which logs itself
		logger.Info("changed", "verb", a.Verb.String())
	}
	return changed, nil
}

// send makes the request of an action, and reports whether there was anything to change.
func (l *loop) send(
	ctx context.Context, c client.Client, a desired.Action, obj client.Object,
) (changed bool, err error) {
	owner := client.FieldOwner("liqo/" + l.Name)
	switch a.Verb {
	case desired.Delete:
		return l.delete(ctx, obj, a.Grace)
	case desired.Evict:
		return evict(ctx, c, obj)
	case desired.Create:
		err = c.Create(ctx, obj, owner)
		return err == nil, client.IgnoreAlreadyExists(err)
	case desired.Update:
		if a.Subresource == "" {
			return true, c.Update(ctx, obj, owner)
		}
		return true, c.SubResource(a.Subresource).Update(ctx, obj, owner)
	}
	patch, err := difference(a)
	switch {
	case patch == nil || err != nil:
		return false, err
	case a.Subresource == "":
		return true, c.Patch(ctx, obj, patch, owner)
	}
	return true, c.SubResource(a.Subresource).Patch(ctx, obj, patch, owner)
}

// evict evicts a pod. A disruption budget that forbids this is no error: the plan says when to try
// again.
func evict(ctx context.Context, c client.Client, pod client.Object) (done bool, err error) {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.GetName(), Namespace: pod.GetNamespace()},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.GetUID()))},
	}
	err = c.SubResource("eviction").Create(ctx, pod, eviction)
	if apierrors.IsTooManyRequests(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	return err == nil, err
}

// difference returns the patch of an action, which applies only to the object with this UID; nil if
// nothing differs.
func difference(a desired.Action) (client.Patch, error) {
	from := client.MergeFrom
	if a.Verb == desired.Strategic {
		from = func(obj client.Object) client.Patch { return client.StrategicMergeFrom(obj) }
	}
	if data, err := from(a.Before).Data(a.Object); err != nil || string(data) == "{}" {
		return nil, err
	}
	before := a.Before.DeepCopyObject().(client.Object)
	before.SetUID("") // so that the patch contains it
	if a.Locked {
		before.SetResourceVersion("")
	}
	data, err := from(before).Data(a.Object)
	return client.RawPatch(from(before).Type(), data), err
}

// delete deletes an object if it still has the observed UID, and reports whether it existed.
func (l *loop) delete(ctx context.Context, obj client.Object, grace *int64) (deleted bool, err error) {
	if obj.GetDeletionTimestamp() != nil && grace == nil {
		return false, nil
	}
	var opts []client.DeleteOption
	if grace != nil {
		opts = append(opts, client.GracePeriodSeconds(*grace))
	}
	if uid := obj.GetUID(); uid != "" {
		opts = append(opts, client.Preconditions{UID: &uid})
	}
	l.objects.Forget(obj)
	err = l.client.Delete(ctx, obj, append(opts, client.PropagationPolicy(metav1.DeletePropagationBackground))...)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("delete %s %s: %w", l.kind(obj).Kind, client.ObjectKeyFromObject(obj), err)
	}
	log.FromContext(ctx).Info("deleted", "kind", l.kind(obj).Kind, "object", client.ObjectKeyFromObject(obj))
	return true, nil
}
