// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package packed

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/patience"
)

// pod has a value of every sort that has an encoding of its own.
func pod(n int) *corev1.Pod {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, n%60, 0, time.UTC))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("web-", n), Namespace: "shop", UID: types.UID(fmt.Sprint("u", n)), ResourceVersion: fmt.Sprint(n),
			CreationTimestamp: at, DeletionTimestamp: &at, DeletionGracePeriodSeconds: new(int64(30)),
			Labels: map[string]string{"app": "web", "tier": "front"}, Annotations: map[string]string{"of": fmt.Sprint(n), "none": ""},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "r", Controller: new(true)}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "m", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}},
		},
		Spec: corev1.PodSpec{
			NodeName: "milan",
			Containers: []corev1.Container{{
				Name: "c", Image: "web:1", Env: []corev1.EnvVar{{Name: "A", Value: "ä\n"}, {Name: "B"}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("1Gi")},
					Limits:   corev1.ResourceList{"example.com/gpu": resource.MustParse("2"), "memory": resource.MustParse("1.5Gi")},
				},
				LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http"), Path: "/"}}},
				StartupProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}},
			}},
			Tolerations:     []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(300))}},
			SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64(0)), RunAsNonRoot: new(false)},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &at, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}},
	}
}

func shadowPod(n int) *offv1beta1.ShadowPod {
	p := pod(n)
	return &offv1beta1.ShadowPod{
		TypeMeta:   metav1.TypeMeta{Kind: "ShadowPod", APIVersion: "offloading.liqo.io/v1beta1"},
		ObjectMeta: p.ObjectMeta, Spec: offv1beta1.ShadowPodSpec{Pod: p.Spec}, Status: offv1beta1.ShadowPodStatus{Phase: corev1.PodRunning},
	}
}

// collect runs the garbage collector, so that objects are decoded again.
func collect() {
	runtime.GC()
	runtime.GC()
}

// TestWhatIsPackedIsTheSame compares objects before and after garbage was collected: kinds of
// Kubernetes, our own, and those that are not packed.
func TestWhatIsPackedIsTheSame(t *testing.T) {
	free := &unstructured.Unstructured{Object: map[string]any{"kind": "Any", "metadata": map[string]any{"name": "x"}}}
	part := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "Any", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	for _, made := range []func() kruntime.Object{
		func() kruntime.Object { return pod(1) },
		func() kruntime.Object { return shadowPod(1) },
		func() kruntime.Object { return &corev1.Secret{Data: map[string][]byte{"a": {0, 255}, "b": nil}} },
		func() kruntime.Object { return free },
		func() kruntime.Object { return part },
	} {
		packed, err := pack(made())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got := open(packed); !equality.Semantic.DeepEqual(got, any(made())) {
				t.Errorf("%T:\n got %+v\nwant %+v", made(), got, made())
			}
			collect()
		}
	}
}

// TestFreshOnesAreShared shows that readers of an object get the same decoded one until garbage is
// collected.
func TestFreshOnesAreShared(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // garbage is collected when the test does
	p := pod(1)
	packed, err := pack(p)
	if err != nil {
		t.Fatal(err)
	}
	if open(packed) != any(p) {
		t.Error("opened anew, though it was just packed")
	}
	collect()
	if open(packed) == any(p) {
		t.Error("still kept when garbage was collected")
	}
	if again := open(packed); open(packed) != again || again == any(p) {
		t.Error("opened anew for each who looks")
	}
	runtime.KeepAlive(p)
}

// seen are the events a handler was told of, for a test.
type seen chan string

func (s seen) handler() cache.ResourceEventHandler {
	name := func(obj any) string {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		return obj.(*corev1.Pod).Name + " " + obj.(*corev1.Pod).Annotations["of"]
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s <- "add " + name(obj) },
		UpdateFunc: func(before, after any) { s <- "update " + name(before) + " to " + name(after) },
		DeleteFunc: func(obj any) { s <- "delete " + name(obj) },
	}
}

func (s seen) expect(t *testing.T, want ...string) {
	t.Helper()
	last := "nothing"
	for _, each := range want {
		select {
		case got := <-s:
			last = got
			if got != each {
				t.Errorf("told of %q, not of %q", got, each)
			}
		case <-time.After(patience.Limit):
			t.Fatal(patience.GaveUp("the event "+each, last))
		}
	}
}

