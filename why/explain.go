// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"strings"
)

// explainers maps kinds to their explanations.
var explainers = map[string]func(*Input) Answer{Pod: explainPod, Node: explainNode,
	Namespace: explainNamespace, Service: explainService, Peer: explainPeer}

// absent is the state of a subject that does not exist.
const absent = "absent"

// Explain returns the answer to "why is the subject as it is". It never fails: what cannot be
// explained has the reason Unexplained, and what could not be read is in Unknown.
func Explain(in Input) Answer {
	explain := explainers[in.Kind]
	if explain == nil {
		return Answer{Subject: in.String(), State: "unknown", Where: "unknown",
			Cause: *cause(Unexplained, &in.Local, "%q is not a kind that is explained", in.Kind)}
	}
	a := explain(&in)
	a.Subject = in.String()
	if a.State == absent && !in.Local.mayRead(in.Kind+"s") {
		a.State, a.Where = "unknown", "unknown"
		a.Cause = *cause(Unexplained, &in.Local, "the user may not read %ss", in.Kind)
	}
	for _, c := range []*Cluster{&in.Local, in.Remote} {
		if c != nil && len(c.Unread) > 0 {
			a.Unknown = append(a.Unknown,
				"what the user may not read at "+cmp.Or(c.ID, "this cluster")+": "+strings.Join(c.Unread, ", "))
		}
	}
	return a
}
