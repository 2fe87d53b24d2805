// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/seed"
	"github.com/liqo-go/liqo/offloading/plan"
	"github.com/liqo-go/liqo/reflection/translate"
)

var (
	soak     = flag.Bool("soak", false, "run everything, not samples")
	schedule = flag.Uint64("schedule", 0, "the one schedule to run; 0 = all")
)

// TestPodsOfTwoClusters runs one pod through schedules drawn at random: what drives it are the
// functions the daemons call; the API servers, watches, kubelets, users and faults are modelled.
// Watches are late each on its own, processes crash, the link is cut, nodes are lost, and whoever
// may delete a pod does. It is checked at every step that
//
//   - a pod that runs to its end is not run twice;
//   - a home pod that has finished stays so, and one that runs for ever finishes only if home
//     deletes it or the kubelet at the provider gives it up;
//   - a restart counter never goes back;
//   - a home pod shows nothing of a former pod of its name;
//
// and at the end, when the faults have ceased, that both clusters agree and nothing is left over.
func TestPodsOfTwoClusters(t *testing.T) {
	t.Parallel()
	from, n := seed.Of(t), uint64(2000) // 2000 take 3 s
	if *soak {
		n = 120_000 // 4 min
	}
	for i := uint64(1); i <= n; i++ {
		if *schedule != 0 && i != *schedule {
			continue
		}
		if err := newWorld(rand.New(rand.NewPCG(from, i))).run(); err != nil {
			again := newWorld(rand.New(rand.NewPCG(from, i)))
			again.traced = true
			_ = again.run()
			t.Fatalf("%v\nagain with -args -schedule %d\n%s", err, i, strings.Join(again.trace, "\n"))
		}
	}
}

// object is one name in an API server; nil = absent. What it points to is never changed.
type object[T any] struct {
	now     *T
	watches []*watch[T]
}

// watch is what one process knows of an object. own counts the versions still to come up to the
// last write of the process itself.
type watch[T any] struct {
	seen  *T
	queue []*T
	own   int
}

func (o *object[T]) watch() *watch[T] {
	w := &watch[T]{}
	o.watches = append(o.watches, w)
	return w
}

func (o *object[T]) set(to *T) {
	o.now = to
	for _, w := range o.watches {
		w.queue = append(w.queue, to)
	}
}

func (w *watch[T]) deliver() {
	if len(w.queue) > 0 {
		w.seen, w.queue, w.own = w.queue[0], w.queue[1:], max(w.own-1, 0)
	}
}

func (w *watch[T]) relist(o *object[T]) { w.seen, w.queue, w.own = o.now, nil, 0 }

// wrote notes that the process has written: until it sees that, it does nothing.
func (w *watch[T]) wrote() { w.own = len(w.queue) }

type (
	pods    = object[corev1.Pod]
	shadows = object[offloadingv1beta1.ShadowPod]
)

type world struct {
	random *rand.Rand
	traced bool
	trace  []string
	clock  time.Time
	uids   int
	policy corev1.RestartPolicy
	broken error

	home, remote               pods
	shadow                     shadows
	eHome, eRemote             *watch[corev1.Pod] // the virtual kubelet's
	eShadow                    *watch[offloadingv1beta1.ShadowPod]
	cRemote                    *watch[corev1.Pod] // the provider's controller's
	cShadow                    *watch[offloadingv1beta1.ShadowPod]
	link, node, filled, faults bool

	ran      map[types.UID]types.UID            // ShadowPod → the first pod of it that started
	starts   map[types.UID]map[metav1.Time]bool // home pod → when pods made for it started
	evicted  map[types.UID]bool                 // home pod → a kubelet gave its remote pod up
	finished map[types.UID]corev1.PodPhase      // home pod → how it ended
	restarts map[types.UID]int32                // home pod → highest count shown
}

func newWorld(r *rand.Rand) *world {
	w := &world{
		random: r, clock: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), link: true, node: true, filled: true, faults: true,
		policy: []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure}[r.IntN(3)],
		ran:    map[types.UID]types.UID{}, starts: map[types.UID]map[metav1.Time]bool{}, evicted: map[types.UID]bool{},
		finished: map[types.UID]corev1.PodPhase{}, restarts: map[types.UID]int32{},
	}
	w.eHome, w.eRemote, w.eShadow = w.home.watch(), w.remote.watch(), w.shadow.watch()
	w.cRemote, w.cShadow = w.remote.watch(), w.shadow.watch()
	return w
}

func (w *world) uid() types.UID {
	w.uids++
	return types.UID(fmt.Sprint("u", w.uids))
}

