// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package desired holds the types that pure functions return: the plan of one root object.
// internal/ctl carries plans out. The package imports no client, cache or clock, so that packages
// that plan cannot reach one either.
package desired

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is any object of the Kubernetes API: controller-runtime's client.Object has the same
// methods.
type Object interface {
	metav1.Object
	runtime.Object
}

// State describes how complete a plan is.
type State int

const (
	// Ready means that the plan is complete; objects that it does not name may be pruned.
	Ready State = iota
	// Waiting means that the plan is completed after an event or a time.
	Waiting
	// Blocked means that only a change of the input completes the plan.
	Blocked
)

// Verdict holds the outcome of a plan that is reported to users. The zero value is Ready.
type Verdict struct {
	State State
	// Reason is a CamelCase word for programs; empty means "Ready".
	Reason string
	// Message says what is wrong and ends with what the user can do. It must not contain times or
	// generated names: it would change with every plan.
	Message string
}

// Plan is the desired state of everything that depends on one root.
type Plan struct {
	Verdict
	// Degraded is reported instead of Ready for a plan that is complete but not fully effective;
	// pruning still happens. The zero value is not reported.
	Degraded Verdict
	// ProblemsOnly writes no conditions to a root that has none while its verdict is Ready. This
	// saves one status write for each of thousands of roots.
	ProblemsOnly bool
	// Events are recorded on the root, each when the object or status that it is about has been
	// written.
	Events []Event
	// Objects are the desired objects as server-side apply takes them, in any namespace. Objects of
	// a kind in Creates come before those that grant them rights or use them.
	Objects []Object
	// Preserve are objects of earlier plans that are neither written nor pruned. Actions may still
	// change them.
	Preserve []Object
	// Status has the root's type. The fields set in its status are applied and owned by the
	// controller. Nil leaves the status alone.
	Status Object
	// Fill is a copy of the root with defaults filled into its spec or metadata. The difference is
	// patched once and not owned. Nil patches nothing.
	Fill Object
	// Actions are writes that no desired object can express. They are carried out in order, after
	// Objects; those with Last after Status, and only if all writes before succeeded.
	Actions []Action
	// RequeueAfter is the time until the next reconcile without an event; 0 = only an event starts
	// it.
	RequeueAfter time.Duration
}

// Reported returns the verdict that is written into conditions.
func (p Plan) Reported() Verdict {
	if p.State == Ready && p.Degraded.State != Ready {
		return p.Degraded
	}
	return p.Verdict
}

// Event reports to administrators what a plan has done, such as what a peer is granted and until
// when.
type Event struct {
	// Object is the one of Objects whose creation the event reports; nil = the write of Status. A
	// plan has an event about Status only while Status differs from that of the root.
	Object Object
	// Type is one of Kubernetes' types of events; empty = Normal.
	Type string
	// Reason is a CamelCase word for programs.
	Reason string
	// Message may contain times and names, unlike that of a Verdict. The recorder cuts a long
	// message in the middle.
	Message string
}

// Wait returns a plan that cannot be completed yet. Existing objects stay.
func Wait(reason, format string, args ...any) Plan {
	return Plan{Verdict: Verdict{Waiting, reason, fmt.Sprintf(format, args...)}}
}

// Block returns a plan that cannot be completed until the user changes something. Existing objects
// stay.
func Block(reason, format string, args ...any) Plan {
	return Plan{Verdict: Verdict{Blocked, reason, fmt.Sprintf(format, args...)}}
}
