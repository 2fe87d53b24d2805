// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/ledger"
	"github.com/liqo-go/liqo/reflection/translate"
)

// errNotOurs reports that an object is not to be kept equal. It is neither a failure nor counted.
var errNotOurs = errors.New("not ours")

// errNotReady reports that an object waits for the caches of its namespace. It is not counted, and
// the caches enqueue the object once they have synced.
var errNotReady = errors.New("not ready")

// errLate reports that a cache does not show the last write to the object yet. It is not counted, and
// the event of the write enqueues the object.
var errLate = errors.New("late")

// errTooMany reports that the WriteLimit or Budget of a kind is used up, and the object waits. It
// is counted as a failure, but not logged.
var errTooMany = errors.New("too many")

// sync brings one object in line:
//
//	home            remote       what happens
//	none            none         nothing
//	none            ours         remote deleted
//	exists          –            Push: create, patch, delete or nothing; then Pull
//	exists          fails        Push is retried; Pull continues
//	being deleted   ours         remote deleted; Pull continues
//	being deleted   none         home released; Pull before that if other finalizers hold it
//
// In a namespace that is not mapped, or ends, nothing is pushed, but Pull may report that. While it is
// unknown whether a namespace is mapped, objects that may run at the provider are not released.
func (w *worker) sync(
	ctx context.Context, key types.NamespacedName, v translate.View,
) (after time.Duration, err error) {
	ns := w.engine.namespace(key.Namespace)
	if ns != nil && !ns.ready(w) {
		return 0, w.waitForCaches(ctx, ns, key)
	}
	_, lateAtHome := w.ledger.Late(slot{atHome, key})
	if _, lateAtRemote := w.ledger.Late(slot{atRemote, key}); lateAtHome || lateAtRemote {
		return ledger.Patience, errLate // the event starts the next reconcile earlier
	}
	o, err := w.observe(ctx, ns, key)
	if err != nil {
		return 0, err
	}
	switch {
	case o.Home == nil && v.Ending[key.Namespace]:
		return 0, errNotOurs // it is deleted with its namespace
	case o.Home == nil:
		return 0, w.withoutHome(ctx, key, o.Remote)
	case o.Home.GetDeletionTimestamp() != nil && ns == nil && translate.MayRun(o.Home, v):
		return 0, errNotOurs // a view with the namespace enqueues it again
	case o.Home.GetDeletionTimestamp() != nil:
		return w.end(ctx, key, o, v)
	case ns != nil && !v.Ending[key.Namespace]:
		after, err = w.push(ctx, ns, key, o, &v)
		if taken := errors.Is(err, errNameTaken); taken || err == nil || errors.Is(err, errNotOurs) {
			w.Names.note(w.Name, key, taken)
		}
		if errors.Is(err, errNotOurs) {
			return after, err
		}
		v.Refusal = refusal(err)
		v.RefusalUnknown = err != nil && v.Refusal == nil
	}
	wait, failed := w.pull(ctx, key, o, v)
	return cmp.Or(wait, after), cmp.Or(err, failed) // the reconcile after wait computes after again
}

// withoutHome deletes a remote object whose home object does not exist.
func (w *worker) withoutHome(ctx context.Context, key types.NamespacedName, remote client.Object) error {
	w.forget(key)
	// Another virtual node may have made a remote object that is kept.
	if remote == nil || w.RetainRemote && (w.EndsWithOrigin == nil || !w.EndsWithOrigin(remote)) {
		return errNotOurs
	}
	return w.removeRemote(ctx, key, remote)
}

