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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/internal/apply"
	"github.com/liqo-go/liqo/internal/desired"
)

// loop runs one controller on one cluster.
type loop struct {
	Controller[client.Object, any]
	// root is an empty object of the roots' kind.
	root     client.Object
	client   client.Client
	roots    client.Reader // the cache that holds the roots
	reader   Reader
	recorder events.EventRecorder
	// objects and conditions are two field managers, so that the verdict of a plan without a status
	// is written and the status of an earlier plan stays.
	objects, conditions *apply.Applier

	mu       sync.Mutex
	verdicts map[types.NamespacedName]desired.Verdict
	// refusedSince holds when the API server first refused the objects of a root.
	refusedSince map[types.NamespacedName]time.Time
	// refused holds the same roots, to be tried again.
	refused Refused[reconcile.Request]
	queue   queue
}

// Reconcile plans for one root and applies the plan.
func (l *loop) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	root := l.newRoot()
	err := l.roots.Get(ctx, req.NamespacedName, root)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return reconcile.Result{}, fmt.Errorf("get %s %s: %w", l.Name, req, err)
	}
	if absent {
		l.forget(req.NamespacedName, root)
	} else if ends, err := l.endsWithNamespace(ctx, root); ends || err != nil {
		return reconcile.Result{}, err
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
		return reconcile.Result{RequeueAfter: l.retryAfter(req.NamespacedName, err)}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	l.accepted(req)
	return reconcile.Result{RequeueAfter: plan.RequeueAfter}, nil
}

// endsWithNamespace reports whether a root is left to the deletion of its namespace. It deletes what
// delays that, and removes the finalizer; Kubernetes deletes the rest.
func (l *loop) endsWithNamespace(ctx context.Context, root client.Object) (bool, error) {
	if l.EndsWithNamespace == nil || root.GetDeletionTimestamp() != nil {
		return false, nil
	}
	key := types.NamespacedName{Name: root.GetNamespace()}
	namespace, err := Optional(ctx, l.client, key, &corev1.Namespace{})
	if namespace == nil || namespace.DeletionTimestamp == nil || err != nil {
		return false, err
	}
	if !controllerutil.ContainsFinalizer(root, l.Finalizer) {
		return true, nil
	}
	root.SetDeletionTimestamp(namespace.DeletionTimestamp)
	left, err := l.prune(ctx, root, l.EndsWithNamespace, nil)
	if left > 0 || err != nil {
		return true, err
	}
	return true, client.IgnoreNotFound(l.patchFinalizer(ctx, root, controllerutil.RemoveFinalizer))
}

// plansFor reports whether an object is a root to be planned for.
func (l *loop) plansFor(root client.Object, absent bool) bool {
	if absent && !l.Absent || l.Only != nil && !l.Only(root) {
		return false
	}
	return root.GetDeletionTimestamp() == nil || l.Deleting || controllerutil.ContainsFinalizer(root, l.Finalizer)
}

// decide adds the finalizer to a root that exists, and plans for it.
func (l *loop) decide(ctx context.Context, root client.Object, absent bool) (desired.Plan, error) {
	if l.Finalizer != "" && root.GetDeletionTimestamp() == nil && !absent {
		if err := l.patchFinalizer(ctx, root, controllerutil.AddFinalizer); err != nil {
			return desired.Plan{}, err
		}
	}
	in, err := l.Gather(ctx, l.reader, root)
	if err != nil {
		return desired.Plan{}, fmt.Errorf("gather for %s %s: %w", l.Name, client.ObjectKeyFromObject(root), err)
	}
	return l.Plan(in), nil
}

// fulfil applies the plan, and removes the finalizer of a deleted root once nothing is left to
// prune.
func (l *loop) fulfil(ctx context.Context, root client.Object, plan desired.Plan) error {
	done, err := l.act(ctx, root, plan)
	if err == nil && done && root.GetDeletionTimestamp() != nil {
		err = client.IgnoreNotFound(l.patchFinalizer(ctx, root, controllerutil.RemoveFinalizer))
	}
	return err
}

