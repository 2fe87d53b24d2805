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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/view"
)

// peerOptions holds the flags of peer.
type peerOptions struct {
	network         networkOptions
	auth            authOptions
	noNetwork       bool
	createSlice     bool
	createNode      bool
	class           string
	wanted          quantities
	wantedResources corev1.ResourceList
}

func (e *env) peerCommand() *cobra.Command {
	o := &peerOptions{}
	cmd := &cobra.Command{Use: "peer", Short: "Let the local cluster (consumer) use the remote one (provider)",
		Example: "  liqoctl peer --remote-kubeconfig milan.yaml\n" +
			"  liqoctl peer --remote-kubeconfig milan.yaml --gw-server-service-type NodePort --cpu 8 --memory 32Gi\n" +
			"  liqoctl peer --context rome --remote-context milan --create-resource-slice=false"}
	p := addPairFlags(cmd, 10*time.Minute)
	addGatewayFlags(cmd.Flags(), &o.network)
	addAuthFlags(cmd, &o.auth)
	flags := cmd.Flags()
	flags.BoolVar(&o.noNetwork, "networking-disabled", false, "Do not join the networks")
	flags.BoolVar(&o.createSlice, "create-resource-slice", true, "Ask the provider for resources")
	flags.StringVar(&o.class, "resource-slice-class", api.DefaultResourceSliceClass, "Class of the resources")
	flags.BoolVar(&o.createNode, "create-virtual-node", true, "Make a virtual node from the resources")
	addQuantityFlags(flags, &o.wanted, quantities{})
	flags.BoolVar(&o.network.skipValidation, "skip-validation", false, "Do not check that the gateway templates exist")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if o.wantedResources, err = o.wanted.list(); err != nil {
			return err
		}
		return e.onPair(cmd, p, func(s *script, consumer, provider *cluster) error {
			return s.peer(consumer, provider, o)
		})
	}
	return cmd
}

// peer starts all phases at once: authentication waits for the network only if it uses the tunnel.
// After success the virtual node is ready for pods.
func (s *script) peer(consumer, provider *cluster, o *peerOptions) error {
	s.warnOfVersions(consumer, provider)
	if err := o.validate(s.ctx, consumer, provider.id); err != nil {
		return err
	}
	if err := consumer.clearUnreachable(s.ctx, provider.id); err != nil {
		return err
	}
	o.network.wait = true
	n := newNetwork(s, consumer, provider, o.network)
	a := &authentication{authOptions: o.auth, consumer: consumer, provider: provider, after: []string{"namespaces"}}
	network := n.namespaceSteps(true)
	if !o.noNetwork {
		network = slices.Concat(network, n.configuration(), n.connection())
		if o.auth.inBand {
			a.after = append(a.after, inBandAfter(consumer)...)
		}
	}
	s.start("network", network...)
	s.start("authentication", a.steps()...)
	if o.createSlice {
		w := &sliceRequest{script: s, consumer: consumer, provider: provider.id, sliceOptions: sliceOptions{
			name: provider.id, class: o.class, resources: o.wantedResources, virtualNode: o.createNode,
			keepsClass: !o.auth.isSet("resource-slice-class"), keepsNode: !o.auth.isSet("create-virtual-node"),
		}}
		s.start("resources", w.steps()...)
	}
	if err := s.finish(); err != nil {
		return err
	}
	s.times()
	return nil
}

// inBandAfter lists the steps after which the provider's API server can be reached through the
// tunnel.
func inBandAfter(consumer *cluster) []string {
	return []string{"in force at " + consumer.id, "client up"}
}

