// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package desired

// Verb is the operation of an Action.
type Verb int

const (
	// Delete deletes Object, with its UID as precondition if that is set. An object that is being
	// deleted is left alone unless Grace is set.
	Delete Verb = iota
	// Evict evicts Object, a pod with this UID. A pod that a disruption budget protects stays.
	Evict
	// Merge patches the difference between Before and Object by a JSON merge patch. An empty patch
	// is not sent.
	Merge
	// Strategic is like Merge with a strategic merge patch: entries of lists with keys are changed
	// one by one.
	Strategic
	// Update replaces Object or a subresource of it at the resource version of Object. Of several
	// such actions on one object, only the first succeeds.
	Update
	// Create creates Object unless one of its name exists, of any owner. Object is not owned by the
	// root, and never pruned.
	Create
)

// String returns the verb for logs.
func (v Verb) String() string {
	return [...]string{"delete", "evict", "patch", "patch", "update", "create"}[v]
}

// Action is a write that no desired object can express. An action whose object no longer exists
// counts as done.
type Action struct {
	Verb Verb
	// Object is the desired content of the object; for Delete, its kind and name suffice.
	Object Object
	// Before is the object as it was read, for Merge and Strategic.
	Before Object
	// Subresource is written instead of the object itself, such as "status"; empty = the object.
	Subresource string
	// Locked adds the resource version of Before as precondition to Merge and Strategic. Lists
	// without keys need it.
	Locked bool
	// Grace is the grace period of a deleted pod in seconds; nil = that of the pod.
	Grace *int64
	// Peer writes at the root's peer. If the peer refuses the write, this is logged and the action
	// counts as done.
	Peer bool
	// Event is recorded on Object once the action is done; the zero value is not recorded. The
	// event's Object is nil.
	Event Event
	// Last carries the action out after the plan's status is written, and only if all writes before
	// succeeded.
	Last bool
}

// Deletes returns actions that delete objects.
func Deletes(objects ...Object) []Action {
	actions := make([]Action, len(objects))
	for i, obj := range objects {
		actions[i] = Action{Verb: Delete, Object: obj}
	}
	return actions
}
