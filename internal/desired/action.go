// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package desired

// Verb says what an Action does.
type Verb int

const (
	// Delete deletes Object, only while it has Object's UID if that is set. One that is being deleted is left alone
	// unless Grace is set.
	Delete Verb = iota
	// Evict asks for the end of Object, a pod with this UID. One that a disruption budget protects stays for now.
	Evict
	// Merge changes what differs between Before and Object, by a JSON merge patch. Nothing is sent if nothing differs.
	Merge
	// Strategic is Merge by a strategic merge patch: lists with keys are changed by entry.
	Strategic
	// Update replaces Object or a subresource of it, only while its version is Object's: of several such actions, one
	// succeeds.
	Update
	// Create makes Object unless one of its name exists, whoever made it. It is not the root's, and never pruned.
	Create
)

// String is the verb as a log says it.
func (v Verb) String() string {
	return [...]string{"delete", "evict", "patch", "patch", "update", "create"}[v]
}

// Action is a request for what cannot be desired as an object. One whose object is gone is done.
type Action struct {
	Verb Verb
	// Object is the object as it is to be; for Delete, its kind and name suffice.
	Object Object
	// Before is the object as it was read, for Merge and Strategic.
	Before Object
	// Subresource is written instead of the object itself, such as "status"; empty = the object.
	Subresource string
	// Locked changes only what nobody has written since it was read, for Merge and Strategic: lists without keys.
	Locked bool
	// Grace is how long a pod that is deleted may take to end, in seconds; nil = as long as it says itself.
	Grace *int64
	// Peer says that Object is at the peer the root is about. What that refuses is logged, and the action is done.
	Peer bool
	// Event is recorded on Object once the action is done; its zero value is none. The event's Object is nil.
	Event Event
	// Last actions are carried out after the plan's status is written, if all before succeeded.
	Last bool
}

// Deletes are actions that delete objects.
func Deletes(objects ...Object) []Action {
	actions := make([]Action, len(objects))
	for i, obj := range objects {
		actions[i] = Action{Verb: Delete, Object: obj}
	}
	return actions
}
