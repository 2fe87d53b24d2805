// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ledger"
	"github.com/liqo-go/liqo/internal/seed"
	"github.com/liqo-go/liqo/offloading/plan"
)

// TestAccountsHold creates, changes and deletes ShadowPods and pods in any order, with any delay of
// the two watches. The pods of a user never request more than its quota, including those whose
// ShadowPod was deleted or requests less than they have. When all events are delivered, the
// accounts equal a count from scratch.
func TestAccountsHold(t *testing.T) {
	t.Parallel()
	for n, r := range seed.Samples(t, 3000) {
		w := &world{
			accounts: newAccounts(), rand: r, now: time.Unix(1000, 0),
			shadows: map[string]*offloadingv1beta1.ShadowPod{}, pods: map[string]*corev1.Pod{}, told: map[types.UID]bool{},
		}
		w.accounts.promises.Now = func() time.Time { return w.now }
		w.quota.Resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}
		for step := range 400 {
			w.step()
			if cpus := w.running(); cpus > 5 {
				t.Fatalf("sample %d, step %d: pods ask for %d CPUs, the quota is 5", n, step, cpus)
			}
		}
		w.tellAll()
		w.now = w.now.Add(2 * ledger.Patience)
		w.accounts.expire()
		if diff := cmp.Diff(w.fromScratch(), w.accounted()); diff != "" {
			t.Fatalf("sample %d: the accounts differ from a count (-count +accounts):\n%s", n, diff)
		}
		for name := range w.shadows {
			w.deleteShadow(name)
		}
		for name := range w.pods {
			w.deletePod(name)
		}
		w.tellAll()
		w.now = w.now.Add(2 * ledger.Patience)
		if left := len(w.accounts.items) + len(w.accounts.users) + len(w.accounts.promises.Expire()); left != 0 {
			t.Fatalf("sample %d: %d things are remembered of nothing", n, left)
		}
	}
}

// world is a provider: the content of its API server, and the events that the two watches have not
// delivered yet.
type world struct {
	accounts        *accounts
	rand            *rand.Rand
	now             time.Time
	quota           offloadingv1beta1.QuotaSpec
	shadows         map[string]*offloadingv1beta1.ShadowPod
	pods            map[string]*corev1.Pod
	toldOf, podTold []func()
	told            map[types.UID]bool // of pods
	uids            int
}

func (w *world) uid() types.UID {
	w.uids++
	return types.UID(fmt.Sprint("uid-", w.uids))
}

func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.rand.IntN(50)) * time.Millisecond) // a watch is not as late as a promise lasts
	name := fmt.Sprint("web-", w.rand.IntN(8))
	shadow, pod := w.shadows[name], w.pods[name]
	switch w.rand.IntN(12) {
	case 0, 1:
		w.createShadow(name)
	case 2, 3, 4:
		w.reconcile(name)
	case 5:
		if shadow != nil && w.rand.IntN(3) == 0 {
			w.deleteShadow(name)
			if pod != nil && w.rand.IntN(2) == 0 {
				w.orphan(name)
			}
		}
	case 6:
		if pod != nil && (shadow == nil || w.told[pod.UID] && w.rand.IntN(4) == 0) { // nobody deletes what is not seen
			w.deletePod(name)
		}
	case 7:
		if pod != nil {
			phases := []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodFailed, corev1.PodSucceeded}
			w.phase(name, phases[w.rand.IntN(len(phases))])
		}
	case 8:
		w.tell(&w.toldOf)
	case 9:
		w.tell(&w.podTold)
	case 10:
		if shadow != nil {
			w.resizeShadow(name)
		}
	case 11:
		if shadow != nil && pod != nil && w.told[pod.UID] && metav1.IsControlledBy(pod, shadow) {
			w.resizePod(name)
		}
	}
}

func (w *world) createShadow(name string) {
	if w.shadows[name] != nil {
		return
	}
	p := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "demo", UID: w.uid(), Generation: 1,
		Labels: map[string]string{api.LabelCreatorUser: fmt.Sprint("user-", w.rand.IntN(2))},
	}}
	w.writeShadow(p)
}

// resizeShadow changes the request of a ShadowPod without regard to the quota.
func (w *world) resizeShadow(name string) {
	p := w.shadows[name].DeepCopy()
	w.asksFor(p, int64(1+w.rand.IntN(6)))
	p.Generation++
	w.shadows[name] = p
	w.showShadow(p, false)
}

