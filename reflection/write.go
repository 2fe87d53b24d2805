// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/reflection/translate"
)

// These are the reasons of events on home objects. Successful and Failed get the suffix of the
// kind.
const (
	reasonSuccessful     = "Successful"
	reasonFailed         = "Failed"
	reasonFailedDeletion = "FailedDeletion"
	reasonDisabled       = "ReflectionDisabled"
)

// writeTimeout bounds one request to either API server.
const writeTimeout = 30 * time.Second

// errNameTaken reports that another owner has an object of the remote name.
var errNameTaken = errors.New("remote object already exists")

func eventSource(kind string) string { return "liqo-" + strings.ToLower(kind) + "-reflection" }

// ours reports whether a remote object carries our ownership labels.
func (w *worker) ours(remote client.Object) bool {
	return w.RemoteSelector.Matches(labels.Set(remote.GetLabels()))
}

// write sends one request that creates or changes an object, and records it in the ledger.
// before is the resource version that the request was computed for; empty = a creation.
func (w *worker) write(
	ctx context.Context, s slot, before string, send func(context.Context) (client.Object, error),
) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	w.ledger.Begin(s, struct{}{})
	written, err := send(ctx)
	if err != nil {
		w.ledger.End(s)
		return err
	}
	w.ledger.Written(s, before, written.GetResourceVersion())
	return nil
}

// create creates the remote object. The API server refuses it if the name is taken.
func (w *worker) create(ctx context.Context, key types.NamespacedName, home, want client.Object) error {
	err := w.write(ctx, slot{atRemote, key}, "", func(ctx context.Context) (client.Object, error) {
		made := want.DeepCopyObject().(client.Object) // the answer is decoded into it
		err := w.engine.Remote.Create(ctx, made, client.FieldOwner(api.FieldManagerReflection))
		if lesser := w.lesser(want, err); lesser != nil {
			made = lesser
			err = w.engine.Remote.Create(ctx, made, client.FieldOwner(api.FieldManagerReflection))
		}
		return made, err
	})
	if apierrors.IsAlreadyExists(err) {
		err = w.taken(ctx, want, err)
	}
	if err != nil {
		return w.failed(ctx, home, key, err)
	}
	w.setMessage(key, "")
	if !w.Quiet {
		w.recordEvent(ctx, home, key, reasonSuccessful,
			fmt.Sprintf("Successfully reflected object to cluster %q", w.engine.Peer))
	}
	return nil
}

// lesser returns what to write after an object was refused as invalid; nil = nothing.
func (w *worker) lesser(want client.Object, err error) client.Object {
	if w.Lesser == nil || !apierrors.IsInvalid(err) {
		return nil
	}
	return w.Lesser(want)
}

// localError is an error of the local API server. It unwraps to the original error, but is never a
// refusal.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

// refusal returns the condition for a response of the provider that a retry does not change: of a
// quota, a policy, a webhook, or a taken name; and for an unknown volume. It returns nil for all other
// errors.
func refusal(err error) *metav1.Condition {
	reason := authv1beta1.ReasonProviderRefuses
	switch {
	case errors.As(err, new(localError)):
		return nil
	case errors.Is(err, errNameTaken):
		reason = translate.ReasonNameTaken
	case errors.Is(err, errUnknownVolume):
	case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err):
		return nil
	}
	return &metav1.Condition{Reason: reason, Message: err.Error(), LastTransitionTime: metav1.Now().Rfc3339Copy()}
}

// taken finds the owner of the remote name. If it is ours, the cache was stale, and taken returns
// conflict so that the caller retries.
func (w *worker) taken(ctx context.Context, want client.Object, conflict error) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	there, err := get(ctx, w.engine.Remote, client.ObjectKeyFromObject(want), w.Remote)
	switch {
	case err != nil:
		return err
	case there != nil && !w.ours(there):
		return errNameTaken
	}
	return conflict
}

// patchRemote patches what differs, only in the object of that UID. If the peer refuses a change of
// the spec, it patches only labels and annotations. It returns the refusal in both cases.
func (w *worker) patchRemote(ctx context.Context, key types.NamespacedName, remote, want client.Object) error {
	data, err := client.MergeFrom(withoutUID(remote)).Data(want)
	if err != nil {
		return fmt.Errorf("compute patch of %T %s: %w", remote, key, err)
	}
	err = w.sendPatch(ctx, key, remote, data)
	if refusal(err) == nil || !changesSpec(data) {
		return err
	}
	metadata := remote.DeepCopyObject().(client.Object)
	metadata.SetLabels(want.GetLabels())
	metadata.SetAnnotations(want.GetAnnotations())
	if isCurrent(remote, metadata) {
		return err
	}
	if data, failed := client.MergeFrom(withoutUID(remote)).Data(metadata); failed == nil {
		_ = w.sendPatch(ctx, key, remote, data) // a retry follows the refusal anyway
	}
	return err
}

