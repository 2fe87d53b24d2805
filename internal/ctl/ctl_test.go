// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/seed"
)

const (
	namespace = "default"
	elsewhere = "kube-public"
)

// wishes plans one ConfigMap for each "name=value" in the root's annotation "wish"; annotation
// "verdict" makes the plan wait or block.
func wishes(root *ipamv1alpha1.Network) desired.Plan {
	if root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	var plan desired.Plan
	switch root.Annotations["verdict"] {
	case "wait":
		plan = desired.Wait("NotYet", "apply the other half")
	case "block":
		plan = desired.Block("Wrong", "change the wish")
	}
	for wish := range strings.FieldsSeq(root.Annotations["wish"]) {
		name, value, _ := strings.Cut(wish, "=")
		plan.Objects = append(plan.Objects, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: name},
			Data:       map[string]string{value: value},
		})
	}
	return plan
}

// flaky fails a fifth of the writes, so that every test also shows that the loop tries again.
type flaky struct {
	http.RoundTripper
	seed   uint64
	writes *atomic.Uint64 // of several workers
}

func (f flaky) RoundTrip(r *http.Request) (*http.Response, error) {
	// The recorder tries an event again after 10 s only.
	if r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/events") &&
		rand.New(rand.NewPCG(f.seed, f.writes.Add(1))).IntN(5) == 0 {
		return nil, errors.New("write failed on purpose")
	}
	return f.RoundTripper.RoundTrip(r)
}

// start runs the wishes controller against a real API server and gives a client that never fails.
func start(t *testing.T) client.Client {
	server := apitest.Start(t)
	from := seed.Of(t) // of failing writes
	return run(t, server, manager.Options{}, func(rt http.RoundTripper) http.RoundTripper {
		return flaky{rt, from, &atomic.Uint64{}}
	}, wisher())
}

func wisher() ctl.Registrar {
	return ctl.Controller[*ipamv1alpha1.Network, *ipamv1alpha1.Network]{
		Name:      "wishes",
		Owns:      []client.Object{&corev1.ConfigMap{}},
		Finalizer: "liqo.io/wishes",
		Gather: func(_ context.Context, _ ctl.Reader, root *ipamv1alpha1.Network) (*ipamv1alpha1.Network, error) {
			return root, nil
		},
		Plan: wishes,
	}
}

// run runs a controller against an API server through a transport of the test, and gives a client
// of its own.
func run(t *testing.T, server *apitest.Server, o manager.Options, through func(http.RoundTripper) http.RoundTripper, c ctl.Registrar) client.Client {
	t.Helper()
	config := rest.CopyConfig(server.Config)
	config.WrapTransport = through
	o.Scheme, o.Metrics, o.Controller = scheme.New(), metricsserver.Options{BindAddress: "0"}, ctl.Queues()
	mgr, err := manager.New(config, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Register(mgr); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- mgr.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	admin, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

// wish creates the root or changes what it wants.
func wish(t *testing.T, c client.Client, annotations map[string]string) {
	t.Helper()
	root := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "root"}}
	err := c.Get(t.Context(), client.ObjectKeyFromObject(root), root)
	if apierrors.IsNotFound(err) {
		root.Annotations, root.Spec.CIDR = annotations, "10.0.0.0/16"
		err = c.Create(t.Context(), root)
	} else if err == nil {
		patch := client.MergeFrom(root.DeepCopy())
		root.Annotations = annotations
		err = c.Patch(t.Context(), root, patch)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// granted lists "name=value" of what the controller made.
func granted(t *testing.T, c client.Client) string {
	t.Helper()
	var list corev1.ConfigMapList
	if err := c.List(t.Context(), &list, client.InNamespace(elsewhere), client.HasLabels{"ctl.liqo.io/owner-uid"}); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, cm := range list.Items {
		for key := range maps.Keys(cm.Data) {
			all = append(all, cm.Name+"="+key)
		}
	}
	return strings.Join(all, " ")
}

// ready gives the reason of the root's Ready condition.
func ready(t *testing.T, c client.Client) string {
	t.Helper()
	var root ipamv1alpha1.Network
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "root"}, &root); err != nil {
		return "gone"
	}
	if cond := meta.FindStatusCondition(root.Status.Conditions, desired.ConditionReady); cond != nil {
		return cond.Reason
	}
	return ""
}

// events are the reasons of what was told last of the root: that it was refused, and that it is
// well.
func events(t *testing.T, c client.Client) []string {
	t.Helper()
	var list eventsv1.EventList
	if err := c.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, e := range list.Items {
		if e.Reason == "ApplyRefused" && strings.Contains(e.Note, "No_Name") || e.Note == "resolved: ApplyRefused" {
			told[e.Reason] = true
		}
	}
	return slices.Sorted(maps.Keys(told))
}

func eventually(t *testing.T, want string, got func() string) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience.Limit, true, func(context.Context) (bool, error) {
		last = got()
		return last == want, nil
	})
	if err != nil {
		t.Fatalf("gave up after %s: waited for %.200q, last is %.2000q", patience.Limit, want, last)
	}
}