const (
	// refusalReported is how long the API server must refuse before this is reported: in a new
	// namespace it refuses pods for parts of a second, until the service account exists.
	refusalReported = time.Second
	// refusalRetry is the first interval between two attempts; it doubles.
	refusalRetry = 50 * time.Millisecond
	// refusedInterval is how often a lasting refusal is tried again, besides the tries of Refused.
	refusedInterval = 15 * time.Second
)

// accepted forgets that a root was refused, and queues others if it was.
func (l *loop) accepted(req reconcile.Request) {
	for _, other := range l.refused.Accepted(req) {
		l.queue.Add(other)
	}
}

// refusedFor returns how long the API server has refused the objects of a root; 0 if err is no
// refusal.
func (l *loop) refusedFor(key types.NamespacedName, err error) time.Duration {
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

// retryAfter returns the time until a refused root is tried again: as long as it has been refused.
func (l *loop) retryAfter(key types.NamespacedName, err error) time.Duration {
	return min(max(l.refusedFor(key, err), refusalRetry), refusedInterval)
}

// refusal reports whether a user has to change something: a policy, a quota or the object itself. A
// conflict counts, too: an event follows if the cache was stale, but not if a webhook refuses with
// 409.
func refusal(err error) bool {
	refused := apierrors.IsConflict(err) || apierrors.IsForbidden(err) ||
		apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
	return refused && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// act applies the plan, and reports whether it is complete and nothing is left to prune. If one
// object fails, the others are still applied. If one belongs to another owner, those after it are
// not applied: they may grant it rights, or use it.
func (l *loop) act(ctx context.Context, root client.Object, plan desired.Plan) (bool, error) {
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
		n, err := l.prune(ctx, root, l.Owns, slices.Concat(plan.Objects, plan.Preserve))
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

// apply marks one desired object as the root's and applies it. If that creates it, the plan's
// events about it are recorded.
func (l *loop) apply(ctx context.Context, root, obj client.Object, events []desired.Event) error {
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
func (l *loop) recordOf(root, obj client.Object, events []desired.Event) {
	for _, e := range events {
		if e.Object == obj {
			l.record(root, obj, cmp.Or(e.Type, corev1.EventTypeNormal), e.Reason, e.Message)
		}
	}
}

// record records an event on the root. The recorder takes events of one reason about one version of
// the root for repetitions of the first, unless they are about different objects.
func (l *loop) record(root, about client.Object, eventType, reason, message string) {
	l.recorder.Eventf(root, about, eventType, reason, "Reconcile", "%s", message)
}

// errForeign reports that an object of the name exists and has another owner.
type errForeign struct{ kind, name string }

func (e errForeign) Error() string {
	return fmt.Sprintf("%s %s was made by somebody else; delete or rename it", e.kind, e.name)
}

// foreignInterval is how often the name of a foreign object is tried again: no event follows when
// it becomes free.
const foreignInterval = 10 * time.Second

// create creates an object. If one exists, there are three cases: it is the root's, and the cache
// is stale; it was made for a deleted root of that name, and an event follows when it is deleted;
// or it has another owner.
func (l *loop) create(ctx context.Context, root, obj client.Object) error {
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

func (l *loop) foreign(obj client.Object) error {
	return errForeign{l.kind(obj).Kind, client.ObjectKeyFromObject(obj).String()}
}

// made reports whether an object was made for the root, or for a deleted root of that name. Labels
// do not suffice: users may have removed them.
func made(root, obj client.Object) bool {
	key, _ := parseKey(obj.GetAnnotations()[desired.AnnotationOwner])
	return key == client.ObjectKeyFromObject(root) || obj.GetLabels()[desired.LabelOwner] == string(root.GetUID())
}

// live returns the object from the cache; nil if it does not exist or its kind is not in Owns.
func (l *loop) live(ctx context.Context, obj client.Object) (client.Object, error) {
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

// mark labels obj as made for the root by this controller.
func (l *loop) mark(root, obj client.Object) {
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
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind,
		Name: root.GetName(), UID: root.GetUID(), Controller: new(true),
	}})
}

// prune deletes the root's objects of some kinds that keep does not name, and returns how many still
// exist. If the root is being deleted, it reads from the API server, except objects that Kubernetes
// deletes with the root: the cache may not show the last creation.
func (l *loop) prune(
	ctx context.Context, root client.Object, kinds []client.Object, keep []desired.Object,
) (int, error) {
	uid, deleting := string(root.GetUID()), root.GetDeletionTimestamp() != nil
	left, errs := 0, []error(nil)
	for _, prototype := range kinds {
		var reader client.Reader = l.client
		var mine client.ListOption = client.MatchingFields{l.ownerIndex(): uid}
		if deleting && (l.Unreferenced == nil || l.kindIn(l.Unreferenced, prototype)) {
			reader = l.reader.Live
			mine = client.MatchingLabels{desired.LabelOwner: uid, desired.LabelController: l.Name}
		}
		objs, err := l.owned(ctx, reader, mine, l.kind(prototype))
		errs = append(errs, err)
		for _, obj := range objs {
			if l.named(keep, obj) {
				continue
			}
			if outlivesDeletion(obj) {
				left++
			}
			_, err := l.delete(ctx, obj, nil)
			errs = append(errs, err)
		}
	}
	return left, errors.Join(errs...)
}

// outlivesDeletion reports whether an object still exists after a successful request to delete it: a
// pod ends gracefully, and finalizers hold an object.
func outlivesDeletion(obj client.Object) bool {
	_, isPod := obj.(*corev1.Pod)
	return isPod || len(obj.GetFinalizers()) > 0
}

// owned lists the objects of one kind that this controller made for one root.
func (l *loop) owned(
	ctx context.Context, r client.Reader, mine client.ListOption, kind schema.GroupVersionKind,
) ([]client.Object, error) {
	obj, err := l.client.Scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err != nil {
		return nil, fmt.Errorf("find list type of %s: %w", kind, err)
	}
	list := obj.(client.ObjectList)
	err = r.List(ctx, list, mine, client.UnsafeDisableDeepCopy) // nothing changes them
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

// kindIn reports whether a list of prototypes has the object's kind.
func (l *loop) kindIn(prototypes []client.Object, obj client.Object) bool {
	return slices.ContainsFunc(prototypes, func(o client.Object) bool { return l.kind(o) == l.kind(obj) })
}

func (l *loop) named(keep []desired.Object, obj client.Object) bool {
	return slices.ContainsFunc(keep, func(k desired.Object) bool {
		return client.ObjectKeyFromObject(k) == client.ObjectKeyFromObject(obj) && l.kind(k).Kind == l.kind(obj).Kind
	})
}

// patchFinalizer changes the list of finalizers under an optimistic lock, because it is a list
// without keys.
func (l *loop) patchFinalizer(ctx context.Context, root client.Object, change func(client.Object, string) bool) error {
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

// forget drops the state of a root that no longer exists.
func (l *loop) forget(key types.NamespacedName, root client.Object) {
	root.SetName(key.Name)
	root.SetNamespace(key.Namespace)
	l.objects.Forget(root)
	l.conditions.Forget(root)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.verdicts, key)
	delete(l.refusedSince, key)
}

func (l *loop) kind(obj client.Object) schema.GroupVersionKind {
	gvk, err := apiutil.GVKForObject(obj, l.client.Scheme())
	if err != nil {
		return schema.GroupVersionKind{Kind: reflect.TypeOf(obj).String()}
	}
	return gvk
}

// ignoreGone drops the error of a write to a deleted root that no longer exists.
func ignoreGone(root client.Object, err error) error {
	if root.GetDeletionTimestamp() != nil {
		return client.IgnoreNotFound(err)
	}
	return err
}

// newRoot returns another empty object of the roots' kind.
func (l *loop) newRoot() client.Object { return l.root.DeepCopyObject().(client.Object) }

func parseKey(s string) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(s, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok
}