func (w *world) fail(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf(format, args...)
	}
}

func (w *world) note(event string) {
	if w.traced {
		w.trace = append(w.trace, event+"\t"+w.String())
	}
}

// run takes up to 150 steps with faults and then as many as it needs without them.
func (w *world) run() error {
	for range 30 + w.random.IntN(120) {
		w.step()
		if w.broken != nil {
			return w.broken
		}
	}
	w.link, w.node, w.faults = true, true, false
	w.note("faults cease")
	// Four rounds are 20 s; nothing is timed that takes longer.
	for round, calm := 0, 0; round < 40 && calm < 4; round++ {
		home, shadow, remote := w.home.now, w.shadow.now, w.remote.now
		w.settle()
		if w.broken != nil {
			return w.broken
		}
		if calm++; home != w.home.now || shadow != w.shadow.now || remote != w.remote.now {
			calm = 0
		}
	}
	return w.agree()
}

// step is one event, drawn from those that may happen.
func (w *world) step() {
	w.clock = w.clock.Add(time.Duration(1+w.random.IntN(4)) * time.Second)
	all := []struct {
		name   string
		weight int
		do     func()
	}{
		{"virtual kubelet", 20, w.engine}, {"controller", 20, w.controller}, {"kubelet", 25, w.kubelet},
		{"event at home", 12, w.eHome.deliver}, {"event of the pod for the controller", 12, w.cRemote.deliver},
		{"event of the ShadowPod for the controller", 12, w.cShadow.deliver},
		{"event of the pod for the virtual kubelet", 12, w.overLink(w.eRemote.deliver)},
		{"event of the ShadowPod for the virtual kubelet", 12, w.overLink(w.eShadow.deliver)},
		{"owner", 4, w.owner}, {"collectors", 6, w.collectors},
		{"pod drained", 2, w.drain}, {"pod deleted by force", 1, w.deleteByForce}, {"pod evicted by its kubelet", 1, w.evict},
		{"pod failed by the collector", 1, w.failByCollector}, {"ShadowPod deleted", 1, w.deleteShadow},
		{"home pod deleted", 1, w.deleteHome}, {"home pod deleted by force", 1, func() { w.setHome(nil) }},
		{"virtual kubelet restarts", 1, w.restartEngine}, {"controller restarts", 1, w.restartController},
		{"link turns", 2, func() { w.link = !w.link }}, {"node turns", 2, func() { w.node = !w.node }},
	}
	sum := 0
	for _, e := range all {
		sum += e.weight
	}
	at := w.random.IntN(sum)
	for _, e := range all {
		if at -= e.weight; at < 0 {
			e.do()
			w.note(e.name)
			return
		}
	}
}

// settle is a round in which everything that is due happens.
func (w *world) settle() {
	w.clock = w.clock.Add(5 * time.Second)
	if !w.filled {
		w.restartEngine()
	}
	for range 4 {
		for len(w.eHome.queue)+len(w.eRemote.queue)+len(w.eShadow.queue)+len(w.cRemote.queue)+len(w.cShadow.queue) > 0 {
			w.eHome.deliver()
			w.eRemote.deliver()
			w.eShadow.deliver()
			w.cRemote.deliver()
			w.cShadow.deliver()
		}
		w.engine()
		w.controller()
	}
	w.kubelet()
	w.collectors()
	w.note("round")
}

func (w *world) overLink(do func()) func() {
	return func() {
		if w.link {
			do()
		}
	}
}

// engine is the virtual kubelet's pass over the pod, as package reflection does it: with what its caches keep.
func (w *world) engine() {
	if !w.filled || w.eHome.own > 0 || w.eShadow.own > 0 {
		return
	}
	home, shadow, report := w.eHome.seen.DeepCopy(), w.eShadow.seen.DeepCopy(), w.eRemote.seen.DeepCopy()
	if home != nil {
		translate.TrimPod(home)
	}
	if shadow != nil {
		translate.TrimShadowPod(shadow)
	}
	if report != nil {
		translate.TrimReport(report)
	}
	switch {
	case home == nil:
		w.removeShadow(shadow)
		return
	case home.DeletionTimestamp != nil:
		if shadow == nil && report == nil {
			if w.home.now != nil && w.home.now.UID == home.UID {
				w.setHome(nil)
				w.eHome.wrote()
			}
			return
		}
		if !w.removeShadow(shadow) {
			return
		}
	default:
		if !w.push(home, shadow) {
			return
		}
	}
	if shadow != nil && report != nil && metav1.GetControllerOf(report).UID != shadow.UID {
		report = nil
	}
	want := translate.PodStatus(home, shadow, report, view())
	if equality.Semantic.DeepEqual(home, want) || w.home.now == nil || w.home.now.UID != home.UID {
		return
	}
	out := w.home.now.DeepCopy()
	out.Status, out.Labels, out.Annotations = want.Status, want.Labels, want.Annotations
	w.setHome(out)
	w.eHome.wrote()
}