func TestLoop(t *testing.T) {
	t.Parallel()
	c := start(t)
	made := func() string { return granted(t, c) }
	told := func() string { return ready(t, c) }

	wish(t, c, map[string]string{"wish": "a=1 b=2"})
	eventually(t, "a=1 b=2", made)
	eventually(t, "Ready", told)

	// A complete plan prunes what it no longer names, and a removed key goes.
	wish(t, c, map[string]string{"wish": "a=3"})
	eventually(t, "a=3", made)

	// A plan that waits or is blocked may add, never removes.
	for verdict, reason := range map[string]string{"wait": "NotYet", "block": "Wrong"} {
		wish(t, c, map[string]string{"wish": "c=4", "verdict": verdict})
		eventually(t, reason, told)
		eventually(t, "a=3 c=4", made)
	}

	// What the API server refuses is told, and keeps nothing else from being made.
	wish(t, c, map[string]string{"wish": "No_Name=1 c=4"})
	eventually(t, "ApplyRefused", told)
	eventually(t, "c=4", made)
	wish(t, c, map[string]string{"wish": "a=3 c=4"})
	eventually(t, "Ready", told)
	eventually(t, "ApplyRefused Ready", func() string { return strings.Join(events(t, c), " ") })

	// What somebody else deletes or edits comes back.
	wish(t, c, map[string]string{"wish": "a=3 c=4"})
	if err := c.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a=3 c=4", made)

	steady(t, c)

	// Effects in another namespace are gone before the root is.
	if err := c.Delete(t.Context(), &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "root"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "gone", told)
	if left := made(); left != "" {
		t.Errorf("the root is gone and left behind: %s", left)
	}
}

// steady touches the root without changing what it wants and expects that nothing is written.
func steady(t *testing.T, c client.Client) {
	t.Helper()
	version := func() string {
		var cm corev1.ConfigMap
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: elsewhere, Name: "c"}, &cm); err != nil {
			t.Fatal(err)
		}
		return cm.ResourceVersion
	}
	before := version()
	wish(t, c, map[string]string{"wish": "a=3 c=4 d=5"})
	eventually(t, "a=3 c=4 d=5", func() string { return granted(t, c) })
	if after := version(); after != before {
		t.Errorf("c was written without a change: version %s became %s", before, after)
	}
}

// refuser answers some requests as webhooks may: nothing changes, and no event follows.
type refuser struct {
	http.RoundTripper
	refuses func(*http.Request) bool
	code    int
	reason  metav1.StatusReason
}

func (r refuser) RoundTrip(req *http.Request) (*http.Response, error) {
	if !r.refuses(req) {
		return r.RoundTripper.RoundTrip(req)
	}
	body := fmt.Sprintf(`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "code": %d}`, r.reason, r.code)
	return &http.Response{
		StatusCode: r.code, Request: req, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// TestDeletionTakesOnePass shows that a root ends without an event of what was deleted for it, unless a
// finalizer holds that.
func TestDeletionTakesOnePass(t *testing.T) {
	t.Parallel()
	deaf := wisher().(ctl.Controller[*ipamv1alpha1.Network, *ipamv1alpha1.Network])
	comes := func(_, after client.Object) bool { return after != nil && after.GetDeletionTimestamp() == nil }
	deaf.Watches = []ctl.Watch{{Kind: &corev1.ConfigMap{}, Relevant: comes}}
	c := run(t, apitest.Start(t), manager.Options{}, func(rt http.RoundTripper) http.RoundTripper { return rt }, deaf)
	root := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "root"}}
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "b"}}
	hold := func(finalizers string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": `+finalizers+`}}`))
		if err := c.Patch(t.Context(), held, patch); err != nil {
			t.Fatal(err)
		}
	}
	made, told := func() string { return granted(t, c) }, func() string { return ready(t, c) }
	for _, finalizers := range []string{"null", `["liqo.io/test"]`} {
		wish(t, c, map[string]string{"wish": "a=1 b=2"})
		eventually(t, "a=1 b=2", made)
		eventually(t, "Ready", told)
		hold(finalizers)
		if err := c.Delete(t.Context(), root); err != nil {
			t.Fatal(err)
		}
		if finalizers != "null" {
			eventually(t, "b=2", made)
			if told() == "gone" {
				t.Error("the root is gone before an object that a finalizer holds")
			}
			hold("null")
			wish(t, c, nil) // an event
		}
		eventually(t, "gone", told)
		eventually(t, "", made)
	}
}

// gathering holds evictions up until a number of them has been sent.
type gathering struct {
	http.RoundTripper
	missing *sync.WaitGroup
}

func (g gathering) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/eviction") {
		g.missing.Done()
		g.missing.Wait()
	}
	return g.RoundTripper.RoundTrip(r)
}

