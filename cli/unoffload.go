// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/await"
)

func (e *env) unoffloadCommand() *cobra.Command {
	cmd := group("unoffload", "Take the pods of a namespace back")
	var selector string
	sub := &cobra.Command{Use: "namespace [name…]", Aliases: []string{"ns", "namespaces"},
		Short: "Take the pods of namespaces back; what is in the remote namespaces is lost",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := validateNames(args, selector); err != nil {
				return err
			}
			return e.onInstallation(cmd, func(s *script, c *cluster) error { return s.unoffload(c, args, selector) })
		}}
	sub.ValidArgsFunction = e.completion(offloadedNames())
	sub.Flags().StringVar(&selector, "ns-selector", "", "Choose local namespaces by their labels")
	addLiqoFlag(sub.Flags(), "liqo-namespace", "", "")
	addTimeoutFlag(sub.Flags(), 2*time.Minute)
	cmd.AddCommand(sub)
	return cmd
}

func (s *script) unoffload(c *cluster, names []string, selector string) error {
	names, err := c.namespaces(s.ctx, names, selector)
	if err != nil {
		return err
	}
	_, err = s.warnOfLoss(c,
		func(claim *corev1.ObjectReference, _ string) bool { return slices.Contains(names, claim.Namespace) })
	if err != nil {
		return err
	}
	if err := s.confirm("unoffload"); err != nil {
		return err
	}
	var steps []step
	for _, name := range names {
		steps = append(steps, step{doing: "Unoffloading namespace " + name,
			done: fmt.Sprintf("Offloading of namespace %q correctly disabled", name),
			do:   func(ctx context.Context) error { return c.unoffloadNamespace(ctx, name) }})
	}
	if err := s.run(steps...); err != nil {
		return err
	}
	s.info(noCluster, "Unoffloading completed successfully")
	return nil
}

// unoffloadNamespace deletes the offloading of a namespace and waits until its remote namespaces
// are gone, which takes as long as their pods take to end.
func (c *cluster) unoffloadNamespace(ctx context.Context, namespace string) error {
	object := &offv1beta1.NamespaceOffloading{ObjectMeta: metaOf(namespace, api.NamespaceOffloadingName)}
	found, err := c.remove(ctx, object)
	if err != nil {
		return err
	}
	if !found {
		if err := c.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace %q does not exist", namespace)
		}
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	pods := c.remotePods(watching, namespace)
	defer show(ctx, "")
	err = c.follow(ctx, &offv1beta1.NamespaceOffloadingList{}, func(have await.Objects) bool {
		for _, item := range have {
			object = item.(*offv1beta1.NamespaceOffloading)
		}
		pods.setProblem(ctx, problemOf(object))
		return len(have) == 0
	}, await.Only(object)...)
	if err = c.timedOut(err, object); err != nil && pods.String() != "" {
		err = fmt.Errorf("%w; %s", err, pods)
	}
	return err
}

// remotePods is the progress of a namespace whose pods still run in other clusters.
type remotePods struct {
	mu    sync.Mutex
	names []string
	// problem is shown after their number.
	problem string
}

// remotePods watches the remote pods of a namespace until ctx ends, and shows their number.
func (c *cluster) remotePods(ctx context.Context, namespace string) *remotePods {
	out := &remotePods{}
	go func() {
		nodes := &corev1.NodeList{}
		if c.List(ctx, nodes, client.MatchingLabels{api.LabelType: api.TypeVirtualNode}) != nil {
			return // nothing depends on the number
		}
		virtual := map[string]bool{}
		for _, node := range nodes.Items {
			virtual[node.Name] = true
		}
		_ = c.follow(ctx, &corev1.PodList{}, func(have await.Objects) bool {
			out.count(ctx, have, virtual)
			return false
		}, client.InNamespace(namespace))
	}()
	return out
}

func (p *remotePods) count(ctx context.Context, pods await.Objects, virtual map[string]bool) {
	p.mu.Lock()
	p.names = nil
	for _, item := range pods.Sorted() {
		pod, ok := item.(*corev1.Pod)
		if ok && virtual[pod.Spec.NodeName] && !api.Finished(pod.Status.Phase) {
			p.names = append(p.names, pod.Name)
		}
	}
	problem := p.problem
	p.mu.Unlock()
	p.setProblem(ctx, problem)
}

// setProblem shows the pods and the problem.
func (p *remotePods) setProblem(ctx context.Context, problem string) {
	p.mu.Lock()
	p.problem = problem
	p.mu.Unlock()
	texts := []string{p.String(), problem}
	show(ctx, strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; "))
}

func (p *remotePods) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch len(p.names) {
	case 0:
		return ""
	case 1:
		return "1 pod still runs remotely (" + p.names[0] + ")"
	}
	return fmt.Sprintf("%d pods still run remotely (%s)", len(p.names), someNames(p.names))
}
