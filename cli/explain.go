// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// explainTimeout bounds the search for a reason after the verb's own timeout has passed.
const explainTimeout = 5 * time.Second

// timedOut adds the cause to errTimeout: the reason of the first object that reports one. If no
// object reports a reason, the cause is the last missing one of the objects after the first. The
// controller's Deployment is always the last object.
func (c *cluster) timedOut(err error, objects ...client.Object) error {
	if !errors.Is(err, errTimeout) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
	defer cancel()
	objects = append(objects, c.controllerManager())
	var missing client.Object
	for i, object := range objects {
		reason, found := c.reason(ctx, object)
		if reason != "" {
			return fmt.Errorf("%w: %s%s: %s", err, c.side, c.nameOf(object), reason)
		}
		if !found && i > 0 {
			missing = object
		}
	}
	if missing != nil {
		return fmt.Errorf("%w: %s%s: %s does not exist", err, c.side, c.nameOf(objects[0]), c.nameOf(missing))
	}
	return fmt.Errorf("%w: %s%s; look at its state with kubectl describe", err, c.side, c.nameOf(objects[0]))
}

// reason reads an object and returns whether it exists and what is wrong with it: the first answer
// that its conditions, its pods, its events or its finalizers give.
func (c *cluster) reason(ctx context.Context, object client.Object) (reason string, found bool) {
	err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
	switch {
	case apierrors.IsNotFound(err):
		return c.latestWarning(ctx, object), false
	case apierrors.IsForbidden(err):
		return "", true
	case err != nil:
		return oneLine(err.Error()), true
	}
	if reason = problemOf(object); reason == "" {
		switch o := object.(type) {
		case *appsv1.Deployment:
			reason = c.podProblem(ctx, o.Namespace, o.Spec.Selector)
		case *appsv1.DaemonSet:
			reason = c.podProblem(ctx, o.Namespace, o.Spec.Selector)
		}
	}
	if reason == "" {
		reason = c.latestWarning(ctx, object)
	}
	if reason == "" && object.GetDeletionTimestamp() != nil {
		reason = "still being deleted, held by " + fmt.Sprint(finalizersOf(object))
	}
	return reason, true
}

// finalizersOf returns what must be removed from an object before it is deleted.
func finalizersOf(object client.Object) []string {
	finalizers := object.GetFinalizers()
	if n, ok := object.(*corev1.Namespace); ok {
		for _, finalizer := range n.Spec.Finalizers {
			finalizers = append(finalizers, string(finalizer))
		}
	}
	return finalizers
}

// problemOf returns what an object's conditions report as wrong; empty if nothing.
func problemOf(object client.Object) string {
	switch o := object.(type) {
	case *appsv1.Deployment:
		for _, condition := range o.Status.Conditions {
			if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
				return fmt.Sprintf("%s; let namespace %s have such pods: "+
					"change its Pod Security labels, its quota or what else is named", condition.Message, o.Namespace)
			}
		}
	case *corev1.Namespace:
		return namespaceProblem(o)
	case *authv1beta1.ResourceSlice:
		for _, condition := range o.Status.Conditions {
			if condition.Status == authv1beta1.ResourceSliceDenied ||
				condition.Type == "Ready" && condition.Status != "True" {
				return condition.Message
			}
		}
	case *offv1beta1.VirtualNode:
		return virtualNodeProblem(o)
	case *corev1.Node:
		for _, condition := range o.Status.Conditions {
			if bad := condition.Type == corev1.NodeReady != (condition.Status == corev1.ConditionTrue); bad {
				return condition.Reason + ": " + condition.Message
			}
		}
	case *netv1beta1.InternalFabric:
		for _, c := range o.Status.Conditions {
			if c.Type == netv1beta1.HostError {
				return "node " + c.Host + ": " + c.Message
			}
		}
	case interface{ GetConditions() *[]metav1.Condition }:
		return unmetCondition(*o.GetConditions())
	}
	return ""
}

