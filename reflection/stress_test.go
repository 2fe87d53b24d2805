// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/seed"
	"github.com/liqo-go/liqo/reflection/translate"
)

var soak = flag.Bool("soak", false, "try 500 objects instead of a sample")

// faults are a bad connection to a bad API server: one request in ten fails, half of those after it
// was served, the others on the way or by an answer of the server, and watches break off.
type faults struct {
	mu   sync.Mutex
	dice *rand.Rand
	over bool
	next http.RoundTripper
}

// faulty makes a configuration with a bad connection; heal mends it.
func faulty(config *rest.Config, seed uint64) (*rest.Config, *faults) {
	f := &faults{dice: rand.New(rand.NewPCG(seed, 1))}
	return through(config, f, &f.next), f
}

func (f *faults) heal() {
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
}

// answers are what an API server says that has too much to do, has just begun, or met another
// writer.
var answers = []*apierrors.StatusError{
	nil, // it says nothing
	apierrors.NewInternalError(errors.New("injected")),
	apierrors.NewTooManyRequests("injected", 1),
	apierrors.NewServiceUnavailable("injected"),
	apierrors.NewTimeoutError("injected", 1),
	apierrors.NewConflict(schema.GroupResource{}, "injected", errors.New("of a writer that was faster")),
}

func (f *faults) throw() (fault int, answer *apierrors.StatusError, life time.Duration, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dice.IntN(20), answers[f.dice.IntN(len(answers))], time.Duration(1500+f.dice.IntN(6000)) * time.Millisecond, !f.over
}

func (f *faults) RoundTrip(req *http.Request) (*http.Response, error) {
	fault, answer, life, on := f.throw()
	switch {
	case !on || fault != 0:
	case answer == nil || req.Method == http.MethodGet && apierrors.IsConflict(answer):
		return nil, errors.New("injected: nothing was sent")
	default:
		return says(req, answer)
	}
	resp, err := f.next.RoundTrip(req)
	if err != nil || !on {
		return resp, err
	}
	if req.URL.Query().Get("watch") != "" {
		resp.Body = &brittle{ReadCloser: resp.Body, breaks: time.AfterFunc(life, func() { resp.Body.Close() })}
		return resp, nil
	}
	if fault == 1 {
		resp.Body.Close()
		return nil, errors.New("injected: the answer was lost")
	}
	return resp, nil
}