// TestInformer shows that handlers, indexes and readers get decoded objects, and that the store
// holds none.
func TestInformer(t *testing.T) {
	changes := watch.NewFake()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Pod{*pod(1), *pod(2)}}
	i := InformerOf(&corev1.Pod{})(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (kruntime.Object, error) { return list.DeepCopy(), nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return changes, nil },
	}, unwatchable{}), &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	trimmed := func(obj any) (any, error) {
		obj.(*corev1.Pod).ManagedFields = nil
		return obj, nil
	}
	if err := i.SetTransform(trimmed); err != nil {
		t.Fatal(err)
	}
	node := cache.Indexers{"node": func(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Spec.NodeName}, nil }}
	if err := i.AddIndexers(node); err != nil {
		t.Fatal(err)
	}
	events := make(seen, 10)
	if _, err := i.AddEventHandler(events.handler()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go i.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), i.HasSynced) {
		t.Fatal("did not sync")
	}
	first := []string{<-events, <-events}
	slices.Sort(first)
	if !slices.Equal(first, []string{"add web-1 1", "add web-2 2"}) {
		t.Errorf("told of %q first", first)
	}
	newer := pod(2)
	newer.Annotations["of"], newer.ResourceVersion = "two", "3"
	changes.Modify(newer.DeepCopy())
	changes.Delete(pod(1))
	events.expect(t, "update web-2 2 to web-2 two", "delete web-1 1")
	collect()

	newer.ManagedFields = nil
	byKey, exists, err := i.GetStore().GetByKey("shop/web-2")
	if err != nil || !exists || !equality.Semantic.DeepEqual(byKey, any(newer)) {
		t.Errorf("read by key: %+v, %v, %v", byKey, exists, err)
	}
	byObject, exists, err := i.GetStore().Get(newer)
	if err != nil || !exists || !equality.Semantic.DeepEqual(byObject, any(newer)) {
		t.Errorf("read by object: %+v, %v, %v", byObject, exists, err)
	}
	byNode, err := i.GetIndexer().ByIndex("node", "milan")
	alike, err2 := i.GetIndexer().Index("node", newer)
	inShop, err3 := i.GetIndexer().ByIndex(cache.NamespaceIndex, "shop")
	for name, found := range map[string][]any{"list": i.GetStore().List(), "by node": byNode, "alike": alike, "by namespace": inShop} {
		if len(found) != 1 || !equality.Semantic.DeepEqual(found[0], any(newer)) {
			t.Errorf("%s: %+v", name, found)
		}
	}
	if err != nil || err2 != nil || err3 != nil {
		t.Error(err, err2, err3)
	}
	for _, obj := range i.(informer).SharedIndexInformer.GetStore().List() {
		if _, ok := obj.(*object); !ok {
			t.Errorf("%T is kept as it is", obj)
		}
	}
	late := make(seen, 10)
	if _, err := i.AddEventHandler(late.handler()); err != nil {
		t.Fatal(err)
	}
	late.expect(t, "add web-2 two")
}

// unwatchable is a client that must list first.
type unwatchable struct{}

func (unwatchable) IsWatchListSemanticsUnSupported() bool { return true }

// TestOthersAreNotPacked shows that kinds which are not listed use client-go's informer.
func TestOthersAreNotPacked(t *testing.T) {
	if _, ok := InformerOf(&corev1.Pod{})(&cache.ListWatch{}, &corev1.Node{}, 0, nil).(informer); ok {
		t.Error("nodes are packed though only pods were to be")
	}
}

// TestLost shows that handlers get the last known state of an object that was deleted while the
// watch was down.
func TestLost(t *testing.T) {
	packed, err := pack(pod(1))
	if err != nil {
		t.Fatal(err)
	}
	collect()
	gone, ok := open(cache.DeletedFinalStateUnknown{Key: "shop/web-1", Obj: packed}).(cache.DeletedFinalStateUnknown)
	if !ok || gone.Key != "shop/web-1" || !equality.Semantic.DeepEqual(gone.Obj, any(pod(1))) {
		t.Errorf("%+v", gone)
	}
}

// TestSize shows that a packed pod takes less memory than an empty Pod of Go.
func TestSize(t *testing.T) {
	const n = 1000
	size := func(each func(int) any) float64 {
		kept := make([]any, n)
		before := heap()
		for i := range kept {
			kept[i] = each(i)
		}
		after := heap()
		runtime.KeepAlive(kept)
		return float64(after-before) / n
	}
	packed := size(func(i int) any {
		p, err := pack(pod(i))
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
	empty := size(func(int) any { return &corev1.Pod{} })
	whole := size(func(i int) any { return pod(i) })
	t.Logf("a pod takes %.0f bytes packed, %.0f as it is, %.0f empty", packed, whole, empty)
	if packed > empty {
		t.Errorf("a packed pod takes %.0f bytes, an empty one %.0f", packed, empty)
	}
}

func heap() int64 {
	collect()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