// observe reads the objects of a key from the caches. ns is nil if the namespace is not mapped.
func (w *worker) observe(ctx context.Context, ns *namespace, key types.NamespacedName) (Objects, error) {
	var o Objects
	var err error
	home := client.Reader(w.HomeCache)
	switch {
	case w.HomeCache == nil && ns == nil:
		return o, nil
	case w.HomeCache == nil:
		home = ns.home
	}
	if o.Home, err = get(ctx, home, key, w.Home); err != nil {
		return o, err
	}
	if o.Home != nil && !w.concerns(o.Home) {
		o.Home = nil
	}
	if ns == nil {
		return o, nil
	}
	there := types.NamespacedName{Namespace: ns.remote, Name: w.remoteName(key.Name)}
	if o.Remote, err = get(ctx, ns.peer, there, w.Remote); err != nil {
		return o, err
	}
	if o.Remote == nil && w.FormerName != nil {
		former := types.NamespacedName{Namespace: ns.remote, Name: w.FormerName(key.Name)}
		if o.Remote, err = get(ctx, ns.peer, former, w.Remote); err != nil {
			return o, err
		}
	}
	if w.Report != nil {
		o.Report, err = get(ctx, ns.peer, types.NamespacedName{Namespace: ns.remote, Name: key.Name}, w.Report)
	}
	return o, err
}

// get reads one object; nil if it does not exist.
func get(
	ctx context.Context, r client.Reader, key types.NamespacedName, prototype client.Object,
) (client.Object, error) {
	return ctl.Optional(ctx, r, key, prototype.DeepCopyObject().(client.Object)) // prototypes are empty
}

// push reconciles the remote object. It sets in v what Gather reads, and Lost.
func (w *worker) push(
	ctx context.Context, ns *namespace, key types.NamespacedName, o Objects, v *translate.View,
) (after time.Duration, err error) {
	if !w.selects(o.Home) { // any more
		if w.RetainRemote {
			return 0, w.release(ctx, key, o.Home)
		}
		return 0, cmp.Or(w.removeRemote(ctx, key, o.Remote), w.release(ctx, key, o.Home))
	}
	if v.Lost, err = w.lost(ctx, key, o.Home); err != nil {
		return 0, w.failed(ctx, o.Home, key, localError{err})
	}
	if w.Gather != nil {
		switch after, err = w.Gather(ctx, ns.home, o, v); {
		case errors.Is(err, errNotOurs):
			return after, err
		case err != nil:
			return 0, w.failed(ctx, o.Home, key, localError{err})
		}
	}
	want, complaint := w.Push(o, *v)
	if want != nil {
		w.reportLost(ctx, o.Home, v.Lost, "this version of Liqo does not know it; upgrade Liqo, or do without it")
	}
	w.reportDropped(ctx, o.Home, o.Home, translate.Dropped(o.Remote))
	w.reportLost(ctx, o.Home, translate.LeftOut(o.Home, o.Remote), translate.LeftOutCause)
	if volume := translate.UnknownVolume(*v); volume != "" && want != nil && o.Remote == nil {
		return after, w.failed(ctx, o.Home, key, fmt.Errorf("%w: %s; upgrade Liqo, or make the pod without it",
			errUnknownVolume, volume))
	}
	if want != nil || complaint == nil {
		err = w.bring(ctx, key, o, want, *v)
	}
	if complaint != nil && err == nil {
		w.recordEvent(ctx, o.Home, key, reasonFailed, w.failure(complaint)) // only a change helps
	}
	return after, err
}

// bring makes the remote object equal to want; nil = deletes it.
func (w *worker) bring(
	ctx context.Context, key types.NamespacedName, o Objects, want client.Object, v translate.View,
) error {
	changes := want != nil && !isCurrent(o.Remote, want)
	if changes && (w.inPart(o.Remote) || o.Remote == nil && w.inPart(o.Home)) {
		var err error
		switch o, want, err = w.pushWhole(ctx, o, v); {
		case errors.Is(err, errNotOurs):
			return err
		case err != nil:
			return w.failed(ctx, o.Home, key, err)
		}
		changes = want != nil && !isCurrent(o.Remote, want)
	}
	switch {
	case want == nil && (o.Remote == nil || w.RetainRemote):
		return w.release(ctx, key, o.Home)
	case want == nil:
		return w.withdraw(ctx, key, o, v)
	}
	if err := w.hold(ctx, key, o.Home); err != nil {
		return err
	}
	ctx, unknown := withWarnings(ctx)
	defer func() { w.reportDropped(ctx, o.Home, want, *unknown) }()
	switch {
	case !changes:
		return nil
	case !w.WriteLimit.allows(o.Remote == nil):
		return errTooMany
	case o.Remote == nil:
		return w.create(ctx, key, o.Home, want)
	}
	err := w.patchRemote(ctx, key, o.Remote, want)
	if lesser := w.lesser(want, err); lesser != nil && w.patchRemote(ctx, key, o.Remote, lesser) == nil {
		err = nil
	}
	return w.failed(ctx, o.Home, key, err)
}

