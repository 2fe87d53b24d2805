// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ctl is the loop every controller runs in: observe, decide, apply.
//
// A controller brings two functions. Gather does all reads for one root object; Plan is pure
// and says what should be. The loop applies the plan, prunes what a complete plan no longer
// names, writes the verdict into the root's conditions and takes care of finalizers. Data flows
// from Gather to Plan to the API server; what was achieved comes back as another observation.
//
// Start reading at Controller, then Plan, then loop.Reconcile.
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

// Queues are those of a manager's controllers: client-go's. controller-runtime's own may lock up when
// the manager ends (0.23, its issue 3538): the process would stay, and keep its lead, until the grace
// period is over. They fill before the replica has its turn: one that follows another acts at once, and
// reads nothing first.
func Queues() config.Controller {
	return config.Controller{UsePriorityQueue: new(false), EnableWarmup: new(true)}
}

// Controller describes one controller rooted on objects of type R.
type Controller[R client.Object, In any] struct {
	// Name is unique in the process; the field manager is "liqo/<Name>".
	Name string
	// Owns are typed prototypes of the kinds the plan's Objects are of. They are watched, and
	// pruned when a complete plan no longer names them.
	Owns []client.Object
	// Creates are those of Owns which are made by a create, never by taking over an object that
	// exists: one of that name which is not the root's blocks it. Use it for objects that come in
	// numbers, and for such as somebody else may have made for something else.
	Creates []client.Object
	// Watches are further kinds Gather reads, and limits on what of the kinds of roots and owned objects matters.
	Watches []Watch
	// Absent plans also for roots that do not exist, as for an empty object of their name: of such a plan only the
	// actions are carried out. A change of a root means nothing then unless Watches lists its kind.
	Absent bool
	// Only tells which objects of the root's kind are roots; nil means all. The others are left
	// alone, without finalizer, conditions or plan.
	Only func(root R) bool
	// Deleting plans also for roots that are being deleted and have not the finalizer.
	Deleting bool
	// Finalizer holds the root until its effects are pruned. Needed only where effects leave
	// the root's namespace or the cluster; empty means none.
	Finalizer string
	// Quiet controllers write no conditions: another controller of the same root does.
	Quiet bool
	// Gather reads everything Plan needs, or fails: it never returns a part.
	Gather func(ctx context.Context, r Reader, root R) (In, error)
	// Peer gives the client for actions at the peer that a root is about; nil = there are none.
	Peer func(root R) (client.Client, error)
	// Plan is a pure function: the same input gives the same plan in the same order. What no cache shows yet is added
	// to its input, and recorded, by a function around it that locks a ledger meanwhile.
	Plan func(In) desired.Plan
	// Workers is how many roots are worked on at once; 0 means one.
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

// Reader reads from the cache, lists by namespace and name; Live asks the API server, for what the cache
// does not hold or must not be late about.
type Reader struct {
	client.Reader
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

// Watch names a kind a controller reads and which roots an object of it concerns.
type Watch struct {
	Kind client.Object
	// Source wakes roots instead of Kind.
	Source *Source
	// Map is nil for the kind of the roots, and for owned kinds.
	Map MapFunc
	// Relevant tells whether a change may mean something to a root; nil means that every one may. It is for kinds
	// that are written all the time.
	Relevant Relevant
	// Cache has the objects; nil = the manager's cache.
	Cache cache.Cache
	// Delay is how long after a change the roots are looked at, once for all changes until then.
	Delay time.Duration
}

// Relevant tells whether a change of an object matters. before is nil for one that is new, after for one that is gone.
type Relevant func(before, after client.Object) bool

// Differs finds those updates relevant that differ, and whatever comes or goes.
func Differs[T client.Object](differ func(before, after T) bool) Relevant {
	return func(before, after client.Object) bool {
		return before == nil || after == nil || differ(before.(T), after.(T))
	}
}

// Comings finds relevant what comes or goes, and no update.
func Comings(before, after client.Object) bool { return before == nil || after == nil }

// MapFunc gives the roots to look at when obj has changed.
type MapFunc func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request

// Register adds the controller to mgr.
func (c Controller[R, In]) Register(mgr manager.Manager) error {
	l := &loop[R, In]{
		Controller:   c,
		client:       mgr.GetClient(),
		roots:        mgr.GetClient(),
		reader:       Reader{Reader: sorted{mgr.GetClient()}, Live: mgr.GetAPIReader(), Self: self(mgr.GetClient())},
		recorder:     Recorder(mgr, "liqo-"+c.Name),
		objects:      apply.New(mgr.GetClient(), mgr.GetAPIReader(), "liqo/"+c.Name),
		conditions:   apply.New(mgr.GetClient(), mgr.GetAPIReader(), "liqo/"+c.Name+"-conditions"),
		verdicts:     map[types.NamespacedName]desired.Verdict{},
		refusedSince: map[types.NamespacedName]time.Time{},
	}
	watch := c.watchOf(newRoot[R]())
	if watch.Cache != nil {
		l.roots = watch.Cache
	}
	options := Options()
	options.MaxConcurrentReconciles = max(c.Workers, 1)
	b := builder.ControllerManagedBy(mgr).Named(c.Name).WithOptions(options)
	if !c.Absent {
		b = b.WatchesRawSource(source.Kind[client.Object](cmp.Or(watch.Cache, mgr.GetCache()), newRoot[R](),
			&handler.EnqueueRequestForObject{}, c.ofRoots(watch.Relevant)))
	}
	for _, kind := range c.Owns {
		if err := (Index{Kind: kind, Field: c.ownerIndex(), Of: c.ownerOf}).Register(mgr); err != nil {
			return err
		}
		b = b.Watches(kind, forgetting{handler.EnqueueRequestsFromMapFunc(c.rootOf), l.objects.Forget},
			builder.WithPredicates(relevant(c.watchOf(kind).Relevant)))
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
		b = b.WatchesRawSource(source.Kind[client.Object](cmp.Or(w.Cache, mgr.GetCache()), w.Kind, delayed{roots, w.Delay}, relevant(w.Relevant)))
	}
	// Sources start before the first root is reconciled.
	b = b.WatchesRawSource(source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		l.queue = q
		go l.refused.Probe(ctx, q.Add)
		return nil
	}))
	return b.Complete(l)
}

