// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/reflection"
	"github.com/liqo-go/liqo/reflection/translate"
)

const (
	consumer, provider, node = "rome", "milan", "milan-node"
	tenant                   = "liqo-tenant-milan"
	homeNS, remoteNS         = "shop", "shop-rome"
)

// world is two API servers with one offloaded namespace. Nothing but the reflection and the
// test acts in them: the test plays the provider's controller and kubelet.
type world struct {
	*testing.T
	home, remote client.Client
	options      reflection.Options
}

func newWorld(t *testing.T) *world { return newWorldOf(t, apitest.Start(t), apitest.Start(t)) }

func newWorldOf(t *testing.T, rome, milan *apitest.Server) *world {
	w := &world{T: t}
	w.home, w.remote = clientOf(t, rome), clientOf(t, milan)
	w.options = reflection.Options{
		Home: rome.ConfigFor("virtual-kubelet"), Remote: milan.ConfigFor("milan-0123456789ab", consumer),
		Consumer: consumer, Provider: provider, Node: node,
		TenantNamespace: tenant, LiqoNamespace: "liqo",
		PodIP:         netip.MustParseAddr("10.10.0.9"),
		LocalPodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/16")},
		Metrics:       prometheus.NewRegistry(),
	}
	for _, name := range []string{tenant, "liqo", homeNS} {
		w.create(w.home, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	w.create(w.home, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: homeNS}})
	virtual := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelOSStable: string(corev1.Linux)}}}
	w.create(w.home, virtual) // Kubernetes asks it how large a pod may become
	virtual.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100"), corev1.ResourceMemory: resource.MustParse("100Gi")}
	w.must("size the node", w.home.Status().Update(t.Context(), virtual))
	w.create(w.remote, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNS}})
	w.grantAtHome("virtual-kubelet")
	w.grantAtProvider()
	w.create(w.home, &offv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: tenant}, Spec: offv1beta1.VirtualNodeSpec{ClusterID: provider}})
	w.mapNamespace(remoteNS)
	w.configure()
	return w
}

// configure plays the network: the pods of the provider are seen under another CIDR.
func (w *world) configure() {
	w.Helper()
	conf := &netv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Name: provider, Namespace: tenant, Labels: map[string]string{api.LabelRemoteClusterID: provider}}}
	conf.Spec.Remote = &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{"10.20.0.0/16"}}}
	w.create(w.home, conf)
	conf.Status.Remote = &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{"10.71.0.0/16"}}}
	w.must("status of configuration", w.home.Status().Update(w.Context(), conf))
}

// grantAtHome gives a user the generated role of virtual kubelets.
func (w *world) grantAtHome(user string) {
	w.Helper()
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	for file, name := range map[string]string{"kubelet": "liqo-virtual-kubelet-local", "kubelet-namespaced": "liqo-virtual-kubelet-offloaded"} {
		text, err := os.ReadFile("../deploy/liqo/files/rbac/" + file + ".yaml")
		w.must("read the role of virtual kubelets", err)
		role := &rbacv1.ClusterRole{}
		w.must("decode the role of virtual kubelets", yaml.Unmarshal(text, role))
		role.TypeMeta, role.ObjectMeta = metav1.TypeMeta{}, metav1.ObjectMeta{Name: name}
		w.create(w.home, role)
		meta, ref := metav1.ObjectMeta{Name: "liqo-node-" + node}, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}
		if file == "kubelet" {
			w.create(w.home, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
			continue
		}
		meta.Namespace = homeNS
		w.create(w.home, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects})
	}
}

// grantAtProvider gives the consumer what every provider grants in an offloaded namespace, and
// nothing more: peers may run another implementation.
func (w *world) grantAtProvider() {
	w.Helper()
	write := []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	read := []string{"get", "list", "watch"}
	w.create(w.remote, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "liqo-virtual-kubelet-remote", Namespace: remoteNS}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps", "events", "persistentvolumeclaims", "secrets", "services"}, Verbs: write},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses"}, Verbs: write},
		{APIGroups: []string{"offloading.liqo.io"}, Resources: []string{"shadowpods", "shadowendpointslices"}, Verbs: write},
	}})
	w.create(w.remote, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-rome", Namespace: remoteNS},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "liqo-virtual-kubelet-remote"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: consumer}},
	})
}

// granted waits until the provider's API server knows of a change of the consumer's rights: that is
// a moment later.
func (w *world) granted(want bool, right authorizationv1.ResourceAttributes) {
	w.Helper()
	right.Namespace = remoteNS
	w.eventually(fmt.Sprintf("the right to %s %s becomes %t", right.Verb, right.Resource, want), func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: w.options.Remote.Impersonate.UserName, Groups: []string{consumer}, ResourceAttributes: &right,
		}}
		err := w.remote.Create(ctx, review)
		return errors.Join(err, equal(want, review.Status.Allowed))
	})
}

func clientOf(t *testing.T, s *apitest.Server) client.Client {
	c, err := client.New(s.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mapNamespace offloads the namespace, or takes it back.
func (w *world) mapNamespace(remote string) {
	w.Helper()
	m := &offv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Name: provider, Namespace: tenant}}
	if err := w.home.Create(w.Context(), m); err != nil && !apierrors.IsAlreadyExists(err) {
		w.Fatal(err)
	}
	w.must("read namespace map", w.home.Get(w.Context(), client.ObjectKeyFromObject(m), m))
	m.Spec.DesiredMapping = map[string]string{}
	current := map[string]offv1beta1.RemoteNamespaceStatus{}
	if remote != "" {
		m.Spec.DesiredMapping[homeNS] = remoteNS
		current[homeNS] = offv1beta1.RemoteNamespaceStatus{RemoteNamespace: remote, Phase: offv1beta1.NamespaceAccepted}
	}
	w.must("write namespace map", w.home.Update(w.Context(), m))
	m.Status.CurrentMapping = current
	w.must("write status of namespace map", w.home.Status().Update(w.Context(), m))
}

// reflect runs the reflection until the returned function is called, or the test ends.
func (w *world) reflect() (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- reflection.Run(ctx, w.options) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("run: %v", err)
		}
	})
	w.Cleanup(stop)
	return stop
}

func (w *world) must(what string, err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

func (w *world) create(c client.Client, obj client.Object) {
	w.Helper()
	w.must(fmt.Sprintf("create %T %s", obj, obj.GetName()), c.Create(w.Context(), obj))
}

// eventually waits until check gives nil.
func (w *world) eventually(what string, check func(ctx context.Context) error) {
	w.Helper()
	var last error
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil { // else err reports the limit
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		w.Fatal(patience.GaveUp(what, last))
	}
}

// exists waits for an object and, if given, until it is as wanted.
func (w *world) exists(c client.Client, obj client.Object, namespace, name string, as ...func() error) {
	w.Helper()
	w.eventually(fmt.Sprintf("%T %s/%s", obj, namespace, name), func(ctx context.Context) error {
		if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, obj); err != nil {
			return err
		}
		for _, check := range as {
			if err := check(); err != nil {
				return err
			}
		}
		return nil
	})
}

// gone waits until an object does not exist.
func (w *world) gone(c client.Client, obj client.Object, namespace, name string) {
	w.Helper()
	w.eventually(fmt.Sprintf("the end of %T %s/%s", obj, namespace, name), func(ctx context.Context) error {
		err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, obj)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there (%v)", err)
	})
}

// event waits for an event on a home object.
func (w *world) event(name, reason, text string) {
	w.Helper()
	w.eventually("event "+reason+" on "+name, func(ctx context.Context) error {
		var events corev1.EventList
		if err := w.home.List(ctx, &events, client.InNamespace(homeNS)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.InvolvedObject.Name == name && e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
		}
		return errors.New("no such event")
	})
}

func equal(want, got any) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return errors.New(diff)
	}
	return nil
}

func TestReflection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, story := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"config follows home", configFollowsHome},
		{"a Service is made anew while nobody looks", aServiceIsMadeAnewWhileNobodyLooks},
		{"endpoints elsewhere are reflected", endpointsElsewhereAreReflected},
		{"a custom resource is reflected", aCustomResourceIsReflected},
		{"lists decide for every kind", listsDecideForEveryKind},
		{"a volume is at the provider", aVolumeIsAtTheProvider},
		{"a volume at the provider grows", aVolumeAtTheProviderGrows},
		{"an API server that starts refuses, and keeps nothing", aStartingAPIServerRefusesAndKeepsNothing},
		{"a pod says that it uses objects of the provider", aPodSaysThatItUsesObjectsOfTheProvider},
		{"fields that are newer than our types are named", fieldsThatAreNewerThanOurTypesAreNamed},
		{"fields that a provider does not know are named", fieldsThatAProviderDoesNotKnowAreNamed},
		{"tokens are fresh", tokensAreFresh},
		{"no token lives longer than an hour by default", noTokenLivesLonger},
		{"names are kept apart", namesAreKeptApart},
		{"trust is that of home", trustIsThatOfHome},
		{"certificates are of home's signers", certificatesAreOfHomesSigners},
		{"a burst of pods costs few requests", aBurstOfPodsCostsFewRequests},
		{"a pod runs while others are created", aPodRunsWhileOthersAreCreated},
		{"pod runs at the provider", podRunsAtTheProvider},
		{"host ports belong to one pod", hostPortsBelongToOnePod},
		{"a pod that runs keeps all of its spec", aPodThatRunsKeepsItsSpec},
		{"a pod finds each endpoint of the API server", aPodFindsEachEndpoint},
		{"a pod ends in the time home gives it", aPodEndsInTheTimeHomeGivesIt},
		{"pods of a namespace that ends are followed", podsOfANamespaceThatEndsAreFollowed},
		{"a pod that others hold says how it ended", aPodThatOthersHoldSaysHowItEnded},
		{"a pod that is refused says why", aPodThatIsRefusedSaysWhy},
		{"a pod is not refused by its own cluster", aPodIsNotRefusedByItsOwnCluster},
		{"a resize that is refused says why", aResizeThatIsRefusedSaysWhy},
		{"a pod is followed though nothing can be written there", aPodIsFollowedThoughNothingCanBeWritten},
		{"a refused change of a spec holds no labels back", aRefusedSpecHoldsNoLabelsBack},
		{"addresses wait for their mapping", addressesWaitForTheirMapping},
		{"one of two virtual nodes reflects what both share", oneOfTwoNodesReflects},
		{"pods at each of two providers say whose objects they use", podsAtTwoProvidersSayWhoseObjectsTheyUse},
		{"a provider that says much is heard a little at a time", aLoudProviderIsHeardALittleAtATime},
		{"a pod of which much is said is written a little at a time", aLoudPodIsWrittenALittleAtATime},
	} {
		t.Run(story.name, func(t *testing.T) {
			here := *w
			here.T = t
			story.run(t, &here)
		})
	}
}

