// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/internal/apply"
	"github.com/liqo-go/liqo/internal/desired"
)

// loop runs one controller on one cluster.
type loop[R client.Object, In any] struct {
	Controller[R, In]
	client   client.Client
	roots    client.Reader // the cache that has the roots
	reader   Reader
	recorder events.EventRecorder
	// objects and conditions are two field managers, so that a plan without a status still
	// writes its verdict and keeps the status it wrote before.
	objects, conditions *apply.Applier

	mu       sync.Mutex
	verdicts map[types.NamespacedName]desired.Verdict
	// refusedSince tells since when the API server has refused what a root wants.
	refusedSince map[types.NamespacedName]time.Time
	// refused holds the same roots, to be queued again.
	refused Refused[reconcile.Request]
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Reconcile makes one root's plan true.
func (l *loop[R, In]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	root := newRoot[R]()
	err := l.roots.Get(ctx, req.NamespacedName, root)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return reconcile.Result{}, fmt.Errorf("get %s %s: %w", l.Name, req, err)
	}
	if absent {
		l.forget(req.NamespacedName, root)
	}
	if !l.plansFor(root, absent) {
		l.accepted(req)
		return reconcile.Result{}, nil
	}
	plan, err := l.decide(ctx, root, absent)
	if err != nil {
		return reconcile.Result{}, err
	}
	if absent {
		return reconcile.Result{RequeueAfter: plan.RequeueAfter}, l.carryOut(ctx, root, plan.Actions)
	}
	err = l.fulfil(ctx, root, plan)
	switch {
	case errors.As(err, new(errForeign)):
		log.FromContext(ctx).V(1).Info("blocked", "by", err.Error())
		return reconcile.Result{RequeueAfter: foreignInterval}, nil
	case refusal(err):
		log.FromContext(ctx).V(1).Info("refused", "error", err.Error())
		l.refused.Add(req)
		after := min(max(l.refusedFor(req.NamespacedName, err), refusalRetry), refusedInterval)
		return reconcile.Result{RequeueAfter: after}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	l.accepted(req)
	return reconcile.Result{RequeueAfter: plan.RequeueAfter}, nil
}

// plansFor reports whether an object is a root to be planned for.
func (l *loop[R, In]) plansFor(root R, absent bool) bool {
	if absent && !l.Absent || l.Only != nil && !l.Only(root) {
		return false
	}
	return root.GetDeletionTimestamp() == nil || l.Deleting || controllerutil.ContainsFinalizer(root, l.Finalizer)
}

// decide holds a root that exists, and plans for it.
func (l *loop[R, In]) decide(ctx context.Context, root R, absent bool) (desired.Plan, error) {
	if root.GetDeletionTimestamp() == nil && !absent {
		if err := l.hold(ctx, root); err != nil {
			return desired.Plan{}, err
		}
	}
	in, err := l.Gather(ctx, l.reader, root)
	if err != nil {
		return desired.Plan{}, fmt.Errorf("gather for %s %s: %w", l.Name, client.ObjectKeyFromObject(root), err)
	}
	return l.Plan(in), nil
}

// fulfil makes the plan true, and lets a root go whose deletion it has completed.
func (l *loop[R, In]) fulfil(ctx context.Context, root R, plan desired.Plan) error {
	done, err := l.act(ctx, root, plan)
	if err == nil && done && root.GetDeletionTimestamp() != nil {
		err = l.release(ctx, root)
	}
	return err
}

const (
	// refusalTold is how long the API server must refuse before the user is told: of a namespace
	// just made it refuses pods until its service account is there, for parts of a second.
	refusalTold = time.Second
	// refusalRetry is the first time between two attempts; it doubles.
	refusalRetry = 50 * time.Millisecond
	// refusedInterval is how often a lasting refusal is tried again, besides in its turn among those refused.
	refusedInterval = 15 * time.Second
)

// accepted forgets that a root was refused, and queues others if it was.
func (l *loop[R, In]) accepted(req reconcile.Request) {
	for _, other := range l.refused.Accepted(req) {
		l.queue.Add(other)
	}
}

// refusedFor is how long the API server has refused what a root wants; 0 means that it does not.
func (l *loop[R, In]) refusedFor(key types.NamespacedName, err error) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, known := l.refusedSince[key]
	switch {
	case err == nil:
		delete(l.refusedSince, key)
		return 0
	case !refusal(err):
		return 0
	case !known:
		since = time.Now()
		l.refusedSince[key] = since
	}
	return time.Since(since)
}

