// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/reflection/translate"
)

// Kind describes one kind of objects that are kept equal. A home object and its remote object have
// the same name unless RemoteName is set. Each field flows in one direction only.
type Kind struct {
	// Name is the resource in metrics, logs and the source of events.
	Name string
	// Workers is the number of objects reconciled concurrently; 0 switches the kind off.
	Workers int
	// AllowList reflects only objects marked for it; false = all but those marked against it.
	AllowList bool

	// Home and Remote are prototypes of the objects on both sides.
	Home, Remote client.Object
	// HomeCache holds the home objects of all namespaces. The caller starts and syncs it; nil = the
	// engine runs a cache for each mapped namespace.
	HomeCache cache.Cache
	// Selects selects the home objects to be kept equal; nil = all.
	Selects func(home client.Object) bool
	// RemoteSelector selects the remote objects that this engine owns; others are never changed.
	RemoteSelector labels.Selector
	// RemoteName returns the name of the remote object of a home object, HomeName the reverse; nil
	// = the names are equal.
	RemoteName func(home string) string
	HomeName   func(remote client.Object) string
	// FormerName returns the name that former versions gave to the remote object. An object of that
	// name is kept; nil = the name never changed.
	FormerName func(home string) string
	// Report is a second remote kind whose objects have the names of the home objects. Its state is
	// pulled, too, or read by Gather if there is no Pull; nil = none. ReportSelector selects its
	// objects.
	Report         client.Object
	ReportSelector labels.Selector
	// Heeds reports whether an update of a home object may change what is done; nil = always.
	// HeedsReport reports the same about the creation (before is nil) or an update of a Report.
	Heeds, HeedsReport func(before, after client.Object) bool
	// AlsoWatches lists home kinds that Gather reads in the namespace of an object. When one of
	// their objects changes, all objects of this kind in that namespace are enqueued.
	AlsoWatches []client.Object

	// Gather reads what Push needs besides the two objects, and sets it in the View, a copy for
	// this object. nil = nothing to read.
	Gather GatherFunc
	// Push returns the desired remote object, starting from o.Remote; nil = none. An error is
	// reported to users and is not retried. With an object, the error describes what the object
	// lacks; without one, the existing remote object stays unchanged.
	Push func(o Objects, v translate.View) (client.Object, error)
	// Lesser returns what to write in place of an object that the peer refuses as invalid, nil for
	// nothing; a nil function never does.
	Lesser func(want client.Object) client.Object
	// Pull returns the home object with the status to write, also when the peer refuses what is
	// pushed; nil = no status is written. An error is reported to users: it names the part of the
	// peer's report that is not taken over.
	Pull func(o Objects, v translate.View) (client.Object, error)
	// Strategic writes the status as a strategic merge patch, for Kubernetes kinds whose status has
	// several writers.
	Strategic bool
	// Shared makes status patches conditional on the resource version they were computed for:
	// others write to lists in the status, too, and a patch replaces a list as a whole.
	Shared bool

	// Events is the suffix of the reasons of events; empty = "Reflection".
	Events string
	// Quiet suppresses events about success, because every pod has one already.
	Quiet bool
	// Finalizer holds a home object until its remote object is gone; empty = none.
	Finalizer string
	// RetainRemote retains a remote object when its home object no longer exists. The remote object
	// then expires, or is deleted with a home object that a Finalizer holds.
	RetainRemote bool
	// EndsWithOrigin reports whether a remote object of a kind with RetainRemote is nevertheless
	// deleted with its home object; nil = never.
	EndsWithOrigin func(remote client.Object) bool
	// Ending decides what becomes of the remote object of a home object that is being deleted; nil
	// = it is deleted.
	Ending func(ctx context.Context, home client.Reader, obj client.Object) (Ending, error)
	// FinalizesHome makes the engine finalize the deletion of a home object once nothing of it is
	// left at the peer, as a kubelet does with pods.
	FinalizesHome bool
	// HomeFields selects the home objects that are cached, if there is no HomeCache; nil = all.
	HomeFields fields.Selector
	// TrimRemote and TrimReport remove unused parts of cached objects; nil = nothing. The HomeCache
	// trims home objects itself.
	TrimRemote, TrimReport func(client.Object)
	// InPart reports whether an object was trimmed so that it must be read whole before it, or an
	// object derived from it, is written to the peer; nil = never.
	InPart func(client.Object) bool
	// WriteLimit limits the rate at which remote objects are created and changed. Writes above it
	// are retried later; nil = no limit.
	WriteLimit *writeLimit
	// Names records which remote names belong to objects of the provider; nil = they are not
	// recorded.
	Names *foreign
	// Budget limits how much is pulled into each home object. Writes above it wait, and then write
	// the latest state; nil = the budget of all kinds except pods.
	Budget *budget
	// Grace returns the grace period, in seconds, with which the Report of a deleted home object is
	// deleted; nil = it keeps its own. A peer need not allow the request: then the Report keeps its
	// own, too.
	Grace func(o Objects) *int64
}

