// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
)

// peerOptions are the flags of peer.
type peerOptions struct {
	network         networkOptions
	auth            authOptions
	noNetwork       bool
	createSlice     bool
	createNode      bool
	class           string
	wanted          quantities
	timeout         time.Duration
	wantedResources corev1.ResourceList
}

func (e *env) peerCommand() *cobra.Command {
	o := &peerOptions{}
	cmd := &cobra.Command{Use: "peer", Short: "Let the local cluster (consumer) use the remote one (provider)",
		Args: cobra.NoArgs}
	p := addPairFlags(cmd)
	addGatewayFlags(cmd.Flags(), &o.network)
	addAuthFlags(cmd, &o.auth)
	flags := cmd.Flags()
	flags.BoolVar(&o.noNetwork, "networking-disabled", false, "Do not join the networks")
	flags.BoolVar(&o.createSlice, "create-resource-slice", true, "Ask the provider for resources")
	flags.StringVar(&o.class, "resource-slice-class", api.DefaultResourceSliceClass, "Class of the resources")
	flags.BoolVar(&o.createNode, "create-virtual-node", true, "Make a virtual node from the resources")
	addQuantityFlags(flags, &o.wanted, quantities{})
	flags.BoolVar(&o.network.skipValidation, "skip-validation", false, "Do not check that the gateway templates exist")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "How long to wait in all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.wantedResources, err = o.wanted.list(); err != nil {
			return err
		}
		return e.peer(cmd.Context(), p, o)
	}
	return cmd
}

// peer begins everything at once: authentication does not wait for the network, unless it goes
// through it. Success means that the virtual node can be used.
func (e *env) peer(ctx context.Context, p *pair, o *peerOptions) error {
	s, stop := e.newScript(ctx, o.timeout)
	defer stop()
	consumer, provider, err := e.connect(s.ctx, p)
	if err != nil {
		return err
	}
	if err := o.possible(s.ctx, consumer, provider.id); err != nil {
		return err
	}
	if err := consumer.revive(s.ctx, provider.id); err != nil {
		return err
	}
	o.network.wait = true
	n := newNetwork(s, consumer, provider, o.network)
	a := &authentication{authOptions: o.auth, consumer: consumer, provider: provider, after: []string{"home"}}
	network := n.homes(true)
	if !o.noNetwork {
		network = slices.Concat(network, n.configuration(), n.connection())
		if o.auth.inBand {
			a.after = append(a.after, inBandAfter(consumer)...)
		}
	}
	s.start("network", network...)
	s.start("authentication", a.steps()...)
	if o.createSlice {
		w := &wish{script: s, consumer: consumer, provider: provider.id, slice: slice{
			name: provider.id, class: o.class, resources: o.wantedResources, virtualNode: o.createNode,
			keepsClass: !o.auth.asked("resource-slice-class"), keepsNode: !o.auth.asked("create-virtual-node"),
		}}
		s.start("resources", w.steps()...)
	}
	if err := s.finish(); err != nil {
		return err
	}
	s.times()
	return nil
}

// inBandAfter lists the steps after which the provider's API server can be reached through the tunnel.
func inBandAfter(consumer *cluster) []string {
	return []string{"in force at " + consumer.id, "client up"}
}

// possible refuses flags that exclude each other before anything is done: without a tunnel of this command
// or an earlier one, nothing goes through it.
func (o *peerOptions) possible(ctx context.Context, consumer *cluster, provider string) error {
	if !o.noNetwork || !o.auth.inBand || o.auth.proxyURL != "" {
		return nil
	}
	joined := &netv1beta1.ConfigurationList{}
	if err := consumer.listOf(ctx, everywhere, provider, joined); err != nil {
		return err
	}
	if len(joined.Items) == 0 {
		return fmt.Errorf("--in-band goes through the tunnel, --networking-disabled makes none, and there is none to "+
			"%s yet; leave one of the two out or run '%s network connect' first",
			provider, consumer.env.name)
	}
	return nil
}

// revive takes back that a peer was declared gone for good: it has just answered.
func (c *cluster) revive(ctx context.Context, peer string) error {
	foreign := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: peer}}
	err := c.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)
	if apierrors.IsNotFound(err) || err == nil && foreign.Annotations[api.AnnotationPermanentlyUnreachable] == "" {
		return nil
	}
	if err != nil {
		return c.describe("read", foreign, err)
	}
	return c.declareDead(ctx, foreign, false)
}

// wish is a request for resources.
type wish struct {
	*script
	consumer *cluster
	provider string
	slice

	object  *authv1beta1.ResourceSlice
	refused bool
}