// refusal reports whether a user has to change something: a policy, a quota, the object itself. A conflict counts too:
// a stale cache sends an event, but a webhook that refuses with 409 does not.
func refusal(err error) bool {
	return (apierrors.IsConflict(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) &&
		!apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// act applies the plan and reports whether it is complete and nothing is left to prune. One
// object that fails does not keep the others from being applied. One that is somebody else's keeps those after it: they
// may give it rights, or use it.
func (l *loop[R, In]) act(ctx context.Context, root R, plan desired.Plan) (bool, error) {
	var errs []error
	if plan.Fill != nil {
		_, err := l.request(ctx, root, desired.Action{Verb: desired.Merge, Before: root, Object: plan.Fill})
		errs = append(errs, err)
	}
	for _, obj := range plan.Objects {
		err := l.apply(ctx, root, obj, plan.Events)
		errs = append(errs, err)
		if errors.As(err, new(errForeign)) {
			break
		}
	}
	var first, last []desired.Action
	for _, a := range plan.Actions {
		if a.Last {
			last = append(last, a)
		} else {
			first = append(first, a)
		}
	}
	errs = append(errs, l.carryOut(ctx, root, first))
	left := 0
	if plan.State == desired.Ready {
		n, err := l.prune(ctx, root, slices.Concat(plan.Objects, plan.Preserve))
		left, errs = n, append(errs, err)
	}
	if plan.Status != nil {
		plan.Status.SetName(root.GetName())
		plan.Status.SetNamespace(root.GetNamespace())
		changed, err := l.objects.Status(ctx, root, plan.Status)
		errs = append(errs, ignoreGone(root, err))
		if changed {
			log.FromContext(ctx).V(1).Info("status applied")
			l.recordOf(root, nil, plan.Events)
		}
	}
	err := errors.Join(errs...)
	if err == nil {
		err = l.carryOut(ctx, root, last)
	}
	return plan.State == desired.Ready && left == 0 && err == nil, errors.Join(err, l.report(ctx, root, plan, err))
}

// apply applies one desired object after marking it as the root's, and records the events about one that it creates.
func (l *loop[R, In]) apply(ctx context.Context, root R, obj client.Object, events []desired.Event) error {
	l.mark(root, obj)
	live, err := l.live(ctx, obj)
	if err != nil {
		return err
	}
	var changed bool
	switch creates := l.kindIn(l.Creates, obj); {
	case creates && live == nil:
		changed, err = true, l.create(ctx, root, obj)
	case creates && !made(root, live):
		err = l.foreign(obj)
	case creates:
		changed, err = l.objects.Created(ctx, live, obj)
	default:
		changed, err = l.objects.Object(ctx, live, obj)
	}
	if changed && err == nil && live == nil {
		log.FromContext(ctx).Info("created", "kind", l.kind(obj).Kind, "object", client.ObjectKeyFromObject(obj))
		l.recordOf(root, obj, events)
	}
	return err
}

// recordOf records the events about an object of the plan; nil = about its status.
func (l *loop[R, In]) recordOf(root R, obj client.Object, events []desired.Event) {
	for _, e := range events {
		if e.Object == obj {
			l.record(root, obj, cmp.Or(e.Type, corev1.EventTypeNormal), e.Reason, e.Message)
		}
	}
}

// record records an event on the root. The recorder takes events of one reason about one version of the root for
// repetitions of the first, unless they are about different objects.
func (l *loop[R, In]) record(root R, about client.Object, eventType, reason, message string) {
	l.recorder.Eventf(root, about, eventType, reason, "Reconcile", "%s", message)
}

// errForeign: the object exists and is somebody else's.
type errForeign struct{ kind, name string }

func (e errForeign) Error() string {
	return fmt.Sprintf("%s %s was made by somebody else; delete or rename it", e.kind, e.name)
}

// foreignInterval is how often the name of a foreign object is tried again: no event tells when
// it is free.
const foreignInterval = 10 * time.Second

// create makes an object. One that is there already is the root's and the cache is late, or it
// was made for a former root of that name and is about to go, which an event tells, or it is
// somebody else's.
func (l *loop[R, In]) create(ctx context.Context, root R, obj client.Object) error {
	err := l.objects.Create(ctx, obj)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	found := obj.DeepCopyObject().(client.Object)
	if err := l.reader.Live.Get(ctx, client.ObjectKeyFromObject(obj), found); err != nil {
		return fmt.Errorf("get %s %s: %w", l.kind(obj).Kind, client.ObjectKeyFromObject(obj), err)
	}
	if made(root, found) {
		return nil
	}
	return l.foreign(obj)
}

func (l *loop[R, In]) foreign(obj client.Object) error {
	return errForeign{l.kind(obj).Kind, client.ObjectKeyFromObject(obj).String()}
}

// made tells whether an object was made for a root, or for a former one of that name. Labels alone do not tell:
// users may have taken them away.
func made(root, obj client.Object) bool {
	key, _ := parseKey(obj.GetAnnotations()[desired.AnnotationOwner])
	return key == client.ObjectKeyFromObject(root) || obj.GetLabels()[desired.LabelOwner] == string(root.GetUID())
}

// live is the object as the cache has it, nil when it is absent or of a kind without a type.
func (l *loop[R, In]) live(ctx context.Context, obj client.Object) (client.Object, error) {
	kind := l.kind(obj)
	if !l.kindIn(l.Owns, obj) {
		return nil, nil
	}
	found, err := l.client.Scheme().New(kind)
	if err != nil {
		return nil, fmt.Errorf("find type of %s: %w", kind, err)
	}
	live := found.(client.Object)
	err = l.client.Get(ctx, client.ObjectKeyFromObject(obj), live)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// mark makes obj recognisable as made for the root by this controller.
func (l *loop[R, In]) mark(root R, obj client.Object) {
	obj.SetLabels(labels.Merge(obj.GetLabels(), map[string]string{
		desired.LabelOwner: string(root.GetUID()), desired.LabelController: l.Name, desired.LabelManaged: "true",
	}))
	obj.SetAnnotations(labels.Merge(obj.GetAnnotations(), map[string]string{
		desired.AnnotationOwner: root.GetNamespace() + "/" + root.GetName(),
	}))
	if root.GetNamespace() != "" && root.GetNamespace() != obj.GetNamespace() {
		return
	}
	kind := l.kind(root)
	obj.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: root.GetName(), UID: root.GetUID(), Controller: new(true),
	}})
}