// asksFor sets the CPU request of a ShadowPod.
func (w *world) asksFor(p *offloadingv1beta1.ShadowPod, cpus int64) {
	p.Spec.Pod.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI),
	}}}}
}

// writeShadow creates a ShadowPod if admission allows it.
func (w *world) writeShadow(p *offloadingv1beta1.ShadowPod) {
	w.asksFor(p, int64(1+w.rand.IntN(2)))
	reason := w.accounts.refuseShadowPod(quotaInput(&w.quota, p), p)
	if reason == "" && w.rand.IntN(8) > 0 { // or somebody else refuses it
		w.shadows[p.Name] = p
		w.showShadow(p, false)
	}
}

// reconcile creates the pod of a ShadowPod that has none, as the caches show it or later.
func (w *world) reconcile(name string) {
	shadow, pod := w.shadows[name], w.pods[name]
	if shadow == nil || pod != nil && w.told[pod.UID] || api.Finished(shadow.Status.Phase) {
		return
	}
	if !w.grants(shadow, nil) || pod != nil || w.rand.IntN(8) == 0 { // or the create fails
		return
	}
	w.pods[name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "demo", UID: w.uid(), Labels: shadow.Labels,
		OwnerReferences: []metav1.OwnerReference{{Controller: new(true), UID: shadow.UID}},
	}, Spec: shadow.Spec.Pod, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	w.showPod(w.pods[name], false)
}

// grants gathers and plans for a ShadowPod as the controller does. Events may be delivered in
// between.
func (w *world) grants(shadow *offloadingv1beta1.ShadowPod, pod *corev1.Pod) bool {
	if w.accounts.current(shadow) != nil {
		return false
	}
	if w.rand.IntN(4) == 0 {
		w.tell(&w.toldOf)
		w.tell(&w.podTold)
	}
	in := plan.ShadowPodInput{Root: shadow, Pod: pod, Now: w.now, Quota: quotaInput(&w.quota, shadow)}
	return plan.Grants(w.accounts.planShadowPod(in))
}

func quotaInput(quota *offloadingv1beta1.QuotaSpec, p *offloadingv1beta1.ShadowPod) *plan.QuotaInput {
	return &plan.QuotaInput{Quota: quota, Pod: p.Spec.Pod}
}

// resizePod resizes a pod after its ShadowPod.
func (w *world) resizePod(name string) {
	shadow, pod := w.shadows[name], w.pods[name].DeepCopy()
	if api.Finished(pod.Status.Phase) || cpus(&pod.Spec) == cpus(&shadow.Spec.Pod) {
		return
	}
	if !w.grants(shadow, pod) || w.rand.IntN(4) == 0 { // or the API server refuses it
		return
	}
	pod.Spec = shadow.Spec.Pod
	w.pods[name] = pod
	w.showPod(pod, false)
}

func (w *world) phase(name string, phase corev1.PodPhase) {
	pod := w.pods[name].DeepCopy()
	if api.Finished(pod.Status.Phase) {
		return
	}
	pod.Status.Phase = phase
	w.pods[name] = pod
	w.showPod(pod, false)
	if shadow := w.shadows[name]; shadow != nil && metav1.IsControlledBy(pod, shadow) {
		w.shadows[name] = shadow.DeepCopy()
		w.shadows[name].Status.Phase = phase
		w.showShadow(w.shadows[name], false)
	}
}

func (w *world) deleteShadow(name string) {
	w.showShadow(w.shadows[name], true)
	delete(w.shadows, name)
}

// orphan removes the owner of a pod whose ShadowPod was deleted.
func (w *world) orphan(name string) {
	w.pods[name] = w.pods[name].DeepCopy()
	w.pods[name].OwnerReferences = nil
	w.showPod(w.pods[name], false)
}

func (w *world) deletePod(name string) {
	w.showPod(w.pods[name], true)
	delete(w.pods, name)
}

func (w *world) showShadow(p *offloadingv1beta1.ShadowPod, gone bool) {
	w.toldOf = append(w.toldOf, func() { w.accounts.observeShadowPod(p, gone) })
}

func (w *world) showPod(p *corev1.Pod, gone bool) {
	w.podTold = append(w.podTold, func() {
		w.told[p.UID] = true
		w.accounts.observePod(p, gone)
	})
}