// isCurrent reports whether a remote object is as desired, or is being deleted anyway.
func isCurrent(remote, want client.Object) bool {
	return remote != nil && (remote.GetDeletionTimestamp() != nil || equality.Semantic.DeepEqual(remote, want))
}

// pushWhole computes the desired object again with a whole object from the API server, in place of
// the trimmed one of a cache. The error errNotOurs means that the object is gone, being deleted or
// replaced: an event follows.
func (w *worker) pushWhole(ctx context.Context, o Objects, v translate.View) (Objects, client.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	part, from, prototype := &o.Remote, w.engine.Remote, w.Remote
	if o.Remote == nil {
		part, from, prototype = &o.Home, w.engine.Home, w.Home
	}
	whole, err := get(ctx, from, client.ObjectKeyFromObject(*part), prototype)
	switch {
	case err != nil && o.Remote == nil:
		return o, nil, localError{err}
	case err != nil:
		return o, nil, err
	case whole == nil || whole.GetUID() != (*part).GetUID() || whole.GetDeletionTimestamp() != nil:
		return o, nil, errNotOurs
	}
	*part = whole
	if w.Gather != nil {
		if _, err = w.Gather(ctx, w.engine.Home, o, &v); err != nil {
			return o, nil, localError{err}
		}
	}
	want, err := w.Push(o, v)
	return o, want, err
}

// withdraw deletes a remote object that is not desired, or must be replaced.
func (w *worker) withdraw(ctx context.Context, key types.NamespacedName, o Objects, v translate.View) error {
	if err := w.removeRemote(ctx, key, o.Remote); err != nil {
		return w.failed(ctx, o.Home, key, err)
	}
	again, err := w.Push(Objects{Home: o.Home}, v)
	if err == nil && again == nil && !w.Quiet && o.Remote.GetDeletionTimestamp() == nil {
		w.recordEvent(ctx, o.Home, key, reasonDisabled, fmt.Sprintf("Reflection to cluster %q disabled", w.engine.Peer))
	}
	return nil
}

// pull reconciles the status of the home object. With errTooMany it returns how long the write must
// wait.
func (w *worker) pull(
	ctx context.Context, key types.NamespacedName, o Objects, v translate.View,
) (wait time.Duration, err error) {
	if w.Pull == nil {
		return 0, nil
	}
	want, complaint := w.Pull(o, v)
	if complaint != nil {
		w.recordEvent(ctx, o.Home, key, reasonFailed, w.failure(complaint)) // only a change helps
	}
	if want == nil {
		return 0, nil
	}
	home, want := withoutSpec(o.Home), withoutSpec(want)
	if equality.Semantic.DeepEqual(home, want) {
		return 0, nil
	}
	if wait = w.Budget.wait(key, want, time.Now()); wait > 0 {
		return wait, errTooMany
	}
	return 0, w.patchStatus(ctx, key, home, want)
}

// withoutSpec returns a pod without its spec, which is most of a pod and never pulled. Other
// objects are few, and returned unchanged.
func withoutSpec(obj client.Object) client.Object {
	if p, ok := obj.(*corev1.Pod); ok {
		return &corev1.Pod{TypeMeta: p.TypeMeta, ObjectMeta: p.ObjectMeta, Status: p.Status}
	}
	return obj
}

