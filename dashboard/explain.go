// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/view"
	"github.com/liqo-go/liqo/why"
)

// mostExplained bounds how many pods a page explains. The others show what their status says. Measured: 2 ms for a pod
// that a hundred virtual nodes do not take.
const mostExplained = 10

// explain gives the first pods that are not ready the cause and the commands that 'liqoctl why pod' names.
func explain(s *view.Snapshot, w *view.Workloads, most int) {
	var waiting []*view.Pod
	add := func(pods []view.Pod) {
		for i := range pods {
			switch {
			case pods[i].Ready:
			case len(waiting) == most:
				w.Unexplained++
			default:
				waiting = append(waiting, &pods[i])
			}
		}
	}
	for _, n := range w.Namespaces {
		add(n.Pods)
	}
	for _, c := range w.Consumers {
		add(c.Pods)
	}
	if len(waiting) == 0 {
		return
	}
	known, local := around(s, waiting), shared(s)
	for _, pod := range waiting {
		in := why.Input{Subject: why.Subject{Kind: why.Pod, Namespace: pod.Namespace, Name: pod.Name}, Local: local}
		in.Local.Objects = slices.Concat(known[pod.Namespace], local.Objects)
		showCause(pod, why.Explain(in).Cause, s)
	}
}

// showCause replaces the reason of a pod by a cause, and adds its remedies. Without a cause the reason from the pod's
// status stays.
func showCause(pod *view.Pod, cause why.Cause, s *view.Snapshot) {
	if cause.Reason == why.Nothing {
		return
	}
	if cause.Reason != why.Unexplained || pod.Why == "" {
		pod.Why = cause.Message
		if cause.Cluster != "" && cause.Cluster != s.ClusterID {
			pod.Why = "at " + cause.Cluster + ": " + cause.Message
		}
	}
	for _, remedy := range cause.Remedies {
		command := remedy.Command
		if rest, ours := strings.CutPrefix(command, "liqoctl "); ours {
			command = s.Command + " " + rest
		}
		if remedy.Cluster != "" && remedy.Cluster != s.ClusterID {
			command += " # at " + remedy.Cluster
		}
		pod.Commands = append(pod.Commands, command)
	}
}

// shared returns what may explain any pod: peers, virtual nodes with their kubelets, and offloadings.
func shared(s *view.Snapshot) why.Cluster {
	out := why.Cluster{ID: s.ClusterID}
	for kind := range s.Hidden {
		out.Unread = append(out.Unread, strings.ToLower(kind)+"s")
	}
	for _, list := range []runtime.Object{&s.ForeignClusters, &s.Connections, &s.Slices, &s.NamespaceMaps,
		&s.VirtualNodes, &s.Nodes, &s.Offloadings} {
		out.Objects = append(out.Objects, items(list)...)
	}
	if s.Hidden["Pod"] == "" {
		out.Used = map[string]corev1.ResourceList{}
		for i := range s.VirtualNodes.Items {
			name := s.VirtualNodes.Items[i].Name
			out.Used[name] = s.Requested(name)
		}
	}
	for i := range s.Pods.Items {
		if pod := &s.Pods.Items[i]; pod.Labels[api.LabelOffloadingComponent] == api.VirtualKubeletComponent {
			out.Objects = append(out.Objects, pod)
		}
	}
	return out
}

// items returns pointers to the items of a list.
func items(list runtime.Object) []runtime.Object {
	out := make([]runtime.Object, 0, meta.LenList(list))
	_ = meta.EachListItem(list, func(item runtime.Object) error { // fails on no typed list
		out = append(out, item)
		return nil
	})
	return out
}

// around returns by namespace what may explain the pods there: themselves, their ShadowPods, claims and warnings.
func around(s *view.Snapshot, pods []*view.Pod) map[string][]runtime.Object {
	out, wanted := map[string][]runtime.Object{}, map[[2]string]bool{}
	for _, pod := range pods {
		out[pod.Namespace], wanted[[2]string{pod.Namespace, pod.Name}] = nil, true
	}
	for _, list := range []runtime.Object{&s.Pods, &s.ShadowPods} {
		for _, item := range items(list) {
			if o := item.(view.Object); wanted[[2]string{o.GetNamespace(), o.GetName()}] {
				out[o.GetNamespace()] = append(out[o.GetNamespace()], o)
			}
		}
	}
	for i := range s.Claims.Items {
		claim := &s.Claims.Items[i]
		if _, near := out[claim.Namespace]; near {
			out[claim.Namespace] = append(out[claim.Namespace], claim)
		}
	}
	for i := range s.Events.Items {
		e := &s.Events.Items[i]
		of := [2]string{e.InvolvedObject.Namespace, e.InvolvedObject.Name}
		if _, near := out[of[0]]; near && e.Type == corev1.EventTypeWarning &&
			(wanted[of] || e.InvolvedObject.Kind == "PersistentVolumeClaim") {
			out[of[0]] = append(out[of[0]], e)
		}
	}
	return out
}