// aPodIsFollowedThoughNothingCanBeWritten: a webhook of the provider is away, so that a change at
// home does not reach it. What its kubelet says comes home.
func aPodIsFollowedThoughNothingCanBeWritten(t *testing.T, w *world) {
	defer w.reflect()()
	w.create(w.home, pod("deaf"))
	remote := w.runAt("deaf", "10.20.1.40")
	var home corev1.Pod
	w.exists(w.home, &home, homeNS, "deaf", func() error { return equal("10.71.1.40", home.Status.PodIP) })
	away := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "away.example.com"}}
	away.Webhooks = []admissionregistrationv1.ValidatingWebhook{{
		Name:         "away.example.com",
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{offv1beta1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"shadowpods"}},
		}},
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}}
	w.create(w.remote, away)
	defer func() { w.must("delete webhook", w.remote.Delete(w.Context(), away)) }()
	w.eventually("the webhook is asked", func(ctx context.Context) error {
		if w.remote.Update(ctx, w.shadow("deaf"), client.DryRunAll) == nil {
			return errors.New("not asked")
		}
		return nil
	})
	home.Labels["late"] = "yes"
	w.must("change", w.home.Update(t.Context(), &home))
	w.event("deaf", "FailedReflection", "away.example.com")
	remote.Status.PodIP, remote.Status.PodIPs = "10.20.1.41", []corev1.PodIP{{IP: "10.20.1.41"}}
	w.must("move", w.remote.Status().Update(t.Context(), remote))
	w.exists(w.home, &home, homeNS, "deaf", func() error { return equal("10.71.1.41", home.Status.PodIP) })
}

func configFollowsHome(t *testing.T, w *world) {
	stop := w.reflect()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "menu", Namespace: homeNS, Labels: map[string]string{"app": "shop", "old": "yes"}}, Data: map[string]string{"a": "1", "b": "2"}}
	w.create(w.home, cm)
	var remote corev1.ConfigMap
	is := func(data map[string]string, label string) func() error {
		return func() error {
			if _, ok := remote.Labels[label]; ok {
				return fmt.Errorf("label %s is still there", label)
			}
			return equal(data, remote.Data)
		}
	}
	w.exists(w.remote, &remote, remoteNS, "menu", is(cm.Data, "none"))
	if err := equal(map[string]string{"app": "shop", "old": "yes", api.LabelOrigin: consumer, api.LabelDestination: provider, api.LabelNodeName: node}, remote.Labels); err != nil {
		t.Error(err)
	}

	// A change at home, with keys that go.
	delete(cm.Labels, "old")
	cm.Data = map[string]string{"a": "3"}
	w.must("update", w.home.Update(t.Context(), cm))
	w.exists(w.remote, &remote, remoteNS, "menu", is(cm.Data, "old"))

	// Drift at the provider is taken back; what the provider adds to the metadata stays.
	remote.Data = map[string]string{"a": "3", "mine": "x"}
	remote.Annotations = map[string]string{"provider": "note"}
	w.must("drift", w.remote.Update(t.Context(), &remote))
	w.exists(w.remote, &remote, remoteNS, "menu", is(cm.Data, "old"))
	if err := equal(map[string]string{"provider": "note"}, remote.Annotations); err != nil {
		t.Error(err)
	}

	// An object deleted at the provider is created again.
	first := remote.UID
	w.must("delete remote", w.remote.Delete(t.Context(), &remote))
	w.exists(w.remote, &remote, remoteNS, "menu", func() error {
		if remote.UID == first {
			return errors.New("the same object")
		}
		return nil
	})

	// A foreign object of the same name is not touched.
	w.create(w.remote, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: remoteNS}, Data: map[string]string{"x": "y"}})
	w.create(w.home, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: homeNS}, Data: map[string]string{"a": "1"}})
	w.event("theirs", "FailedReflection", `Error reflecting object to cluster "milan": remote object already exists`)
	var theirs corev1.ConfigMap
	w.exists(w.remote, &theirs, remoteNS, "theirs", func() error { return equal(map[string]string{"x": "y"}, theirs.Data) })

	// Marked against: deleted at the provider.
	w.must("read", w.home.Get(t.Context(), client.ObjectKeyFromObject(cm), cm))
	cm.Annotations = map[string]string{api.AnnotationSkipReflection: ""}
	w.must("skip", w.home.Update(t.Context(), cm))
	w.gone(w.remote, &remote, remoteNS, "menu")
	w.event("menu", "ReflectionDisabled", "")
	cm.Annotations = nil
	w.must("unskip", w.home.Update(t.Context(), cm))
	w.exists(w.remote, &remote, remoteNS, "menu")

	w.must("delete", w.home.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: homeNS}}))

	// What happens at home while nobody looks is caught up with.
	stop()
	w.must("delete", w.home.Delete(t.Context(), cm))
	w.create(w.home, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key", Namespace: homeNS}, Data: map[string][]byte{"k": []byte("v")}})
	defer w.reflect()()
	w.gone(w.remote, &remote, remoteNS, "menu")
	w.exists(w.remote, &corev1.Secret{}, remoteNS, "key")
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: homeNS, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName:           node,
			ServiceAccountName: "default",
			Containers:         []corev1.Container{{Name: "c", Image: "web:1"}},
			Volumes: []corev1.Volume{{Name: "api", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
			}}}},
		},
	}
}

// runAt plays the provider: it makes the pod of a ShadowPod and reports it running.
func (w *world) runAt(name, ip string, with ...func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	var shadow offv1beta1.ShadowPod
	w.exists(w.remote, &shadow, remoteNS, name)
	remote := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: remoteNS, Labels: shadow.Labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: offv1beta1.GroupVersion.String(), Kind: "ShadowPod", Name: name, UID: shadow.UID, Controller: new(true)}},
		},
		Spec: shadow.Spec.Pod,
	}
	for _, change := range with {
		change(remote)
	}
	w.create(w.remote, remote)
	now := metav1.Now()
	remote.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &now, HostIP: "172.16.0.1", PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true, RestartCount: 1, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}},
	}
	w.must("status of remote pod", w.remote.Status().Update(w.Context(), remote))
	return remote
}

func podRunsAtTheProvider(t *testing.T, w *world) {
	stop := w.reflect()
	w.create(w.home, pod("web"))

	// Its tokens lie in a Secret there.
	var tokens corev1.Secret
	w.exists(w.remote, &tokens, remoteNS, api.ServiceAccountTokenSecretName("web"))
	if string(tokens.Data["namespace"]) != homeNS || len(tokens.Data) != 2 || tokens.Labels[api.LabelServiceAccountName] != "default" {
		t.Errorf("tokens: %v", tokens.Labels)
	}

	// Its status comes back, addresses translated.
	remote := w.runAt("web", "10.20.1.7")
	var home corev1.Pod
	w.exists(w.home, &home, homeNS, "web", func() error { return equal(corev1.PodRunning, home.Status.Phase) }, func() error {
		got := []string{home.Status.PodIP, home.Status.HostIP, home.Labels[api.LabelShadowPod], fmt.Sprint(home.Status.ContainerStatuses[0].RestartCount)}
		return equal([]string{"10.71.1.7", "10.10.0.9", "true", "1"}, got)
	})

	// What the provider says about it is shown, but for what the status tells.
	for _, reason := range []string{"Pulled", "Backoffish"} {
		w.create(w.remote, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "web." + strings.ToLower(reason), Namespace: remoteNS},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: remoteNS, Name: "web", UID: remote.UID},
			Type:           corev1.EventTypeNormal, Reason: reason, Message: "said " + reason,
		})
	}
	w.event("web", "Backoffish", "said Backoffish (remote)")
	w.create(w.remote, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "web.refused", Namespace: remoteNS},
		InvolvedObject: corev1.ObjectReference{Kind: "ShadowPod", Namespace: remoteNS, Name: "web", UID: w.shadow("web").UID},
		Type:           corev1.EventTypeWarning, Reason: "ApplyRefused", Message: "not here",
	})
	w.event("web", "ApplyRefused", "not here (remote)")
	if err := w.home.Get(t.Context(), types.NamespacedName{Namespace: homeNS, Name: "web.pulled"}, &corev1.Event{}); !apierrors.IsNotFound(err) {
		t.Errorf("a routine event is shown (%v)", err)
	}

	// What is deleted there goes, also while nobody looks. What another virtual node shows is that
	// one's to delete.
	forget := func(name string) {
		t.Helper()
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: remoteNS}}
		w.must("delete "+name, w.remote.Delete(t.Context(), event))
	}
	others := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "web.others", Namespace: homeNS, Labels: map[string]string{
			api.LabelOrigin: provider, api.LabelDestination: consumer, api.LabelNodeName: "milan-2",
		}},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: homeNS, Name: "web", UID: home.UID},
	}
	w.create(w.home, others)
	forget("web.refused")
	w.gone(w.home, &corev1.Event{}, homeNS, "web.refused")
	stop()
	forget("web.backoffish")
	stop = w.reflect()
	w.gone(w.home, &corev1.Event{}, homeNS, "web.backoffish")
	w.must("what another virtual node shows stays", w.home.Get(t.Context(), client.ObjectKeyFromObject(others), others))

	// A restart of the reflection writes nothing.
	stop()
	w.must("read", w.home.Get(t.Context(), client.ObjectKeyFromObject(&home), &home))
	version, shadowVersion := home.ResourceVersion, w.shadow("web").ResourceVersion
	stop = w.reflect()
	w.create(w.home, pod("other"))
	w.runAt("other", "10.20.1.8")
	w.exists(w.home, &corev1.Pod{}, homeNS, "other", func() error { return nil })
	w.must("read", w.home.Get(t.Context(), client.ObjectKeyFromObject(&home), &home))
	if err := equal([]string{version, shadowVersion}, []string{home.ResourceVersion, w.shadow("web").ResourceVersion}); err != nil {
		t.Errorf("written though nothing changed: %v", err)
	}

	// Deleted at home: gone when it has ended there, not before.
	w.must("delete", w.home.Delete(t.Context(), &home))
	w.gone(w.remote, &offv1beta1.ShadowPod{}, remoteNS, "web")
	w.must("still there", w.home.Get(t.Context(), client.ObjectKeyFromObject(&home), &home))
	w.must("end at the provider", w.remote.Delete(t.Context(), remote, client.GracePeriodSeconds(0)))
	w.gone(w.home, &home, homeNS, "web")
	w.gone(w.remote, &tokens, remoteNS, api.ServiceAccountTokenSecretName("web"))

	// A pod that finishes needs its tokens no more. Nothing was switched off for that.
	w.create(w.home, pod("job"))
	w.exists(w.remote, &tokens, remoteNS, api.ServiceAccountTokenSecretName("job"))
	job := w.runAt("job", "10.20.1.10")
	job.Status.Phase = corev1.PodSucceeded
	w.must("finish", w.remote.Status().Update(t.Context(), job))
	w.exists(w.home, &home, homeNS, "job", func() error { return equal(corev1.PodSucceeded, home.Status.Phase) })
	w.gone(w.remote, &tokens, remoteNS, api.ServiceAccountTokenSecretName("job"))

	// Somebody deletes the map. It comes back, and the provider has to answer it again: what runs
	// is followed meanwhile, and nothing is concluded by a virtual kubelet that begins then: a pod
	// that is deleted ends when it has ended there, but for one that never started.
	moves := func(ip, seen string) {
		t.Helper()
		there := &corev1.Pod{}
		w.must("read", w.remote.Get(t.Context(), types.NamespacedName{Namespace: remoteNS, Name: "other"}, there))
		there.Status.PodIP, there.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
		w.must("move", w.remote.Status().Update(t.Context(), there))
		w.exists(w.home, &home, homeNS, "other", func() error {
			return equal([]string{"Running", seen}, []string{string(home.Status.Phase), home.Status.PodIP})
		})
	}
	moves("10.20.1.20", "10.71.1.20")
	w.create(w.home, pod("leaving"))
	leaving := w.runAt("leaving", "10.20.1.24")
	w.exists(w.home, &home, homeNS, "leaving", func() error { return equal("10.71.1.24", home.Status.PodIP) })
	lost := &offv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Name: provider, Namespace: tenant}}
	w.must("delete the map", w.home.Delete(t.Context(), lost))
	moves("10.20.1.21", "10.71.1.21")
	lost.ResourceVersion, lost.UID = "", ""
	lost.Spec.DesiredMapping = map[string]string{homeNS: remoteNS}
	w.create(w.home, lost)
	moves("10.20.1.22", "10.71.1.22")
	stop()
	stop = w.reflect()
	w.create(w.home, pod("early"))
	w.exists(w.home, &home, homeNS, "early", func() error {
		return equal([]string{"Pending", "OffloadingBackOff"}, []string{string(home.Status.Phase), home.Status.Reason})
	})
	w.must("delete", w.home.Delete(t.Context(), pod("leaving")))
	w.create(w.home, pod("brief"))
	w.must("delete", w.home.Delete(t.Context(), pod("brief")))
	w.gone(w.home, &home, homeNS, "brief")
	w.must("still there", w.home.Get(t.Context(), client.ObjectKeyFromObject(pod("leaving")), &home))
	w.mapNamespace(remoteNS)
	w.exists(w.remote, &offv1beta1.ShadowPod{}, remoteNS, "early")
	w.gone(w.remote, &offv1beta1.ShadowPod{}, remoteNS, "leaving")
	w.must("end at the provider", w.remote.Delete(t.Context(), leaving, client.GracePeriodSeconds(0)))
	w.gone(w.home, &home, homeNS, "leaving")
	moves("10.20.1.23", "10.71.1.23")

	// The namespace is taken away: what runs is aborted, what comes waits.
	w.exists(w.home, &home, homeNS, "other", func() error { return equal(corev1.PodRunning, home.Status.Phase) })
	w.mapNamespace("")
	w.exists(w.home, &home, homeNS, "other", func() error {
		return equal([]string{"Failed", "OffloadingAborted"}, []string{string(home.Status.Phase), home.Status.Reason})
	})
	w.create(w.home, pod("late"))
	w.exists(w.home, &home, homeNS, "late", func() error {
		return equal([]string{"Pending", "OffloadingBackOff"}, []string{string(home.Status.Phase), home.Status.Reason})
	})
	w.mapNamespace(remoteNS)
	w.runAt("late", "10.20.1.9")
	w.exists(w.home, &home, homeNS, "late", func() error {
		return equal([]string{"Running", ""}, []string{string(home.Status.Phase), home.Status.Reason})
	})
	stop()
	var events corev1.EventList
	w.must("list events", w.home.List(t.Context(), &events, client.InNamespace(homeNS)))
	for _, e := range events.Items {
		if e.InvolvedObject.Name == "job" && e.Reason == "ReflectionDisabled" {
			t.Errorf("of the finished pod is said: %s", e.Message)
		}
	}
}