func view() translate.View {
	return translate.View{Consumer: "rome", Provider: "milan", Node: "milan", Namespaces: map[string]string{"shop": "shop-rome"}}
}

func (w *world) push(home *corev1.Pod, shadow *offloadingv1beta1.ShadowPod) bool {
	want := translate.Pod(home, shadow, view())
	switch {
	case want == nil:
		return w.removeShadow(shadow)
	case shadow == nil && (!w.link || w.shadow.now != nil):
		return false
	case shadow == nil:
		if translate.InPart(home) {
			now := w.home.now
			if now == nil || now.UID != home.UID || now.DeletionTimestamp != nil {
				return false
			}
			if want = translate.Pod(now, nil, view()); want == nil {
				return true
			}
		}
		if translate.InPart(want) {
			w.fail("a ShadowPod is made of a part of its pod")
		}
		if now := w.home.now; now != nil && now.UID == home.UID && w.policy != corev1.RestartPolicyAlways && now.Status.StartTime != nil {
			w.fail("a pod that had started is asked for again")
		}
		want.UID, want.Status.Phase = w.uid(), corev1.PodUnknown
		want.CreationTimestamp = metav1.NewTime(w.clock)
		w.shadow.set(want)
		w.eShadow.wrote()
	case shadow.DeletionTimestamp == nil && !equality.Semantic.DeepEqual(shadow, want):
		if !w.link {
			return false
		}
		if now := w.shadow.now; now != nil && now.UID == shadow.UID {
			out := now.DeepCopy()
			out.Labels, out.Annotations = want.Labels, want.Annotations
			w.shadow.set(out)
			w.eShadow.wrote()
		}
	}
	return true
}

func (w *world) removeShadow(seen *offloadingv1beta1.ShadowPod) bool {
	if seen == nil {
		return true
	}
	if w.link && w.shadow.now != nil && w.shadow.now.UID == seen.UID {
		w.shadow.set(nil)
		w.eShadow.wrote()
	}
	return w.link
}

// controller is the provider's pass over the ShadowPod, as packages offloading and ctl do it: with what its
// cache keeps of the pod.
func (w *world) controller() {
	if w.cShadow.seen == nil {
		return
	}
	in := plan.ShadowPodInput{Root: w.cShadow.seen.DeepCopy(), Now: w.clock}
	if w.cRemote.seen != nil {
		kept, _ := stripPod(w.cRemote.seen.DeepCopy()) // has no errors
		in.Pod = kept.(*corev1.Pod)
	}
	if in.Pod == nil && plan.RunsToEnd(in.Root) {
		w.confirmAbsence(&in)
	}
	p := plan.ShadowPod(in)
	if len(p.Objects) > 0 && w.cRemote.seen == nil && w.remote.now == nil {
		w.remote.set(w.made(p.Objects[0].(*corev1.Pod), in.Root))
	}
	if w.faults && w.random.IntN(10) == 0 {
		return // the process dies, or the second write fails
	}
	// The API server does not check the UID of a status that is applied; that the name belongs to
	// another ShadowPod by then, milliseconds after it was read, is left out of the model.
	if now := w.shadow.now; p.Status != nil && now != nil && now.UID == in.Root.UID {
		out := now.DeepCopy()
		out.Status = p.Status.(*offloadingv1beta1.ShadowPod).Status
		w.shadow.set(out)
	}
	if w.faults && w.random.IntN(10) == 0 {
		return
	}
	for _, a := range p.Actions { // the gate is lifted
		if now := w.remote.now; now == nil || now.UID != a.Object.GetUID() || len(now.Spec.SchedulingGates) == 0 {
			continue // a cache was late: there is none any more
		}
		out := w.remote.now.DeepCopy()
		out.Spec.SchedulingGates = nil
		out.Status.Conditions = nil
		w.remote.set(out)
	}
}

// confirmAbsence is what package offloading asks the API server before such a pod is made.
func (w *world) confirmAbsence(in *plan.ShadowPodInput) {
	live, pod := w.shadow.now, w.remote.now
	if live == nil || live.UID != in.Root.UID {
		in.Root.Status.Phase = corev1.PodFailed
		return
	}
	in.Root.Status = live.Status
	if live.Status.Phase != corev1.PodUnknown && pod != nil && metav1.IsControlledBy(pod, live) {
		in.Pod = pod
	}
}