// changesSpec reports whether a merge patch changes the spec of an object.
func changesSpec(patch []byte) bool {
	var changed struct {
		Spec json.RawMessage `json:"spec"`
	}
	return json.Unmarshal(patch, &changed) == nil && changed.Spec != nil
}

// sendPatch sends a merge patch of a remote object.
func (w *worker) sendPatch(ctx context.Context, key types.NamespacedName, remote client.Object, data []byte) error {
	send := func(ctx context.Context) (client.Object, error) {
		patched := w.named(w.Remote, remote)
		return patched, w.engine.Remote.Patch(ctx, patched, client.RawPatch(types.MergePatchType, data),
			client.FieldOwner(api.FieldManagerReflection))
	}
	return w.write(ctx, slot{atRemote, key}, remote.GetResourceVersion(), send)
}

// patchStatus patches what differs in the status, labels and annotations of a home object.
func (w *worker) patchStatus(ctx context.Context, key types.NamespacedName, home, want client.Object) error {
	base := withoutUID(home)
	if w.Shared {
		base.SetResourceVersion("") // what differs from it names the version, likewise
	}
	patch, kind := client.MergeFrom(base), types.MergePatchType
	if w.Strategic {
		patch, kind = client.StrategicMergeFrom(base), types.StrategicMergePatchType
	}
	data, err := patch.Data(want)
	if err != nil {
		return fmt.Errorf("compute patch of the status of %T %s: %w", home, key, err)
	}
	err = w.write(ctx, slot{atHome, key}, home.GetResourceVersion(), func(ctx context.Context) (client.Object, error) {
		patched := w.named(w.Home, home)
		return patched, w.engine.Home.Status().Patch(ctx, patched, client.RawPatch(kind, data),
			client.FieldOwner(api.FieldManagerReflection))
	})
	if client.IgnoreNotFound(err) != nil {
		return w.logged(ctx, key, fmt.Errorf("patch status of %T %s: %w", home, key, err))
	}
	return nil // for an object that is gone, an event follows
}

// named returns an empty object with the name of another, into which a response is decoded.
func (w *worker) named(prototype, like client.Object) client.Object {
	out := prototype.DeepCopyObject().(client.Object) // prototypes are empty
	out.SetNamespace(like.GetNamespace())
	out.SetName(like.GetName())
	return out
}

// withoutUID returns the base of a patch: the patch then contains the UID, which the API server
// takes as a precondition.
func withoutUID(obj client.Object) client.Object {
	base := obj.DeepCopyObject().(client.Object)
	base.SetUID("")
	return base
}

// removeRemote deletes a remote object, only the one of that UID; nil = nothing to delete.
func (w *worker) removeRemote(ctx context.Context, key types.NamespacedName, remote client.Object) error {
	if remote == nil || remote.GetDeletionTimestamp() != nil {
		return nil
	}
	if err := w.delete(ctx, w.engine.Remote, slot{atRemote, key}, remote); err != nil {
		return err
	}
	w.setMessage(key, "")
	return nil
}

// delete deletes an object, only the one of that UID. A conflict is returned and retried: a
// replaced object causes an event, but a webhook that refuses with 409 does not.
func (w *worker) delete(
	ctx context.Context, c client.Client, s slot, obj client.Object, options ...client.DeleteOption,
) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	w.ledger.Begin(s, struct{}{})
	options = append(options, client.Preconditions{UID: new(obj.GetUID())})
	err := c.Delete(ctx, obj, options...)
	if err == nil {
		w.ledger.Deleted(s, obj.GetResourceVersion())
		return nil
	}
	w.ledger.End(s)
	if apierrors.IsNotFound(err) {
		return nil // an event follows
	}
	return fmt.Errorf("delete %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
}

// limit deletes the Report with the grace period of the home object. A grace period cannot be
// extended later, so this happens before its owner is deleted.
func (w *worker) limit(ctx context.Context, o Objects) error {
	if w.Grace == nil || o.Report == nil {
		return nil
	}
	seconds := w.Grace(o)
	if seconds == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := w.engine.Remote.Delete(ctx, o.Report, client.GracePeriodSeconds(*seconds),
		client.Preconditions{UID: new(o.Report.GetUID())})
	if err == nil || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil // not granted, or it is gone already
	}
	return fmt.Errorf("delete %T %s: %w", o.Report, client.ObjectKeyFromObject(o.Report), err)
}