// aPodThatRunsKeepsItsSpec, of which the caches hold a part: whatever changes at home or is removed
// at the provider, on both sides everything else stays as it was.
func aPodThatRunsKeepsItsSpec(t *testing.T, w *world) {
	defer w.reflect()()
	rich := pod("rich")
	rich.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "note": "n"}
	rich.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rich", UID: "r"}}
	rich.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "init:1"}}
	c := &rich.Spec.Containers[0]
	c.Command, c.Env = []string{"run"}, []corev1.EnvVar{{Name: "A", Value: "a"}}
	where := corev1.LocalObjectReference{Name: "where"}
	c.EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: where}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: where}, Prefix: "KUBERNETES_"},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "not-yet"}}},
	}
	meta := metav1.ObjectMeta{Name: where.Name, Namespace: homeNS}
	w.create(w.home, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"KUBERNETES_SERVICE_HOST": "192.0.2.1"}})
	w.create(w.home, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"SERVICE_PORT": "8443"}})
	c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	rich.Spec.Tolerations = []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}
	rich.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"app"},
	}}
	w.create(w.home, rich)
	remote := w.runAt("rich", "10.20.1.13")
	spec := w.shadow("rich").Spec.Pod
	if !slices.Contains(spec.Containers[0].Env, c.Env[0]) || spec.InitContainers[0].Image != "init:1" {
		t.Fatalf("the ShadowPod lacks something: %v", spec)
	}
	for _, e := range spec.Containers[0].Env {
		if e.Name == "KUBERNETES_SERVICE_HOST" || e.Name == "KUBERNETES_SERVICE_PORT" {
			t.Errorf("%s overrides what the user has set", e.Name)
		}
	}
	remote.Status.ContainerStatuses[0].Resources = &c.Resources // without it no API server lets a pod be resized
	w.must("size at the provider", w.remote.Status().Update(t.Context(), remote))
	var home corev1.Pod
	w.exists(w.home, &home, homeNS, "rich", func() error {
		if home.Status.Phase != corev1.PodRunning || home.Status.ContainerStatuses[0].Resources == nil {
			return fmt.Errorf("%s, %v", home.Status.Phase, home.Status.ContainerStatuses)
		}
		return nil
	})
	before := home.DeepCopy()

	// Labels and annotations follow, and nothing else moves.
	home.Labels["color"] = "red"
	delete(home.Annotations, "note")
	w.must("label", w.home.Update(t.Context(), &home))
	var shadow offv1beta1.ShadowPod
	w.exists(w.remote, &shadow, remoteNS, "rich", func() error {
		return equal([]string{"red", "", "web"}, []string{shadow.Labels["color"], shadow.Annotations["note"], shadow.Labels["app"]})
	}, func() error { return equal(spec, shadow.Spec.Pod) })

	// So do resources.
	home.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
	w.must("resize", w.home.SubResource("resize").Update(t.Context(), &home))
	spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	w.exists(w.remote, &shadow, remoteNS, "rich", func() error { return equal(spec, shadow.Spec.Pod) })

	// So does whatever else may change of a pod that runs.
	change := func(of *corev1.PodSpec) {
		of.Containers[0].Image, of.InitContainers[0].Image, of.ActiveDeadlineSeconds = "web:2", "init:2", new(int64(600))
		of.Tolerations = append(of.Tolerations, corev1.Toleration{Key: "late", Operator: corev1.TolerationOpExists})
	}
	w.must("get home pod", w.home.Get(t.Context(), client.ObjectKeyFromObject(&home), &home))
	change(&home.Spec)
	w.must("change the spec", w.home.Update(t.Context(), &home))
	change(&spec)
	w.exists(w.remote, &shadow, remoteNS, "rich", func() error { return equal(spec, shadow.Spec.Pod) })

	// What is removed at the provider is made again, whole.
	first := shadow.UID
	w.must("remove the ShadowPod", w.remote.Delete(t.Context(), &shadow))
	w.exists(w.remote, &shadow, remoteNS, "rich", func() error {
		if shadow.UID == first {
			return errors.New("the former one")
		}
		return equal(spec, shadow.Spec.Pod)
	})

	// The home pod has lost nothing, either.
	remote.Status.Message = "hello"
	w.must("speak at the provider", w.remote.Status().Update(t.Context(), remote))
	w.exists(w.home, &home, homeNS, "rich", func() error { return equal("web:2", home.Spec.Containers[0].Image) })
	change(&before.Spec)
	before.Spec.Containers[0].Resources.Requests = spec.Containers[0].Resources.Requests
	delete(before.Annotations, "note")
	if err := equal([]any{before.Spec, before.Annotations, before.OwnerReferences}, []any{home.Spec, home.Annotations, home.OwnerReferences}); err != nil {
		t.Errorf("at home: %v", err)
	}
}

// aPodEndsInTheTimeHomeGivesIt, more or less than its spec says, if the provider grants that. One
// that does not is given the ShadowPod's end all the same.
func aPodEndsInTheTimeHomeGivesIt(t *testing.T, w *world) {
	defer w.reflect()()
	var role rbacv1.Role
	w.must("read role", w.remote.Get(t.Context(), types.NamespacedName{Namespace: remoteNS, Name: "liqo-virtual-kubelet-remote"}, &role))
	before := role.DeepCopy()
	for i, story := range []struct {
		granted bool
		seconds int64
	}{{true, 600}, {true, 2}, {false, 2}} {
		role.Rules = before.DeepCopy().Rules
		if story.granted {
			role.Rules[1].Verbs = append(role.Rules[1].Verbs, "delete")
		}
		w.must("write role", w.remote.Update(t.Context(), &role))
		w.granted(story.granted, authorizationv1.ResourceAttributes{Verb: "delete", Resource: "pods"})
		name := fmt.Sprint("graceful-", i)
		w.create(w.home, pod(name))
		remote := w.runAt(name, "10.20.2."+fmt.Sprint(i+1), func(remote *corev1.Pod) { remote.Spec.NodeName = "milan-1" })
		var home corev1.Pod
		w.exists(w.home, &home, homeNS, name, func() error { return equal(corev1.PodRunning, home.Status.Phase) })
		w.must("delete", w.home.Delete(t.Context(), &home, client.GracePeriodSeconds(story.seconds)))
		w.gone(w.remote, &offv1beta1.ShadowPod{}, remoteNS, name)
		w.must("read", w.remote.Get(t.Context(), client.ObjectKeyFromObject(remote), remote))
		if got := remote.DeletionGracePeriodSeconds; story.granted != (got != nil) || got != nil && *got != story.seconds {
			t.Errorf("granted %t: %d s at home are %v s at the provider", story.granted, story.seconds, got)
		}
		w.must("end at the provider", w.remote.Delete(t.Context(), remote, client.GracePeriodSeconds(0)))
		w.gone(w.home, &home, homeNS, name)
	}
}

// aPodThatOthersHoldSaysHowItEnded: its Job waits for a phase that is final, also of a pod that had
// no place at the provider, or ended there while nobody looked.
func aPodThatOthersHoldSaysHowItEnded(t *testing.T, w *world) {
	stop := w.reflect()
	ends := func(name string) {
		t.Helper()
		var home corev1.Pod
		w.exists(w.home, &home, homeNS, name, func() error { return equal(corev1.PodFailed, home.Status.Phase) }, func() error {
			return equal(new(int64(0)), home.DeletionGracePeriodSeconds)
		})
		home.Finalizers = nil
		w.must("count", w.home.Update(t.Context(), &home))
		w.gone(w.home, &home, homeNS, name)
	}
	held := func(name string) *corev1.Pod {
		out := pod(name)
		out.Finalizers = []string{"example.com/counted"}
		return out
	}
	w.create(w.home, held("placeless"))
	w.exists(w.remote, &offv1beta1.ShadowPod{}, remoteNS, "placeless")
	w.must("delete", w.home.Delete(t.Context(), held("placeless")))
	ends("placeless")

	w.create(w.home, held("unseen"))
	remote := w.runAt("unseen", "10.20.1.60")
	var home corev1.Pod
	w.exists(w.home, &home, homeNS, "unseen", func() error { return equal(corev1.PodRunning, home.Status.Phase) })
	stop()
	w.must("delete", w.home.Delete(t.Context(), held("unseen")))
	w.must("remove the ShadowPod", w.remote.Delete(t.Context(), w.shadow("unseen")))
	w.must("end at the provider", w.remote.Delete(t.Context(), remote, client.GracePeriodSeconds(0)))
	defer w.reflect()()
	ends("unseen")
}

