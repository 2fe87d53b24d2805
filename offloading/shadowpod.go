// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	networkingv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=shadowpods,verbs=get;list;watch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=shadowpods/status,verbs=patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=shadowpods/finalizers,verbs=update
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=quotas,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/resize;pods/ephemeralcontainers,verbs=update

// shadowPod creates, as provider, the pods of ShadowPods. Many are reconciled concurrently; only
// the decision about quotas is serialized.
func shadowPod(o Options, quotas *accounts, dropped *droppedFields) ctl.Registrar {
	return ctl.Controller[*offloadingv1beta1.ShadowPod, plan.ShadowPodInput]{
		Name:    "shadowpod",
		Owns:    []client.Object{&corev1.Pod{}},
		Creates: []client.Object{&corev1.Pod{}},
		Watches: []ctl.Watch{
			{Kind: &offloadingv1beta1.Quota{}, Map: ctl.Where(&offloadingv1beta1.ShadowPodList{}, maybeRefused)},
			{Kind: &corev1.Pod{}, Relevant: func(before, after client.Object) bool {
				from, _ := before.(*corev1.Pod)
				to, exists := after.(*corev1.Pod)
				return !exists || plan.PodConcerns(from, to, time.Now())
			}},
		},
		Workers: cmp.Or(o.ShadowPodWorkers, defaultWorkers),
		Gather: func(
			ctx context.Context, r ctl.Reader, root *offloadingv1beta1.ShadowPod,
		) (plan.ShadowPodInput, error) {
			in, err := gatherShadowPod(ctx, r, root, o, quotas)
			if err == nil {
				in.Dropped, err = dropped.of(ctx, &root.Spec.Pod)
			}
			return in, err
		},
		Plan: quotas.planShadowPod,
	}
}

func gatherShadowPod(
	ctx context.Context, r ctl.Reader, root *offloadingv1beta1.ShadowPod, o Options, quotas *accounts,
) (plan.ShadowPodInput, error) {
	in := plan.ShadowPodInput{Root: root, Now: time.Now(), Guests: o.GuestPods}
	var err error
	in.Pod, err = ctl.Optional(ctx, r, client.ObjectKeyFromObject(root), &corev1.Pod{})
	if err != nil {
		return in, err
	}
	if in.Pod == nil || in.Pod.Labels[api.LabelManaged] != api.True {
		in.Pod = nil // not Liqo's; the create reports it
		if in.Configuration, err = configurationOf(ctx, r, root.Labels[api.LabelOrigin]); err != nil || in.Mapping() {
			return in, err
		}
		if plan.RunsToEnd(root) {
			if err := confirmAbsence(ctx, r, &in); err != nil {
				return in, err
			}
		}
	}
	if o.EnforceResources && in.NeedsQuota() {
		if in.Quota, err = quotas.quota(ctx, r, root); err != nil {
			return in, err
		}
		err = quotas.current(root) // once the watches have been read
	}
	return in, err
}

// confirmAbsence asks the API server whether a pod that must not run twice has vanished or was
// never made: of its phase and of the pod itself the cache may each be late.
func confirmAbsence(ctx context.Context, r ctl.Reader, in *plan.ShadowPodInput) error {
	root, err := ctl.Optional(ctx, r.Live, client.ObjectKeyFromObject(in.Root), &offloadingv1beta1.ShadowPod{})
	if err != nil {
		return err
	}
	if root == nil || root.UID != in.Root.UID {
		in.Root.Status.Phase = corev1.PodFailed // it is gone; nothing is made for it any more
		return nil
	}
	in.Root.Status = root.Status
	if !plan.HasPhase(root) {
		return nil // no pod was observed; if one exists, the create fails
	}
	pod, err := ctl.Optional(ctx, r.Live, client.ObjectKeyFromObject(in.Root), &corev1.Pod{})
	if err == nil && pod != nil && metav1.IsControlledBy(pod, root) {
		in.Pod = pod
	}
	return err
}

// configurationOf returns the Configuration for a peer, by which its addresses are remapped; nil
// without networking.
func configurationOf(ctx context.Context, r client.Reader, peer string) (*networkingv1beta1.Configuration, error) {
	var list networkingv1beta1.ConfigurationList
	if err := r.List(ctx, &list, client.MatchingLabels{api.LabelRemoteClusterID: peer}); err != nil {
		return nil, fmt.Errorf("list configurations of %s: %w", peer, err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	return &list.Items[0], nil
}

// maybeRefused reports whether a changed Quota may let a ShadowPod of its user have a pod that it
// lacks.
func maybeRefused(quota client.Object, root *offloadingv1beta1.ShadowPod) bool {
	user := api.LabelValue(quota.(*offloadingv1beta1.Quota).Spec.User)
	return !plan.HasPhase(root) && root.Labels[api.LabelCreatorUser] == user
}

// quotaOf returns the quota of the user whose value of LabelCreatorUser is user; nil if
// no quota exists.
func quotaOf(ctx context.Context, r client.Reader, user string) (*offloadingv1beta1.QuotaSpec, error) {
	var list offloadingv1beta1.QuotaList
	if err := r.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list quotas: %w", err)
	}
	for i := range list.Items {
		if api.LabelValue(list.Items[i].Spec.User) == user {
			return list.Items[i].Spec.DeepCopy(), nil
		}
	}
	return nil, nil
}

// originOf returns the ID of the consumer that a namespace was created for; empty for any other
// namespace. It is an error if the cache does not show the namespace yet.
func originOf(ctx context.Context, r client.Reader, namespace string) (string, error) {
	var ns corev1.Namespace
	if err := r.Get(ctx, types.NamespacedName{Name: namespace}, &ns); err != nil {
		return "", fmt.Errorf("get namespace %s: %w", namespace, err)
	}
	if ns.Annotations[api.AnnotationManagedByNamespaceMap] == "" {
		return "", nil
	}
	return ns.Labels[api.LabelRemoteClusterID], nil
}
