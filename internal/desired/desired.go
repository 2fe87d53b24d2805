// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package desired holds what pure functions decide: the plan of one root object. internal/ctl carries plans out.
// The package knows no client, cache or clock, so that the packages that plan cannot reach one either.
package desired

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is any object of the Kubernetes API: controller-runtime's client.Object has the same methods.
type Object interface {
	metav1.Object
	runtime.Object
}

// State says how far a plan could get.
type State int

const (
	// Ready: the plan is complete; what it does not name may be pruned.
	Ready State = iota
	// Waiting: an event or a time will help.
	Waiting
	// Blocked: only a change of the input helps.
	Blocked
)

// Verdict tells the user how a root stands. The zero value is Ready.
type Verdict struct {
	State State
	// Reason is a CamelCase word for programs; empty means "Ready".
	Reason string
	// Message says what is wrong and ends with what the user can do. It must not hold times or
	// generated names: it would change at every pass.
	Message string
}

// Plan is everything one root wants to be true.
type Plan struct {
	Verdict
	// Degraded is what a user must know of a complete plan: it is reported instead of the verdict, which goes
	// on to rule what is pruned. The zero value is nothing.
	Degraded Verdict
	// ProblemsOnly leaves a root without conditions as long as its verdict is Ready: conditions of thousands of
	// roots would cost a write each.
	ProblemsOnly bool
	// Events are recorded on the root, each when what it tells of is written.
	Events []Event
	// Objects are the desired objects, whole as server-side apply wants them, in any namespace. Those that are
	// only created come before what gives them rights or uses them.
	Objects []Object
	// Preserve are objects made before that are not to be pruned though Objects does not name them: they stay as
	// they are, but for Actions.
	Preserve []Object
	// Status is of the root's type; the fields set in its status are applied and owned by the
	// controller. Nil leaves the status alone.
	Status Object
	// Fill is a copy of the root with spec or metadata filled in; the difference is patched once
	// and not owned. Nil fills nothing.
	Fill Object
	// Actions are requests for what is no desired object. They are carried out in their order, after Objects; those
	// that come Last, after Status and only if all before succeeded.
	Actions []Action
	// RequeueAfter is when to look again without an event; 0 waits for one.
	RequeueAfter time.Duration
}

// Reported is what the user is told of a plan.
func (p Plan) Reported() Verdict {
	if p.State == Ready && p.Degraded.State != Ready {
		return p.Degraded
	}
	return p.Verdict
}

// Event tells administrators what a plan has done, such as what a peer is granted: who, what and until when.
type Event struct {
	// Object is the one of Objects whose creation the event tells of; nil = Status, when it is written. The plan
	// has such an event only while Status differs from that of the root.
	Object Object
	// Type is one of Kubernetes' types of events; empty = Normal.
	Type string
	// Reason is a CamelCase word for programs.
	Reason string
	// Message may hold times and names, unlike that of a Verdict. The recorder cuts a long one in the middle.
	Message string
}

// Wait is a plan that cannot be completed yet. What exists is kept.
func Wait(reason, format string, args ...any) Plan {
	return Plan{Verdict: Verdict{Waiting, reason, fmt.Sprintf(format, args...)}}
}

// Block is a plan that cannot be completed until the user changes something. What exists is kept.
func Block(reason, format string, args ...any) Plan {
	return Plan{Verdict: Verdict{Blocked, reason, fmt.Sprintf(format, args...)}}
}