// aPodFindsEachEndpoint of the API server that answers at the port it is told.
func aPodFindsEachEndpoint(t *testing.T, w *world) {
	for i, port := range []string{"6443", "6443", "443"} {
		ip := &ipamv1alpha1.IP{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("kubernetes-172-31-10-1", i), Namespace: "liqo",
				Labels: map[string]string{"ipam.liqo.io/ip-type": "api-server"}, Annotations: map[string]string{"ipam.liqo.io/port": port},
			},
			Spec: ipamv1alpha1.IPSpec{IP: fmt.Sprint("172.31.10.1", i), Masquerade: true},
		}
		w.create(w.home, ip)
		defer func() { w.must("delete IP", w.home.Delete(context.WithoutCancel(t.Context()), ip)) }()
		ip.Status = ipamv1alpha1.IPStatus{IP: fmt.Sprint("10.70.0.1", i), CIDR: "10.70.0.0/16"}
		w.must("grant IP", w.home.Status().Update(t.Context(), ip))
	}
	defer w.reflect()()
	w.create(w.home, pod("caller"))
	var shadow offv1beta1.ShadowPod
	w.exists(w.remote, &shadow, remoteNS, "caller")
	var got []string
	for _, a := range shadow.Spec.Pod.HostAliases {
		got = append(got, fmt.Sprint(a.IP, a.Hostnames))
	}
	for _, e := range shadow.Spec.Pod.Containers[0].Env {
		if strings.HasPrefix(e.Name, "KUBERNETES_SERVICE_") {
			got = append(got, e.Name+"="+e.Value)
		}
	}
	names := "[kubernetes.default kubernetes.default.svc]"
	if err := equal([]string{
		"10.70.0.10" + names, "10.70.0.11" + names, "KUBERNETES_SERVICE_HOST=kubernetes.default.svc", "KUBERNETES_SERVICE_PORT=6443",
		"KUBERNETES_SERVICE_PORT_HTTPS=6443",
	}, got); err != nil {
		t.Error(err)
	}
	w.must("delete", w.home.Delete(t.Context(), pod("caller"), client.GracePeriodSeconds(0)))
}

// aPodThatIsRefusedSaysWhy, whether its ShadowPod is refused or the pod of it, and runs when it no
// longer is.
func aPodThatIsRefusedSaysWhy(t *testing.T, w *world) {
	defer w.reflect()()
	var role rbacv1.Role
	w.must("read role", w.remote.Get(t.Context(), types.NamespacedName{Namespace: remoteNS, Name: "liqo-virtual-kubelet-remote"}, &role))
	before := role.DeepCopy()
	role.Rules[3].Verbs = role.Rules[3].Verbs[1:] // create
	w.must("take the right to make ShadowPods", w.remote.Update(t.Context(), &role))
	w.granted(false, authorizationv1.ResourceAttributes{Verb: "create", Group: offv1beta1.GroupVersion.Group, Resource: "shadowpods"})
	w.create(w.home, pod("refused"))
	var home corev1.Pod
	says := func(text string) {
		t.Helper()
		w.exists(w.home, &home, homeNS, "refused", func() error {
			for _, c := range home.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable && strings.Contains(c.Message, text) {
					return nil
				}
			}
			return fmt.Errorf("conditions %v", home.Status.Conditions)
		})
	}
	says(`cannot create resource "shadowpods"`)
	w.eventually("the failure is counted", func(context.Context) error {
		if w.count("error", "Pod", homeNS, w.options.Node) == 0 {
			return fmt.Errorf("counted: %q", w.scrape("error"))
		}
		return nil
	})
	role.Rules = before.Rules
	w.must("give it back", w.remote.Update(t.Context(), &role))
	var shadow offv1beta1.ShadowPod
	w.exists(w.remote, &shadow, remoteNS, "refused")
	shadow.Status.Conditions = []metav1.Condition{{
		Type: "Stalled", Status: metav1.ConditionTrue, Reason: "ApplyRefused", Message: "exceeded quota", LastTransitionTime: metav1.Now(),
	}}
	w.must("refuse the pod", w.remote.Status().Update(t.Context(), &shadow))
	says("exceeded quota")
	w.runAt("refused", "10.20.1.11")
	w.exists(w.home, &home, homeNS, "refused", func() error { return equal(corev1.PodRunning, home.Status.Phase) })
}

// forbidding is an API server that lets nobody read ConfigMaps called "forbidden".
type forbidding struct{ next http.RoundTripper }

func (f *forbidding) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.HasSuffix(req.URL.Path, "/configmaps/forbidden") {
		return says(req, apierrors.NewForbidden(corev1.Resource("configmaps"), "forbidden", errors.New("a test")))
	}
	return f.next.RoundTrip(req)
}

// aPodIsNotRefusedByItsOwnCluster: what the local API server forbids is not shown as a refusal of
// the provider.
func aPodIsNotRefusedByItsOwnCluster(t *testing.T, w *world) {
	forbidden := *w
	transport := &forbidding{}
	forbidden.options.Home = through(w.options.Home, transport, &transport.next)
	defer forbidden.reflect()()
	former := w.count("error", "Pod", homeNS, w.options.Node)
	p := pod("not-refused")
	from := corev1.EnvFromSource{}
	from.ConfigMapRef = &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "forbidden"}}
	p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{from}
	w.create(w.home, p)
	w.eventually("the failure is counted twice", func(context.Context) error {
		if got := w.count("error", "Pod", homeNS, w.options.Node) - former; got < 2 {
			return fmt.Errorf("%d failures", got)
		}
		return nil
	})
	w.event("not-refused", "FailedReflection", "a test")
	w.must("read pod", w.home.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	for _, c := range p.Status.Conditions {
		if c.Reason == corev1.PodReasonUnschedulable {
			t.Errorf("condition %v", c)
		}
	}
}

// TestTimedRefusedObjectsRecover: the peer refuses twenty objects until the back-off of each is longer than
// ten seconds, then accepts them.
func TestTimedRefusedObjectsRecover(t *testing.T) {
	w := newWorld(t)
	const objects, refusals = 20, 8 // 100 ms, doubled eight times
	defer w.reflect()()
	var role rbacv1.Role
	w.must("read role", w.remote.Get(t.Context(), types.NamespacedName{Namespace: remoteNS, Name: "liqo-virtual-kubelet-remote"}, &role))
	before := role.DeepCopy()
	for i := range role.Rules {
		if slices.Contains(role.Rules[i].Resources, "configmaps") {
			role.Rules[i].Verbs = slices.DeleteFunc(slices.Clone(role.Rules[i].Verbs), func(verb string) bool { return verb == "create" })
		}
	}
	w.must("take the right to create ConfigMaps", w.remote.Update(t.Context(), &role))
	w.granted(false, authorizationv1.ResourceAttributes{Verb: "create", Resource: "configmaps"})
	former := w.count("error", "ConfigMap", homeNS, w.options.Node)
	for i := range objects {
		w.create(w.home, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: homeNS, Name: fmt.Sprint("refused-", i)}})
	}
	w.eventually("all are refused often", func(context.Context) error {
		if got := w.count("error", "ConfigMap", homeNS, w.options.Node) - former; got < objects*refusals {
			return fmt.Errorf("%v refusals", got)
		}
		return nil
	})
	role.Rules = before.Rules
	w.must("give the right back", w.remote.Update(t.Context(), &role))
	w.granted(true, authorizationv1.ResourceAttributes{Verb: "create", Resource: "configmaps"})
	began := time.Now()
	for i := range objects {
		w.exists(w.remote, &corev1.ConfigMap{}, remoteNS, fmt.Sprint("refused-", i))
	}
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("refused objects are accepted after %v, long after the peer would accept them", took)
	}
}

// aResizeThatIsRefusedSaysWhy, whether it is refused to the ShadowPod or to the pod of it, and goes
// on when it no longer is. What the pod does meanwhile is seen at home.
func aResizeThatIsRefusedSaysWhy(t *testing.T, w *world) {
	defer w.reflect()()
	sized := pod("sized")
	sized.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	w.create(w.home, sized)
	remote := w.runAt("sized", "10.20.1.12")
	remote.Status.ContainerStatuses[0].Resources = &sized.Spec.Containers[0].Resources // without it no API server lets a pod be resized
	w.must("size at the provider", w.remote.Status().Update(t.Context(), remote))
	var home corev1.Pod
	says := func(text string, restarts int32) {
		t.Helper()
		w.exists(w.home, &home, homeNS, "sized", func() error {
			said := ""
			for _, c := range home.Status.Conditions {
				if c.Type == corev1.PodResizePending {
					said = c.Reason + ": " + c.Message
				}
			}
			if (said == "") != (text == "") || !strings.Contains(said, text) {
				return fmt.Errorf("conditions %v", home.Status.Conditions)
			}
			return equal([]any{corev1.PodRunning, restarts}, []any{home.Status.Phase, home.Status.ContainerStatuses[0].RestartCount})
		})
	}
	w.exists(w.home, &home, homeNS, "sized", func() error {
		if home.Status.ContainerStatuses == nil || home.Status.ContainerStatuses[0].Resources == nil {
			return errors.New("not known to have a size")
		}
		return nil
	})
	says("", 1)

	var role rbacv1.Role
	w.must("read role", w.remote.Get(t.Context(), types.NamespacedName{Namespace: remoteNS, Name: "liqo-virtual-kubelet-remote"}, &role))
	before := role.DeepCopy()
	role.Rules[3].Verbs = []string{"create", "delete", "get", "list", "watch"}
	w.must("take the right to change ShadowPods", w.remote.Update(t.Context(), &role))
	w.granted(false, authorizationv1.ResourceAttributes{Verb: "patch", Group: offv1beta1.GroupVersion.Group, Resource: "shadowpods"})
	home.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("100")
	w.must("resize", w.home.SubResource("resize").Update(t.Context(), &home))
	says(`Infeasible: shadowpods.offloading.liqo.io "sized" is forbidden`, 1)
	remote.Status.ContainerStatuses[0].RestartCount = 2
	w.must("restart", w.remote.Status().Update(t.Context(), remote))
	says("Infeasible: ", 2)

	role.Rules = before.Rules
	w.must("give it back", w.remote.Update(t.Context(), &role))
	var shadow offv1beta1.ShadowPod
	w.exists(w.remote, &shadow, remoteNS, "sized", func() error {
		return equal("100", shadow.Spec.Pod.Containers[0].Resources.Requests.Cpu().String())
	})
	says("", 2)
	shadow.Status.Conditions = []metav1.Condition{{
		Type: "Stalled", Status: metav1.ConditionTrue, Reason: "ApplyRefused", Message: "exceeded quota", LastTransitionTime: metav1.Now(),
	}}
	w.must("refuse the pod", w.remote.Status().Update(t.Context(), &shadow))
	says("Infeasible: exceeded quota", 2)
	remote.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("100")
	w.must("resize at the provider", w.remote.SubResource("resize").Update(t.Context(), remote))
	says("", 2)
}

// aRefusedSpecHoldsNoLabelsBack expects labels and annotations to follow the local pod at a
// provider that refuses every change of a spec, as the original does. The refusal is reported, and
// the change is tried again.
func aRefusedSpecHoldsNoLabelsBack(t *testing.T, w *world) {
	defer w.reflect()()
	w.create(w.home, pod("fixed"))
	w.runAt("fixed", "10.20.1.60")
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fixed.example.com"}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{offv1beta1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"shadowpods"}},
		}}},
	}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{
		Expression: "object.spec == oldObject.spec", Message: "the spec is fixed", Reason: new(metav1.StatusReasonForbidden),
	}}
	w.create(w.remote, policy)
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta}
	binding.ResourceVersion, binding.UID = "", ""
	binding.Spec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}
	w.create(w.remote, binding)
	w.eventually("the policy acts", func(ctx context.Context) error {
		shadow := w.shadow("fixed")
		shadow.Spec.Pod.Containers[0].Image = "web:2"
		if w.remote.Update(ctx, shadow, client.DryRunAll) == nil {
			return errors.New("not yet")
		}
		return nil
	})
	var home corev1.Pod
	w.must("read pod", w.home.Get(t.Context(), types.NamespacedName{Namespace: homeNS, Name: "fixed"}, &home))
	home.Labels["late"], home.Spec.Containers[0].Image = "yes", "web:2"
	w.must("change", w.home.Update(t.Context(), &home))
	shows := func(label, image string) {
		t.Helper()
		var shadow offv1beta1.ShadowPod
		w.exists(w.remote, &shadow, remoteNS, "fixed", func() error {
			return equal([]string{label, image}, []string{shadow.Labels["late"], shadow.Spec.Pod.Containers[0].Image})
		})
	}
	shows("yes", "web:1")
	w.event("fixed", "FailedReflection", "the spec is fixed")
	home.Labels["late"] = "later"
	w.must("change", w.home.Update(t.Context(), &home))
	shows("later", "web:1")
	w.must("delete binding", w.remote.Delete(t.Context(), binding))
	w.must("delete policy", w.remote.Delete(t.Context(), policy))
	shows("later", "web:2")
}

