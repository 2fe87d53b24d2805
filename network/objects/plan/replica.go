// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// internalEndpoint returns the endpoint of the active pod; nil when there is none. During a
// failover, or while a pod replaces one that ends, two may be marked active. The fitter one is
// chosen, then the younger one.
func (w wgGateway) internalEndpoint() *netv1beta1.InternalGatewayEndpoint {
	var active *corev1.Pod
	for i := range w.Pods {
		p := &w.Pods[i]
		isActive := p.Labels[api.LabelGatewayActive] == api.True
		if !isActive || p.Status.Phase != corev1.PodRunning || p.Status.PodIP == "" {
			continue
		}
		if active == nil || fitness(p) > fitness(active) || fitness(p) == fitness(active) && api.Older(active, p) {
			active = p
		}
	}
	if active == nil {
		return nil
	}
	return &netv1beta1.InternalGatewayEndpoint{IP: active.Status.PodIP, Node: active.Spec.NodeName,
		StandbyIPs: w.standby(active.Status.PodIP)}
}

// maxStandby is the largest number of standby addresses in an InternalFabric.
const maxStandby = 32

// standby returns the addresses of the gateway's other pods that have not finished.
func (w wgGateway) standby(active string) (out []string) {
	for i := range w.Pods {
		p := &w.Pods[i]
		if ip := p.Status.PodIP; !api.Finished(p.Status.Phase) && ip != "" && ip != active {
			out = append(out, ip)
		}
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxStandby)]
}

// podPending returns the reason why none of a gateway's pods is active, from the youngest pod.
// Generated times and names are left out of the message.
func podPending(pods []corev1.Pod, namespace, gateway string) desired.Verdict {
	var young *corev1.Pod
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp == nil && (young == nil || api.Older(young, p)) {
			young = p
		}
	}
	if young == nil {
		return desired.Wait("GatewayPodMissing",
			"there is no gateway pod; 'kubectl -n %s describe replicasets' tells what refuses it, such as Pod "+
				"Security or a quota of the namespace", namespace).Verdict
	}
	for _, c := range young.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return desired.Wait("GatewayPodUnschedulable",
				"no node takes the gateway pod: %s Free what is missing, or change requests, node selector or "+
					"tolerations in the gateway's template", sentence(c.Message)).Verdict
		}
	}
	for _, c := range young.Status.ContainerStatuses {
		switch waits := c.State.Waiting; {
		case waits == nil:
		case waits.Reason == "ErrImagePull" || waits.Reason == "ImagePullBackOff" || waits.Reason == "InvalidImageName":
			return desired.Wait("GatewayImageMissing",
				"the node cannot get the image %s; correct it in the gateway's template, or let the nodes pull it%s",
				c.Image, pulledWith(young)).Verdict
		case waits.Reason == "CrashLoopBackOff":
			return desired.Wait("GatewayPodFailing",
				"container %s ends soon after its start; 'kubectl -n %s logs deployment/%s --previous' tells why",
				c.Name, namespace, api.GatewayResourceName(gateway)).Verdict
		case waits.Message != "":
			return desired.Wait("GatewayPodFailing",
				"container %s does not start: %s: %s Correct the gateway's template", c.Name, waits.Reason,
				sentence(waits.Message)).Verdict
		}
	}
	return desired.Wait("GatewayPodPending", "no active gateway pod is running; 'kubectl -n %s describe pods -l "+
		"%s=%s' tells what it waits for", namespace, api.LabelGatewayName, gateway).Verdict
}

// pulledWith names a pod's image pull Secrets: Liqo does not copy them to its namespace.
func pulledWith(p *corev1.Pod) string {
	var names []string
	for _, s := range p.Spec.ImagePullSecrets {
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return "; in namespace " + p.Namespace + ", too, there must be the Secret " + strings.Join(names, " and ")
}

// sentence ends a third party's message with a full stop.
func sentence(message string) string { return strings.TrimRight(message, ". \n") + "." }

// fitness orders running gateway pods. A terminating pod works until nodes route to another one, so
// it comes before one that is not ready yet.
func fitness(p *corev1.Pod) int {
	f := 0
	if ready(p) {
		f += 2
	}
	if p.DeletionTimestamp == nil {
		f++
	}
	return f
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// ReplicaInput holds the input of Replica.
type ReplicaInput struct {
	Root *corev1.Pod
	// Lease is the gateway's; nil when there is none yet.
	Lease *coordinationv1.Lease
	// Pods are the pods of the gateway.
	Pods []corev1.Pod
}

// Replica marks the pod that holds its gateway's lease: a server's Service selects the marked pod,
// and nodes route to it. A former holder loses the mark, because the API server reports a pod on a
// dead node as ready for most of a minute.
//
//	held by                       the pod
//	nobody                        stays as it is
//	it                            is marked
//	another, not marked yet       stays as it is: a Service always has a pod
//	another, marked               is not marked
//	anybody, while the pod ends   stays as it is: without the mark, what the client still sends there
//	                              would be led to the successor, which cannot read it
func Replica(in ReplicaInput) desired.Plan {
	if in.Root.DeletionTimestamp != nil || in.Lease == nil || in.Lease.Spec.HolderIdentity == nil {
		return desired.Plan{}
	}
	holder := *in.Lease.Spec.HolderIdentity
	out := in.Root.DeepCopy()
	switch {
	case holder == in.Root.Name:
		metav1.SetMetaDataLabel(&out.ObjectMeta, api.LabelGatewayActive, api.True)
	case slices.ContainsFunc(in.Pods, func(p corev1.Pod) bool {
		return p.Name == holder && p.Labels[api.LabelGatewayActive] == api.True
	}):
		delete(out.Labels, api.LabelGatewayActive)
	}
	return desired.Plan{Fill: out}
}

// IsReplica reports whether a pod is a gateway pod that uses leader election.
func IsReplica(p *corev1.Pod) bool { return p.Labels[api.LabelGatewayName] != "" && elects(p.Spec) }

// elects reports whether the flags of a gateway's pod select leader election; the last flag counts.
func elects(pod corev1.PodSpec) bool {
	elects := false
	for _, c := range pod.Containers {
		for _, arg := range slices.Concat(c.Command, c.Args) {
			if name, value, given := strings.Cut(arg, "="); name == "--"+electionFlag {
				on, err := strconv.ParseBool(value)
				elects = !given || err == nil && on
			}
		}
	}
	return elects
}

// SecretLabelInput holds the input of SecretLabel.
type SecretLabelInput struct {
	Root *corev1.Secret
	// Gateway is the WgGatewayServer or WgGatewayClient of its namespace that uses the Secret; nil
	// when none does.
	Gateway desired.Object
}

// SecretLabel marks a user's key Secret as a gateway's. The Secret stays the user's: it is not
// owned and outlives the gateway.
func SecretLabel(in SecretLabelInput) desired.Plan {
	if in.Root.DeletionTimestamp != nil || in.Gateway == nil {
		return desired.Plan{}
	}
	out := in.Root.DeepCopy()
	out.Labels = labels.Merge(out.Labels, map[string]string{
		api.LabelGatewayResource:  api.True,
		api.LabelGatewayName:      in.Gateway.GetName(),
		api.LabelGatewayNamespace: in.Gateway.GetNamespace(),
	})
	if peer := in.Gateway.GetLabels()[api.LabelRemoteClusterID]; peer != "" {
		out.Labels[api.LabelRemoteClusterID] = peer
	}
	return desired.Plan{Fill: out}
}
