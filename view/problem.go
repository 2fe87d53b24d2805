// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// Problem returns what an object's conditions report as wrong; empty if nothing.
func Problem(object Object) string {
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

// WantsNode reports whether a virtual node has a Node; without one it only reflects.
func WantsNode(v *offv1beta1.VirtualNode) bool { return ptr.Deref(v.Spec.CreateNode, true) }

// PodReady reports whether the condition Ready of a pod is true.
func PodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