// addressesWaitForTheirMapping: while the status of a Configuration is about a former spec,
// addresses are seen as before, and a CIDR that is not granted harms no other.
func addressesWaitForTheirMapping(t *testing.T, w *world) {
	stop := w.reflect()
	var conf netv1beta1.Configuration
	w.must("read configuration", w.home.Get(t.Context(), types.NamespacedName{Namespace: tenant, Name: provider}, &conf))
	grant := func(views ...netv1beta1.CIDRView) {
		conf.Status.Remote, conf.Status.Views = &netv1beta1.ClusterConfig{}, views
		for _, view := range views {
			conf.Status.Remote.CIDR.Pod = append(conf.Status.Remote.CIDR.Pod, view.SeenAs)
		}
		conf.Status.Conditions = []metav1.Condition{{
			Type: netv1beta1.NetworkCIDRsConfigured, Status: metav1.ConditionTrue, Reason: netv1beta1.ReasonNetworkCIDRsConfigured,
			ObservedGeneration: conf.Generation, LastTransitionTime: metav1.Now(),
		}}
		w.must("status of configuration", w.home.Status().Update(t.Context(), &conf))
	}
	seen := func(name, ip, as string) {
		t.Helper()
		w.create(w.home, pod(name))
		w.runAt(name, ip)
		var home corev1.Pod
		w.exists(w.home, &home, homeNS, name, func() error { return equal(corev1.PodRunning, home.Status.Phase) })
		if err := equal(as, home.Status.PodIP); err != nil {
			t.Error(err)
		}
	}
	first, added := netv1beta1.CIDRView{CIDR: "10.20.0.0/16", SeenAs: "10.71.0.0/16"}, netv1beta1.CIDRView{CIDR: "10.21.0.0/16", SeenAs: "10.72.0.0/16"}
	grant(first)
	seen("mapped", "10.20.3.1", "10.71.3.1")
	conf.Spec.Remote.CIDR.Pod = []string{"10.21.0.0/16", "10.20.0.0/16"}
	w.must("announce another CIDR", w.home.Update(t.Context(), &conf))
	seen("as-before", "10.20.3.2", "10.71.3.2")
	grant(first)
	seen("not-granted", "10.20.3.4", "10.71.3.4")
	grant(added, first)
	var home corev1.Pod
	w.create(w.home, pod("anew"))
	w.runAt("anew", "10.21.3.3")
	w.exists(w.home, &home, homeNS, "anew", func() error { return equal("10.72.3.3", home.Status.PodIP) })
	conf.Spec.Remote.CIDR.Pod = []string{"10.20.0.0/16"}
	w.must("announce as before", w.home.Update(t.Context(), &conf))

	// While nothing is granted, pods stay where they were reached, and nobody is led to what the
	// provider says.
	stop()
	conf.Status = netv1beta1.ConfigurationStatus{}
	w.must("take back", w.home.Status().Update(t.Context(), &conf))
	stop = w.reflect()
	seen("not-yet", "10.20.3.5", "")
	remote := &corev1.Pod{}
	w.must("read remote pod", w.remote.Get(t.Context(), types.NamespacedName{Namespace: remoteNS, Name: "mapped"}, remote))
	remote.Status.Message = "hello"
	w.must("speak at the provider", w.remote.Status().Update(t.Context(), remote))
	w.exists(w.home, &home, homeNS, "mapped", func() error { return equal("hello", home.Status.Message) })
	if err := equal("10.71.3.1", home.Status.PodIP); err != nil {
		t.Error(err)
	}
	stop()
	told := *w
	told.options.PeerPods = netv1beta1.Mappings{{
		Remote: netip.MustParsePrefix("10.20.0.0/16"), Local: netip.MustParsePrefix("10.73.0.0/16"),
	}}
	stop = told.reflect()
	seen("told", "10.20.3.6", "10.73.3.6")
	stop()
	w.must("leave the network", w.home.Delete(t.Context(), &conf))
	stop = w.reflect()
	seen("unmapped", "10.20.3.7", "10.20.3.7")
	w.ownAddressesAreNotShown()
	stop()
	w.configure()
	w.reflect()
	w.exists(w.home, &home, homeNS, "not-yet", func() error { return equal("10.71.3.5", home.Status.PodIP) })
}

// ownAddressesAreNotShown: without a network, remote pods show no address of the consumer's nodes,
// Services or API server. A node that joins later counts from then on.
func (w *world) ownAddressesAreNotShown() {
	w.Helper()
	shows := func(name, ip string) {
		w.Helper()
		var home corev1.Pod
		w.exists(w.home, &home, homeNS, name, func() error {
			return equal([]string{"Running", ip}, []string{string(home.Status.Phase), home.Status.PodIP})
		})
	}
	ingress := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "at-rest", Namespace: homeNS}}
	ingress.Spec.DefaultBackend = &networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Kind: "Bucket", Name: "b"}}
	w.create(w.home, ingress)
	w.exists(w.remote, &networkingv1.Ingress{}, remoteNS, ingress.Name)
	for name, ip := range map[string]string{
		"node": "10.20.4.1", "gateway": "10.20.7.1", "pod": "10.20.7.2", "service": "10.20.5.1", "server": "10.20.6.1",
	} {
		name = "like-a-" + name
		w.create(w.home, pod(name))
		w.runAt(name, ip)
		shows(name, ip)
	}
	before := w.looked("Ingress", homeNS, node)
	worker := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
	worker.Spec.PodCIDR, worker.Spec.PodCIDRs = "10.20.7.0/24", []string{"10.20.7.0/24"}
	w.create(w.home, worker)
	worker.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "worker"}, {Type: corev1.NodeInternalIP, Address: "10.20.4.1"},
	}
	w.must("status of node", w.home.Status().Update(w.Context(), worker))
	shows("like-a-node", "")
	shows("like-a-gateway", "")
	services := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Name: api.NetworkServiceCIDR, Namespace: "liqo"}}
	services.Labels = map[string]string{api.LabelNetworkType: api.NetworkTypeServiceCIDR}
	services.Spec.CIDR = "10.20.5.0/24"
	w.create(w.home, services)
	shows("like-a-service", "")
	server := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes-2", Namespace: "default"}}
	server.Labels = map[string]string{discoveryv1.LabelServiceName: "kubernetes"}
	server.AddressType = discoveryv1.AddressTypeIPv4
	server.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.20.6.1"}}}
	w.create(w.home, server)
	shows("like-a-server", "")
	shows("like-a-pod", "10.20.7.2") // clusters may share a pod network
	w.must("delete node", w.home.Delete(w.Context(), worker))
	shows("like-a-node", "10.20.4.1")
	shows("like-a-gateway", "10.20.7.1")
	w.must("count", equal(before, w.looked("Ingress", homeNS, node))) // nothing but pods is reconciled for that
}

// each does something for all names, a few at a time.
func (w *world) each(names []string, do func(here *world, name string)) {
	w.Helper()
	for _, name := range names {
		do(w, name)
	}
}

func (w *world) shadow(name string) *offv1beta1.ShadowPod {
	w.Helper()
	s := &offv1beta1.ShadowPod{}
	w.must("read ShadowPod", w.remote.Get(w.Context(), types.NamespacedName{Namespace: remoteNS, Name: name}, s))
	return s
}

func oneOfTwoNodesReflects(t *testing.T, w *world) {
	second := "milan-second"
	w.create(w.home, &offv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: second, Namespace: tenant}, Spec: offv1beta1.VirtualNodeSpec{ClusterID: provider}})
	other := *w
	other.options.Node, other.options.Metrics = second, prometheus.NewRegistry()
	stopFirst := w.reflect()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "both", Namespace: homeNS}, Data: map[string]string{"by": "first"}}
	w.create(w.home, cm)
	var remote corev1.ConfigMap
	by := func(node string) func() error {
		return func() error {
			return equal([]string{cm.Data["by"], node}, []string{remote.Data["by"], remote.Labels[api.LabelNodeName]})
		}
	}
	w.exists(w.remote, &remote, remoteNS, "both", by(node))
	stopSecond := other.reflect()
	defer stopSecond()

	// Pods of the one that reflects say that they use objects of the provider.
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "of-the-provider", Namespace: remoteNS}}
	w.create(w.remote, foreign)
	w.create(w.home, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: foreign.Name, Namespace: homeNS}})
	user := pod("at-first")
	user.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: foreign.Name}}
	w.create(w.home, user)
	says := func(want bool) {
		t.Helper()
		w.exists(w.home, user, homeNS, user.Name, func() error { return equal(want, translate.ForeignObjects(user) != "") })
	}
	says(true)

	// Each runs its own pods.
	p := pod("at-second")
	p.Spec.NodeName = second
	w.create(w.home, p)
	w.exists(w.remote, &offv1beta1.ShadowPod{}, remoteNS, "at-second")
	if err := by(node)(); err != nil {
		t.Errorf("two reflect: %v", err)
	}

	// The metrics tell what each has looked at.
	w.create(w.remote, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "both.1", Namespace: remoteNS},
		InvolvedObject: corev1.ObjectReference{Kind: "ConfigMap", Namespace: remoteNS, Name: "both"},
		Type:           corev1.EventTypeWarning, Reason: "Torn", Message: "torn",
	})
	w.event("both", "Torn", "torn (remote)")
	if got := w.looked("ConfigMap", homeNS, node); got == 0 {
		t.Error("no ConfigMap was counted")
	}
	w.eventually("the second looks at its pods and their accounts, nothing else", func(context.Context) error {
		return equal(map[string]bool{"Pod": true, "ServiceAccount": true}, other.counted(second))
	})

	// The first goes, and the second does its work.
	stopFirst()
	cm.Data["by"] = "second"
	w.must("update", w.home.Update(t.Context(), cm))
	w.exists(w.remote, &remote, remoteNS, "both", by(second))
	defer w.reflect()()
	says(false)
}