// says answers a request in place of the API server.
func says(req *http.Request, answer *apierrors.StatusError) (*http.Response, error) {
	status := answer.Status()
	status.APIVersion, status.Kind = "v1", "Status"
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if wait, ok := apierrors.SuggestsClientDelay(answer); ok {
		header.Set("Retry-After", fmt.Sprint(wait))
	}
	return &http.Response{
		StatusCode: int(status.Code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}

// brittle is a stream that ends by itself.
type brittle struct {
	io.ReadCloser
	breaks *time.Timer
}

func (b *brittle) Close() error {
	b.breaks.Stop()
	return b.ReadCloser.Close()
}

// thing is one kind of object users and providers change at random.
type thing struct {
	home, remote client.Object
	// vary gives an object at home, new or as it was, other content.
	vary func(home client.Object, dice *rand.Rand)
	// drift changes what belongs to us at the provider; nil = nobody may.
	drift func(remote client.Object, dice *rand.Rand)
	push  func(home, remote client.Object, v translate.View) client.Object
}

func words(dice *rand.Rand) map[string]string {
	out := map[string]string{}
	for range 1 + dice.IntN(3) {
		out[fmt.Sprintf("k%d", dice.IntN(5))] = fmt.Sprint(dice.IntN(100))
	}
	return out
}

// pushed adapts a translator, none being a nil of the interface.
func pushed[H, R client.Object](f func(H, R, translate.View) R) func(client.Object, client.Object, translate.View) client.Object {
	return func(home, remote client.Object, v translate.View) client.Object {
		var none R
		there, _ := remote.(R)
		out := f(home.(H), there, v)
		if client.Object(out) == client.Object(none) {
			return nil
		}
		return out
	}
}

func things() []thing {
	return []thing{{
		home: &corev1.ConfigMap{}, remote: &corev1.ConfigMap{}, push: pushed(translate.ConfigMap),
		vary:  func(o client.Object, dice *rand.Rand) { o.(*corev1.ConfigMap).Data = words(dice) },
		drift: func(o client.Object, dice *rand.Rand) { o.(*corev1.ConfigMap).Data = words(dice) },
	}, {
		home: &corev1.Secret{}, remote: &corev1.Secret{}, push: pushed(translate.Secret),
		vary:  func(o client.Object, dice *rand.Rand) { o.(*corev1.Secret).StringData = words(dice) },
		drift: func(o client.Object, dice *rand.Rand) { o.(*corev1.Secret).StringData = words(dice) },
	}, {
		home: &corev1.Service{}, remote: &corev1.Service{}, push: pushed(func(home, remote *corev1.Service, v translate.View) *corev1.Service {
			out, _ := translate.Service(home, remote, v) // none has an external name
			return out
		}),
		vary: func(o client.Object, dice *rand.Rand) {
			s := o.(*corev1.Service)
			s.Spec.Selector, s.Spec.Ports = words(dice), []corev1.ServicePort{{Port: 1 + dice.Int32N(100)}}
		},
		drift: func(o client.Object, dice *rand.Rand) { o.(*corev1.Service).Spec.Selector = words(dice) },
	}, {
		home: &networkingv1.Ingress{}, remote: &networkingv1.Ingress{}, push: pushed(func(home, remote *networkingv1.Ingress, v translate.View) *networkingv1.Ingress {
			out, _ := translate.Ingress(home, remote, v) // none names a host of home's DNS
			return out
		}),
		vary:  func(o client.Object, dice *rand.Rand) { o.(*networkingv1.Ingress).Spec.Rules = hosts(dice) },
		drift: func(o client.Object, dice *rand.Rand) { o.(*networkingv1.Ingress).Spec.Rules = hosts(dice) },
	}, {
		home: &discoveryv1.EndpointSlice{}, remote: &offv1beta1.ShadowEndpointSlice{},
		push: pushed(func(home *discoveryv1.EndpointSlice, remote *offv1beta1.ShadowEndpointSlice, v translate.View) *offv1beta1.ShadowEndpointSlice {
			v.Service = &corev1.Service{}
			out, _ := translate.EndpointSlice(home, remote, v)
			return out
		}),
		vary: func(o client.Object, dice *rand.Rand) {
			s := o.(*discoveryv1.EndpointSlice)
			s.AddressType, s.Endpoints = discoveryv1.AddressTypeIPv4, []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.10.0.%d", 1+dice.IntN(200))}}}
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, api.AnnotationAllowReflection, "true") // they have no Service
		},
		drift: func(o client.Object, _ *rand.Rand) { o.(*offv1beta1.ShadowEndpointSlice).Spec.Template.Endpoints = nil },
	}, {
		home: &corev1.Pod{}, remote: &offv1beta1.ShadowPod{}, push: pushed(translate.Pod),
		vary: func(o client.Object, dice *rand.Rand) {
			if p := o.(*corev1.Pod); p.Spec.NodeName == "" {
				p.Spec = pod("").Spec
			}
			o.SetLabels(words(dice))
		},
	}}
}

func hosts(dice *rand.Rand) []networkingv1.IngressRule {
	return []networkingv1.IngressRule{{Host: fmt.Sprintf("h%d.example.com", dice.IntN(50))}}
}

// chaos changes objects on both sides at random while the connections are bad and the reflection
// is restarted.
type chaos struct {
	*world
	dice   *rand.Rand
	things []thing
	view   translate.View
}

// TestBothSidesAreEqualAfterChaos: however bad the connections were, in the end both sides are
// equal, and when home is empty nothing is left at the provider.
func TestBothSidesAreEqualAfterChaos(t *testing.T) {
	t.Parallel()
	objects, rounds := 60, 1
	if *soak {
		objects, rounds = 500, 4
	}
	w, from := newWorld(t), seed.Of(t)
	for round := range uint64(rounds) {
		t.Run(fmt.Sprintf("round %d", round), func(t *testing.T) {
			here := *w
			here.T = t
			c := &chaos{world: &here, dice: rand.New(rand.NewPCG(from, round)), things: things(), view: translate.View{
				Consumer: consumer, Provider: provider, Node: node, Namespaces: map[string]string{homeNS: remoteNS},
				ProviderNodes: map[string]bool{node: true}, HomePods: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/16")},
			}}
			c.run(objects)
		})
	}
}

func (c *chaos) run(objects int) {
	ctx, cancel := context.WithCancel(c.Context())
	provided := make(chan struct{})
	go func() {
		c.provide(ctx)
		close(provided)
	}()
	defer func() {
		cancel()
		<-provided
	}()
	var atHome, atRemote *faults
	c.options.Home, atHome = faulty(c.options.Home, c.dice.Uint64())
	c.options.Remote, atRemote = faulty(c.options.Remote, c.dice.Uint64())
	stop := c.reflect()
	steps := 4 * objects
	for i := range steps {
		c.step(objects)
		if i%(steps/4) == steps/8 {
			stop()
			stop = c.reflect()
		}
	}
	atHome.heal()
	atRemote.heal()
	defer func() { stop() }()
	c.settle("equality of both sides", c.compare)
	for _, each := range c.things {
		opts := []client.DeleteAllOfOption{client.InNamespace(homeNS)}
		c.must("delete all at home", c.home.DeleteAllOf(c.Context(), each.home, opts...))
	}
	c.settle("the end of all objects", c.compare)
}

// step does one thing to one object on one side.
func (c *chaos) step(objects int) {
	index := c.dice.IntN(objects)
	each := c.things[index%len(c.things)]
	home, remote := empty(each.home, homeNS, index), empty(each.remote, remoteNS, index)
	there := c.home.Get(c.Context(), client.ObjectKeyFromObject(home), home) == nil
	switch roll := c.dice.IntN(10); {
	case !there:
		each.vary(home, c.dice)
		c.may(c.home.Create(c.Context(), home))
	case roll < 5:
		c.change(c.home, home, func() {
			home.SetAnnotations(nil)
			each.vary(home, c.dice)
		})
	case roll < 6 && each.drift != nil:
		c.change(c.home, home, func() { home.SetAnnotations(map[string]string{api.AnnotationSkipReflection: ""}) })
	case roll < 8:
		c.may(c.home.Delete(c.Context(), home))
	case c.remote.Get(c.Context(), client.ObjectKeyFromObject(remote), remote) != nil:
	case roll < 9 && each.drift != nil:
		c.change(c.remote, remote, func() { each.drift(remote, c.dice) })
	default:
		c.may(c.remote.Delete(c.Context(), remote))
	}
}

func empty(prototype client.Object, namespace string, index int) client.Object {
	out := prototype.DeepCopyObject().(client.Object)
	out.SetNamespace(namespace)
	out.SetName(fmt.Sprintf("o%d", index))
	return out
}

// may takes an error that another writer is the cause of.
func (c *chaos) may(err error) {
	c.Helper()
	if err != nil && client.IgnoreAlreadyExists(client.IgnoreNotFound(err)) != nil {
		c.Fatal(err)
	}
}

func (c *chaos) change(side client.Client, obj client.Object, how func()) {
	c.Helper()
	before := obj.DeepCopyObject().(client.Object)
	how()
	c.may(side.Patch(c.Context(), obj, client.MergeFrom(before)))
}

// provide plays the provider's controller and kubelet.
func (c *chaos) provide(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var shadows offv1beta1.ShadowPodList
		var pods corev1.PodList
		if c.remote.List(ctx, &shadows, client.InNamespace(remoteNS)) != nil || c.remote.List(ctx, &pods, client.InNamespace(remoteNS)) != nil {
			return false, nil
		}
		missing := map[string]*offv1beta1.ShadowPod{}
		for i := range shadows.Items {
			missing[shadows.Items[i].Name] = &shadows.Items[i]
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			if shadow := missing[p.Name]; shadow != nil && metav1.IsControlledBy(p, shadow) {
				delete(missing, p.Name)
				if p.Status.Phase != corev1.PodRunning {
					p.Status.Phase, p.Status.StartTime = corev1.PodRunning, new(metav1.Now())
					_ = c.remote.Status().Update(ctx, p) // next time
				}
			} else {
				_ = c.remote.Delete(ctx, p, client.GracePeriodSeconds(0)) // next time
				delete(missing, p.Name)
			}
		}
		for name, shadow := range missing {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: remoteNS, Labels: shadow.Labels}, Spec: shadow.Spec.Pod}
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(shadow, offv1beta1.GroupVersion.WithKind("ShadowPod"))}
			_ = c.remote.Create(ctx, p) // next time
		}
		return false, nil
	})
}