// tell delivers some events of one watch, in order.
func (w *world) tell(events *[]func()) {
	for n := w.rand.IntN(4); n > 0 && len(*events) > 0; n-- {
		(*events)[0]()
		*events = (*events)[1:]
	}
}

func (w *world) tellAll() {
	for _, events := range []*[]func(){&w.toldOf, &w.podTold} {
		for len(*events) > 0 {
			w.tell(events)
		}
	}
}

// running returns the greatest sum of requests that the pods of one user have.
func (w *world) running() int64 {
	byUser := map[string]int64{}
	for _, pod := range w.pods {
		if !api.Finished(pod.Status.Phase) {
			byUser[pod.Labels[api.LabelCreatorUser]] += cpus(&pod.Spec)
		}
	}
	return max(byUser["user-0"], byUser["user-1"])
}

func cpus(spec *corev1.PodSpec) int64 { return spec.Containers[0].Resources.Requests.Cpu().Value() }

// fromScratch returns for each user the requests of its ShadowPods, and the sum that its pods and
// the ShadowPods with a pod hold.
func (w *world) fromScratch() map[string][2]int64 {
	asked, held := map[string]int64{}, map[entry]int64{}
	for _, pod := range w.pods {
		if !api.Finished(pod.Status.Phase) {
			held[entryOf(pod)] = cpus(&pod.Spec)
		}
	}
	for name, shadow := range w.shadows {
		key, phase := entryOf(shadow), shadow.Status.Phase
		pod := w.pods[name]
		its := pod != nil && metav1.IsControlledBy(pod, shadow)
		switch {
		case api.Finished(phase):
		case its && !api.Finished(pod.Status.Phase): // it was not let grow, or keeps what its ShadowPod gave up
			asked[key.user] += cpus(&pod.Spec)
			continue
		default:
			asked[key.user] += cpus(&shadow.Spec.Pod)
		}
		if its {
			phase = pod.Status.Phase
		}
		i := w.accounts.items[key]
		admitted := i != nil && i.admitted != ""
		if !api.Finished(phase) && (its || admitted || phase != "") {
			held[key] = max(held[key], cpus(&shadow.Spec.Pod))
		}
	}
	out := map[string][2]int64{}
	for _, user := range []string{"user-0", "user-1"} {
		sums := [2]int64{asked[user], 0}
		for key, amount := range held {
			if key.user == user {
				sums[1] += amount
			}
		}
		out[user] = sums
	}
	return out
}

func (w *world) accounted() map[string][2]int64 {
	out := map[string][2]int64{"user-0": {}, "user-1": {}}
	for user, of := range w.accounts.users {
		out[user] = [2]int64{of.asked.Cpu().Value(), of.held.Cpu().Value()}
	}
	return out
}

// TestProviderAdditionsDoNotCount shows that defaults of a LimitRange and sidecars of a webhook do
// not count against the quota of a granted pod.
func TestProviderAdditionsDoNotCount(t *testing.T) {
	t.Parallel()
	one := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Resources: corev1.ResourceRequirements{Requests: one}}}}
	labels := map[string]string{api.LabelCreatorUser: "user"}
	shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "web", UID: "s", Labels: labels}, Spec: offloadingv1beta1.ShadowPodSpec{Pod: spec}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "web", UID: "p", Labels: labels, OwnerReferences: []metav1.OwnerReference{{UID: "s", Controller: new(true)}}}, Spec: *spec.DeepCopy()}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "proxy", Resources: corev1.ResourceRequirements{Requests: one}})
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	a := newAccounts()
	a.observeShadowPod(shadow, false)
	a.observePod(pod, false)
	if held := a.users["user"].held; held.Cpu().Value() != 1 || held.Memory().Value() != 0 {
		t.Errorf("the consumer is said to hold %v, want 1 CPU", held)
	}
	a.observeShadowPod(shadow, true)
	if held := a.users["user"].held; held.Cpu().Value() != 1 {
		t.Errorf("without its ShadowPod the pod counts %v, want 1 CPU", held)
	}
}