func (w *world) made(pod *corev1.Pod, owner *offloadingv1beta1.ShadowPod) *corev1.Pod {
	out := pod.DeepCopy()
	out.UID = w.uid()
	out.OwnerReferences = []metav1.OwnerReference{{Kind: "ShadowPod", Name: owner.Name, UID: owner.UID, Controller: new(true)}}
	out.Status.Phase = corev1.PodPending
	if len(out.Spec.SchedulingGates) > 0 {
		out.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated}}
	}
	out.Labels[api.LabelManaged] = api.True
	return out
}

// kubelet is the scheduler and the kubelet at the provider: the next thing in the life of the pod.
func (w *world) kubelet() {
	pod := w.remote.now
	if pod == nil || !w.node && pod.Spec.NodeName != "" {
		return
	}
	out := pod.DeepCopy()
	s := &out.Status
	ended := s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
	switch {
	case pod.DeletionTimestamp != nil && ended:
		w.remote.set(nil)
		return
	case pod.DeletionTimestamp != nil:
		s.Phase = []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}[w.random.IntN(2)]
	case ended:
		return
	case len(pod.Spec.SchedulingGates) > 0:
		return
	case pod.Spec.NodeName == "" && w.faults && w.random.IntN(2) == 0:
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	case pod.Spec.NodeName == "":
		out.Spec.NodeName = "n1"
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	case s.StartTime == nil:
		w.start(out)
	case s.ContainerStatuses == nil:
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "c"}}
	case w.policy != corev1.RestartPolicyAlways && w.random.IntN(3) == 0:
		s.Phase, s.Conditions = corev1.PodSucceeded, nil
	case w.faults:
		s.ContainerStatuses[0].RestartCount++
	default:
		return
	}
	w.remote.set(out)
}

// start runs the containers for the first time.
func (w *world) start(pod *corev1.Pod) {
	owner, home := metav1.GetControllerOf(pod).UID, types.UID(pod.Annotations[translate.HomeUIDAnnotation])
	if ran := w.ran[owner]; w.policy != corev1.RestartPolicyAlways && ran != "" && ran != pod.UID {
		w.fail("pod %s runs, after pod %s of the same ShadowPod", pod.UID, ran)
	}
	w.ran[owner] = pod.UID
	s := &pod.Status
	s.Phase, s.StartTime = corev1.PodRunning, new(metav1.NewTime(w.clock))
	s.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
	}
	if w.starts[home] == nil {
		w.starts[home] = map[metav1.Time]bool{}
	}
	w.starts[home][*s.StartTime] = true
}

// collectors end what nobody wants or confirms any more at the provider: the garbage collector,
// the one of pods, and ours of pods on lost nodes.
func (w *world) collectors() {
	pod := w.remote.now
	if pod == nil {
		return
	}
	ready := corev1.ConditionFalse
	if w.node {
		ready = corev1.ConditionTrue
	}
	node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	switch owner := metav1.GetControllerOf(pod).UID; {
	case len(plan.LostPod(plan.LostPodInput{Root: pod, Node: node}).Actions) > 0 && plan.Ending(pod), len(pod.Status.Conditions) > 0 && pod.Status.Conditions[0].Reason == "DeletionByPodGC":
		w.remote.set(nil)
	case w.shadow.now == nil || w.shadow.now.UID != owner:
		w.drain()
	}
}

func (w *world) drain() {
	pod := w.remote.now
	switch {
	case pod == nil || pod.DeletionTimestamp != nil:
	case pod.Spec.NodeName == "":
		w.remote.set(nil)
	default:
		out := pod.DeepCopy()
		out.DeletionTimestamp = new(metav1.NewTime(w.clock))
		w.remote.set(out)
	}
}

func (w *world) deleteByForce() {
	if w.remote.now != nil {
		w.remote.set(nil)
	}
}

func (w *world) evict() {
	if w.failed("", corev1.PodReasonTerminationByKubelet) {
		w.evicted[types.UID(w.remote.now.Annotations[translate.HomeUIDAnnotation])] = true
	}
}

func (w *world) failByCollector() { w.failed("", "DeletionByPodGC") }

// failed writes a failure to a pod that has a node and has not ended.
func (w *world) failed(message, reason string) bool {
	pod := w.remote.now
	if pod == nil || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	out := pod.DeepCopy()
	out.Status.Phase = corev1.PodFailed
	out.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason, Message: message}}
	w.remote.set(out)
	return true
}

