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

// Kind is one row of the table of what is kept equal. A home object and its remote one have the
// same name unless RemoteName says otherwise; a field flows in one direction only.
type Kind struct {
	// Name is the resource in metrics, logs and the source of events.
	Name string
	// Workers is how many objects are worked on at once; 0 switches the kind off.
	Workers int
	// AllowList reflects only objects marked for it; false = all but those marked against it.
	AllowList bool

	// Home and Remote are prototypes of the objects on both sides.
	Home, Remote client.Object
	// HomeCache holds the home objects of all namespaces, synced and run by somebody else;
	// nil = the engine runs a cache for each mapped namespace.
	HomeCache cache.Cache
	// Mine says which home objects are to be kept equal; nil = all.
	Mine func(home client.Object) bool
	// Marks select the remote objects that are ours; whatever does not match is never touched.
	Marks labels.Selector
	// RemoteName gives the name of the remote object, HomeName that of the home object behind a
	// remote one; nil = they are equal.
	RemoteName func(home string) string
	HomeName   func(remote client.Object) string
	// FormerName returns the name that former versions gave to the remote object. An object of that
	// name is kept; nil = the name never changed.
	FormerName func(home string) string
	// Report is a second remote kind whose objects have the names of the home objects. Its state is
	// pulled, too, or read by Gather if there is no Pull; nil = none. ReportMarks select its objects.
	Report      client.Object
	ReportMarks labels.Selector
	// Beside are home kinds Gather reads in the namespace of an object: when one of them
	// changes, all objects of this kind in that namespace are looked at again.
	Beside []client.Object

	// Gather reads what Push needs besides the two objects and puts it into the View; after
	// is when to look again, 0 = no need; the error errNotOurs says that there is nothing to do
	// with the object. nil = nothing.
	Gather func(ctx context.Context, r client.Reader, o Objects, v translate.View) (view translate.View,
		after time.Duration, err error)
	// Push gives the remote object as it should be, nil for none, starting from o.Remote. An
	// error is for the user and does not go away by trying again; with an object it tells what
	// the object lacks, without one what is there stays as it is.
	Push func(o Objects, v translate.View) (client.Object, error)
	// Lesser returns what to write in place of an object that the peer refuses as invalid, nil for nothing; a nil
	// function never does.
	Lesser func(want client.Object) client.Object
	// Pull gives the home object with the status that comes back, also when the peer refuses what is
	// pushed; nil = nothing comes back. An error is for the user: it says which part of what the peer reports does
	// not come back.
	Pull func(o Objects, v translate.View) (client.Object, error)
	// Strategic writes the status as a strategic merge patch, for kinds of Kubernetes whose
	// status has several writers.
	Strategic bool
	// Shared: others write lists in the status too, which a patch holds whole. It is sent only for the state
	// it was made of.
	Shared bool

	// Events is what the reasons of events end in; empty = "Reflection".
	Events string
	// Quiet: success is no event, as every pod has one already.
	Quiet bool
	// Finalizer holds a home object until its remote one is gone; empty = none.
	Finalizer string
	// Keeps: what was pushed stays when its origin goes; it ends by itself, or with an origin that
	// a Finalizer holds.
	Keeps bool
	// EndsWithOrigin reports which remote objects of a kind that Keeps are deleted with their origin all the same;
	// nil = none.
	EndsWithOrigin func(remote client.Object) bool
	// Ending says what becomes of the remote object of a home object that is being deleted;
	// nil = it goes.
	Ending func(ctx context.Context, home client.Reader, obj client.Object) (Ending, error)
	// Ends: a home object being deleted is removed by us once nothing is left of it at the
	// peer, as a kubelet does with pods.
	Ends bool
	// HomeFields select the home objects that are read at all, where there is no HomeCache; nil = all.
	HomeFields fields.Selector
	// TrimRemote and TrimReport remove from the objects in caches what is not read; nil = nothing. Of home
	// objects whoever makes HomeCache does.
	TrimRemote, TrimReport func(client.Object)
	// InPart says whether an object of which a part was removed is to be read whole before it, or what is
	// made of it, is written to the peer; nil = never.
	InPart func(client.Object) bool
	// Bound is at what rate remote objects are made and changed, what comes over it being tried again later; nil =
	// as it comes.
	Bound *bound
	// Names records which remote names belong to objects of the provider; nil = they are not recorded.
	Names *foreign
	// Budget is how much is pulled into each home object. What comes over it waits, and the latest state is pulled
	// then; nil = that of all kinds but pods.
	Budget *budget
	// Grace is how many seconds the Report of a home object being deleted has to end, if not those
	// it has anyway; nil = it has them. A peer need not grant that: then it has its own.
	Grace func(o Objects) *int64
}

// Ending is what becomes of a remote object whose home object is being deleted.
type Ending int

const (
	// Goes: it is deleted, and then the home object let go.
	Goes Ending = iota
	// Stays: it is left where it is, and the home object let go.
	Stays
	// Waits: another event of the home object decides.
	Waits
)

// Objects are the objects of one key; nil = it does not exist.
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

func (k *Kind) mine(home client.Object) bool { return k.Mine == nil || k.Mine(home) }

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

// Trim makes a Kind's trimming from that of one type.
func Trim[T client.Object](trim func(T)) func(client.Object) {
	return func(obj client.Object) {
		if typed, ok := obj.(T); ok {
			trim(typed)
		}
	}
}

// as gives the typed object, a typed nil for none.
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
