// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package desired

const (
	// ConditionReady is True when the last plan was complete.
	ConditionReady = "Ready"
	// ConditionReconciling is True, and only then present, while the root waits.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True, and only then present, while only a change of input helps.
	ConditionStalled = "Stalled"
)

const (
	// LabelOwner holds the root's UID on every object a controller made.
	LabelOwner = "ctl.liqo.io/owner-uid"
	// LabelController holds the controller's name on every object it made.
	LabelController = "ctl.liqo.io/controller"
	// AnnotationOwner holds the root's "namespace/name", by which an object is mapped to its root.
	AnnotationOwner = "ctl.liqo.io/owner"
	// LabelManaged is on every object that Liqo makes. Informers of large kinds select it.
	LabelManaged = "liqo.io/managed"
)

// Marks reports whether a label or annotation is one by which a controller finds the objects it
// made.
func Marks(key string) bool {
	return key == LabelOwner || key == LabelController || key == AnnotationOwner || key == LabelManaged
}