// unmetCondition returns the message of the first condition that is not true, causes before what
// follows from them.
func unmetCondition(conditions []metav1.Condition) string {
	for _, name := range []string{
		netv1beta1.ConnectionGatewayRunning, netv1beta1.ConnectionProgrammed, "Ready", netv1beta1.ConnectionMTUFits,
		netv1beta1.ConnectionPortsAnswer,
	} {
		if c := meta.FindStatusCondition(conditions, name); c != nil && c.Status != metav1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// virtualNodeProblem returns which part of a virtual node does not run.
func virtualNodeProblem(v *offv1beta1.VirtualNode) string {
	for _, c := range v.Status.Conditions {
		part := c.Type == offv1beta1.VirtualKubeletCondition || c.Type == offv1beta1.NodeCondition
		if part && c.Status != offv1beta1.VirtualNodeRunning && c.Status != offv1beta1.VirtualNodeNone {
			return strings.TrimSuffix(fmt.Sprintf("%s is %s: %s", c.Type, c.Status, c.Message), ": ")
		}
	}
	return ""
}

// namespaceProblem returns why Kubernetes cannot empty a namespace that is being deleted.
func namespaceProblem(n *corev1.Namespace) string {
	var messages []string
	for _, condition := range n.Status.Conditions {
		if n.DeletionTimestamp != nil && condition.Status == corev1.ConditionTrue {
			messages = append(messages, condition.Message)
		}
	}
	return strings.Join(messages, "; ")
}

// wantsNode reports whether a virtual node has a Node; without one it only reflects.
func wantsNode(v *offv1beta1.VirtualNode) bool { return ptr.Deref(v.Spec.CreateNode, true) }

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// withRemoteReason adds to errTimeout what the other cluster's Connection reports: each end of a
// tunnel observes what the other cannot.
func (c *cluster) withRemoteReason(err error) error {
	if !errors.Is(err, errTimeout) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
	defer cancel()
	connection, _ := c.other.tunnel()
	if reason, _ := c.other.reason(ctx, connection); reason != "" {
		return fmt.Errorf("%w; %s%s: %s", err, c.other.side, c.other.nameOf(connection), reason)
	}
	return err
}

// podProblem returns why the pods of a workload are not ready; empty if the user may not list them.
func (c *cluster) podProblem(ctx context.Context, namespace string, of *metav1.LabelSelector) string {
	selector, err := metav1.LabelSelectorAsSelector(of)
	if err != nil {
		return err.Error()
	}
	pods := &corev1.PodList{}
	err = c.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector})
	switch {
	case apierrors.IsForbidden(err):
		return ""
	case err != nil:
		return oneLine(err.Error())
	}
	if len(pods.Items) == 0 {
		return "no pod was made; check that the cluster's controllers run"
	}
	for i := range pods.Items {
		if reason := c.podReason(ctx, &pods.Items[i]); reason != "" {
			return reason
		}
	}
	return ""
}

// podReason returns why a pod is not ready; empty if it is.
func (c *cluster) podReason(ctx context.Context, pod *corev1.Pod) string {
	if problem, _ := imageProblem(pod); problem != "" {
		return problem
	}
	const look = "see 'kubectl -n %s logs %s'"
	for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		switch last, now := s.LastTerminationState.Terminated, s.State; {
		case now.Waiting != nil && last != nil:
			return fmt.Sprintf("container %s ended with code %d (%s); "+look, s.Name, last.ExitCode, now.Waiting.Reason,
				pod.Namespace, pod.Name+" --previous")
		case now.Waiting != nil && now.Waiting.Message != "":
			return fmt.Sprintf("container %s: %s: %s", s.Name, now.Waiting.Reason, now.Waiting.Message)
		case now.Terminated != nil && now.Terminated.ExitCode != 0:
			return fmt.Sprintf("container %s ended with code %d; "+look, s.Name, now.Terminated.ExitCode, pod.Namespace,
				pod.Name)
		case now.Running != nil && !s.Ready:
			return fmt.Sprintf("container %s runs but is not ready; "+look, s.Name, pod.Namespace, pod.Name)
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status != corev1.ConditionTrue {
			return fmt.Sprintf("no node takes pod %s: %s; make room on one, or take away what is named", pod.Name,
				condition.Message)
		}
	}
	if pod.Status.Phase == corev1.PodPending {
		return c.latestWarning(ctx, pod)
	}
	return ""
}

// latestWarning returns the message of the latest warning event about an object.
func (c *cluster) latestWarning(ctx context.Context, object client.Object) string {
	gvk, err := apiutil.GVKForObject(object, c.Scheme())
	if err != nil {
		return ""
	}
	events := &corev1.EventList{}
	if err := c.List(ctx, events, client.InNamespace(cmp.Or(object.GetNamespace(), metav1.NamespaceDefault)),
		client.MatchingFields{"involvedObject.kind": gvk.Kind, "involvedObject.name": object.GetName(),
			"type": corev1.EventTypeWarning}); err != nil {
		return ""
	}
	var latest corev1.Event
	for _, event := range events.Items {
		if !event.LastTimestamp.Before(&latest.LastTimestamp) {
			latest = event
		}
	}
	return oneLine(latest.Message)
}
