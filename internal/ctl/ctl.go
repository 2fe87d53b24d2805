// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ctl is the loop that every controller runs in: observe, decide, apply.
//
// A controller consists of two functions. Gather does all reads for one root object. Plan is pure
// and returns the desired objects. The loop applies the plan, prunes objects that a complete plan
// no longer names, writes the verdict into the root's conditions and maintains finalizers. Data
// flows from Gather to Plan to the API server. What was achieved is observed again.
//
// Start reading at Controller, then desired.Plan, then loop.Reconcile.
package ctl

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/liqo-go/liqo/internal/apply"
	"github.com/liqo-go/liqo/internal/desired"
)

// Queues configures the queues of a manager's controllers. They are client-go's:
// controller-runtime's own may lock up when the manager ends (0.23, its issue 3538), and the
// process would keep its lease until the grace period is over. They fill before leader election, so
// a new leader starts without a relist.
func Queues() config.Controller {
	return config.Controller{UsePriorityQueue: new(false), EnableWarmup: new(true)}
}

// Controller describes one controller rooted on objects of type R.
type Controller[R client.Object, In any] struct {
	// Name is unique in the process; the field manager is "liqo/<Name>".
	Name string
	// Owns holds a typed prototype of each kind of the plan's Objects. Objects of these kinds are
	// watched, and pruned when a complete plan no longer names them.
	Owns []client.Object
	// Creates holds the kinds of Owns whose objects are created, never taken over: an existing
	// object of the name that is not the root's blocks the root. Use it for kinds with thousands of
	// objects, and for objects whose names users may have taken.
	Creates []client.Object
	// Watches are further kinds that Gather reads. One without Map limits and delays the events of the
	// kind of the roots or of an owned kind.
	Watches []Watch
	// Absent plans also for roots that do not exist, with an empty object of their name. Only the
	// actions of such a plan are carried out. Events of the roots' kind are ignored then unless
	// Watches maps them.
	Absent bool
	// Only selects the objects of the root's kind that are roots; nil selects all. The others get
	// no finalizer, conditions or plan.
	Only func(root R) bool
	// Deleting plans also for roots that are being deleted and do not have the finalizer.
	Deleting bool
	// Finalizer holds the root until its effects are pruned. It is needed only if effects leave the
	// root's namespace or the cluster; empty = none.
	Finalizer string
	// Unreferenced holds the kinds of Owns with objects that the root's owner reference does not
	// reach, because they are cluster-scoped or in other namespaces; nil = all. Objects of other kinds
	// are deleted with the root by Kubernetes, if the cache does not show them yet.
	Unreferenced []client.Object
	// EndsWithNamespace holds the kinds of Owns whose objects are deleted, and the finalizer with them,
	// as soon as the root's namespace is being deleted; Watches must then map Namespaces. An empty list
	// deletes nothing, but the root is not planned any more. nil = the root waits until it is deleted
	// itself. Kubernetes deletes the objects of a namespace after 5 s, nothing but pods while there are
	// any, and 5 s later again what a finalizer held.
	EndsWithNamespace []client.Object
	// Quiet writes no conditions, and no events about waiting: another controller of the same root
	// writes them.
	Quiet bool
	// Gather reads everything that Plan needs, or fails: it never returns a part.
	Gather func(ctx context.Context, r Reader, root R) (In, error)
	// Peer returns the client for actions at the root's peer; nil = the plan has none.
	Peer func(root R) (client.Client, error)
	// Plan is a pure function: the same input gives the same plan in the same order. If no cache
	// shows yet what earlier plans took, it is a function around the pure one, which completes the
	// input from a ledger and records the plan there.
	Plan func(In) desired.Plan
	// Workers is how many roots are reconciled concurrently; 0 means one.
	Workers int
}

// Registrar adds a controller to a manager.
type Registrar interface {
	Register(mgr manager.Manager) error
}

// Index finds objects of a kind in the cache by the value of a field, with client.MatchingFields.
type Index struct {
	Kind  client.Object
	Field string
	// Of returns the values of an object. An object without values is not found.
	Of func(client.Object) []string
}

// Register adds the index to mgr's cache.
func (i Index) Register(mgr manager.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), i.Kind, i.Field, i.Of); err != nil {
		return fmt.Errorf("index %T by %s: %w", i.Kind, i.Field, err)
	}
	return nil
}

// Reader reads from the cache. Lists are sorted by namespace and name.
type Reader struct {
	client.Reader
	// Live reads from the API server: for objects that the cache does not hold, or where a stale
	// read would do harm.
	Live client.Reader
	// Self asks the API server for the name of this process's user.
	Self func(ctx context.Context) (string, error)
}