// hold adds our finalizer to a home object before its remote object is created or taken over.
func (w *worker) hold(ctx context.Context, key types.NamespacedName, home client.Object) error {
	if w.Finalizer == "" || controllerutil.ContainsFinalizer(home, w.Finalizer) {
		return nil
	}
	held := home.DeepCopyObject().(client.Object)
	controllerutil.AddFinalizer(held, w.Finalizer)
	return w.patchFinalizers(ctx, key, home, held)
}

// release removes our finalizer from a home object, or deletes the object if FinalizesHome is set.
func (w *worker) release(ctx context.Context, key types.NamespacedName, home client.Object) error {
	if w.Finalizer != "" && controllerutil.ContainsFinalizer(home, w.Finalizer) {
		free := home.DeepCopyObject().(client.Object)
		controllerutil.RemoveFinalizer(free, w.Finalizer)
		return w.patchFinalizers(ctx, key, home, free)
	}
	if !w.FinalizesHome || home.GetDeletionTimestamp() == nil {
		return nil
	}
	if grace := home.GetDeletionGracePeriodSeconds(); grace != nil && *grace == 0 {
		return nil // done before; finalizers of others hold it
	}
	if err := w.delete(ctx, w.engine.Home, slot{atHome, key}, home, client.GracePeriodSeconds(0)); err != nil {
		return w.logged(ctx, key, err)
	}
	return nil
}

// patchFinalizers writes a changed list of finalizers under an optimistic lock.
func (w *worker) patchFinalizers(ctx context.Context, key types.NamespacedName, home, want client.Object) error {
	patch := client.MergeFromWithOptions(home, client.MergeFromWithOptimisticLock{})
	err := w.write(ctx, slot{atHome, key}, home.GetResourceVersion(), func(ctx context.Context) (client.Object, error) {
		return want, w.engine.Home.Patch(ctx, want, patch)
	})
	if client.IgnoreNotFound(err) != nil {
		return w.logged(ctx, key, localError{fmt.Errorf("patch finalizers of %T %s: %w", home, key, err)})
	}
	return nil
}

// failed reports a failure that users can resolve: an API server answered and refused, or lacks what
// the object needs. It returns the error, so that the caller retries; nil stays nil.
func (w *worker) failed(ctx context.Context, home client.Object, key types.NamespacedName, err error) error {
	var answered apierrors.APIStatus
	switch {
	case err == nil:
		w.setMessage(key, "")
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		// The cache was stale: its event starts the next reconcile.
	case errors.Is(err, errNameTaken), errors.Is(err, errNoTrust), errors.Is(err, errUnknownVolume),
		errors.As(err, &answered):
		w.recordEvent(ctx, home, key, reasonFailed, w.failure(err))
	default:
		return w.logged(ctx, key, err)
	}
	return err
}

// failure returns the message of an event about an error. It is cut, because the peer's API server
// controls its length.
func (w *worker) failure(err error) string {
	return translate.Cut(fmt.Sprintf("Error reflecting object to cluster %q: %v", w.engine.Peer, err),
		translate.LongestEvent)
}

// recordEvent records an event on the home object and logs it, once until the message changes.
func (w *worker) recordEvent(
	ctx context.Context, home client.Object, key types.NamespacedName, reason, message string,
) {
	if !w.setMessage(key, message) {
		return
	}
	level := corev1.EventTypeWarning
	if reason == reasonSuccessful || reason == reasonDisabled {
		level = corev1.EventTypeNormal
		w.setMessage(key, "") // nothing is wrong
	}
	if reason == reasonSuccessful || reason == reasonFailed {
		reason += cmp.Or(w.Events, "Reflection")
	}
	w.events(home, level, reason, message)
	log.FromContext(ctx).Info(message, "kind", w.Name, "object", key.String())
}

// logged logs an error once until the message changes, and returns it. A conflict is not logged:
// the retry reads the newer object.
func (w *worker) logged(ctx context.Context, key types.NamespacedName, err error) error {
	if !apierrors.IsConflict(err) && w.setMessage(key, err.Error()) {
		log.FromContext(ctx).Error(err, "sync object", "kind", w.Name, "object", key.String(), "peer", w.engine.Peer)
	}
	return err
}

// forget drops the state of a key without a home object.
func (w *worker) forget(key types.NamespacedName) {
	w.setMessage(key, "")
	w.silent(key, false)
	w.Names.note(w.Name, key, false)
	w.Budget.forget(key)
	w.engine.newer.forget(w.Name, key)
}

// setMessage records the last message for a key ("" = no problem), and reports whether it is new.
func (w *worker) setMessage(key types.NamespacedName, message string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.failures[key]
	if message == "" {
		delete(w.failures, key)
		return known
	}
	w.failures[key] = message
	return !known || before != message
}
