// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// explainTimeout bounds the search for a reason, after the time of the verb is up.
const explainTimeout = 5 * time.Second

// timedOut adds to a passed deadline why the objects are not what was waited for: what the first of
// them says that says something, else which of those behind it is missing. The controller is
// behind everything.
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

// reason says what is wrong with an object, as far as the object, its pods or its events tell, and
// whether it exists.
func (c *cluster) reason(ctx context.Context, object client.Object) (reason string, found bool) {
	err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
	switch {
	case apierrors.IsNotFound(err):
		return c.eventOf(ctx, object), false
	case apierrors.IsForbidden(err):
		return "", true
	case err != nil:
		return oneLine(err.Error()), true
	}
	if reason = c.stateOf(ctx, object); reason == "" {
		reason = c.eventOf(ctx, object)
	}
	if reason == "" && object.GetDeletionTimestamp() != nil {
		reason = heldBy(object)
	}
	return reason, true
}

// heldBy says what keeps an object that is being deleted.
func heldBy(object client.Object) string {
	holders := object.GetFinalizers()
	if n, ok := object.(*corev1.Namespace); ok {
		for _, finalizer := range n.Spec.Finalizers {
			holders = append(holders, string(finalizer))
		}
	}
	return fmt.Sprintf("still being deleted, held by %v", holders)
}

// stateOf is what an object or its pods say is wrong.
func (c *cluster) stateOf(ctx context.Context, object client.Object) string {
	says := saysOf(object)
	switch o := object.(type) {
	case *appsv1.Deployment:
		if says == "" {
			return c.podsOf(ctx, o.Namespace, o.Spec.Selector)
		}
	case *appsv1.DaemonSet:
		return c.podsOf(ctx, o.Namespace, o.Spec.Selector)
	}
	return says
}

// saysOf is what an object says of itself in its conditions, when something is wrong.
func saysOf(object client.Object) string {
	switch o := object.(type) {
	case *appsv1.Deployment:
		return deploymentSays(o)
	case *corev1.Namespace:
		return namespaceSays(o)
	case *authv1beta1.ResourceSlice:
		for _, condition := range o.Status.Conditions {
			if condition.Status == authv1beta1.ResourceSliceDenied ||
				condition.Type == "Ready" && condition.Status != "True" {
				return condition.Message
			}
		}
	case *offv1beta1.VirtualNode:
		return virtualNodeSays(o)
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
		for _, condition := range []string{
			netv1beta1.ConnectionGatewayRunning, netv1beta1.ConnectionProgrammed, "Ready", netv1beta1.ConnectionMTUFits,
			netv1beta1.ConnectionPortsAnswer,
		} {
			if c := meta.FindStatusCondition(*o.GetConditions(), condition); c != nil &&
				c.Status != metav1.ConditionTrue {
				return c.Message
			}
		}
	}
	return ""
}

// deploymentSays is why a Deployment's pods cannot be made.
func deploymentSays(d *appsv1.Deployment) string {
	for _, condition := range d.Status.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			return fmt.Sprintf("%s; let namespace %s have such pods: "+
				"change its Pod Security labels, its quota or what else is named", condition.Message, d.Namespace)
		}
	}
	return ""
}

// virtualNodeSays is which part of a virtual node does not run.
func virtualNodeSays(v *offv1beta1.VirtualNode) string {
	for _, c := range v.Status.Conditions {
		part := c.Type == offv1beta1.VirtualKubeletCondition || c.Type == offv1beta1.NodeCondition
		if part && c.Status != offv1beta1.VirtualNodeRunning && c.Status != offv1beta1.VirtualNodeNone {
			return strings.TrimSuffix(fmt.Sprintf("%s is %s: %s", c.Type, c.Status, c.Message), ": ")
		}
	}
	return ""
}

// networkSays lists what is wrong with the network to a peer, as its objects say: from the ranges to
// the tunnel.
func (c *cluster) networkSays(ctx context.Context, peer string) ([]string, error) {
	return c.says(ctx, peer, &netv1beta1.ConfigurationList{}, &netv1beta1.GatewayServerList{},
		&netv1beta1.GatewayClientList{}, &netv1beta1.InternalFabricList{}, &netv1beta1.ConnectionList{})
}