func self(c client.Client) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		var review authenticationv1.SelfSubjectReview
		if err := c.Create(ctx, &review); err != nil {
			return "", fmt.Errorf("review own user: %w", err)
		}
		return review.Status.UserInfo.Username, nil
	}
}

// Watch names a kind that a controller reads, and maps its events to roots.
type Watch struct {
	Kind client.Object
	// Source requests roots instead of events of Kind.
	Source *Source
	// Map returns the roots that an event is about; nil for the kind of the roots and for owned
	// kinds.
	Map MapFunc
	// Relevant filters events, of kinds that are written all the time; nil = all are relevant.
	Relevant Relevant
	// Cache holds the objects; nil = the manager's cache. That of the roots' kind must sync before
	// leader election.
	Cache cache.Cache
	// Delay is how long after an event the roots are reconciled, once for all events until then.
	Delay time.Duration
}

// Relevant reports whether an event matters. before is nil for a created object, after for a
// deleted one.
type Relevant func(before, after client.Object) bool

// Differs returns a Relevant that takes creations, deletions, and the updates that differ.
func Differs[T client.Object](differ func(before, after T) bool) Relevant {
	return func(before, after client.Object) bool {
		return before == nil || after == nil || differ(before.(T), after.(T))
	}
}

// Comings is a Relevant that selects creations and deletions.
func Comings(before, after client.Object) bool { return before == nil || after == nil }

// Endings is a Relevant that selects the beginning of deletions that finalizers hold up.
func Endings(before, after client.Object) bool {
	return before != nil && after != nil && before.GetDeletionTimestamp() == nil && after.GetDeletionTimestamp() != nil
}

// MapFunc returns the roots to reconcile when obj has changed.
type MapFunc func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request

// Register adds the controller to mgr.
func (c Controller[R, In]) Register(mgr manager.Manager) error {
	root := reflect.New(reflect.TypeFor[R]().Elem()).Interface().(R)
	return register(c.untyped(), root, mgr)
}

// untyped returns the same controller without type parameters. The compiler then makes one loop for all
// controllers. A loop for each of them made the program 4.7 MB larger.
func (c Controller[R, In]) untyped() Controller[client.Object, any] {
	out := Controller[client.Object, any]{
		Name: c.Name, Owns: c.Owns, Creates: c.Creates, Watches: c.Watches, Absent: c.Absent, Deleting: c.Deleting,
		Finalizer: c.Finalizer, Unreferenced: c.Unreferenced, EndsWithNamespace: c.EndsWithNamespace,
		Quiet: c.Quiet, Workers: c.Workers,
		Gather: func(ctx context.Context, r Reader, root client.Object) (any, error) {
			return c.Gather(ctx, r, root.(R))
		},
		Plan: func(in any) desired.Plan { return c.Plan(in.(In)) },
	}
	if c.Only != nil {
		out.Only = func(root client.Object) bool { return c.Only(root.(R)) }
	}
	if c.Peer != nil {
		out.Peer = func(root client.Object) (client.Client, error) { return c.Peer(root.(R)) }
	}
	return out
}

// register adds a controller to mgr; root is an empty object of the roots' kind.
func register(c Controller[client.Object, any], root client.Object, mgr manager.Manager) error {
	l := &loop{
		Controller:   c,
		root:         root,
		client:       mgr.GetClient(),
		roots:        mgr.GetClient(),
		reader:       Reader{Reader: sorted{mgr.GetClient()}, Live: mgr.GetAPIReader(), Self: self(mgr.GetClient())},
		recorder:     Recorder(mgr, "liqo-"+c.Name),
		objects:      apply.New(mgr.GetClient(), mgr.GetAPIReader(), "liqo/"+c.Name),
		conditions:   apply.New(mgr.GetClient(), mgr.GetAPIReader(), "liqo/"+c.Name+"-conditions"),
		verdicts:     map[types.NamespacedName]desired.Verdict{},
		refusedSince: map[types.NamespacedName]time.Time{},
	}
	watch := l.watchOf(root)
	if watch.Cache != nil {
		l.roots = watch.Cache
	}
	options := Options()
	options.MaxConcurrentReconciles = max(c.Workers, 1)
	b := builder.ControllerManagedBy(mgr).Named(c.Name).WithOptions(options)
	if !c.Absent {
		b = b.WatchesRawSource(source.Kind[client.Object](cmp.Or(watch.Cache, mgr.GetCache()), l.newRoot(),
			delayed{&handler.EnqueueRequestForObject{}, watch.Delay}, l.ofRoots(watch.Relevant)))
	}
	for _, kind := range c.Owns {
		if err := (Index{Kind: kind, Field: l.ownerIndex(), Of: l.ownerOf}).Register(mgr); err != nil {
			return err
		}
		watch := l.watchOf(kind)
		roots := delayed{handler.EnqueueRequestsFromMapFunc(l.rootOf), watch.Delay}
		b = b.Watches(kind, forgetting{roots, l.objects.Forget}, builder.WithPredicates(relevant(watch.Relevant)))
	}
	for _, w := range c.Watches {
		if w.Source != nil {
			b = b.WatchesRawSource(w.Source)
		}
		if w.Map == nil {
			continue
		}
		roots := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
			return w.Map(ctx, l.roots, obj)
		})
		b = b.WatchesRawSource(source.Kind[client.Object](cmp.Or(w.Cache, mgr.GetCache()), w.Kind,
			delayed{roots, w.Delay}, relevant(w.Relevant)))
	}
	// Sources start before the first root is reconciled.
	b = b.WatchesRawSource(source.Func(func(ctx context.Context, q queue) error {
		l.queue = q
		go l.refused.Probe(ctx, q.Add)
		return nil
	}))
	return b.Complete(l)
}

