// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// Kinds of subjects.
const (
	Pod       = "pod"
	Node      = "node"
	Service   = "service"
	Namespace = "namespace"
	Peer      = "peer"
)

// Subject identifies the object that a user asks about.
type Subject struct {
	// Kind is one of the kinds above.
	Kind string
	// Namespace is empty for nodes, namespaces and peers.
	Namespace string
	// Name of a peer is its cluster ID.
	Name string
}

// String returns the subject as "pod demo/web" or "node milan".
func (s Subject) String() string { return strings.TrimSpace(s.Kind + " " + at(s.Namespace, s.Name)) }

// at returns namespace and name, separated by a slash if there is a namespace.
func at(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// Answer explains one subject.
type Answer struct {
	// Subject is the kind and the name.
	Subject string `json:"subject"`
	// State is the state in a word, such as Pending or Ready.
	State string `json:"state"`
	// Where is the place of the subject.
	Where string `json:"where"`
	// Decisions led there, in their order.
	Decisions []string `json:"decisions,omitempty"`
	// Cause is the first thing that is missing. Its reason is Nothing if the subject works.
	Cause Cause `json:"cause"`
	// Unknown lists what could not be read, and would make the answer more exact.
	Unknown []string `json:"unknown,omitempty"`
}

// Cause is one thing that keeps a subject from working.
type Cause struct {
	// Reason is a word for programs, from the table of the package.
	Reason string `json:"reason"`
	// Cluster is the ID of the cluster in which the cause is; empty if that is not known.
	Cluster string `json:"cluster,omitempty"`
	// Message is a sentence for people. It quotes messages of other clusters.
	Message string `json:"message"`
	// Remedies are commands to type, the most useful first.
	Remedies []Remedy `json:"remedies,omitempty"`
}

// Remedy is a command that looks closer or corrects the cause.
type Remedy struct {
	// Cluster is the ID of the cluster for whose kubeconfig the command is meant.
	Cluster string `json:"cluster,omitempty"`
	Command string `json:"command"`
}

// Nothing is the reason of a subject that works.
const Nothing = "Nothing"

// cause returns a cause in a cluster without remedies. Without a message, the reason stands for it.
func cause(reason string, in *Cluster, format string, args ...any) *Cause {
	return &Cause{Reason: reason, Cluster: in.ID,
		Message: cmp.Or(strings.TrimSuffix(oneLine(fmt.Sprintf(format, args...)), ":"), reason)}
}

// typed adds a command for the cluster of the cause.
func (c *Cause) typed(format string, args ...any) *Cause {
	return c.typedAt(c.Cluster, format, args...)
}

// word matches what a shell takes as one word and a program not as a flag: plain, or a quoted label selector.
var word = regexp.MustCompile(`^([A-Za-z0-9][-\w./:=,]*|'[A-Za-z0-9!][-\w./=(), !]*')$`)

// typedAt adds a command for a cluster, unless an argument is not a word: unknown, which is empty, or
// written by another user or cluster to do harm.
func (c *Cause) typedAt(cluster, format string, args ...any) *Cause {
	for _, arg := range append(args, cmp.Or(cluster, "local")) {
		if !word.MatchString(fmt.Sprint(arg)) {
			return c
		}
	}
	c.Remedies = append(c.Remedies, Remedy{Cluster: cluster, Command: fmt.Sprintf(format, args...)})
	return c
}

// Lines returns the answer as a user reads it. local is the ID of the user's own cluster, whose
// name is left out.
func (a Answer) Lines(local string) []string {
	out := []string{a.Subject + " is " + a.State}
	add := func(label string, texts ...string) {
		for _, text := range texts {
			out = append(out, fmt.Sprintf("  %-9s %s", label, oneLine(text)))
			label = ""
		}
	}
	add("where", a.Where)
	add("decided", a.Decisions...)
	switch {
	case a.Cause.Reason == Nothing:
		add("missing", "nothing: "+a.Cause.Message)
	case a.Cause.Cluster == local, a.Cause.Cluster == "":
		add("missing", a.Cause.Reason+": "+a.Cause.Message)
	default:
		add("missing", fmt.Sprintf("%s at %s: %s", a.Cause.Reason, a.Cause.Cluster, a.Cause.Message))
	}
	var commands []string
	for _, remedy := range a.Cause.Remedies {
		if remedy.Cluster != local && remedy.Cluster != "" {
			remedy.Command += " # at " + remedy.Cluster
		}
		commands = append(commands, remedy.Command)
	}
	add("type", commands...)
	add("unknown", a.Unknown...)
	return out
}

// oneLine joins the lines of a text.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