// settle waits: the last watch that broke may be tried again only after half a minute.
func (c *chaos) settle(what string, check func(context.Context) error) {
	c.Helper()
	var last error
	began := time.Now()
	if wait.PollUntilContextTimeout(c.Context(), 200*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil { // else err reports the limit
			last = err
		}
		return err == nil, nil
	}) != nil {
		c.Fatal(patience.GaveUp(what, last))
	}
	c.Logf("%s after %s", what, time.Since(began).Round(time.Millisecond))
}

// compare has the translators say whether the two sides are equal, and looks for leftovers.
func (c *chaos) compare(ctx context.Context) error {
	pods := map[string]bool{}
	for _, each := range c.things {
		home, err := c.list(ctx, c.home, each.home, homeNS)
		if err != nil {
			return err
		}
		remote, err := c.list(ctx, c.remote, each.remote, remoteNS, client.MatchingLabels{api.LabelOrigin: consumer})
		if err != nil {
			return err
		}
		for name, obj := range home {
			want := each.push(obj, remote[name], c.view)
			if diff := difference(want, remote[name]); diff != "" {
				return fmt.Errorf("%T %s: %s", obj, name, diff)
			}
			delete(remote, name)
			if p, ok := obj.(*corev1.Pod); ok && p.Status.Phase != corev1.PodRunning {
				return fmt.Errorf("pod %s is %s", name, p.Status.Phase)
			} else if ok {
				pods[api.ServiceAccountTokenSecretName(name)] = true
			}
		}
		for name, obj := range remote {
			if _, tokens := obj.GetLabels()[api.LabelServiceAccountName]; !tokens {
				return fmt.Errorf("%T %s is left", obj, name)
			}
		}
	}
	return c.compareTokens(ctx, pods)
}

