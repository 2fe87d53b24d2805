// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/ledger"
	"github.com/liqo-go/liqo/offloading/plan"
)

// accounts sums up the requests of each user's ShadowPods, for admission and for the plans of their
// pods. It is updated by watches, so the cost of an answer does not depend on the number of pods.
// Only a plan reserves: what it grants counts immediately, before a watch shows it. Admission
// reserves nothing, because anybody who reaches its port can send requests. A restart loses
// nothing: the pods are observed again.
type accounts struct {
	synced []toolscache.InformerSynced
	// made is when the last pod was planned; nil = none was.
	made atomic.Pointer[time.Time]

	mu sync.Mutex
	// demands holds the demands of pods by their encoding, so that thousands of equal ones share
	// one.
	demands map[string]corev1.ResourceList
	items   map[entry]*item
	users   map[string]*account
	// promises has an entry for each item with a promise.
	promises ledger.Ledger[entry, struct{}]
}

// entry names an item: a ShadowPod of a user.
type entry struct {
	user string
	types.NamespacedName
}

func entryOf(obj client.Object) entry {
	return entry{obj.GetLabels()[api.LabelCreatorUser], client.ObjectKeyFromObject(obj)}
}

// account is the usage of one user.
type account struct {
	// asked is the sum of the ShadowPods that have not ended; held is that of pods that have not,
	// and of ShadowPods that have, had or are granted a pod.
	asked, held corev1.ResourceList
	items       int
}

// item is the usage of one ShadowPod and its pod.
type item struct {
	shadow *shadow
	pod    *podSeen
	// admitted is the UID of the ShadowPod that was granted a pod, or has one; empty = none. It
	// lasts as long as the ShadowPod: a pod that vanishes is created again.
	admitted types.UID
	// promise holds the resources that were granted and that no watch has shown yet; nil = none.
	promise *promise
	// most is the greatest demand of the ShadowPod that is granted a pod or has one, else of that
	// observed last.
	most most
	// asked and held are the item's shares of its user's account.
	asked, held corev1.ResourceList
}

// shadow is a ShadowPod as the watch shows it.
type shadow struct {
	uid    types.UID
	phase  corev1.PodPhase
	demand corev1.ResourceList
}

// most is the greatest demand of one ShadowPod.
type most struct {
	of     types.UID
	demand corev1.ResourceList
}

// podSeen is the pod of a ShadowPod's name as the watch shows it. It may belong to a deleted
// ShadowPod of that name.
type podSeen struct {
	uid    types.UID
	of     types.UID // of the ShadowPod that owns it; empty = no owner
	phase  corev1.PodPhase
	demand corev1.ResourceList
}

// promise counts until the watch shows the granted pod, or until the ledger's patience is over: the
// create may have failed without an answer.
type promise struct {
	former types.UID // of the pod that was observed before; empty = none
	demand corev1.ResourceList
}

func newAccounts() *accounts {
	return &accounts{
		demands: map[string]corev1.ResourceList{}, items: map[entry]*item{}, users: map[string]*account{},
		promises: ledger.Ledger[entry, struct{}]{Patience: ledger.Patience},
	}
}

// Register subscribes to the ShadowPods and pods that mgr watches.
func (a *accounts) Register(mgr manager.Manager) error {
	return errors.Join(subscribe(a, mgr.GetCache(), &offloadingv1beta1.ShadowPod{}, a.observeShadowPod),
		subscribe(a, mgr.GetCache(), &corev1.Pod{}, a.observePod))
}

// demand returns what a pod requests. The list is shared; callers must not change it.
func (a *accounts) demand(spec *corev1.PodSpec) corev1.ResourceList {
	demand := plan.Demand(spec)
	key, err := json.Marshal(demand)
	if err != nil {
		return demand // amounts always encode
	}
	if same, ok := a.demands[string(key)]; ok {
		return same
	}
	if len(a.demands) == mostDemands {
		clear(a.demands) // accounts keep theirs
	}
	a.demands[string(key)] = demand
	return demand
}

// mostDemands bounds the number of different demands that are shared.
const mostDemands = 256

// subscribe calls observe for each event of an object that has the label of its creator.
func subscribe[T client.Object](a *accounts, c cache.Cache, kind T, observe func(obj T, gone bool)) error {
	// The cache does not run yet, so this does not wait for it; quota does.
	informer, err := c.GetInformer(context.Background(), kind, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	report := func(obj any, gone bool) {
		if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = unknown.Obj
		}
		if o, ok := obj.(T); ok && o.GetLabels()[api.LabelCreatorUser] != "" {
			observe(o, gone)
		}
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { report(obj, false) },
		UpdateFunc: func(before, obj any) {
			from, to := before.(client.Object), obj.(client.Object)
			if from.GetUID() != to.GetUID() || entryOf(from) != entryOf(to) {
				report(before, true) // a restarted watch reports both at once; or the object has another user now
			}
			report(obj, false)
		},
		DeleteFunc: func(obj any) { report(obj, true) },
	})
	if err != nil {
		return fmt.Errorf("follow %T: %w", kind, err)
	}
	a.synced = append(a.synced, handler.HasSynced)
	return nil
}

