// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/reflection"
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

func newWorld(t *testing.T) *world {
	rome, milan := apitest.Start(t), apitest.Start(t)
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
	w.create(w.remote, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteNS}})
	w.grantAtHome("virtual-kubelet")
	w.grantAtProvider()
	w.create(w.home, &offv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: tenant}, Spec: offv1beta1.VirtualNodeSpec{ClusterID: provider}})
	w.mapNamespace(remoteNS)
	conf := &netv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Name: provider, Namespace: tenant, Labels: map[string]string{api.LabelRemoteClusterID: provider}}}
	conf.Spec.Remote = &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{"10.20.0.0/16"}}}
	w.create(w.home, conf)
	conf.Status.Remote = &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{"10.71.0.0/16"}}}
	w.must("status of configuration", w.home.Status().Update(w.Context(), conf))
	return w
}

// grantAtHome gives a user the generated role of virtual kubelets.
func (w *world) grantAtHome(user string) {
	w.Helper()
	text, err := os.ReadFile("../deploy/liqo/files/rbac/kubelet.yaml")
	w.must("read the role of virtual kubelets", err)
	role := &rbacv1.ClusterRole{}
	w.must("decode the role of virtual kubelets", yaml.Unmarshal(text, role))
	role.ObjectMeta = metav1.ObjectMeta{Name: "liqo-virtual-kubelet-local"}
	w.create(w.home, role)
	w.create(w.home, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-node-" + node},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
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

func clientOf(t *testing.T, s *apitest.Server) client.Client {
	c, err := client.New(s.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mapNamespace plays the provider's answer to the NamespaceMap; "" takes the namespace away.
func (w *world) mapNamespace(remote string) {
	w.Helper()
	m := &offv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Name: provider, Namespace: tenant}}
	if err := w.home.Create(w.Context(), m); err != nil && !apierrors.IsAlreadyExists(err) {
		w.Fatal(err)
	}
	w.must("read namespace map", w.home.Get(w.Context(), client.ObjectKeyFromObject(m), m))
	m.Spec.DesiredMapping = map[string]string{homeNS: remoteNS}
	w.must("write namespace map", w.home.Update(w.Context(), m))
	m.Status.CurrentMapping = map[string]offv1beta1.RemoteNamespaceStatus{}
	if remote != "" {
		m.Status.CurrentMapping[homeNS] = offv1beta1.RemoteNamespaceStatus{RemoteNamespace: remote, Phase: offv1beta1.NamespaceAccepted}
	}
	w.must("write status of namespace map", w.home.Status().Update(w.Context(), m))
}

// reflect runs the reflection until the returned function is called.
func (w *world) reflect() (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- reflection.Run(ctx, w.options) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("run: %v", err)
		}
	}
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
	err := wait.PollUntilContextTimeout(w.Context(), 20*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		w.Fatalf("%s: %v", what, last)
	}
}

// exists waits for an object and, if given, until it is as wanted.
func (w *world) exists(c client.Client, obj client.Object, namespace, name string, as ...func() error) {
	w.Helper()
	w.eventually(fmt.Sprintf("wait for %T %s/%s", obj, namespace, name), func(ctx context.Context) error {
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
	w.eventually(fmt.Sprintf("wait for the end of %T %s/%s", obj, namespace, name), func(ctx context.Context) error {
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
	w.eventually("wait for event "+reason+" on "+name, func(ctx context.Context) error {
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
	w := newWorld(t)
	for _, story := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"config follows home", configFollowsHome},
		{"endpoints elsewhere are reflected", endpointsElsewhereAreReflected},
		{"a burst of pods costs few requests", aBurstOfPodsCostsFewRequests},
		{"pod runs at the provider", podRunsAtTheProvider},
		{"one of two virtual nodes reflects what both share", oneOfTwoNodesReflects},
	} {
		t.Run(story.name, func(t *testing.T) {
			here := *w
			here.T = t
			story.run(t, &here)
		})
	}
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

	// Deleted at the provider: made anew.
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
func (w *world) runAt(name, ip string) *corev1.Pod {
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
	w.exists(w.remote, &tokens, remoteNS, "web-token")
	if len(tokens.Data) != 1 || tokens.Labels[api.LabelServiceAccountName] != "default" {
		t.Errorf("tokens: %v", tokens.Labels)
	}

	// Its status comes back, addresses translated.
	remote := w.runAt("web", "10.20.1.7")
	var home corev1.Pod
	w.exists(w.home, &home, homeNS, "web", func() error { return equal(corev1.PodRunning, home.Status.Phase) })
	got := []string{home.Status.PodIP, home.Status.HostIP, home.Labels[api.LabelShadowPod], fmt.Sprint(home.Status.ContainerStatuses[0].RestartCount)}
	if err := equal([]string{"10.71.1.7", "10.10.0.9", "true", "1"}, got); err != nil {
		t.Error(err)
	}

	// What the provider says about it is shown, but for what the status tells.
	for _, reason := range []string{"Started", "Backoffish"} {
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
	if err := w.home.Get(t.Context(), types.NamespacedName{Namespace: homeNS, Name: "web.started"}, &corev1.Event{}); !apierrors.IsNotFound(err) {
		t.Errorf("a routine event is shown (%v)", err)
	}

	// A restart of the reflection writes nothing.
	stop()
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
	w.gone(w.remote, &tokens, remoteNS, "web-token")

	// A pod that finishes needs its tokens no more. Nothing was switched off for that.
	w.create(w.home, pod("job"))
	w.exists(w.remote, &tokens, remoteNS, "job-token")
	job := w.runAt("job", "10.20.1.10")
	job.Status.Phase = corev1.PodSucceeded
	w.must("finish", w.remote.Status().Update(t.Context(), job))
	w.exists(w.home, &home, homeNS, "job", func() error { return equal(corev1.PodSucceeded, home.Status.Phase) })
	w.gone(w.remote, &tokens, remoteNS, "job-token")

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
	other.options.Node = second
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

	// Each runs its own pods.
	p := pod("at-second")
	p.Spec.NodeName = second
	w.create(w.home, p)
	w.exists(w.remote, &offv1beta1.ShadowPod{}, remoteNS, "at-second")
	if err := by(node)(); err != nil {
		t.Errorf("two reflect: %v", err)
	}

	// The first goes, and the second does its work.
	stopFirst()
	cm.Data["by"] = "second"
	w.must("update", w.home.Update(t.Context(), cm))
	w.exists(w.remote, &remote, remoteNS, "both", by(second))
}

func endpointsElsewhereAreReflected(t *testing.T, w *world) {
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
		if s.Spec.ClusterIP == service.Spec.ClusterIP {
			return errors.New("the address is that of home")
		}
		return equal(service.Spec.Selector, s.Spec.Selector)
	})

	// An address nobody can reach there.
	slice.Endpoints[0].Addresses = []string{"192.168.1.1"}
	w.must("update", w.home.Update(t.Context(), slice))
	w.event("web-1", "FailedReflection", "192.168.1.1 not found")
}
