// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// earlierRestarts holds what the counts of former remote pods add up to, kept in an annotation of
// the home pod because a counter must not go back:
//
//	remote pod started at   annotation                       home count
//	t1                      –                                remote count
//	t2 (made again)          {since: t2, counts: home at t1}  counts + remote count
//	– (waits for a node)    {since: –, counts: home at t2}   –
//	t3                      {since: t3, counts: home at t2}  counts + remote count
type earlierRestarts struct {
	Since  metav1.Time      `json:"since"`
	Counts map[string]int32 `json:"counts"`
}

// addRestarts adds the restarts of former remote pods to the counts in out, whose status before
// was home.
func addRestarts(out *corev1.Pod, home *corev1.PodStatus) {
	var earlier earlierRestarts
	known := json.Unmarshal([]byte(out.Annotations[EarlierRestartsAnnotation]), &earlier) == nil
	recreated := home.StartTime != nil && !home.StartTime.Equal(out.Status.StartTime)
	if !known && !recreated {
		return // the first remote pod
	}
	var started metav1.Time
	if out.Status.StartTime != nil {
		started = *out.Status.StartTime
	}
	if recreated {
		earlier.Counts = counts(earlier.Counts, home)
	}
	if recreated || !earlier.Since.Equal(&started) {
		earlier.Since = started
		annotate(out, earlier)
	}
	for _, statuses := range [][]corev1.ContainerStatus{out.Status.InitContainerStatuses,
		out.Status.ContainerStatuses} {
		for i := range statuses {
			statuses[i].RestartCount += earlier.Counts[statuses[i].Name]
		}
	}
}

func annotate(out *corev1.Pod, earlier earlierRestarts) {
	text, err := json.Marshal(earlier)
	if err != nil {
		return // a time and numbers always encode
	}
	out.Annotations = maps.Clone(out.Annotations)
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[EarlierRestartsAnnotation] = string(text)
}

// counts returns the restart counts that a home pod shows, and the earlier ones of containers that
// it does not show.
func counts(before map[string]int32, s *corev1.PodStatus) map[string]int32 {
	out := maps.Clone(before)
	if out == nil {
		out = map[string]int32{}
	}
	for _, statuses := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for _, c := range statuses {
			out[c.Name] = c.RestartCount
		}
	}
	return out
}