// validate refuses --in-band without a tunnel of this command or an earlier one, before anything is
// changed.
func (o *peerOptions) validate(ctx context.Context, consumer *cluster, provider string) error {
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

// clearUnreachable removes the mark that a peer is permanently unreachable, since it has just
// answered.
func (c *cluster) clearUnreachable(ctx context.Context, peer string) error {
	foreign := &corev1beta1.ForeignCluster{ObjectMeta: metaOf("", peer)}
	err := c.read(ctx, foreign)
	if err != nil || foreign.Annotations[api.AnnotationPermanentlyUnreachable] == "" {
		return client.IgnoreNotFound(err)
	}
	return c.annotate(ctx, foreign, api.AnnotationPermanentlyUnreachable, "")
}

// sliceRequest asks a provider for resources.
type sliceRequest struct {
	*script
	consumer *cluster
	provider string
	sliceOptions

	object  *authv1beta1.ResourceSlice
	refused bool
}

// steps make the request and wait for its answers.
func (w *sliceRequest) steps() []step {
	return append([]step{{name: "slice", after: []string{"identity in use"}, at: &w.consumer,
		doing: "Creating ResourceSlice", done: "ResourceSlice created", do: w.request}}, w.answers()...)
}

// answers are the steps that wait for the answers to a request. Denied resources are no error: the
// provider's administrator may grant them later.
func (w *sliceRequest) answers() []step {
	at := &w.consumer
	return []step{
		{name: "slice authentication", after: []string{"slice"}, at: at,
			doing: "Waiting for ResourceSlice authentication",
			done:  "ResourceSlice authentication: Accepted", do: w.authenticate},
		{name: "slice resources", after: []string{"slice authentication"}, at: at,
			doing:  "Waiting for ResourceSlice resources",
			report: w.reportResources, do: func(ctx context.Context) error {
				answer, err := w.awaitAnswer(ctx, authv1beta1.ResourceSliceResources)
				w.refused = answer.Status == authv1beta1.ResourceSliceDenied
				return err
			}},
		{after: []string{"slice resources"}, at: at, doing: "Waiting for the virtual node to be ready",
			skip: func() bool { return w.refused || !w.virtualNode },
			do:   func(ctx context.Context) error { return w.consumer.awaitNode(ctx, w.name) }},
	}
}

// prepare builds the slice.
func (w *sliceRequest) prepare(ctx context.Context) error {
	w.object = resourceSlice(w.consumer.tenant, w.provider, w.sliceOptions)
	return w.keepUnnamed(ctx)
}

// request applies the slice.
func (w *sliceRequest) request(ctx context.Context) error {
	if err := w.prepare(ctx); err != nil {
		return err
	}
	return w.consumer.apply(ctx, w.object)
}

// authenticate waits until the provider accepts the consumer's credentials for the slice.
func (w *sliceRequest) authenticate(ctx context.Context) error {
	answer, err := w.awaitAnswer(ctx, authv1beta1.ResourceSliceAuthentication)
	if err == nil && answer.Status == authv1beta1.ResourceSliceDenied {
		err = fmt.Errorf("ResourceSlice authentication: Denied by %s: %s", w.provider, answer.Message)
	}
	return err
}

func (w *sliceRequest) reportResources(took string) {
	if w.refused {
		w.warn(w.consumer.side, "ResourceSlice resources not accepted. The provider cluster may have cordoned the "+
			"tenant or the resourceslice")
		return
	}
	w.info(w.consumer.side, "ResourceSlice resources: Accepted%s", took)
}

// keepUnnamed keeps what an existing slice has and no flag names.
func (w *sliceRequest) keepUnnamed(ctx context.Context) error {
	have := &authv1beta1.ResourceSlice{ObjectMeta: metaOf(w.object.Namespace, w.object.Name)}
	if err := w.consumer.read(ctx, have); err != nil || have.DeletionTimestamp != nil {
		return client.IgnoreNotFound(err)
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

// awaitAnswer waits for the provider's condition about the current request. A provider that has
// cordoned the slice keeps its answer to the former request: the change counts as denied.
func (w *sliceRequest) awaitAnswer(
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

// awaitNode waits until the virtual node is Ready: its kubelet runs, and its Node, if it is to have
// one, is Ready.
func (c *cluster) awaitNode(ctx context.Context, name string) error {
	v := &offv1beta1.VirtualNode{ObjectMeta: metaOf(c.tenant, name)}
	err := c.until(ctx, v, func() bool {
		return slices.ContainsFunc(v.Status.Conditions, func(c offv1beta1.VirtualNodeCondition) bool {
			return c.Type == "Ready" && c.Status == "True" && c.ObservedGeneration >= v.Generation
		})
	})
	var blame []client.Object
	if view.WantsNode(v) {
		blame = append(blame, &corev1.Node{ObjectMeta: metaOf("", name)})
	}
	return c.timedOut(err, append(blame, virtualKubelet(c.tenant, name), v)...)
}

// virtualKubelet returns the Deployment of a virtual kubelet, without contents.
func virtualKubelet(namespace, node string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metaOf(namespace, api.VirtualKubeletName(node))}
}

// controllerManager returns the Deployment of the controller, without contents.
func (c *cluster) controllerManager() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metaOf(c.namespace, api.ControllerManagerName)}
}