func (a *accounts) observeShadowPod(p *offloadingv1beta1.ShadowPod, gone bool) {
	a.change(entryOf(p), func(i *item) {
		if gone {
			i.shadow = nil
			if i.admitted == p.UID && i.promise == nil { // else its pod may still be shown
				i.admitted = ""
			}
			return
		}
		i.shadow = &shadow{uid: p.UID, phase: p.Status.Phase, demand: a.demand(&p.Spec.Pod)}
	})
}

func (a *accounts) observePod(p *corev1.Pod, gone bool) {
	a.change(entryOf(p), func(i *item) {
		i.pod = nil
		if gone {
			return
		}
		i.pod = &podSeen{uid: p.UID, phase: p.Status.Phase, demand: a.demand(&p.Spec)}
		if of := metav1.GetControllerOf(p); of != nil {
			i.pod.of = of.UID
		}
		if i.promise != nil && i.admitted == i.pod.of && i.promise.former != i.pod.uid {
			i.settle()
		}
	})
}

// change changes an item and recounts it.
func (a *accounts) change(key entry, how func(*item)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.recount(key, a.itemOf(key), how)
}

// recount changes an item and updates the account of its user. The lock is held.
func (a *accounts) recount(key entry, i *item, how func(*item)) {
	if former := a.users[key.user]; former != nil && a.items[key] != nil {
		plan.Subtract(former.asked, i.asked)
		plan.Subtract(former.held, i.held)
		if former.items--; former.items == 0 {
			delete(a.users, key.user)
		}
	}
	delete(a.items, key)
	if how(i); i.promise == nil {
		a.promises.End(key)
	}
	if i.itsPod() != nil && i.admitted == "" {
		i.admitted = i.shadow.uid
	}
	if i.shadow != nil {
		i.note(i.shadow.uid, i.shadow.demand)
	}
	if i.shadow == nil && i.pod == nil && i.admitted == "" {
		return
	}
	i.asked, i.held = i.asks(), i.holds()
	a.items[key] = i
	of := a.users[key.user]
	if of == nil {
		of = &account{asked: corev1.ResourceList{}, held: corev1.ResourceList{}}
		a.users[key.user] = of
	}
	of.items++
	plan.Add(of.asked, i.asked)
	plan.Add(of.held, i.held)
}

// asks returns what a ShadowPod that has not ended requests. If its pod was refused more, it counts
// with what the pod has.
func (i *item) asks() corev1.ResourceList {
	switch pod := i.itsPod(); {
	case i.shadow == nil || api.Finished(i.shadow.phase):
		return nil
	case pod != nil && !api.Finished(pod.phase):
		return i.holds()
	}
	return i.shadow.demand
}

// holds returns the most that a pod of this name requests, of which one exists at a time: the
// promised pod, that of the ShadowPod, and the observed one. The observed pod counts until it has
// ended, even if its ShadowPod was deleted or requests less. What this cluster adds to a pod, such
// as defaults and sidecars, counts only if the ShadowPod's demand is unknown.
func (i *item) holds() corev1.ResourceList {
	held := i.granted()
	if i.promise != nil {
		held = plan.Most(held, i.promise.demand)
	}
	if i.pod == nil || api.Finished(i.pod.phase) {
		return held
	}
	if i.pod.of != "" && i.pod.of == i.most.of {
		return plan.Most(held, plan.Least(i.pod.demand, i.most.demand))
	}
	return plan.Most(held, i.pod.demand)
}

// note records the greatest demand of a ShadowPod. The record of one that is granted a pod, or has
// one, stays: the watch may show a former ShadowPod of that name later.
func (i *item) note(of types.UID, demand corev1.ResourceList) {
	switch {
	case i.most.of == of:
		demand = plan.Most(i.most.demand, demand)
	case i.most.of != "" && (i.most.of == i.admitted || i.pod != nil && i.most.of == i.pod.of):
		return
	}
	i.most = most{of, demand}
}

// granted returns what a ShadowPod requests that has, had or is granted a pod which has not ended,
// but not more than its pod has.
func (i *item) granted() corev1.ResourceList {
	if i.shadow == nil {
		return nil
	}
	phase := i.shadow.phase
	if pod := i.itsPod(); pod != nil && api.Finished(pod.phase) {
		return nil
	} else if pod != nil {
		return plan.Least(i.shadow.demand, pod.demand)
	}
	admitted := i.admitted == i.shadow.uid
	if phase == corev1.PodPending || phase == corev1.PodRunning || admitted && !api.Finished(phase) {
		return i.shadow.demand
	}
	return nil
}