// TestRefusedResizeCountsCurrentSize shows that a pod whose resize was refused counts with its
// current size, for others and for itself.
func TestRefusedResizeCountsCurrentSize(t *testing.T) {
	t.Parallel()
	quota := offloadingv1beta1.QuotaSpec{Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}}
	shadow := func(name, cpu string) *offloadingv1beta1.ShadowPod {
		p := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name, UID: types.UID(name), Labels: map[string]string{api.LabelCreatorUser: "user"}}}
		p.Spec.Pod.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}
		return p
	}
	small := shadow("web", "1")
	a := newAccounts()
	a.observeShadowPod(small, false)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "demo", Name: "web", UID: "p", Labels: small.Labels, OwnerReferences: []metav1.OwnerReference{{UID: small.UID, Controller: new(true)}},
	}, Spec: small.Spec.Pod}
	a.observePod(pod, false)
	large := shadow("web", "100")
	large.Generation = 2
	a.observeShadowPod(large, false)
	w := &world{accounts: a, quota: quota, rand: seed.Rand(t)}
	if w.grants(large, pod) {
		t.Error("the pod may grow beyond the quota")
	}
	for cpu, fits := range map[string]bool{"4": true, "5": false} {
		other := shadow("other", cpu)
		if reason := a.refuseShadowPod(quotaInput(&quota, other), other); (reason == "") != fits {
			t.Errorf("admission of another pod of %s CPUs: %q", cpu, reason)
		}
		if granted := w.grants(other, nil); granted != fits {
			t.Errorf("another pod of %s CPUs is granted: %v", cpu, granted)
		}
		a.change(entryOf(other), func(i *item) { i.admitted, i.promise = "", nil })
	}
}

// TestLateEventsKeepWhatIsGranted shows that a pod counts with its size, although the watch of
// ShadowPods shows a former one of that name and the former size only after the pod.
func TestLateEventsKeepWhatIsGranted(t *testing.T) {
	t.Parallel()
	shadow := func(name string, uid types.UID) *offloadingv1beta1.ShadowPod {
		return &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "demo", Name: name, UID: uid, Labels: map[string]string{api.LabelCreatorUser: "user"},
		}}
	}
	former, created, grown, other := shadow("web", "former"), shadow("web", "s"), shadow("web", "s"), shadow("other", "other")
	w := &world{accounts: newAccounts(), rand: seed.Rand(t)}
	w.quota.Resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}
	for p, cpus := range map[*offloadingv1beta1.ShadowPod]int64{former: 1, created: 2, grown: 4, other: 2} {
		w.asksFor(p, cpus)
	}
	if !w.grants(grown, nil) {
		t.Fatal("a pod that fits is not granted")
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "demo", Name: "web", UID: "p", Labels: grown.Labels, OwnerReferences: []metav1.OwnerReference{{UID: "s", Controller: new(true)}},
	}, Spec: grown.Spec.Pod}
	for _, event := range []func(){
		func() { w.accounts.observePod(pod, false) },
		func() { w.accounts.observeShadowPod(former, false) },
		func() { w.accounts.observeShadowPod(former, true) },
		func() { w.accounts.observeShadowPod(created, false) },
	} {
		event()
		if held := w.accounts.users["user"].held; held.Cpu().Value() != 4 {
			t.Errorf("the pod of 4 CPUs counts as %v", held.Cpu())
		}
	}
	if w.grants(other, nil) {
		t.Error("a pod is granted beyond the quota")
	}
}

// TestPlansCountOneAnother plans for many ShadowPods at once. As many get a pod as fit into the
// quota, before a watch shows any.
func TestPlansCountOneAnother(t *testing.T) {
	t.Parallel()
	const asked, fit = 200, 20
	var w world
	w.quota.Resources = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(fit, resource.DecimalSI)}
	a := newAccounts()
	var granted atomic.Int64
	var planning sync.WaitGroup
	for n := range asked {
		shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "demo", Name: fmt.Sprint("web-", n), UID: types.UID(fmt.Sprint(n)),
			Labels: map[string]string{api.LabelCreatorUser: "user"},
		}}
		w.asksFor(shadow, 1)
		planning.Go(func() {
			if plan.Grants(a.planShadowPod(plan.ShadowPodInput{Root: shadow, Quota: quotaInput(&w.quota, shadow)})) {
				granted.Add(1)
			}
		})
	}
	planning.Wait()
	if n := granted.Load(); n != fit {
		t.Errorf("%d are granted a pod, and there is room for %d", n, fit)
	}
}