// steps make the request and wait for its answers. Refused resources are no error: the provider's
// administrator decides, and may change her mind.
func (w *wish) steps() []step {
	at := &w.consumer
	return []step{
		{name: "slice", after: []string{"identity in use"}, at: at, doing: "Creating ResourceSlice",
			done: "ResourceSlice created", do: w.request},
		{name: "slice authentication", after: []string{"slice"}, at: at,
			doing: "Waiting for ResourceSlice authentication",
			done:  "ResourceSlice authentication: Accepted", do: w.authenticate},
		{name: "slice resources", after: []string{"slice authentication"}, at: at,
			doing:  "Waiting for ResourceSlice resources",
			report: w.reportResources, do: func(ctx context.Context) error {
				answer, err := w.answer(ctx, authv1beta1.ResourceSliceResources)
				w.refused = answer.Status == authv1beta1.ResourceSliceDenied
				return err
			}},
		{after: []string{"slice resources"}, at: at, doing: "Waiting for the virtual node to be ready",
			skip: func() bool { return w.refused || !w.virtualNode },
			do:   func(ctx context.Context) error { return w.consumer.awaitNode(ctx, w.name) }},
	}
}

// request applies the slice.
func (w *wish) request(ctx context.Context) error {
	w.object = resourceSlice(w.consumer.tenant, w.provider, w.slice)
	if err := w.keep(ctx); err != nil {
		return err
	}
	return w.consumer.apply(ctx, w.object)
}

// authenticate waits until the provider accepts the consumer's credentials for the slice.
func (w *wish) authenticate(ctx context.Context) error {
	answer, err := w.answer(ctx, authv1beta1.ResourceSliceAuthentication)
	if err == nil && answer.Status == authv1beta1.ResourceSliceDenied {
		err = fmt.Errorf("ResourceSlice authentication: Denied by %s: %s", w.provider, answer.Message)
	}
	return err
}

func (w *wish) reportResources(took string) {
	if w.refused {
		w.warn(w.consumer.side, "ResourceSlice resources not accepted. The provider cluster may have cordoned the "+
			"tenant or the resourceslice")
		return
	}
	w.info(w.consumer.side, "ResourceSlice resources: Accepted%s", took)
}

// keep leaves what the user did not name as it is in a slice that is there.
func (w *wish) keep(ctx context.Context) error {
	have := &authv1beta1.ResourceSlice{}
	err := w.consumer.Get(ctx, client.ObjectKeyFromObject(w.object), have)
	if apierrors.IsNotFound(err) || err == nil && have.DeletionTimestamp != nil {
		return nil
	}
	if err != nil {
		return w.consumer.describe("read", w.object, err)
	}
	if w.keepsClass {
		w.object.Spec.Class = have.Spec.Class
	}
	if value, chosen := have.Annotations[api.AnnotationCreateVirtualNode]; w.keepsNode && chosen {
		delete(w.object.Annotations, api.AnnotationCreateVirtualNode)
		w.virtualNode = value != "false"
	}
	return nil
}

// answer waits for the provider's word on one question about the present request. A provider that has
// cordoned the slice grants no change, which counts as denied: its answer to the former request stays.
func (w *wish) answer(
	ctx context.Context, question authv1beta1.ResourceSliceConditionType,
) (authv1beta1.ResourceSliceCondition, error) {
	object, answer := w.object.DeepCopy(), authv1beta1.ResourceSliceCondition{}
	err := w.consumer.await(ctx, object, func() bool {
		for _, c := range object.Status.Conditions {
			if c.Type == question {
				answer = c
			}
		}
		if !plan.Outdated(object, answer) {
			return answer.Status != ""
		}
		cordoned := answer.Reason == authv1beta1.ReasonSliceCordoned
		if cordoned {
			answer.Status = authv1beta1.ResourceSliceDenied
		}
		return cordoned
	})
	return answer, err
}

// awaitNode waits until the virtual node is Ready: its kubelet runs, and its Node is Ready if it is to have one,
// which the options it names decide as well.
func (c *cluster) awaitNode(ctx context.Context, name string) error {
	v := &offv1beta1.VirtualNode{ObjectMeta: metaOf(c.tenant, name)}
	err := c.until(ctx, v, func() bool {
		return slices.ContainsFunc(v.Status.Conditions, func(c offv1beta1.VirtualNodeCondition) bool {
			return c.Type == "Ready" && c.Status == "True" && c.ObservedGeneration >= v.Generation
		})
	})
	var blame []client.Object
	if wantsNode(v) {
		blame = append(blame, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return c.timedOut(err, append(blame, virtualKubelet(c.tenant, name), v)...)
}

// virtualKubelet is the Deployment behind a virtual node, without contents.
func virtualKubelet(namespace, node string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metaOf(namespace, api.VirtualKubeletName(node))}
}

// controllerManager is looked at when a wait for something it makes ended in vain.
func (c *cluster) controllerManager() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metaOf(c.namespace, api.ControllerManagerName)}
}