// end finishes the deletion of a home object, once nothing of it is left at the peer.
func (w *worker) end(
	ctx context.Context, key types.NamespacedName, o Objects, v translate.View,
) (after time.Duration, err error) {
	if w.Finalizer != "" && w.engine.Released != nil && w.engine.Released(ctx) {
		return 0, w.release(ctx, key, o.Home)
	}
	if o.Remote == nil && o.Report == nil {
		if w.FinalizesHome && len(o.Home.GetFinalizers()) > 0 { // others hold it, and may wait for its final status
			if wait, err := w.pull(ctx, key, o, v); err != nil {
				return wait, err
			}
		}
		return 0, w.release(ctx, key, o.Home)
	}
	if w.Ending != nil {
		switch ending, err := w.Ending(ctx, w.engine.Home, o.Home); {
		case err != nil:
			return 0, w.logged(ctx, key, err)
		case ending == Stays:
			return 0, w.release(ctx, key, o.Home)
		case ending == Waits:
			return 0, nil
		}
	}
	err = w.limit(ctx, o)
	withdrawn := false
	if err == nil {
		withdrawn, err = w.tries(ctx, key, func() error { return w.removeRemote(ctx, key, o.Remote) })
	}
	switch {
	case withdrawn:
		return 0, w.release(ctx, key, o.Home) // the object is the peer's to remove
	case apierrors.IsConflict(err):
		return 0, err
	case err != nil:
		w.recordEvent(ctx, o.Home, key, reasonFailedDeletion, w.failure(err))
		return 0, err
	}
	return w.pull(ctx, key, o, v)
}

// waitForCaches returns errNotReady for a home object that waits because the caches of the remote
// cluster have not synced, and finishes the deletion of one that a Finalizer holds.
func (w *worker) waitForCaches(ctx context.Context, ns *namespace, key types.NamespacedName) error {
	reader := client.Reader(w.HomeCache)
	if w.HomeCache == nil {
		reader = ns.home
	}
	home, err := get(ctx, reader, key, w.Home)
	switch {
	case err != nil:
		return err
	case home == nil || !w.concerns(home):
		return errNotOurs // or not known yet to be ours
	case home.GetDeletionTimestamp() != nil && w.Finalizer != "" && controllerutil.ContainsFinalizer(home, w.Finalizer):
		return cmp.Or(w.releaseBlindly(ctx, ns, key, home), errNotReady)
	}
	return errNotReady
}

// releaseBlindly finishes the deletion of a home object while the caches of the remote cluster have
// not synced, because it is unreachable or refuses access. This bounds the time that deletion
// takes.
func (w *worker) releaseBlindly(
	ctx context.Context, ns *namespace, key types.NamespacedName, home client.Object,
) error {
	if w.engine.Released != nil && w.engine.Released(ctx) {
		return w.release(ctx, key, home)
	}
	there := types.NamespacedName{Namespace: ns.remote, Name: w.remoteName(key.Name)}
	var remote client.Object
	withdrawn, err := w.tries(ctx, key, func() (err error) {
		remote, err = get(ctx, w.engine.Remote, there, w.Remote)
		return err
	})
	switch {
	case withdrawn:
		return w.release(ctx, key, home)
	case err != nil:
		return err
	case remote == nil || !w.ours(remote):
		return w.release(ctx, key, home)
	}
	return nil // the peer answers, so the caches will sync
}

// tries sends a request to the peer, and reports whether the peer has withdrawn the rights to
// objects that a Finalizer holds. An API server that starts refuses all requests until it has read
// the RBAC rules, so a refused request is repeated when it is ready. If even its readiness is
// denied, it may still be starting until longestStart has passed.
func (w *worker) tries(ctx context.Context, key types.NamespacedName, do func() error) (withdrawn bool, err error) {
	err = do()
	if w.Finalizer == "" || !apierrors.IsForbidden(err) {
		w.silent(key, false)
		return false, err
	}
	ready := w.engine.Remote.Ready(ctx)
	silent := w.silent(key, apierrors.IsForbidden(ready) || apierrors.IsNotFound(ready))
	if ready == nil {
		err = do()
	}
	if withdrawn = apierrors.IsForbidden(err) && (ready == nil || silent > longestStart); withdrawn {
		w.silent(key, false)
	}
	return withdrawn, err
}

// longestStart is the longest start of an API server: with kubeadm's settings, the kubelet restarts
// it after 24 failed probes, one each 10 s.
const longestStart = 24 * 10 * time.Second

// silent records whether the peer denies access to its readiness, and returns for how long it has,
// by requests for this key.
func (w *worker) silent(key types.NamespacedName, is bool) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !is {
		delete(w.silence, key)
		return 0
	}
	if w.silence[key].IsZero() {
		w.silence[key] = time.Now()
	}
	return time.Since(w.silence[key])
}
