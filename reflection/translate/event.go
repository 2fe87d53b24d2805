// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/liqo-go/liqo/api"
)

// largestEvent is the largest size of a reflected event, in bytes. Those of Kubernetes have about
// one thousand. An API server accepts more than a million, and keeps each for an hour.
const largestEvent = 8 << 10

// remoteSuffix marks messages that come from the provider.
const remoteSuffix = " (remote)"

// LongestEvent is the longest message of an event with an eventTime, in bytes (NoteLengthLimit in
// pkg/apis/core/validation of Kubernetes). Messages of schedulers may have this length.
const LongestEvent = 1024

// Event reflects an event of the provider to the home object. It flows from the provider to the
// consumer, so the View is the provider's: origin is the provider's event, shown the consumer's. An
// event about one object is not moved to the next of its name. The provider's text is escaped, and
// cut to the limit of the API server for an event with an eventTime.
func Event(origin, shown *corev1.Event, v View) *corev1.Event {
	if v.Involved == nil || slices.Contains(routine, origin.Reason) || origin.Size() > largestEvent ||
		!reflects(origin.Annotations, v.AllowList) {
		return nil
	}
	out := copyOf(shown)
	out.ObjectMeta = v.metadata(origin.ObjectMeta, out.ObjectMeta, origin.Name)
	in := origin.DeepCopy()
	if shown == nil {
		out.InvolvedObject = *v.Involved
		out.InvolvedObject.FieldPath = in.InvolvedObject.FieldPath
	}
	out.Reason, out.Message, out.Type = api.Printable(in.Reason),
		api.Printable(strings.TrimSpace(in.Message)+remoteSuffix), api.Printable(in.Type)
	out.Source = corev1.EventSource{Component: api.Printable(in.Source.Component), Host: api.Printable(in.Source.Host)}
	out.ReportingController, out.ReportingInstance = api.Printable(in.ReportingController),
		api.Printable(in.ReportingInstance)
	out.FirstTimestamp, out.LastTimestamp, out.Count = in.FirstTimestamp, in.LastTimestamp, in.Count
	out.EventTime, out.Series, out.Action = in.EventTime, in.Series, api.Printable(in.Action)
	return out
}

// routine lists the reasons of events that every healthy pod causes. They are not reflected: the
// status shows the same, and each would cost a write per pod. No problem has one of these reasons.
// Started is not among them, because tools wait for it.
var routine = []string{"Scheduled", "Pulling", "Pulled", "Created", "Killing"}

// ShownEvents selects the events at the provider that may be reflected; the others are not cached.
func ShownEvents() fields.Selector {
	all := make([]fields.Selector, len(routine))
	for i, reason := range routine {
		all[i] = fields.OneTermNotEqualSelector("reason", reason)
	}
	return fields.AndSelectors(all...)
}
