// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;patch

// secretCounts counts, as provider, the Secrets in the namespaces of consumers, and labels a
// namespace that has reached the limit. An admission policy refuses further Secrets there. Below
// the limit nothing is written, so the Secrets that come with pods cost no write.
type secretCounts struct{ bounds plan.NamespaceBounds }

// countDelay is the time from the creation or deletion of a Secret to the count, so that a burst is
// counted once.
const countDelay = time.Second

// Register adds the controller to mgr. The Secrets have a cache of their own, which holds names
// only: mgr's cache leaves out the Secrets that consumers reflect.
func (s secretCounts) Register(mgr manager.Manager) error {
	names, err := cluster.New(mgr.GetConfig(), func(o *cluster.Options) {
		o.Scheme, o.HTTPClient = mgr.GetScheme(), mgr.GetHTTPClient()
		o.Cache.DefaultTransform = nameOnly
	})
	if err != nil {
		return fmt.Errorf("set up cache of the names of Secrets: %w", err)
	}
	if err := mgr.Add(names); err != nil {
		return fmt.Errorf("add cache of the names of Secrets: %w", err)
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return ctl.Controller[*corev1.Namespace, plan.SecretCountInput]{
		Name: "secret-counts", Quiet: true,
		Only: func(root *corev1.Namespace) bool { return plan.MadeForConsumer(root) },
		Watches: []ctl.Watch{{
			Kind: secret, Cache: names.GetCache(), Delay: countDelay,
			Relevant: ctl.Comings, Map: itsNamespace,
		}},
		Gather: func(ctx context.Context, _ ctl.Reader, root *corev1.Namespace) (plan.SecretCountInput, error) {
			in := plan.SecretCountInput{Root: root, Most: s.bounds.Secrets}
			var secrets metav1.PartialObjectMetadataList
			secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
			if err := names.GetCache().List(ctx, &secrets, client.InNamespace(root.Name),
				client.UnsafeDisableDeepCopy); err != nil {
				return in, fmt.Errorf("count secrets in %s: %w", root.Name, err)
			}
			in.Secrets = len(secrets.Items)
			return in, nil
		},
		Plan: plan.SecretCount,
	}.Register(mgr)
}

// nameOnly returns a Secret without everything but its name, UID and version.
func nameOnly(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	return &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
	}}, nil
}