// ofRoots passes the events of roots that are relevant. Deletions always pass, so that the loop
// forgets the root.
func (l *loop) ofRoots(matters Relevant) predicate.Predicate {
	is := func(obj client.Object) bool { return l.Only == nil || l.Only(obj) }
	return relevant(func(before, after client.Object) bool {
		return after == nil || is(after) && (matters == nil || matters(before, after))
	})
}

// watchOf returns the watch that limits and delays events of the kind of roots or of an owned kind; the
// zero value if none does.
func (l *loop) watchOf(kind client.Object) Watch {
	for _, w := range l.Watches {
		if w.Map == nil && reflect.TypeOf(w.Kind) == reflect.TypeOf(kind) {
			return w
		}
	}
	return Watch{}
}

// delayed enqueues requests after a delay; 0 = immediately.
type delayed struct {
	handler.EventHandler
	delay time.Duration
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func (d delayed) Create(ctx context.Context, e event.CreateEvent, q queue) {
	d.EventHandler.Create(ctx, e, later{q, d.delay})
}

func (d delayed) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	d.EventHandler.Update(ctx, e, later{q, d.delay})
}

func (d delayed) Delete(ctx context.Context, e event.DeleteEvent, q queue) {
	d.EventHandler.Delete(ctx, e, later{q, d.delay})
}

// later adds requests to the queue after a delay.
type later struct {
	queue
	delay time.Duration
}

func (l later) Add(r reconcile.Request) { l.AddAfter(r, l.delay) }

// forgetting also calls forget for each deleted object: most are deleted with their root, not by
// this controller.
type forgetting struct {
	handler.EventHandler
	forget func(client.Object)
}

func (f forgetting) Delete(ctx context.Context, e event.DeleteEvent, q queue) {
	f.forget(e.Object)
	f.EventHandler.Delete(ctx, e, q)
}

// Options returns the options of all controllers: fair queues, and names that tests may use again.
func Options() controller.Options {
	return controller.Options{
		SkipNameValidation: new(true),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) queue {
			return FairQueue(name, limiter, requestNamespace)
		},
	}
}

// requestNamespace returns the namespace by which queues are fair: each tenant of a provider has
// its own.
func requestNamespace(r reconcile.Request) string { return r.Namespace }

// relevant makes a predicate; nil passes all events.
func relevant(matters Relevant) predicate.Predicate {
	if matters == nil {
		return predicate.Funcs{}
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return matters(nil, e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return matters(e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return matters(e.Object, nil) },
	}
}

// ownerIndex names the index of owned objects by the UID of their root. A kind may have thousands
// of objects.
func (l *loop) ownerIndex() string { return "owner/" + l.Name }

func (l *loop) ownerOf(obj client.Object) []string {
	owner := obj.GetLabels()[desired.LabelOwner]
	if owner == "" || obj.GetLabels()[desired.LabelController] != l.Name {
		return nil
	}
	return []string{owner}
}

// rootOf maps an owned object to its root.
func (l *loop) rootOf(_ context.Context, obj client.Object) []reconcile.Request {
	if obj.GetLabels()[desired.LabelController] != l.Name {
		return nil
	}
	key, ok := parseKey(obj.GetAnnotations()[desired.AnnotationOwner])
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}