// podsAtTwoProvidersSayWhoseObjectsTheyUse offloads one namespace to two providers, which are
// namespaces of one API server here. Each has an object of its own under another name.
func podsAtTwoProvidersSayWhoseObjectsTheyUse(t *testing.T, w *world) {
	const oslo, tenantOfOslo, atOslo = "oslo", "liqo-tenant-oslo", "shop-at-oslo"
	other := *w
	other.options.Provider, other.options.Node, other.options.TenantNamespace = oslo, oslo, tenantOfOslo
	other.options.Metrics = prometheus.NewRegistry()
	w.create(w.home, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenantOfOslo}})
	vn := &offv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: oslo, Namespace: tenantOfOslo}}
	vn.Spec.ClusterID = oslo
	w.create(w.home, vn)
	defer func() { w.must("delete virtual node", w.home.Delete(w.Context(), vn)) }()
	w.create(w.remote, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: atOslo}})
	w.create(w.remote, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-rome", Namespace: atOslo},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: consumer}},
	})
	m := &offv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Name: oslo, Namespace: tenantOfOslo}}
	m.Spec.DesiredMapping = map[string]string{homeNS: atOslo}
	w.create(w.home, m)
	m.Status.CurrentMapping = map[string]offv1beta1.RemoteNamespaceStatus{
		homeNS: {RemoteNamespace: atOslo, Phase: offv1beta1.NamespaceAccepted},
	}
	w.must("write status of namespace map", w.home.Status().Update(w.Context(), m))

	secret := func(namespace, name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	}
	ofMilan, ofOslo := secret(remoteNS, "of-milan"), secret(atOslo, "of-oslo")
	w.create(w.remote, ofMilan)
	w.create(w.remote, ofOslo)
	for _, name := range []string{ofMilan.Name, ofOslo.Name} {
		w.create(w.home, secret(homeNS, name))
	}
	for name, at := range map[string]string{"at-milan": node, "at-oslo": oslo} {
		p := pod(name)
		p.Spec.NodeName = at
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: ofMilan.Name}, {Name: ofOslo.Name}}
		w.create(w.home, p)
	}
	defer w.reflect()()
	defer other.reflect()()
	says := func(name, want string) {
		t.Helper()
		var home corev1.Pod
		w.exists(w.home, &home, homeNS, name, func() error {
			said, _, _ := strings.Cut(translate.ForeignObjects(&home), ", which")
			return equal(want, said)
		})
	}
	says("at-milan", fmt.Sprintf(`namespace %q of %s has its own secret "of-milan"`, remoteNS, provider))
	says("at-oslo", fmt.Sprintf(`namespace %q of oslo has its own secret "of-oslo"`, atOslo))
	w.exists(w.remote, &corev1.Secret{}, atOslo, ofMilan.Name)
	w.must("delete the provider's Secret", w.remote.Delete(w.Context(), ofMilan))
	says("at-milan", "")
	says("at-oslo", fmt.Sprintf(`namespace %q of oslo has its own secret "of-oslo"`, atOslo))
}

// scrape reads a metric of the reflection, as Prometheus does: item_counter for objects looked at,
// error_counter for those that failed, oldest_seconds for how long they wait.
func (w *world) scrape(metric string) []string {
	w.Helper()
	answer := httptest.NewRecorder()
	handler := promhttp.HandlerFor(w.options.Metrics.(*prometheus.Registry), promhttp.HandlerOpts{})
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var lines []string
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "liqo_virtual_kubelet_reflection_"+metric+"{") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// looked is how often objects of a kind were looked at for a virtual node.
func (w *world) looked(resource, namespace, node string) int {
	w.Helper()
	return w.count("item", resource, namespace, node)
}

// count is how far a counter of a kind is for a virtual node.
func (w *world) count(counter, resource, namespace, node string) int {
	w.Helper()
	labels := fmt.Sprintf(`{cluster_id=%q,namespace=%q,node_name=%q,reflector_resource=%q} `, provider, namespace, node, resource)
	for _, line := range w.scrape(counter + "_counter") {
		if _, value, ok := strings.Cut(line, labels); ok {
			n, err := strconv.Atoi(value)
			w.must("read counter", err)
			return n
		}
	}
	return 0
}

// waits waits until objects of a kind wait to be reflected, or none does.
func (w *world) waits(resource string, want bool) {
	w.Helper()
	w.eventually(fmt.Sprintf("whether %s wait becomes %t", resource, want), func(context.Context) error {
		lines := w.scrape("oldest_seconds")
		is := slices.ContainsFunc(lines, func(line string) bool {
			return strings.Contains(line, fmt.Sprintf("reflector_resource=%q", resource)) && !strings.HasSuffix(line, " 0")
		})
		if is != want {
			return fmt.Errorf("it is %t: %v", is, lines)
		}
		return nil
	})
}

// counted are the kinds of which objects were looked at for a virtual node.
func (w *world) counted(node string) map[string]bool {
	w.Helper()
	out := map[string]bool{}
	for _, line := range w.scrape("item_counter") {
		_, kind, _ := strings.Cut(line, `reflector_resource="`)
		kind, _, _ = strings.Cut(kind, `"`)
		if strings.Contains(line, fmt.Sprintf("node_name=%q", node)) {
			out[kind] = true
		}
	}
	return out
}

// aServiceIsMadeAnewWhileNobodyLooks recreates a Service while no engine runs: immutable fields at
// the provider stay, or the remote Service is recreated, too.
func aServiceIsMadeAnewWhileNobodyLooks(t *testing.T, w *world) {
	service := func(name string, port int32, spec corev1.ServiceSpec) {
		w.Helper()
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: homeNS}, Spec: spec}
		w.must("delete", client.IgnoreNotFound(w.home.Delete(t.Context(), s.DeepCopy())))
		s.Spec.Ports = []corev1.ServicePort{{Name: "p", Port: port}}
		w.create(w.home, s)
	}
	balancer := func(class string) corev1.ServiceSpec {
		return corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class}
	}
	service("database", 80, corev1.ServiceSpec{})
	service("balancer", 80, balancer("example.com/a"))
	stop := w.reflect()
	var remote corev1.Service
	w.exists(w.remote, &remote, remoteNS, "database")
	w.exists(w.remote, &remote, remoteNS, "balancer")
	stop()
	service("database", 81, corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone})
	service("balancer", 81, balancer("example.com/b"))
	defer w.reflect()()
	w.exists(w.remote, &remote, remoteNS, "database", func() error { return equal(corev1.ClusterIPNone, remote.Spec.ClusterIP) })
	w.exists(w.remote, &remote, remoteNS, "balancer", func() error {
		return equal([]string{"81", "example.com/a"}, []string{fmt.Sprint(remote.Spec.Ports[0].Port), *remote.Spec.LoadBalancerClass})
	})
}

func endpointsElsewhereAreReflected(t *testing.T, w *world) {
	busy := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "busy", Namespace: homeNS},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	w.create(w.home, busy)
	w.create(w.remote, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "has-the-address", Namespace: remoteNS},
		Spec:       corev1.ServiceSpec{ClusterIP: busy.Spec.ClusterIP, Ports: busy.Spec.Ports},
	})
	defer w.reflect()()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: homeNS}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
	}}
	w.create(w.home, service)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Namespace: homeNS, Labels: map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.10.3.3"}, NodeName: new("rome-1"), Conditions: discoveryv1.EndpointConditions{Ready: new(true)}},
			{Addresses: []string{"10.71.1.7"}, NodeName: new(node), Conditions: discoveryv1.EndpointConditions{Ready: new(true)}},
		},
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80))}},
	}
	w.create(w.home, slice)
	var remote offv1beta1.ShadowEndpointSlice
	w.exists(w.remote, &remote, remoteNS, "web-1", func() error {
		var got []string
		for _, e := range remote.Spec.Template.Endpoints {
			got = append(got, e.Addresses[0], *e.NodeName)
		}
		return equal([]string{"10.10.3.3", consumer}, got)
	})
	var s corev1.Service
	w.exists(w.remote, &s, remoteNS, "web", func() error {
		return errors.Join(equal(service.Spec.ClusterIP, s.Spec.ClusterIP), equal(service.Spec.Selector, s.Spec.Selector))
	})
	var other corev1.Service
	w.exists(w.remote, &other, remoteNS, busy.Name, func() error { return equal(true, other.Spec.ClusterIP != busy.Spec.ClusterIP) })

	// An API server takes a slice of host names, which name nothing at a connected provider. The user is told.
	w.create(w.home, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-hosts", Namespace: homeNS, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeFQDN,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"web.example.com"}}},
	})
	w.event("web-hosts", "FailedReflection", "web.example.com is a host name")
	var hosts offv1beta1.ShadowEndpointSlice
	w.exists(w.remote, &hosts, remoteNS, "web-hosts", func() error { return equal(0, len(hosts.Spec.Template.Endpoints)) })

	addresses := func(want ...string) {
		t.Helper()
		w.exists(w.remote, &remote, remoteNS, "web-1", func() error {
			var got []string
			for _, e := range remote.Spec.Template.Endpoints {
				got = append(got, e.Addresses...)
			}
			return equal(want, got)
		})
	}

	// What the provider says about it is shown, and of another Service of its nothing.
	w.create(w.remote, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: remoteNS}, Spec: corev1.ServiceSpec{Ports: service.Spec.Ports}})
	w.create(w.home, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: homeNS}, Spec: corev1.ServiceSpec{Ports: service.Spec.Ports}})
	for _, name := range []string{"theirs", "web"} {
		w.create(w.remote, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name + ".lb", Namespace: remoteNS},
			InvolvedObject: corev1.ObjectReference{Kind: "Service", Namespace: remoteNS, Name: name, UID: s.UID},
			Type:           corev1.EventTypeWarning, Reason: "SyncLoadBalancerFailed", Message: "no address left",
		})
	}
	w.event("web", "SyncLoadBalancerFailed", "no address left (remote)")
	w.event("theirs", "FailedReflection", "remote object already exists")
	if err := w.home.Get(t.Context(), types.NamespacedName{Namespace: homeNS, Name: "theirs.lb"}, &corev1.Event{}); !apierrors.IsNotFound(err) {
		t.Errorf("an event about what is not ours is shown (%v)", err)
	}
	w.must("delete", w.home.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: homeNS}}))

	// A pod at a further provider is named by its address there, if the user wants it.
	const turin = "liqo-tenant-turin"
	w.create(w.home, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: turin}})
	w.create(w.home, &offv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: "turin-1", Namespace: turin}, Spec: offv1beta1.VirtualNodeSpec{ClusterID: "turin"}})
	for id, pods := range map[string]string{"turin": "10.73.0.0/16", "bern": "10.74.0.0/16"} { // bern provides no node
		conf := &netv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: turin, Labels: map[string]string{api.LabelRemoteClusterID: id}}}
		conf.Spec.Remote = &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{"10.30.0.0/16"}}}
		w.create(w.home, conf)
		conf.Status.Remote = &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{pods}}}
		w.must("status of configuration", w.home.Status().Update(t.Context(), conf))
	}
	service.Annotations = map[string]string{api.AnnotationUseDirectConnections: "true"}
	w.must("want direct connections", w.home.Update(t.Context(), service))
	direct := discoveryv1.Endpoint{Addresses: []string{"10.73.1.1"}, NodeName: new("turin-1")}
	byHand := discoveryv1.Endpoint{Addresses: []string{"10.73.1.2"}}
	slice.Endpoints = append(slice.Endpoints, direct, byHand, discoveryv1.Endpoint{Addresses: []string{"10.74.1.1"}})
	w.must("update", w.home.Update(t.Context(), slice))
	w.event("web-1", "FailedReflection", "10.74.1.1 not found")
	addresses("10.10.3.3", "10.30.1.1", "10.30.1.2")
	if err := equal(`{"turin":["10.30.1.1","10.30.1.2"]}`, remote.Annotations[api.AnnotationDirectConnectionsData]); err != nil {
		t.Error(err)
	}
	slice.Endpoints = slice.Endpoints[:2]

	// An address nobody can reach there is told; the other endpoints go on following home.
	unreachable := slice.Endpoints[0].DeepCopy()
	unreachable.Addresses = []string{"192.168.1.1"}
	slice.Endpoints[0].Addresses = []string{"10.10.3.4"}
	slice.Endpoints = append(slice.Endpoints, *unreachable)
	w.must("update", w.home.Update(t.Context(), slice))
	w.event("web-1", "FailedReflection", "192.168.1.1 not found")
	addresses("10.10.3.4")
	slice.Endpoints = slice.Endpoints[2:]
	w.must("update", w.home.Update(t.Context(), slice))
	addresses()
	w.must("delete", w.home.Delete(t.Context(), slice))
	w.gone(w.remote, &remote, remoteNS, "web-1")
}