// says lists what the objects that concern a peer say is wrong.
func (c *cluster) says(ctx context.Context, peer string, lists ...client.ObjectList) ([]string, error) {
	said := []string{}
	for _, list := range lists {
		found, err := c.all(ctx, list, ofPeer(peer))
		if err != nil {
			return nil, err
		}
		for _, object := range found {
			if says := saysOf(object); says != "" {
				said = append(said, c.nameOf(object)+": "+says)
			}
		}
	}
	return said, nil
}

// accessSays lists what is wrong with the access of a peer to this cluster and of this one to the
// peer, and what an administrator has taken from the peer.
func (c *cluster) accessSays(ctx context.Context, peer string) ([]string, error) {
	tenants := &authv1beta1.TenantList{}
	said, err := c.says(ctx, peer, tenants, &authv1beta1.IdentityList{})
	if err != nil {
		return nil, err
	}
	for i := range tenants.Items {
		if state := tenants.Items[i].Spec.TenantCondition; state != "" && state != authv1beta1.TenantActive {
			said = append(said, fmt.Sprintf("%s: %s by an administrator here; '%s activate tenant %s' undoes it",
				c.nameOf(&tenants.Items[i]), strings.ToLower(string(state)), c.env.name, tenants.Items[i].Name))
		}
	}
	return said, nil
}

// nodesSay lists what is wrong with the virtual nodes of a peer, down to the pods of their kubelets.
func (c *cluster) nodesSay(ctx context.Context, peer string) ([]string, error) {
	list, said := &offv1beta1.VirtualNodeList{}, []string{}
	if err := c.listOf(ctx, everywhere, peer, list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		v := &list.Items[i]
		if says := saysOf(v); says != "" {
			said = append(said, c.nameOf(v)+": "+says)
		}
		kubelet := virtualKubelet(v.Namespace, v.Name)
		if says := c.missing(ctx, kubelet); kubelet.Status.ReadyReplicas == 0 {
			said = append(said, says)
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: v.Name}}
		if !wantsNode(v) {
			continue
		}
		if says := c.missing(ctx, node); !nodeReady(node) {
			said = append(said, says)
		}
	}
	return said, nil
}

// missing reads an object and says what it lacks, if that is known.
func (c *cluster) missing(ctx context.Context, object client.Object) string {
	reason, found := c.reason(ctx, object)
	switch {
	case reason != "":
		return c.nameOf(object) + ": " + reason
	case !found:
		return c.nameOf(object) + " does not exist"
	}
	return c.nameOf(object) + " is not ready"
}

// wantsNode tells whether a virtual node has a Node; without one it only reflects.
func wantsNode(v *offv1beta1.VirtualNode) bool { return v.Spec.CreateNode == nil || *v.Spec.CreateNode }

// otherSays adds to a passed deadline what the other cluster's Connection says: each side of a tunnel
// sees what the other cannot.
func (c *cluster) otherSays(err error) error {
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

// namespaceSays is what Kubernetes tells about a namespace it cannot empty.
func namespaceSays(n *corev1.Namespace) string {
	var says []string
	for _, condition := range n.Status.Conditions {
		if n.DeletionTimestamp != nil && condition.Status == corev1.ConditionTrue {
			says = append(says, condition.Message)
		}
	}
	return strings.Join(says, "; ")
}

// podsOf says why the pods of a workload are not ready; nothing to who may not look.
func (c *cluster) podsOf(ctx context.Context, namespace string, of *metav1.LabelSelector) string {
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

// podReason says why a pod is not ready; empty when it is.
func (c *cluster) podReason(ctx context.Context, pod *corev1.Pod) string {
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
		return c.eventOf(ctx, pod)
	}
	return ""
}

// eventOf is the latest warning about an object.
func (c *cluster) eventOf(ctx context.Context, object client.Object) string {
	gvk, err := apiutil.GVKForObject(object, c.Scheme())
	if err != nil {
		return ""
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	events := &corev1.EventList{}
	if err := c.List(ctx, events, client.InNamespace(namespace), client.MatchingFields{
		"involvedObject.kind": gvk.Kind, "involvedObject.name": object.GetName(), "type": corev1.EventTypeWarning,
	}); err != nil {
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