// grant promises the ShadowPod a pod, or more resources for its pod.
func (i *item) grant(to types.UID, demand corev1.ResourceList) {
	promised := &promise{demand: demand}
	if i.promise != nil {
		promised.demand = plan.Most(demand, i.promise.demand) // the pod of that promise may exist, too
	}
	if i.pod != nil {
		promised.former = i.pod.uid
	}
	if i.admitted, i.promise = to, promised; i.most.of != to {
		i.most = most{of: to}
	}
	i.note(to, promised.demand)
}

// settle ends the promise: a watch has shown the pod, or the patience is over. The ShadowPod stays
// admitted as long as it exists.
func (i *item) settle() {
	i.promise = nil
	if i.shadow == nil || i.shadow.uid != i.admitted {
		i.admitted = ""
	}
}

// itsPod returns the pod of the existing ShadowPod; nil if there is none.
func (i *item) itsPod() *podSeen {
	if i.shadow == nil || i.pod == nil || i.pod.of != i.shadow.uid {
		return nil
	}
	return i.pod
}

// expire ends promises whose pods no watch has shown in time.
func (a *accounts) expire() {
	for _, key := range a.promises.Expire() {
		a.recount(key, a.itemOf(key), (*item).settle)
	}
}

// quota reads the quota of the ShadowPod's user, after the watches have synced.
func (a *accounts) quota(
	ctx context.Context, r client.Reader, p *offloadingv1beta1.ShadowPod,
) (*plan.QuotaInput, error) {
	for _, synced := range a.synced {
		if !synced() && !toolscache.WaitForCacheSync(ctx.Done(), synced) {
			return nil, fmt.Errorf("read what counts for the quota: %w", ctx.Err())
		}
	}
	user := p.Labels[api.LabelCreatorUser]
	quota, err := quotaOf(ctx, r, user)
	return &plan.QuotaInput{User: user, Quota: quota, Pod: p.Spec.Pod}, err
}

// current returns an error if the watch still shows a deleted ShadowPod of that name.
func (a *accounts) current(p *offloadingv1beta1.ShadowPod) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := entryOf(p)
	if i := a.itemOf(key); i.shadow != nil && i.shadow.uid != p.UID {
		return fmt.Errorf("decide on the pod of ShadowPod %s: it was made anew; trying again", key.NamespacedName)
	}
	return nil
}

// refuseShadowPod returns why a new ShadowPod is refused, or empty. It reserves nothing: of many
// that are created at once more may pass than fit, and the rest get no pod.
func (a *accounts) refuseShadowPod(in *plan.QuotaInput, p *offloadingv1beta1.ShadowPod) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire()
	key := entryOf(p)
	in.Used = a.besides(key, a.itemOf(key)).asked
	return plan.Refusal(in)
}

// planShadowPod plans with what the user's other pods hold, including those that no watch has shown
// yet. What the plan grants is promised before the next plan is made.
func (a *accounts) planShadowPod(in plan.ShadowPodInput) desired.Plan {
	if made := a.made.Load(); made != nil {
		in.LastMade = *made
	}
	p := a.planWithQuota(in)
	if len(p.Objects) > 0 {
		a.made.Store(&in.Now)
	}
	return p
}

// planWithQuota adds the usage of the user's other pods to the input, and records what the plan
// grants. Without a quota it only plans.
func (a *accounts) planWithQuota(in plan.ShadowPodInput) desired.Plan {
	if in.Quota == nil {
		return plan.ShadowPod(in)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire()
	key := entryOf(in.Root)
	i := a.itemOf(key)
	in.Quota.Used, in.Quota.Returns = a.besides(key, i).held, i.granted() != nil
	p := plan.ShadowPod(in)
	if plan.Grants(p) {
		a.promises.Begin(key, struct{}{})
		a.recount(key, i, func(i *item) { i.grant(in.Root.UID, a.demand(&in.Root.Spec.Pod)) })
	}
	return p
}

// itemOf returns the item of a ShadowPod, an empty one if it is unknown.
func (a *accounts) itemOf(key entry) *item {
	if i := a.items[key]; i != nil {
		return i
	}
	return &item{}
}

// besides returns the usage of an item's user without the item.
func (a *accounts) besides(key entry, i *item) account {
	of := a.users[key.user]
	if of == nil {
		return account{}
	}
	rest := account{asked: maps.Clone(of.asked), held: maps.Clone(of.held)}
	plan.Subtract(rest.asked, i.asked)
	plan.Subtract(rest.held, i.held)
	return rest
}