// GatherFunc reads into v from r, which reads the home cluster. after is the time until the object
// is reconciled again; 0 = not needed. The error errNotOurs means that the object is to be ignored.
type GatherFunc func(
	ctx context.Context, r client.Reader, o Objects, v *translate.View,
) (after time.Duration, err error)

// Ending is the decision about the remote object of a home object that is being deleted.
type Ending int

const (
	// Goes deletes the remote object, and then releases the home object.
	Goes Ending = iota
	// Stays retains the remote object, and releases the home object.
	Stays
	// Waits postpones the decision to another event of the home object.
	Waits
)

// Objects holds the objects of one key; nil = it does not exist.
type Objects struct{ Home, Remote, Report client.Object }

func (k *Kind) remoteName(home string) string {
	if k.RemoteName == nil {
		return home
	}
	return k.RemoteName(home)
}

func (k *Kind) homeName(remote client.Object) string {
	if k.HomeName == nil {
		return remote.GetName()
	}
	return k.HomeName(remote)
}

func (k *Kind) inPart(obj client.Object) bool { return k.InPart != nil && obj != nil && k.InPart(obj) }

func (k *Kind) selects(home client.Object) bool { return k.Selects == nil || k.Selects(home) }

// Typed makes a Kind's Push or Pull from a translator of typed objects.
func Typed[H, R, Out client.Object](
	translator func(H, R, translate.View) Out,
) func(Objects, translate.View) (client.Object, error) {
	return func(o Objects, v translate.View) (client.Object, error) {
		return orNil(translator(as[H](o.Home), as[R](o.Remote), v)), nil
	}
}

// TypedOrError is Typed for a translator that can fail.
func TypedOrError[H, R, Out client.Object](
	translator func(H, R, translate.View) (Out, error),
) func(Objects, translate.View) (client.Object, error) {
	return func(o Objects, v translate.View) (client.Object, error) {
		out, err := translator(as[H](o.Home), as[R](o.Remote), v)
		return orNil(out), err
	}
}

// Heeds makes a Kind's Heeds or HeedsReport from that of one type; before may be a typed nil.
func Heeds[T client.Object](heeds func(before, after T) bool) func(before, after client.Object) bool {
	return func(before, after client.Object) bool { return heeds(as[T](before), as[T](after)) }
}

// Trim makes a Kind's trimming from that of one type.
func Trim[T client.Object](trim func(T)) func(client.Object) {
	return func(obj client.Object) {
		if typed, ok := obj.(T); ok {
			trim(typed)
		}
	}
}

// as returns the typed object; a typed nil for nil.
func as[T client.Object](obj client.Object) T {
	typed, _ := obj.(T)
	return typed
}

// orNil turns a typed nil into nil.
func orNil[T client.Object](obj T) client.Object {
	var none T
	if client.Object(obj) == client.Object(none) {
		return nil
	}
	return obj
}