func (w *world) deleteShadow() {
	if w.shadow.now != nil {
		w.shadow.set(nil)
	}
}

func (w *world) deleteHome() {
	if pod := w.home.now; pod != nil && pod.DeletionTimestamp == nil {
		out := pod.DeepCopy()
		out.DeletionTimestamp = new(metav1.NewTime(w.clock))
		w.setHome(out)
	}
}

// owner makes the home pod, like a StatefulSet: always under the same name. One that has finished
// it replaces.
func (w *world) owner() {
	if pod := w.home.now; pod != nil {
		if w.finished[pod.UID] != "" && w.policy == corev1.RestartPolicyAlways {
			w.deleteHome()
		}
		return
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: w.uid()}}
	pod.Spec = corev1.PodSpec{RestartPolicy: w.policy, NodeName: "milan", Containers: []corev1.Container{{Name: "c", Image: "i", ImagePullPolicy: corev1.PullAlways}}}
	pod.Status.Phase = corev1.PodPending
	w.setHome(pod)
}

// setHome changes the home pod, and checks what users see of it.
func (w *world) setHome(pod *corev1.Pod) {
	if pod == nil {
		if w.home.now != nil {
			w.home.set(nil)
		}
		return
	}
	s := &pod.Status
	if before := w.finished[pod.UID]; before != "" && s.Phase != before {
		w.fail("a finished pod becomes %s again", s.Phase)
	}
	if s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed {
		w.finished[pod.UID] = s.Phase
		if w.policy == corev1.RestartPolicyAlways && pod.DeletionTimestamp == nil && !w.evicted[pod.UID] {
			w.fail("a pod that runs for ever has finished: %s", s.Phase)
		}
	}
	if s.StartTime != nil && !w.starts[pod.UID][*s.StartTime] {
		w.fail("it shows what a former pod did")
	}
	for _, c := range s.ContainerStatuses {
		if c.RestartCount < w.restarts[pod.UID] {
			w.fail("the restart counter goes back from %d to %d", w.restarts[pod.UID], c.RestartCount)
		}
		w.restarts[pod.UID] = c.RestartCount
	}
	w.home.set(pod)
}

// restartEngine begins anew from lists, which it gets only while the link is there.
func (w *world) restartEngine() {
	w.eHome.relist(&w.home)
	if w.filled = w.link; w.link {
		w.eRemote.relist(&w.remote)
		w.eShadow.relist(&w.shadow)
	}
}

func (w *world) restartController() {
	w.cRemote.relist(&w.remote)
	w.cShadow.relist(&w.shadow)
}

// agree is how the clusters have to stand once nothing happens any more.
func (w *world) agree() error {
	home, shadow, remote := w.home.now, w.shadow.now, w.remote.now
	switch {
	case home == nil && (shadow != nil || remote != nil):
		return fmt.Errorf("something is left at the provider: %s", w)
	case home == nil || home.DeletionTimestamp == nil && w.finished[home.UID] != "":
		return nil
	case home.DeletionTimestamp != nil:
		return fmt.Errorf("the home pod does not go: %s", w)
	case remote == nil || remote.Annotations[translate.HomeUIDAnnotation] != string(home.UID) || remote.Status.Phase != corev1.PodRunning:
		return fmt.Errorf("the pod does not run: %s", w)
	case home.Status.Phase != corev1.PodRunning || home.Status.Conditions[len(home.Status.Conditions)-1].Status != corev1.ConditionTrue:
		return fmt.Errorf("home does not show that it runs: %s", w)
	case home.Labels[api.LabelShadowPod] != api.True:
		return fmt.Errorf("the home pod has no mark: %s", w)
	}
	return nil
}

func (w *world) String() string {
	type line struct {
		Home, Shadow, Remote, SeenShadow, SeenRemote string
		Link, Node                                   bool
	}
	pod := func(p *corev1.Pod) string {
		if p == nil {
			return "-"
		}
		return fmt.Sprintf("%s(%s) %s deleted:%t", p.UID, p.Annotations[translate.HomeUIDAnnotation], p.Status.Phase, p.DeletionTimestamp != nil)
	}
	sp := func(p *offloadingv1beta1.ShadowPod) string {
		if p == nil {
			return "-"
		}
		return fmt.Sprintf("%s(%s) %s", p.UID, p.Annotations[translate.HomeUIDAnnotation], p.Status.Phase)
	}
	text, err := json.Marshal(line{pod(w.home.now), sp(w.shadow.now), pod(w.remote.now), sp(w.eShadow.seen), pod(w.eRemote.seen), w.link, w.node})
	if err != nil {
		return err.Error()
	}
	return string(text)
}