// TestEvictionsAreConcurrent shows that the pods of a node do not wait for one another's evictions.
func TestEvictionsAreConcurrent(t *testing.T) {
	t.Parallel()
	const pods = 3
	var missing sync.WaitGroup
	missing.Add(pods)
	c := run(t, apitest.Start(t), manager.Options{}, func(rt http.RoundTripper) http.RoundTripper { return gathering{rt, &missing} },
		ctl.Controller[*ipamv1alpha1.Network, []corev1.Pod]{
			Name: "evicts", Quiet: true,
			Gather: func(ctx context.Context, r ctl.Reader, _ *ipamv1alpha1.Network) ([]corev1.Pod, error) {
				var list corev1.PodList
				err := r.Live.List(ctx, &list, client.InNamespace(namespace))
				return list.Items, err
			},
			Plan: func(pods []corev1.Pod) (plan desired.Plan) {
				for i := range pods {
					plan.Actions = append(plan.Actions, desired.Action{Verb: desired.Evict, Object: &pods[i]})
				}
				return plan
			},
		})
	for i := range pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("pod-", i)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}}}
		if err := c.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	wish(t, c, nil)
	eventually(t, "0", func() string {
		var list corev1.PodList
		if err := c.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(len(list.Items))
	})
}

// TestAConflictIsTriedAgain: what met a conflict is deleted all the same.
func TestAConflictIsTriedAgain(t *testing.T) {
	t.Parallel()
	var refused atomic.Bool
	first := func(req *http.Request) bool { return req.Method == http.MethodDelete && !refused.Swap(true) }
	c := run(t, apitest.Start(t), manager.Options{}, func(rt http.RoundTripper) http.RoundTripper {
		return refuser{rt, first, http.StatusConflict, metav1.StatusReasonConflict}
	}, wisher())
	made := func() string { return granted(t, c) }
	wish(t, c, map[string]string{"wish": "a=1 b=2"})
	eventually(t, "a=1 b=2", made)
	wish(t, c, map[string]string{"wish": "b=2"})
	eventually(t, "b=2", made)
	if !refused.Load() {
		t.Error("nothing was refused")
	}
}

// TestTimedRefusedRootsRecover: what is accepted again is applied when refused keys are tried, and not
// only when its own back-off ends.
func TestTimedRefusedRootsRecover(t *testing.T) {
	// After the first refusal, refused keys are tried within 2 s and 4, 12 and 22 s later. Back-off
	// alone tries about 3.5, 7, 14 and 28 s after the first refusal.
	const lasts, tried = 15 * time.Second, 25 * time.Second
	var first atomic.Pointer[time.Time]
	forbidden := func(req *http.Request) bool {
		if req.Method != http.MethodPatch || !strings.Contains(req.URL.Path, "/configmaps/") {
			return false
		}
		now := time.Now()
		first.CompareAndSwap(nil, &now)
		return now.Sub(*first.Load()) < lasts
	}
	c := run(t, apitest.Start(t), manager.Options{}, func(rt http.RoundTripper) http.RoundTripper {
		return refuser{rt, forbidden, http.StatusForbidden, metav1.StatusReasonForbidden}
	}, wisher())
	wish(t, c, map[string]string{"wish": "a=1"})
	eventually(t, "ApplyRefused", func() string { return ready(t, c) })
	eventually(t, "a=1", func() string { return granted(t, c) })
	if took := time.Since(*first.Load()); took < lasts || took > tried {
		t.Errorf("it is applied %v after it was refused first, want %v to %v", took, lasts, tried)
	}
}

// TestAttackEvent: the peer's condition or the error of its API server, which a controller repeats in
// its verdict, holds escape sequences, line breaks and more bytes than an event or a condition may have.
//
// Outcome: the event and the condition are written, with the text escaped and cut at 1 KiB.
func TestAttackEvent(t *testing.T) {
	t.Parallel()
	hostile := "milan says: \x1b[2J\u202e\nReady" + strings.Repeat("\u200b", 1<<19)
	c := run(t, apitest.Start(t), manager.Options{}, func(rt http.RoundTripper) http.RoundTripper { return rt },
		ctl.Controller[*ipamv1alpha1.Network, *ipamv1alpha1.Network]{
			Name: "wishes",
			Gather: func(_ context.Context, _ ctl.Reader, root *ipamv1alpha1.Network) (*ipamv1alpha1.Network, error) {
				return root, nil
			},
			Plan: func(*ipamv1alpha1.Network) desired.Plan {
				return desired.Block("Wrong", "%s; change the wish", hostile)
			},
		})
	wish(t, c, nil)
	want := api.Printable(hostile + "; change the wish")
	eventually(t, want, func() string {
		var list eventsv1.EventList
		if err := c.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			return fmt.Sprint("no event: ", err)
		}
		notes := []string{}
		for _, e := range list.Items {
			if e.Note == want && e.Regarding.Name == "root" {
				return want
			}
			notes = append(notes, fmt.Sprintf("%s of %s: %s", e.Reason, e.Regarding.Name, e.Note))
		}
		return "other events only: " + strings.Join(notes, "; ") // kube-apiserver records some of its Service
	})
	eventually(t, want, func() string {
		var root ipamv1alpha1.Network
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "root"}, &root); err != nil {
			t.Fatal(err)
		}
		for _, condition := range root.Status.Conditions {
			if condition.Type == desired.ConditionStalled {
				return condition.Message
			}
		}
		return "no condition"
	})
}
