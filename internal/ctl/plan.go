// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
	// Lacks is what a user must know of a complete plan: it is told instead of the verdict, which goes
	// on to rule what is pruned. The zero value is nothing.
	Lacks Verdict
	// Events are recorded on the root, each when what it tells of is written.
	Events []Event
	// Objects are the desired objects, whole as server-side apply wants them, in any namespace. Those that are
	// only created come before what gives them rights or uses them.
	Objects []client.Object
	// Keep are objects made before that are not to be pruned though Objects does not name them: they stay as they
	// are, but for Parts.
	Keep []client.Object
	// Status is of the root's type; the fields set in its status are applied and owned by the
	// controller. Nil leaves the status alone.
	Status client.Object
	// Fill is a copy of the root with spec or metadata filled in; the difference is patched once
	// and not owned. Nil fills nothing.
	Fill client.Object
	// Parts are written as often as the plan names them, each on its own, once the status is.
	Parts []Part
	// Delete lists objects that must go though the root does not own them. Those that carry a
	// UID are deleted only while they still have it.
	Delete []client.Object
	// After is when to look again without an event; 0 waits for one.
	After time.Duration
}

// told is what the user is told of a plan.
func (p Plan) told() Verdict {
	if p.State == Ready && p.Lacks.State != Ready {
		return p.Lacks
	}
	return p.Verdict
}

// Event tells administrators what a plan has done, such as what a peer is granted: who, what and until when.
type Event struct {
	// Object is the one of Objects whose creation the event tells of; nil = Status, when it is written. The plan
	// has such an event only while Status differs from that of the root.
	Object client.Object
	// Type is one of Kubernetes' types of events; empty = Normal.
	Type string
	// Reason is a CamelCase word for programs.
	Reason string
	// Message may hold times and names, unlike that of a Verdict. The recorder cuts a long one in the middle.
	Message string
}

// Part is a change of an object that exists: as a subresource of it is to make it, or a patch of what cannot be
// desired, like a gate that is lifted.
type Part struct {
	// Subresource to update. It is written only if nobody has changed the object since it was seen: of several
	// parts of one, one. Empty = Patch is sent.
	Subresource string
	// Patch of the object itself, with its UID; nil = a subresource is updated.
	Patch  client.Patch
	Object client.Object
}

// Wait is a plan that cannot be completed yet. What exists is kept.
func Wait(reason, format string, args ...any) Plan {
	return Plan{Verdict: Verdict{Waiting, reason, fmt.Sprintf(format, args...)}}
}

// Block is a plan that cannot be completed until the user changes something. What exists is kept.
func Block(reason, format string, args ...any) Plan {
	return Plan{Verdict: Verdict{Blocked, reason, fmt.Sprintf(format, args...)}}
}
