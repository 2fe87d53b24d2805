// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/offloading/plan"
)

// ledger decides which ShadowPods get a pod. It is asked by many workers and answers one after
// the other; a ShadowPod it admitted counts at once, before the cache shows its pod. Nothing is
// lost with the process: what has a pod is seen by its pod.
type ledger struct {
	mu       sync.Mutex
	admitted map[string]map[types.UID]bool // ShadowPods by creator
}

func newLedger() *ledger { return &ledger{admitted: map[string]map[types.UID]bool{}} }

// admit says why the ShadowPod gets no pod, or is empty when it gets one.
func (l *ledger) admit(ctx context.Context, r client.Reader, root *offloadingv1beta1.ShadowPod) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	user := root.Labels[api.LabelCreatorUser]
	quota, err := quotaOf(ctx, r, user)
	if err != nil {
		return "", err
	}
	if quota == nil {
		return fmt.Sprintf("failed getting quota of user %q", user), nil
	}
	a, err := l.accountOf(ctx, r, user)
	if err != nil {
		return "", err
	}
	in := plan.QuotaInput{Quota: quota.Spec, Used: corev1.ResourceList{}, Pod: root.Spec.Pod}
	// A pod that was there before comes back whatever was decided since about new ones.
	in.Quota.Cordoned = quota.Spec.Cordoned && !a.holds(root)
	for i := range a.shadowPods {
		if other := &a.shadowPods[i]; other.UID != root.UID && a.holds(other) {
			plan.Add(in.Used, plan.Demand(&other.Spec.Pod))
		}
	}
	reason := plan.Refusal(in)
	if reason == "" {
		l.admitted[user] = a.unseen()
		l.admitted[user][root.UID] = true
	}
	return reason, nil
}

// account is what one user has.
type account struct {
	shadowPods []offloadingv1beta1.ShadowPod
	pods       map[types.NamespacedName]corev1.PodPhase
	admitted   map[types.UID]bool
}

func (l *ledger) accountOf(ctx context.Context, r client.Reader, user string) (account, error) {
	a := account{pods: map[types.NamespacedName]corev1.PodPhase{}, admitted: l.admitted[user]}
	mine := client.MatchingLabels{api.LabelCreatorUser: user}
	var shadowPods offloadingv1beta1.ShadowPodList
	if err := r.List(ctx, &shadowPods, mine, client.UnsafeDisableDeepCopy); err != nil {
		return a, fmt.Errorf("list shadow pods of %s: %w", user, err)
	}
	a.shadowPods = shadowPods.Items
	var pods corev1.PodList
	if err := r.List(ctx, &pods, mine, client.UnsafeDisableDeepCopy); err != nil {
		return a, fmt.Errorf("list pods of %s: %w", user, err)
	}
	for i := range pods.Items {
		a.pods[client.ObjectKeyFromObject(&pods.Items[i])] = pods.Items[i].Status.Phase
	}
	return a, nil
}

// holds reports whether a ShadowPod has a pod, or had or is about to have one, that has not ended.
func (a account) holds(p *offloadingv1beta1.ShadowPod) bool {
	phase, exists := a.pods[client.ObjectKeyFromObject(p)]
	if !exists {
		phase = p.Status.Phase
	}
	switch phase {
	case corev1.PodSucceeded, corev1.PodFailed:
		return false
	case corev1.PodPending, corev1.PodRunning:
		return true
	}
	return exists || a.admitted[p.UID]
}

// unseen are the admitted ShadowPods for which nothing else speaks yet.
func (a account) unseen() map[types.UID]bool {
	left := map[types.UID]bool{}
	for i := range a.shadowPods {
		p := &a.shadowPods[i]
		if _, exists := a.pods[client.ObjectKeyFromObject(p)]; !exists && a.admitted[p.UID] {
			left[p.UID] = true
		}
	}
	return left
}

// reservationTime bounds how long a pod admitted here counts before its object is seen: longer
// than a watch is late, shorter than a user waits after a create that failed elsewhere.
const reservationTime = 10 * time.Second

// reservations are ShadowPods the admission server let pass and the cache does not show yet.
type reservations struct {
	mu   sync.Mutex
	byNS map[types.NamespacedName]reservation
}

type reservation struct {
	user   string
	demand corev1.ResourceList
	until  time.Time
}

func newReservations() *reservations {
	return &reservations{byNS: map[types.NamespacedName]reservation{}}
}

// admit says why a new ShadowPod, or one that is resized, is refused, or is empty when it passes and is reserved for.
func (s *reservations) admit(ctx context.Context, r client.Reader, pod *offloadingv1beta1.ShadowPod, now time.Time) (string, error) {
	user := pod.Labels[api.LabelCreatorUser]
	quota, err := quotaOf(ctx, r, user)
	if err != nil {
		return "", err
	}
	if quota == nil {
		return fmt.Sprintf("failed getting quota of user %q", user), nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var list offloadingv1beta1.ShadowPodList
	if err := r.List(ctx, &list, client.MatchingLabels{api.LabelCreatorUser: user}, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list shadow pods of %s: %w", user, err)
	}
	in := plan.QuotaInput{Quota: quota.Spec, Used: corev1.ResourceList{}, Pod: pod.Spec.Pod}
	for i := range list.Items {
		other := &list.Items[i]
		delete(s.byNS, client.ObjectKeyFromObject(other))
		itself := client.ObjectKeyFromObject(other) == client.ObjectKeyFromObject(pod)
		if p := other.Status.Phase; !itself && p != corev1.PodSucceeded && p != corev1.PodFailed {
			plan.Add(in.Used, plan.Demand(&other.Spec.Pod))
		}
	}
	for key, held := range s.byNS {
		switch {
		case now.After(held.until):
			delete(s.byNS, key)
		case held.user == user:
			plan.Add(in.Used, held.demand)
		}
	}
	reason := plan.Refusal(in)
	if reason == "" {
		key := client.ObjectKeyFromObject(pod)
		s.byNS[key] = reservation{user: user, demand: plan.Demand(&pod.Spec.Pod), until: now.Add(reservationTime)}
	}
	return reason, nil
}