// aPodSaysThatItUsesObjectsOfTheProvider while these have the names of local ones that are to be
// reflected, also across a restart.
func aPodSaysThatItUsesObjectsOfTheProvider(t *testing.T, w *world) {
	stop := w.reflect()
	ca := func(namespace string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "istio-ca-root-cert", Namespace: namespace}}
	}
	pull := func(namespace, name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	}
	meshed := pod("meshed")
	secrets := []string{"deleted", "deleted-while-down", "kept", "reflected-while-down", "removed-while-down"}
	for _, name := range secrets {
		w.create(w.remote, pull(remoteNS, name))
		w.create(w.home, pull(homeNS, name))
		meshed.Spec.ImagePullSecrets = append(meshed.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	w.create(w.remote, ca(remoteNS))
	w.create(w.home, ca(homeNS))
	volume := corev1.Volume{Name: "ca"}
	volume.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "istio-ca-root-cert"}}
	meshed.Spec.Volumes = append(meshed.Spec.Volumes, volume)
	w.create(w.home, meshed)
	w.create(w.home, pod("plain"))
	w.runAt("meshed", "10.20.1.60")
	w.runAt("plain", "10.20.1.61")
	says := func(name string, config bool, secrets ...string) {
		t.Helper()
		var want []string
		if config {
			want = append(want, `configmap "istio-ca-root-cert"`)
		}
		for _, s := range secrets {
			want = append(want, fmt.Sprintf("secret %q", s))
		}
		var home corev1.Pod
		w.exists(w.home, &home, homeNS, name, func() error {
			_, said, _ := strings.Cut(translate.ForeignObjects(&home), "has its own ")
			said, _, _ = strings.Cut(said, ", which")
			return errors.Join(equal(corev1.PodRunning, home.Status.Phase), equal(strings.Join(want, ", "), said))
		})
	}
	says("meshed", true, secrets...)
	w.event("meshed", "FailedReflection", `secret "kept"`)
	says("plain", false)

	w.must("delete a local object", w.home.Delete(t.Context(), pull(homeNS, "deleted")))
	says("meshed", true, secrets[1:]...)
	kept := pull(homeNS, "kept")
	kept.Annotations = map[string]string{api.AnnotationSkipReflection: "true"}
	w.must("keep a local object", w.home.Update(t.Context(), kept))
	says("meshed", true, "deleted-while-down", "reflected-while-down", "removed-while-down")

	stop()
	w.must("delete a local object", w.home.Delete(t.Context(), pull(homeNS, "deleted-while-down")))
	w.must("remove a remote object", w.remote.Delete(t.Context(), pull(remoteNS, "removed-while-down")))
	ours := pull(remoteNS, "reflected-while-down")
	ours.Labels = map[string]string{api.LabelOrigin: consumer, api.LabelDestination: provider}
	w.must("replace a remote object", w.remote.Update(t.Context(), ours))
	stop = w.reflect()
	says("meshed", true)
	stop()
	off := *w
	off.options.Reflectors = offv1beta1.DefaultReflectors()
	off.options.Reflectors[offv1beta1.ReflectConfigMap] = offv1beta1.ReflectorConfig{}
	stop = off.reflect()
	says("meshed", false)
	stop()
	defer w.reflect()()
	says("meshed", true)
	w.must("remove the last one", w.remote.Delete(t.Context(), ca(remoteNS)))
	says("meshed", false)
}

// aCustomResourceIsReflected by its names alone.
func aCustomResourceIsReflected(t *testing.T, w *world) {
	custom, err := reflection.ParseCustomResource("wares.v1.example.com", "Ware:2:DenyList")
	w.must("parse", err)
	w.options.Custom = []reflection.CustomResource{custom}
	open := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	w.serve(w.home, "Ware", open, "virtual-kubelet", rbacv1.UserKind)
	defer w.reflect()()
	options := &offv1beta1.VkOptionsTemplate{ObjectMeta: metav1.ObjectMeta{Name: "options", Namespace: "liqo"}}
	options.Spec.ReflectorsConfig = map[string]offv1beta1.ReflectorConfig{"wares": {Workers: 2, Kind: "Ware"}}
	if err := w.home.Create(t.Context(), options); !apierrors.IsInvalid(err) {
		t.Errorf("a resource without version and group is taken: %v", err)
	}
	options.Spec.ReflectorsConfig = map[string]offv1beta1.ReflectorConfig{"wares.v1.example.com": {Workers: 2, Kind: "Ware"}, "secret": {Workers: 3}}
	w.create(w.home, options)
	ware := func(namespace string, size int64) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": size}}}
		u.SetGroupVersionKind(custom.Resource.GroupVersion().WithKind("Ware"))
		u.SetNamespace(namespace)
		u.SetName("cup")
		u.SetLabels(map[string]string{"app": "shop"})
		return u
	}
	home := ware(homeNS, 1)
	w.eventually("create a ware", func(ctx context.Context) error { return w.home.Create(ctx, home) })

	// Until the provider serves the kind, its caches do not sync, and the object waits.
	w.waits("Ware", true)
	w.must("delete", w.home.Delete(t.Context(), home))
	w.waits("Ware", false)
	home.SetResourceVersion("")
	w.must("create", w.home.Create(t.Context(), home))
	w.waits("Ware", true)
	w.mapNamespace("")
	w.waits("Ware", false)
	w.mapNamespace(remoteNS)
	w.waits("Ware", true)
	w.serve(w.remote, "Ware", open, consumer, rbacv1.GroupKind)
	remote := ware(remoteNS, 0)
	is := func(want map[string]any) func() error {
		return func() error {
			got := remote.Object["spec"]
			if remote.GetLabels()[api.LabelOrigin] != consumer || remote.GetLabels()["app"] != "shop" {
				return fmt.Errorf("labels %v", remote.GetLabels())
			}
			return equal(want, got)
		}
	}
	w.exists(w.remote, remote, remoteNS, "cup", is(map[string]any{"size": int64(1)}))
	w.waits("Ware", false)

	// A change at home goes along, with keys that go; drift and deletion at the provider are
	// repaired.
	home.Object["spec"] = map[string]any{"colour": "red"}
	w.must("update", w.home.Update(t.Context(), home))
	w.exists(w.remote, remote, remoteNS, "cup", is(map[string]any{"colour": "red"}))
	remote.Object["spec"] = map[string]any{"colour": "blue"}
	w.must("drift", w.remote.Update(t.Context(), remote))
	w.exists(w.remote, remote, remoteNS, "cup", is(map[string]any{"colour": "red"}))
	w.must("delete remote", w.remote.Delete(t.Context(), remote))
	w.exists(w.remote, remote, remoteNS, "cup", is(map[string]any{"colour": "red"}))

	// The status is the provider's own.
	remote.Object["status"] = map[string]any{"sold": true}
	w.must("status", w.remote.Update(t.Context(), remote))
	home.SetLabels(map[string]string{"app": "shop", "new": "yes"})
	w.must("update", w.home.Update(t.Context(), home))
	w.exists(w.remote, remote, remoteNS, "cup", func() error { return equal("yes", remote.GetLabels()["new"]) })
	if err := equal(map[string]any{"sold": true}, remote.Object["status"]); err != nil {
		t.Error(err)
	}
	w.must("delete", w.home.Delete(t.Context(), home))
	w.gone(w.remote, remote, remoteNS, "cup")
}

// serve installs a custom resource in a cluster and lets a subject use it.
func (w *world) serve(c client.Client, kind string, schema apiextensionsv1.JSONSchemaProps, subject, subjectKind string) {
	w.Helper()
	singular := strings.ToLower(kind)
	plural := singular + "s"
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.com"}}
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
		Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: singular, Kind: kind, ListKind: kind + "List"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema}}},
	}
	text, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	w.must("encode CRD", err)
	u := &unstructured.Unstructured{Object: text}
	u.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	w.create(c, u)
	w.create(c, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: plural}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"example.com"}, Resources: []string{plural}, Verbs: []string{"*"}},
	}})
	w.create(c, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: plural},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: plural},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: subjectKind, Name: subject}},
	})
}

// listsDecideForEveryKind: under a deny list all goes but what is marked against, under an allow
// list nothing but what is marked for it, and a mark of "false" is none. Endpoints follow their
// Service.
func listsDecideForEveryKind(t *testing.T, w *world) {
	kinds := map[string]func(meta metav1.ObjectMeta) (home, remote client.Object){
		"service": func(m metav1.ObjectMeta) (client.Object, client.Object) {
			return &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, &corev1.Service{}
		},
		"configmap": func(m metav1.ObjectMeta) (client.Object, client.Object) {
			return &corev1.ConfigMap{ObjectMeta: m}, &corev1.ConfigMap{}
		},
		"secret": func(m metav1.ObjectMeta) (client.Object, client.Object) {
			return &corev1.Secret{ObjectMeta: m}, &corev1.Secret{}
		},
		"ingress": func(m metav1.ObjectMeta) (client.Object, client.Object) {
			rules := []networkingv1.IngressRule{{Host: "shop.example.com"}}
			return &networkingv1.Ingress{ObjectMeta: m, Spec: networkingv1.IngressSpec{Rules: rules}}, &networkingv1.Ingress{}
		},
		"endpointslice": func(m metav1.ObjectMeta) (client.Object, client.Object) {
			m.Labels, m.Annotations = map[string]string{discoveryv1.LabelServiceName: m.Name}, nil
			return &discoveryv1.EndpointSlice{
				ObjectMeta: m, AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.10.3.3"}}},
			}, &offv1beta1.ShadowEndpointSlice{}
		},
	}
	for _, list := range []struct {
		allow      bool
		mark       string
		goes, stay string // the value of the mark on what goes and what stays; none = no mark
	}{
		{false, api.AnnotationSkipReflection, "False", ""},
		{true, api.AnnotationAllowReflection, "", "false"},
	} {
		here := *w
		here.options.Reflectors = offv1beta1.DefaultReflectors()
		for kind, tuning := range here.options.Reflectors {
			if tuning.Type = offv1beta1.DenyListReflection; list.allow && kind != offv1beta1.ReflectEvent {
				tuning.Type = offv1beta1.AllowListReflection
			}
			here.options.Reflectors[kind] = tuning
		}
		stop := here.reflect()
		var made []client.Object
		for _, kind := range []string{"service", "configmap", "secret", "ingress", "endpointslice"} {
			for _, name := range []string{"stays", "goes"} { // so that what goes shows that what stays was looked at
				value := map[string]string{"stays": list.stay, "goes": list.goes}[name]
				home, _ := kinds[kind](metav1.ObjectMeta{Name: name, Namespace: homeNS, Annotations: map[string]string{list.mark: value}})
				here.create(here.home, home)
				made = append(made, home)
			}
		}
		for kind, of := range kinds {
			_, remote := of(metav1.ObjectMeta{})
			here.exists(here.remote, remote, remoteNS, "goes")
			if err := here.remote.Get(t.Context(), types.NamespacedName{Namespace: remoteNS, Name: "stays"}, remote); !apierrors.IsNotFound(err) {
				t.Errorf("allow list %t: %s that should stay at home is reflected (%v)", list.allow, kind, err)
			}
		}
		for _, home := range made {
			here.must("delete", here.home.Delete(t.Context(), home))
		}
		for _, of := range kinds {
			_, remote := of(metav1.ObjectMeta{})
			here.gone(here.remote, remote, remoteNS, "goes")
		}
		stop()
	}
}