func (c *chaos) compareTokens(ctx context.Context, wanted map[string]bool) error {
	tokens, err := c.list(ctx, c.remote, &corev1.Secret{}, remoteNS, client.HasLabels{api.LabelServiceAccountName})
	if err != nil {
		return err
	}
	got := map[string]bool{}
	for name := range tokens {
		got[name] = true
	}
	return equal(wanted, got)
}

func difference(want, got client.Object) string {
	switch {
	case want == nil && got == nil:
		return ""
	case want == nil:
		return "is there and should not be"
	case got == nil:
		return "is missing"
	case equality.Semantic.DeepEqual(want, got):
		return ""
	}
	return cmp.Diff(want, got)
}

func (c *chaos) list(ctx context.Context, side client.Client, prototype client.Object, namespace string, options ...client.ListOption) (map[string]client.Object, error) {
	gvk, err := side.GroupVersionKindFor(prototype)
	if err != nil {
		return nil, err
	}
	gvk.Kind += "List"
	list, err := side.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	if err := side.List(ctx, list.(client.ObjectList), append(options, client.InNamespace(namespace))...); err != nil {
		return nil, err
	}
	out := map[string]client.Object{}
	return out, meta.EachListItem(list, func(item runtime.Object) error {
		obj := item.(client.Object)
		if strings.HasPrefix(obj.GetName(), "o") {
			out[obj.GetName()] = obj
		}
		return nil
	})
}
