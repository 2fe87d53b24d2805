// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
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
	"github.com/liqo-go/liqo/view"
)

func (e *env) unoffloadCommand() *cobra.Command {
	cmd := group("unoffload", "Take the pods of a namespace back")
	var selector, output string
	sub := &cobra.Command{Use: "namespace [name…]", Aliases: []string{"ns", "namespaces"},
		Short: "Take the pods of namespaces back; what is in the remote namespaces is lost",
		Example: "  liqoctl unoffload namespace shop\n" +
			"  liqoctl unoffload namespace --ns-selector team=blue --dry-run=client",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := validateNames(args, selector); err != nil {
				return err
			}
			return e.onInstallation(cmd, func(s *script, c *cluster) error {
				return s.unoffload(c, args, selector, output)
			})
		}}
	sub.ValidArgsFunction = e.completion(objects(&offv1beta1.NamespaceOffloadingList{}, client.Object.GetNamespace))
	flags := sub.Flags()
	flags.StringVar(&selector, "ns-selector", "", "Choose local namespaces by their labels")
	flags.VarP(choice(&output, "", "name"), "output", "o", "Print what is deleted")
	e.addDryRunFlag(flags)
	addLiqoFlag(flags, "liqo-namespace", "", "")
	addTimeoutFlag(flags, 2*time.Minute)
	cmd.AddCommand(sub)
	return cmd
}

func (s *script) unoffload(c *cluster, names []string, selector, output string) error {
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
	var ended []client.Object
	for _, name := range names {
		ended = append(ended, offloading(name, offv1beta1.NamespaceOffloadingSpec{}))
		steps = append(steps, step{doing: "Unoffloading namespace " + name,
			done: fmt.Sprintf("Offloading of namespace %q correctly disabled", name),
			do:   func(ctx context.Context) error { return c.unoffloadNamespace(ctx, name) }})
	}
	if err := s.run(steps...); err != nil {
		return err
	}
	s.info(noCluster, "Unoffloading completed successfully")
	return s.env.printStored(output, ended...)
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
	if c.env.dry() {
		return nil
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	waits := &unoffloading{}
	go c.watchRemotePods(watching, namespace, func(pods string) { waits.show(watching, &waits.pods, pods) })
	defer show(ctx, "")
	err = c.follow(ctx, &offv1beta1.NamespaceOffloadingList{}, func(have await.Objects) bool {
		for _, item := range have {
			object = item.(*offv1beta1.NamespaceOffloading)
		}
		waits.show(ctx, &waits.problem, cmp.Or(view.Problem(object), c.nameOf(object)))
		return len(have) == 0
	}, await.Only(object)...)
	waits.mu.Lock()
	defer waits.mu.Unlock()
	if err = c.timedOut(err, object); err != nil && waits.pods != "" {
		err = fmt.Errorf("%w; %s", err, waits.pods)
	}
	return err
}

// unoffloading holds what the end of an offloading waits for: the pods that still run in other
// clusters, and what its conditions report.
type unoffloading struct {
	mu            sync.Mutex
	pods, problem string
}

// show changes one of the texts and shows both.
func (u *unoffloading) show(ctx context.Context, text *string, now string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	*text = now
	texts := []string{u.pods, u.problem}
	show(ctx, strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; "))
}

// watchRemotePods reports until ctx ends which pods of a namespace still run in other clusters. It
// ignores errors, as nothing depends on it.
func (c *cluster) watchRemotePods(ctx context.Context, namespace string, report func(string)) {
	nodes, err := c.all(ctx, &corev1.NodeList{}, client.MatchingLabels{api.LabelType: api.TypeVirtualNode})
	if err != nil {
		return
	}
	virtual := textsOf(nodes, client.Object.GetName)
	_ = c.follow(ctx, &corev1.PodList{}, func(have await.Objects) bool {
		remote := slices.DeleteFunc(have.Sorted(), func(o client.Object) bool {
			pod := o.(*corev1.Pod)
			return !slices.Contains(virtual, pod.Spec.NodeName) || api.Finished(pod.Status.Phase)
		})
		names := textsOf(remote, client.Object.GetName)
		switch len(names) {
		case 0:
			report("")
		case 1:
			report("1 pod still runs remotely (" + names[0] + ")")
		default:
			report(fmt.Sprintf("%d pods still run remotely (%s)", len(names), someNames(names)))
		}
		return false
	}, client.InNamespace(namespace))
}