// tokensAreFresh checks that a token is requested again after 80 % of its lifetime, and not before.
func tokensAreFresh(t *testing.T, w *world) {
	defer w.reflect()()
	p := pod("fresh")
	p.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds = new(int64(600))
	before := time.Now().Truncate(time.Second) // as times of tokens are
	w.create(w.home, p)
	var tokens corev1.Secret
	requested := func() time.Time {
		expires, err := time.Parse(time.RFC3339, tokens.Annotations[api.AnnotationServiceAccountExpiration])
		w.must("parse the end of the token", err)
		return expires.Add(-10 * time.Minute)
	}
	w.exists(w.remote, &tokens, remoteNS, api.ServiceAccountTokenSecretName("fresh"))
	first := string(tokens.Data["api.token"])
	if at, now := requested(), time.Now(); at.Before(before) || at.After(now) {
		t.Errorf("the token of 10 minutes ends 10 minutes after %s, want %s to %s", at, before, now)
	}
	if granted := tokens.Annotations["offloading.liqo.io/service-account-token-seconds"]; granted != "600" {
		t.Errorf("it was made for %s seconds", granted)
	}

	// 7:57 minutes later: in 3 seconds 80 % have passed.
	due := time.Now().Add(123 * time.Second)
	tokens.Annotations[api.AnnotationServiceAccountExpiration] = due.UTC().Format(time.RFC3339)
	w.must("let time pass", w.remote.Update(t.Context(), &tokens))
	w.exists(w.remote, &tokens, remoteNS, api.ServiceAccountTokenSecretName("fresh"), func() error {
		if string(tokens.Data["api.token"]) == first {
			return errors.New("the same token")
		}
		return nil
	})
	if at, early := requested(), due.Add(-122*time.Second); at.Before(early) { // times are cut to seconds
		t.Errorf("requested again at %s, want no earlier than %s", at, early)
	}

	// Somebody at the provider deletes it, or writes into it: the pod has its tokens again.
	w.must("delete", w.remote.Delete(t.Context(), &tokens))
	whole := func() error {
		if len(tokens.Data["api.token"]) < len(first)/2 {
			return fmt.Errorf("the token is %q", tokens.Data["api.token"])
		}
		return nil
	}
	w.exists(w.remote, &tokens, remoteNS, api.ServiceAccountTokenSecretName("fresh"), whole)
	delete(tokens.Data, "api.token")
	w.must("drift", w.remote.Update(t.Context(), &tokens))
	w.exists(w.remote, &tokens, remoteNS, api.ServiceAccountTokenSecretName("fresh"), whole)
}

// namesAreKeptApart: a user's Secret may be called like the tokens of a pod, whose name may be as
// long as names can be. A pod whose ShadowPod mounts the former name gets its tokens there, also if
// the Secret does not exist.
func namesAreKeptApart(t *testing.T, w *world) {
	long, old := pod(strings.Repeat("a", 253)), pod("old")
	w.create(w.home, old)
	former := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "old-token", Namespace: remoteNS, Labels: map[string]string{
		api.LabelOrigin: consumer, api.LabelDestination: provider, api.LabelNodeName: node, api.LabelServiceAccountName: "default",
	}, Annotations: map[string]string{api.AnnotationServiceAccountForPodName: "old", api.AnnotationServiceAccountForPodUID: string(old.UID)}}}
	w.create(w.remote, former)
	between := pod("between") // the upgrade fell between its ShadowPod and the Secret
	w.create(w.home, between)
	for _, p := range []*corev1.Pod{old, between} {
		shadow := &offv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: remoteNS, Labels: map[string]string{
			"app": "web", api.LabelOrigin: consumer, api.LabelDestination: provider, api.LabelNodeName: node,
		}, Annotations: map[string]string{translate.HomeUIDAnnotation: string(p.UID)}}}
		shadow.Spec.Pod = *pod(p.Name).Spec.DeepCopy()
		shadow.Spec.Pod.NodeName = ""
		shadow.Spec.Pod.Volumes[0].Projected.Sources = []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: p.Name + "-token"},
		}}}
		w.create(w.remote, shadow)
	}
	defer w.reflect()()
	w.create(w.home, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: long.Name[:247] + "-token", Namespace: homeNS}, StringData: map[string]string{"mine": "yes"},
	})
	short := pod(long.Name[:247])
	w.create(w.home, short)
	w.create(w.home, long)
	var secret corev1.Secret
	w.exists(w.remote, &secret, remoteNS, short.Name+"-token", func() error { return equal("yes", string(secret.Data["mine"])) })
	for name, pod := range map[string]string{
		"old-token": "old", "between-token": "between",
		api.ServiceAccountTokenSecretName(short.Name): short.Name, api.ServiceAccountTokenSecretName(long.Name): long.Name,
	} {
		w.exists(w.remote, &secret, remoteNS, name, func() error {
			return equal([]string{pod, "true"}, []string{secret.Annotations[api.AnnotationServiceAccountForPodName], fmt.Sprint(len(secret.Data["api.token"]) > 0)})
		})
	}
	w.must("delete Secret", w.remote.Delete(t.Context(), former))
	w.exists(w.remote, &secret, remoteNS, "old-token", func() error { return equal(true, secret.UID != former.UID) })
	w.gone(w.remote, &secret, remoteNS, api.ServiceAccountTokenSecretName("old"))
	w.must("delete", w.home.Delete(t.Context(), old, client.GracePeriodSeconds(0)))
	w.must("delete", w.home.Delete(t.Context(), long, client.GracePeriodSeconds(0)))
	w.gone(w.remote, &secret, remoteNS, "old-token")
	w.gone(w.remote, &secret, remoteNS, api.ServiceAccountTokenSecretName(long.Name))
	w.exists(w.remote, &secret, remoteNS, short.Name+"-token")
}

// noTokenLivesLonger than an hour if a pod wants what all pods want, of which the API server makes
// a year.
func noTokenLivesLonger(t *testing.T, w *world) {
	defer w.reflect()()
	p := pod("common")
	p.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds = new(int64(3607))
	w.create(w.home, p)
	var tokens corev1.Secret
	w.exists(w.remote, &tokens, remoteNS, api.ServiceAccountTokenSecretName("common"))
	parts := strings.Split(string(tokens.Data["api.token"]), ".")
	if len(parts) != 3 {
		t.Fatalf("%d parts of a token", len(parts))
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	w.must("decode token", err)
	var claims struct{ IAT, EXP int64 }
	w.must("decode token", json.Unmarshal(text, &claims))
	if life := time.Duration(claims.EXP-claims.IAT) * time.Second; life <= 0 || life > time.Hour {
		t.Errorf("the provider is given a token of %s", life)
	}
}

// aLoudProviderIsHeardALittleAtATime: it says a thousand things at once. Home has some of them,
// what it has follows, and the others come later.
func aLoudProviderIsHeardALittleAtATime(t *testing.T, w *world) {
	const all, atOnce, perSecond = 2000, 1000, 10
	stop := w.reflect()
	w.create(w.home, pod("loud"))
	remote := w.runAt("loud", "10.20.1.50")
	stop()
	for i := range all {
		w.create(w.remote, &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: fmt.Sprint("loud.", i), Namespace: remoteNS},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: remoteNS, Name: "loud", UID: remote.UID},
			Type:           corev1.EventTypeWarning, Reason: "Loud", Message: "said", Count: 1,
		})
	}

	began := time.Now()
	defer w.reflect()()
	heard := func(ctx context.Context) (names []string, err error) {
		var events corev1.EventList
		err = w.home.List(ctx, &events, client.InNamespace(homeNS))
		for _, e := range events.Items {
			if e.Reason == "Loud" {
				names = append(names, e.Name)
			}
		}
		return names, err
	}
	var some []string
	atLeast := func(n int) func(context.Context) error {
		return func(ctx context.Context) (err error) {
			if some, err = heard(ctx); err == nil && len(some) < n {
				err = fmt.Errorf("%d events", len(some))
			}
			return err
		}
	}
	w.eventually("many are heard", atLeast(atOnce))
	if bound := atOnce + perSecond*int(time.Since(began).Seconds()+1) + 1; len(some) > min(bound, all) {
		t.Errorf("%d events at once, more than %d", len(some), bound)
	}
	w.eventually("events that wait are counted", func(context.Context) error {
		if w.count("error", "Event", remoteNS, node) == 0 {
			return errors.New("none")
		}
		return nil
	})
	var event corev1.Event
	w.must("read event", w.remote.Get(t.Context(), types.NamespacedName{Namespace: remoteNS, Name: some[0]}, &event))
	event.Count = 7
	w.must("say it again", w.remote.Update(t.Context(), &event))
	w.exists(w.home, &event, homeNS, some[0], func() error { return equal(int32(7), event.Count) })
	if now, err := heard(t.Context()); err != nil || len(now) == all {
		t.Errorf("what is there already waited for all others (%v)", err)
	}
	w.eventually("more are heard later", atLeast(len(some)+perSecond))
}

// aLoudPodIsWrittenALittleAtATime: a provider says something else of it again and again. Some of it
// is written at home, and in the end the last of it.
func aLoudPodIsWrittenALittleAtATime(t *testing.T, w *world) {
	const all = 200 // more than the bytes a pod may cost at once allow
	w.options.Metrics = prometheus.NewRegistry()
	defer w.reflect()()
	w.create(w.home, pod("wordy"))
	remote := w.runAt("wordy", "10.20.1.51")
	waits := func() bool { return w.count("error", "Pod", homeNS, node) > 0 }
	if waits() {
		t.Fatal("a pod waits before anything is said")
	}
	var home corev1.Pod
	said := 0
	for ; said < all && !waits(); said++ {
		remote.Status.Message = fmt.Sprint(said, strings.Repeat("x", 100<<10))
		w.must("speak", w.remote.Status().Update(t.Context(), remote))
		w.exists(w.home, &home, homeNS, "wordy", func() error {
			if waits() {
				return nil
			}
			return equal(remote.Status.Message[:4<<10], home.Status.Message)
		})
	}
	if said < 20 || said == all {
		t.Errorf("it waits after %d changes", said)
	}
	w.exists(w.home, &home, homeNS, "wordy", func() error { return equal(remote.Status.Message[:4<<10], home.Status.Message) })
}

// hostPortsBelongToOnePod: of two pods that name the virtual node as theirs, without the scheduler,
// the later one is not sent, and has failed as on a real node.
func hostPortsBelongToOnePod(t *testing.T, w *world) {
	w.reflect()
	wants := func(name string) *corev1.Pod {
		p := pod(name)
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080, Protocol: corev1.ProtocolTCP}}
		return p
	}
	w.create(w.home, wants("has-port"))
	w.runAt("has-port", "10.20.1.7")
	var home corev1.Pod
	w.exists(w.home, &home, homeNS, "has-port", func() error { return equal(corev1.PodRunning, home.Status.Phase) })
	w.create(w.home, wants("wants-port"))
	w.exists(w.home, &home, homeNS, "wants-port", func() error { return equal("NodePorts", home.Status.Reason) })
	if err := w.remote.Get(t.Context(), types.NamespacedName{Namespace: remoteNS, Name: "wants-port"}, &offv1beta1.ShadowPod{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod is sent whose host port is taken (%v)", err)
	}
}