// ofRoots passes the events of roots that are relevant. Deletions always pass, so that the loop forgets the root.
func (c Controller[R, In]) ofRoots(matters Relevant) predicate.Predicate {
	is := func(obj client.Object) bool { return c.Only == nil || c.Only(obj.(R)) }
	return relevant(func(before, after client.Object) bool {
		return after == nil || is(after) && (matters == nil || matters(before, after))
	})
}

// watchOf returns the watch that limits events of the kind of roots or of an owned kind; the zero value if none does.
func (c Controller[R, In]) watchOf(kind client.Object) Watch {
	for _, w := range c.Watches {
		if w.Map == nil && reflect.TypeOf(w.Kind) == reflect.TypeOf(kind) {
			return w
		}
	}
	return Watch{}
}

// delayed hands requests on after some time; 0 = at once.
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

// later adds requests after some time.
type later struct {
	queue
	delay time.Duration
}

func (l later) Add(r reconcile.Request) { l.AddAfter(r, l.delay) }

// forgetting tells also of objects that are gone: most go with their root, not by a deletion of ours.
type forgetting struct {
	handler.EventHandler
	forget func(client.Object)
}

func (f forgetting) Delete(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	f.forget(e.Object)
	f.EventHandler.Delete(ctx, e, q)
}

// Options are those of all controllers: their queues are fair, and tests make controllers of one name anew.
func Options() controller.Options {
	return controller.Options{
		SkipNameValidation: new(true),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return FairQueue(name, limiter, requestNamespace)
		},
	}
}

// requestNamespace says who waits for a request: of a provider's tenants each has namespaces of its own.
func requestNamespace(r reconcile.Request) string { return r.Namespace }

// relevant lets pass the changes that matter; nil lets all pass.
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

// ownerIndex names the index of objects by the UID of their root: there may be thousands.
func (c Controller[R, In]) ownerIndex() string { return "owner/" + c.Name }

func (c Controller[R, In]) ownerOf(obj client.Object) []string {
	owner := obj.GetLabels()[desired.LabelOwner]
	if owner == "" || obj.GetLabels()[desired.LabelController] != c.Name {
		return nil
	}
	return []string{owner}
}

// rootOf leads from an owned object back to its root.
func (c Controller[R, In]) rootOf(_ context.Context, obj client.Object) []reconcile.Request {
	if obj.GetLabels()[desired.LabelController] != c.Name {
		return nil
	}
	key, ok := parseKey(obj.GetAnnotations()[desired.AnnotationOwner])
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}