// prune deletes the root's objects that keep does not name and returns how many were still there.
// For a root being deleted it asks the API server: the cache may not have seen the last creation.
func (l *loop[R, In]) prune(ctx context.Context, root R, keep []desired.Object) (int, error) {
	uid := string(root.GetUID())
	var reader client.Reader = l.client
	var mine client.ListOption = client.MatchingFields{l.ownerIndex(): uid}
	if root.GetDeletionTimestamp() != nil {
		reader, mine = l.reader.Live, client.MatchingLabels{desired.LabelOwner: uid, desired.LabelController: l.Name}
	}
	left, errs := 0, []error(nil)
	for _, prototype := range l.Owns {
		objs, err := l.owned(ctx, reader, mine, l.kind(prototype))
		errs = append(errs, err)
		for _, obj := range objs {
			if l.named(keep, obj) {
				continue
			}
			left++
			_, err := l.delete(ctx, obj, nil)
			errs = append(errs, err)
		}
	}
	return left, errors.Join(errs...)
}

// owned lists what this controller made for one root, of one kind.
func (l *loop[R, In]) owned(ctx context.Context, r client.Reader, mine client.ListOption, kind schema.GroupVersionKind) ([]client.Object, error) {
	obj, err := l.client.Scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("find list type of %s: %w", kind, err)
	}
	list := obj.(client.ObjectList)
	err = r.List(ctx, list, mine, client.UnsafeDisableDeepCopy) // they are named and deleted, never changed
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Kind, err)
	}
	items, err := meta.ExtractList(list)
	objs := make([]client.Object, len(items))
	for i, item := range items {
		objs[i] = item.(client.Object)
	}
	return objs, err
}

// kindIn says whether a list of prototypes has the object's kind.
func (l *loop[R, In]) kindIn(prototypes []client.Object, obj client.Object) bool {
	return slices.ContainsFunc(prototypes, func(o client.Object) bool { return l.kind(o) == l.kind(obj) })
}

func (l *loop[R, In]) named(keep []desired.Object, obj client.Object) bool {
	return slices.ContainsFunc(keep, func(k desired.Object) bool {
		return k.GetName() == obj.GetName() && k.GetNamespace() == obj.GetNamespace() && l.kind(k).Kind == l.kind(obj).Kind
	})
}

// hold sets the finalizer before the first effect.
func (l *loop[R, In]) hold(ctx context.Context, root R) error {
	if l.Finalizer == "" {
		return nil
	}
	return l.patchFinalizer(ctx, root, controllerutil.AddFinalizer)
}

// release removes the finalizer after the last effect is gone.
func (l *loop[R, In]) release(ctx context.Context, root R) error {
	return client.IgnoreNotFound(l.patchFinalizer(ctx, root, controllerutil.RemoveFinalizer))
}

// patchFinalizer changes the finalizer list under optimistic lock: it is a list without keys.
func (l *loop[R, In]) patchFinalizer(ctx context.Context, root R, change func(client.Object, string) bool) error {
	before := root.DeepCopyObject().(client.Object)
	if !change(root, l.Finalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := l.client.Patch(ctx, root, patch); err != nil {
		return fmt.Errorf("patch finalizer of %s %s: %w", l.kind(root).Kind, client.ObjectKeyFromObject(root), err)
	}
	return nil
}

// forget drops what is remembered of a root that is gone.
func (l *loop[R, In]) forget(key types.NamespacedName, root R) {
	root.SetName(key.Name)
	root.SetNamespace(key.Namespace)
	l.objects.Forget(root)
	l.conditions.Forget(root)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.verdicts, key)
	delete(l.refusedSince, key)
}

func (l *loop[R, In]) kind(obj client.Object) schema.GroupVersionKind {
	gvk, err := apiutil.GVKForObject(obj, l.client.Scheme())
	if err != nil {
		return schema.GroupVersionKind{Kind: reflect.TypeOf(obj).String()}
	}
	return gvk
}

// ignoreGone drops the error of writing to a root that vanished in the meantime.
func ignoreGone(root client.Object, err error) error {
	if root.GetDeletionTimestamp() != nil {
		return client.IgnoreNotFound(err)
	}
	return err
}

// newRoot makes an empty object of the root's pointer type.
func newRoot[R client.Object]() R {
	return reflect.New(reflect.TypeFor[R]().Elem()).Interface().(R)
}

func parseKey(s string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(s, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}
