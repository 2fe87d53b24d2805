// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package daemon is what the roles gateway and fabric have in common: it keeps the network
// namespace of the process equal to what the role wants.
//
//	objects ─cache─▶ Role.Want ─▶ plan.State ─┐
//	kernel ─dataplane─▶ Observe ──────────────┴▶ plan.Diff ─▶ Apply, only what differs
//
// A look is taken when an object changes, when the kernel says that something of ours did, and
// now and then. One that finds no difference writes and logs nothing. Nothing is removed when the
// process ends: a restart does not touch traffic.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

const (
	// resync is between two looks when nothing happens: the time a change of our rules by
	// somebody else may last, as nft tells nobody who did not ask.
	resync = 10 * time.Second
	// passes is how often a difference may come back before it is an error: one pass makes
	// things, another what the kernel dropped with a device that was made anew.
	passes = 3
)

// Role is what one role adds.
type Role struct {
	// Name is the role's: gateway or fabric.
	Name string
	// Kinds are the objects it reads; a change of one leads to a look.
	Kinds []client.Object
	// Cache limits what is read of them.
	Cache cache.Options
	// Want reads the objects and plans. When it is not ready the kernel is left as it is.
	Want func(ctx context.Context, r client.Reader) (want plan.State, ready bool, err error)
	// MetricsAddress and HealthAddress to listen on; "0" or empty = do not.
	MetricsAddress, HealthAddress string
	// Metrics to show beside the usual ones; nil = none.
	Metrics prometheus.Gatherer
}

// Daemon runs a role.
type Daemon struct {
	Role
	manager.Manager
	looks chan event.GenericEvent

	mu      sync.Mutex // guards plane and desired
	plane   *dataplane.Dataplane
	desired plan.State
	settled atomic.Bool
}

// New prepares a daemon on a data plane, which it closes at the end of Run.
func New(cfg *rest.Config, role Role, plane *dataplane.Dataplane) (*Daemon, error) {
	role.Cache.DefaultTransform = cache.TransformStripManagedFields()
	mgr, err := ctrl.NewManager(cfg, manager.Options{
		Scheme: scheme.New(), Cache: role.Cache, HealthProbeBindAddress: role.HealthAddress,
		Metrics: metricsserver.Options{BindAddress: "0"}, // ours, see serveMetrics
	})
	if err != nil {
		return nil, fmt.Errorf("set up manager: %w", err)
	}
	d := &Daemon{Role: role, Manager: mgr, plane: plane, looks: make(chan event.GenericEvent, 1)}
	if err := d.addController(); err != nil {
		return nil, fmt.Errorf("set up controller: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", func(*http.Request) error { return nil }); err != nil {
		return nil, fmt.Errorf("set up health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("settled", d.ready); err != nil {
		return nil, fmt.Errorf("set up readiness check: %w", err)
	}
	d.Look() // also when there is no object
	for _, run := range []manager.RunnableFunc{d.serveMetrics, d.serveShow, d.watchKernel} {
		if err := mgr.Add(run); err != nil {
			return nil, fmt.Errorf("add runnable: %w", err)
		}
	}
	return d, nil
}

// Run runs until the context ends.
func (d *Daemon) Run(ctx context.Context) error {
	defer d.plane.Close()
	return d.Start(ctx)
}

// Look asks for a look at the kernel soon.
func (d *Daemon) Look() {
	select {
	case d.looks <- event.GenericEvent{Object: &trigger{}}:
	default: // one is already asked for
	}
}

// trigger is the object of an event that concerns no object.
type trigger struct{ client.Object }

// With lends the data plane.
func (d *Daemon) With(f func(*dataplane.Dataplane)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d.plane)
}

// addController makes every event a look at everything: a role has one state.
func (d *Daemon) addController() error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: d.Name}}}
	})
	b := ctrl.NewControllerManagedBy(d.Manager).Named(d.Name).WithOptions(controller.Options{SkipNameValidation: new(true)}).
		WatchesRawSource(source.Channel(d.looks, one))
	for _, kind := range d.Kinds {
		b = b.Watches(kind, one)
	}
	return b.Complete(reconcile.Func(d.reconcile))
}

func (d *Daemon) reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	want, ready, err := d.Want(ctx, d.GetClient())
	if err != nil {
		return reconcile.Result{}, err
	}
	if ready {
		if err := d.settle(ctx, want); err != nil {
			return reconcile.Result{}, err
		}
	}
	d.settled.Store(true)
	return reconcile.Result{RequeueAfter: resync}, nil
}

// settle changes the kernel until it is as wanted.
func (d *Daemon) settle(ctx context.Context, want plan.State) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.desired = want
	var changes plan.Changes
	for range passes {
		have, err := d.plane.Observe(ctx, devices(want)...)
		if err != nil {
			return err
		}
		changes = plan.Diff(have, want)
		if changes.Empty() {
			return nil
		}
		log.FromContext(ctx).Info("Changing the network", "changes", changes.String())
		if err := d.plane.Apply(ctx, changes); err != nil {
			return err
		}
	}
	return fmt.Errorf("change the network: the kernel does not keep\n%s", changes)
}

// devices are those whose settings matter.
func devices(s plan.State) []string {
	var out []string
	for _, x := range s.Settings {
		out = append(out, x.Device)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (d *Daemon) ready(*http.Request) error {
	if !d.settled.Load() {
		return errors.New("the network is not set up yet; see the log")
	}
	return nil
}

// watchKernel takes a look when somebody changed what is ours. Our own changes also lead to one,
// which finds nothing to do.
func (d *Daemon) watchKernel(ctx context.Context) error {
	return dataplane.Watch(ctx, d.Look)
}
