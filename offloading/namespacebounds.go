// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;patch

// secretCounts counts the Secrets in the namespaces of consumers, as provider, and labels those that have as many as
// they may have. An admission policy refuses further ones there. Nothing is written while there is room, so that
// the Secrets that come with pods cost no write.
type secretCounts struct{ bounds plan.NamespaceBounds }

// countDelay is how long after a Secret was created or deleted those of its namespace are counted: once for a burst.
const countDelay = time.Second

// Register adds the reconciler to mgr. The Secrets have a cache of their own, because that of mgr leaves out those
// that consumers reflect. It holds names only.
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
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	count := func(q queue, secret client.Object) {
		q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: secret.GetNamespace()}}, countDelay)
	}
	counts := handler.TypedFuncs[*metav1.PartialObjectMetadata, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*metav1.PartialObjectMetadata], q queue) {
			count(q, e.Object)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*metav1.PartialObjectMetadata], q queue) {
			count(q, e.Object)
		},
	}
	r := &secretCountReconciler{secretCounts: s, client: mgr.GetClient(), names: names.GetCache()}
	return builder.ControllerManagedBy(mgr).Named("secret-counts").WithOptions(ctl.Options()).
		For(&corev1.Namespace{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(ns client.Object) bool { return plan.MadeForConsumer(ns) }))).
		WatchesRawSource(source.Kind(names.GetCache(), secret, counts)).Complete(r)
}

// nameOnly keeps of a Secret what tells it from others.
func nameOnly(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	return &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
	}}, nil
}

type secretCountReconciler struct {
	secretCounts
	client client.Client
	names  client.Reader
}

// Reconcile counts the Secrets of one namespace.
func (r *secretCountReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	namespace, err := ctl.Optional(ctx, r.client, req.NamespacedName, &corev1.Namespace{})
	if err != nil || namespace == nil || namespace.DeletionTimestamp != nil || !plan.MadeForConsumer(namespace) {
		return reconcile.Result{}, err
	}
	var secrets metav1.PartialObjectMetadataList
	secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := r.names.List(ctx, &secrets, client.InNamespace(namespace.Name), client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("count secrets in %s: %w", namespace.Name, err)
	}
	full, differs := r.bounds.TooManySecrets(namespace, len(secrets.Items))
	if !differs {
		return reconcile.Result{}, nil
	}
	before := namespace.DeepCopy()
	delete(namespace.Labels, api.LabelTooManySecrets)
	if full {
		metav1.SetMetaDataLabel(&namespace.ObjectMeta, api.LabelTooManySecrets, api.True)
	}
	if err := r.client.Patch(ctx, namespace, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("label namespace %s: %w", namespace.Name, err)
	}
	log.FromContext(ctx).Info("secrets counted", "namespace", namespace.Name, "secrets", len(secrets.Items), "full", full)
	return reconcile.Result{}, nil
}
