// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	corev1 "k8s.io/api/core/v1"
)

// remoteSuffix marks messages that come from the provider.
const remoteSuffix = " (remote)"

// Event shows what the provider says about a reflected object on the home object. It flows from
// the provider to home, so here the View is the provider's: origin is the provider's event, shown
// the one at home.
//
// Of the five events every pod causes when all is well none is shown: the status says the same,
// and a pod should not cost five writes more.
func Event(origin, shown *corev1.Event, v View) *corev1.Event {
	if v.Involved == nil || Routine(origin) || !reflects(origin.Annotations, v.AllowList) {
		return nil
	}
	out := &corev1.Event{}
	if shown != nil {
		shown.DeepCopyInto(out)
	}
	out.ObjectMeta = v.metadata(origin.ObjectMeta, out.ObjectMeta, origin.Name)
	in := origin.DeepCopy()
	out.InvolvedObject = *v.Involved
	out.InvolvedObject.FieldPath = in.InvolvedObject.FieldPath
	out.Reason, out.Message, out.Type = in.Reason, in.Message+remoteSuffix, in.Type
	out.Source, out.ReportingController, out.ReportingInstance = in.Source, in.ReportingController, in.ReportingInstance
	out.FirstTimestamp, out.LastTimestamp, out.Count = in.FirstTimestamp, in.LastTimestamp, in.Count
	out.EventTime, out.Series, out.Action = in.EventTime, in.Series, in.Action
	return out
}

// Routine reports whether an event is one of those every pod causes when all is well.
func Routine(e *corev1.Event) bool {
	if e.Type != corev1.EventTypeNormal {
		return false
	}
	switch e.Reason {
	case "Scheduled", "Pulling", "Pulled", "Created", "Started", "Killing":
		return true
	}
	return false
}
