// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/reflection/replication"
)

const tenant, remoteTenant = "liqo-tenant-milan", "liqo-tenant-rome"

// lines collects what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) contain(line string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !strings.Contains(strings.ReplaceAll(l.text.String(), `\"`, `"`), line) {
		return fmt.Errorf("log lacks %s:\n%s", line, l.text.String())
	}
	return nil
}

func TestSlicesAreReplicated(t *testing.T) {
	t.Parallel()
	rome, milan, home, remote := consumerAndProvider(t)
	ctx := t.Context()
	var logged lines
	run(t, rome.Config, &logged)

	secret := identitySecret(t, tenant, "milan", milan.Config)
	slice := sliceTo("milan", "mypool")
	create(t, home, slice)
	create(t, home, secret)
	var copied authv1beta1.ResourceSlice
	eventually(t, "the copy of slice mypool", func() error { return remote.Get(ctx, key(remoteTenant, "mypool"), &copied) })
	want := map[string]string{"user": "label", api.LabelReplication: "false", api.LabelReplicated: "true", api.LabelOriginID: "rome", api.LabelRemoteClusterID: "rome", api.LabelRemoteID: "milan"}
	if diff := cmp.Diff(want, copied.Labels); diff != "" {
		t.Error(diff)
	}
	for _, line := range []string{
		`Processing Secret "liqo-tenant-milan/cplane-secret"`,
		`[milan] Starting reflection towards remote cluster`,
		`[milan] Starting reflection of authentication.liqo.io/v1beta1, Resource=resourceslices`,
		`[milan] Reflection of authentication.liqo.io/v1beta1, Resource=resourceslices correctly started`,
	} {
		eventually(t, "a line of the log", func() error { return logged.contain(line) })
	}

	// The answer comes back, and nothing else: whether the slice is Ready is for its own cluster to
	// say.
	copied.Status.Conditions = []authv1beta1.ResourceSliceCondition{
		{Type: "Ready", Status: "True"}, {Type: authv1beta1.ResourceSliceResources, Status: authv1beta1.ResourceSliceAccepted},
	}
	must(t, remote.Status().Update(ctx, &copied))
	eventually(t, "the answer of the slice", func() error {
		must(t, home.Get(ctx, client.ObjectKeyFromObject(slice), slice))
		if len(slice.Status.Conditions) == 0 {
			return errors.New("no answer")
		}
		return nil
	})
	if c := slice.Status.Conditions; len(c) != 1 || c[0].Type != authv1beta1.ResourceSliceResources {
		t.Errorf("the peer's conditions became %+v", c)
	}

	// A change of the request goes there; a change there is taken back; a deleted copy is made
	// anew.
	slice.Spec.Class = "gold"
	must(t, home.Update(ctx, slice))
	class := func(want string) func() error {
		return func() error {
			if err := remote.Get(ctx, key(remoteTenant, "mypool"), &copied); err != nil || copied.Spec.Class == want {
				return err
			}
			return fmt.Errorf("class is %s", copied.Spec.Class)
		}
	}
	eventually(t, "the class in the copy", class("gold"))
	copied.Spec.Class = "lead"
	must(t, remote.Update(ctx, &copied))
	eventually(t, "the class in the copy after somebody changed it", class("gold"))
	must(t, remote.Delete(ctx, &copied))
	eventually(t, "the class in the copy after somebody deleted it", class("gold"))

	// Deletion waits for the copy.
	copied.Finalizers = []string{"example.com/busy"}
	must(t, remote.Update(ctx, &copied))
	must(t, home.Delete(ctx, slice))
	eventually(t, "the deletion of the copy", func() error {
		must(t, remote.Get(ctx, key(remoteTenant, "mypool"), &copied))
		if copied.DeletionTimestamp == nil {
			return errors.New("copy is not being deleted")
		}
		return nil
	})
	must(t, home.Get(ctx, client.ObjectKeyFromObject(slice), slice))
	copied.Finalizers = nil
	must(t, remote.Update(ctx, &copied))
	eventually(t, "the end of the slice", func() error { return absent(home.Get(ctx, client.ObjectKeyFromObject(slice), slice)) })

	// The Secret goes, and what was not deleted is let go with it. Not so a Renew whose Identity
	// has gone: it will be deleted, and its copy is taken back before.
	renew := &authv1beta1.Renew{ObjectMeta: *sliceTo("milan", "mailbox").ObjectMeta.DeepCopy()}
	renew.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: authv1beta1.GroupVersion.String(), Kind: "Identity", Name: "controlplane-milan", UID: "gone", Controller: new(true),
	}}
	renew.Spec.ConsumerClusterID = "rome"
	create(t, home, renew)
	create(t, home, sliceTo("milan", "left"))
	var mailbox authv1beta1.Renew
	eventually(t, "the copy of slice left", func() error { return remote.Get(ctx, key(remoteTenant, "left"), &copied) })
	eventually(t, "the copy of Renew mailbox", func() error { return remote.Get(ctx, key(remoteTenant, "mailbox"), &mailbox) })
	must(t, home.Delete(ctx, secret))
	create(t, home, sliceTo("milan", "later"))
	eventually(t, "the copy of slice later", func() error { return remote.Get(ctx, key(remoteTenant, "later"), &copied) })
	must(t, home.Delete(ctx, renew))
	eventually(t, "the end of the copy of Renew mailbox", func() error { return absent(remote.Get(ctx, key(remoteTenant, "mailbox"), &mailbox)) })
	eventually(t, "the end of the Secret", func() error { return absent(home.Get(ctx, client.ObjectKeyFromObject(secret), secret)) })
	must(t, home.Get(ctx, key(tenant, "left"), slice))
	if len(slice.Finalizers) != 0 {
		t.Errorf("finalizers of the slice left: %v", slice.Finalizers)
	}
}

// replicated is a slice in the consumer and its copy at the peer, between which a replicator runs.
func replicated(t *testing.T) (home, remote client.Client, slice, copied *authv1beta1.ResourceSlice) {
	t.Helper()
	rome, milan, home, remote := consumerAndProvider(t)
	run(t, rome.Config, &lines{})
	slice, copied = sliceTo("milan", "mypool"), &authv1beta1.ResourceSlice{}
	create(t, home, slice)
	create(t, home, identitySecret(t, tenant, "milan", milan.Config))
	eventually(t, "the copy of slice mypool", func() error { return remote.Get(t.Context(), key(remoteTenant, "mypool"), copied) })
	return home, remote, slice, copied
}

// TestAMapInUseStays: who deletes a map at home while there are virtual nodes does not take away
// what is at the provider; the next map takes it over, and goes with it once there are none.
func TestAMapInUseStays(t *testing.T) {
	t.Parallel()
	rome, milan, home, remote := consumerAndProvider(t)
	ctx := t.Context()
	var logged lines
	run(t, rome.Config, &logged)
	create(t, home, identitySecret(t, tenant, "milan", milan.Config))
	node := &offv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan"}, Spec: offv1beta1.VirtualNodeSpec{ClusterID: "milan"}}
	create(t, home, node)
	wishes := func(namespace string) *offv1beta1.NamespaceMap {
		t.Helper()
		m := &offv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan", Labels: map[string]string{
			api.LabelReplication: api.True, api.LabelRemoteID: "milan",
		}}}
		m.Spec.DesiredMapping = map[string]string{namespace: namespace + "-rome"}
		create(t, home, m)
		return m
	}
	var copied offv1beta1.NamespaceMap
	arrives := func(namespace string) types.UID {
		t.Helper()
		eventually(t, "the copy of the map", func() error {
			if err := remote.Get(ctx, key(remoteTenant, "milan"), &copied); err != nil {
				return err
			}
			if copied.Spec.DesiredMapping[namespace] == "" {
				return fmt.Errorf("it maps %v", copied.Spec.DesiredMapping)
			}
			return nil
		})
		return copied.UID
	}
	ends := func(m *offv1beta1.NamespaceMap) {
		t.Helper()
		eventually(t, "the finalizer of the map", func() error { // the finalizer is there
			must(t, home.Get(ctx, client.ObjectKeyFromObject(m), m))
			if len(m.Finalizers) == 0 {
				return errors.New("it is not held")
			}
			return nil
		})
		must(t, home.Delete(ctx, m))
		eventually(t, "the end of the map", func() error { return absent(home.Get(ctx, client.ObjectKeyFromObject(m), &offv1beta1.NamespaceMap{})) })
	}
	first := wishes("shop")
	before := arrives("shop")
	ends(first)
	second := wishes("web")
	if after := arrives("web"); after != before {
		t.Errorf("the copy was made anew: %s became %s", before, after)
	}
	must(t, home.Delete(ctx, node))
	ends(second)
	if err := absent(remote.Get(ctx, key(remoteTenant, "milan"), &copied)); err != nil {
		t.Errorf("without virtual nodes: %v", err)
	}
}

// TestAMapWithoutOurMarkEndsNothing: a copy whose labels somebody took at the provider is not ours
// any more, but its namespaces are there, and pods run in them. The map says what is wrong until
// the mark is back.
func TestAMapWithoutOurMarkEndsNothing(t *testing.T) {
	t.Parallel()
	rome, milan, home, remote := consumerAndProvider(t)
	ctx := t.Context()
	var logged lines
	run(t, rome.Config, &logged)
	create(t, home, identitySecret(t, tenant, "milan", milan.Config))
	wish := &offv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan", Labels: map[string]string{
		api.LabelReplication: api.True, api.LabelRemoteID: "milan",
	}}}
	wish.Spec.DesiredMapping = map[string]string{"shop": "shop-rome"}
	create(t, home, wish)
	var copied offv1beta1.NamespaceMap
	eventually(t, "the copy of the map", func() error { return remote.Get(ctx, key(remoteTenant, "milan"), &copied) })
	copied.Status.CurrentMapping = map[string]offv1beta1.RemoteNamespaceStatus{
		"shop": {RemoteNamespace: "shop-rome", Phase: offv1beta1.NamespaceAccepted},
	}
	must(t, remote.Status().Update(ctx, &copied))
	awaitStatus := func(want string) {
		t.Helper()
		eventually(t, "the status of the map", func() error {
			must(t, home.Get(ctx, client.ObjectKeyFromObject(wish), wish))
			told := string(wish.Status.CurrentMapping["shop"].Phase)
			for _, c := range wish.Status.Conditions {
				told += fmt.Sprintf(" %s=%s %s", c.Type, c.Status, c.Reason)
			}
			if told != want {
				return fmt.Errorf("it is %q, want %q", told, want)
			}
			return nil
		})
	}
	awaitStatus("Accepted")
	marks := copied.Labels
	copied.Labels = nil
	must(t, remote.Update(ctx, &copied))
	awaitStatus("Accepted Stalled=True NameTaken")
	must(t, remote.Get(ctx, key(remoteTenant, "milan"), &copied))
	copied.Labels = marks
	must(t, remote.Update(ctx, &copied))
	awaitStatus("Accepted")
}

// TestSliceThatIsRefusedSaysSo beside the answer it had, until the copy is there again: a provider
// may have taken the copy and the rights in a drain, or bound their number as here.
func TestSliceThatIsRefusedSaysSo(t *testing.T) {
	t.Parallel()
	home, remote, slice, copied := replicated(t)
	ctx := t.Context()
	copied.Status.Conditions = []authv1beta1.ResourceSliceCondition{{Type: authv1beta1.ResourceSliceResources, Status: authv1beta1.ResourceSliceAccepted}}
	must(t, remote.Status().Update(ctx, copied))
	told := func(want string) {
		t.Helper()
		eventually(t, "the conditions of the slice", func() error {
			must(t, home.Get(ctx, client.ObjectKeyFromObject(slice), slice))
			var told []string
			for _, c := range slice.Status.Conditions {
				told = append(told, fmt.Sprintf("%s=%s", c.Type, c.Status))
			}
			if got := strings.Join(told, " "); got != want {
				return fmt.Errorf("conditions are %s, want %s", got, want)
			}
			return nil
		})
	}
	told("Resources=Accepted")
	none := corev1.ResourceList{"count/resourceslices.authentication.liqo.io": resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: remoteTenant, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
	create(t, remote, quota)
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none} // no controller manager runs
	must(t, remote.Status().Update(ctx, quota))
	eventually(t, "the quota of slices", func() error {
		probe := sliceTo("milan", "probe")
		probe.Namespace = remoteTenant
		if err := remote.Create(ctx, probe, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("the quota does not bind yet (%v)", err)
		}
		return nil
	})
	must(t, remote.Delete(ctx, copied))
	told("Resources=Accepted Replicated=False")
	must(t, remote.Delete(ctx, quota))
	told("Resources=Accepted")
}

// TestOthersConditionsStayTheirs: the answer of the peer and what this cluster says of a slice come
// at the same time and lie in one list; what its controller takes back does not come back with an
// answer.
func TestOthersConditionsStayTheirs(t *testing.T) {
	t.Parallel()
	home, remote, slice, copied := replicated(t)
	ctx := t.Context()
	says := func(conditions ...any) {
		t.Helper()
		told := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": append([]any{}, conditions...)}}}
		told.SetGroupVersionKind(authv1beta1.GroupVersion.WithKind("ResourceSlice"))
		told.SetNamespace(tenant)
		told.SetName("mypool")
		must(t, home.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(told), client.FieldOwner("controller"), client.ForceOwnership))
	}
	for i := range 40 {
		says(map[string]any{"type": "Reconciling", "status": "True"})
		answer := fmt.Sprint("answer ", i)
		copied.Status.Conditions = []authv1beta1.ResourceSliceCondition{{Type: authv1beta1.ResourceSliceResources, Status: authv1beta1.ResourceSliceAccepted, Message: answer}}
		must(t, remote.Status().Update(ctx, copied))
		says()
		eventually(t, "the answer of the slice", func() error {
			must(t, home.Get(ctx, client.ObjectKeyFromObject(slice), slice))
			if c := slice.Status.Conditions; len(c) != 1 || c[0].Message != answer {
				return fmt.Errorf("conditions are %+v, want %q alone", c, answer)
			}
			return nil
		})
	}
}

// A peer that was declared dead holds nothing.
func TestDeadPeerHoldsNothing(t *testing.T) {
	t.Parallel()
	rome := apitest.Start(t)
	home, ctx := clientOf(t, rome.Config), t.Context()
	create(t, home, tenantNamespace(tenant, "milan"))
	run(t, rome.Config, &lines{})
	slice := sliceTo("milan", "mypool")
	slice.Finalizers = []string{api.FinalizerReplicated}
	create(t, home, slice)
	nowhere := &rest.Config{Host: "https://127.0.0.1:1"} // port 1: nobody listens
	secret := identitySecret(t, tenant, "milan", nowhere)
	create(t, home, secret)
	eventually(t, "the finalizer of the Secret", func() error {
		must(t, home.Get(ctx, client.ObjectKeyFromObject(secret), secret))
		if len(secret.Finalizers) == 0 {
			return errors.New("replication has not begun")
		}
		return nil
	})
	must(t, home.Delete(ctx, slice))
	must(t, home.Delete(ctx, secret))
	must(t, home.Get(ctx, client.ObjectKeyFromObject(secret), secret))
	create(t, home, &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", Annotations: map[string]string{api.AnnotationPermanentlyUnreachable: "true"}},
		Spec:       corev1beta1.ForeignClusterSpec{ClusterID: "milan"},
	})
	eventually(t, "the end of the slice", func() error { return absent(home.Get(ctx, client.ObjectKeyFromObject(slice), slice)) })
	eventually(t, "the end of the Secret", func() error { return absent(home.Get(ctx, client.ObjectKeyFromObject(secret), secret)) })
}

// consumerAndProvider starts the API servers of rome and milan, with the tenant namespaces they
// have for each other.
func consumerAndProvider(t *testing.T) (rome, milan *apitest.Server, home, remote client.Client) {
	t.Helper()
	rome, milan = apitest.Start(t), apitest.Start(t)
	home, remote = clientOf(t, rome.Config), clientOf(t, milan.Config)
	create(t, home, tenantNamespace(tenant, "milan"))
	create(t, remote, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: remoteTenant}})
	return rome, milan, home, remote
}

// run runs the replication of rome until the returned function is called, or the test ends.
func run(t *testing.T, config *rest.Config, logged *lines, options ...func(*manager.Options)) (stop func()) {
	t.Helper()
	all := manager.Options{
		Scheme:  scheme.New(),
		Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctl.Queues(),
		Logger: textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(logged))),
	}
	for _, set := range options {
		set(&all)
	}
	mgr, err := manager.New(config, all)
	must(t, err)
	links := &remote.Fleet{}
	for _, c := range append(replication.Controllers(replication.Options{ClusterID: "rome", Links: links}), links) {
		must(t, c.Register(mgr))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		must(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// TestEnginesEndWithTheManager: when the manager has ended nothing of an engine goes on, once what reads from closed
// connections has seen that. It is not parallel, because it looks for goroutines.
func TestEnginesEndWithTheManager(t *testing.T) {
	rome, milan, home, remote := consumerAndProvider(t)
	stop := run(t, rome.Config, &lines{})
	create(t, home, sliceTo("milan", "mypool"))
	create(t, home, identitySecret(t, tenant, "milan", milan.Config))
	eventually(t, "the copy of slice mypool", func() error {
		return remote.Get(t.Context(), key(remoteTenant, "mypool"), &authv1beta1.ResourceSlice{})
	})
	stop()
	stacks := make([]byte, 1<<22)
	eventually(t, "the end of all goroutines", func() error {
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "reflection.(*Engine)") || strings.Contains(stack, "reflection.(*worker)") || strings.Contains(stack, "remote.connection") {
				return fmt.Errorf("goes on:\n%s", stack)
			}
		}
		return nil
	})
}

// TestAPeerIsLeftThoughNobodyLooked: what was deleted while no controller ran waits for its copy,
// and its Secret with it. A Secret that cannot be used holds nothing.
func TestAPeerIsLeftThoughNobodyLooked(t *testing.T) {
	t.Parallel()
	rome, milan, home, remote := consumerAndProvider(t)
	ctx := t.Context()
	stop := run(t, rome.Config, &lines{})
	copied := &authv1beta1.ResourceSlice{}
	begin := func() (*authv1beta1.ResourceSlice, *corev1.Secret) {
		t.Helper()
		slice, secret := sliceTo("milan", "mypool"), identitySecret(t, tenant, "milan", milan.Config)
		create(t, home, slice)
		create(t, home, secret)
		eventually(t, "the copy of slice mypool", func() error { return remote.Get(ctx, key(remoteTenant, "mypool"), copied) })
		return slice, secret
	}
	slice, secret := begin()
	copied.Finalizers = []string{"example.com/busy"}
	must(t, remote.Update(ctx, copied))
	stop()
	must(t, home.Delete(ctx, slice))
	must(t, home.Delete(ctx, secret))
	stop = run(t, rome.Config, &lines{})
	held := func() {
		t.Helper()
		must(t, home.Get(ctx, client.ObjectKeyFromObject(slice), slice))
		must(t, home.Get(ctx, client.ObjectKeyFromObject(secret), secret))
	}
	eventually(t, "the deletion of the copy", func() error {
		held()
		must(t, remote.Get(ctx, key(remoteTenant, "mypool"), copied))
		if copied.DeletionTimestamp == nil {
			return errors.New("copy is not being deleted")
		}
		return nil
	})
	held()
	copied.Finalizers = nil
	must(t, remote.Update(ctx, copied))
	eventually(t, "the end of the slice", func() error { return absent(home.Get(ctx, client.ObjectKeyFromObject(slice), slice)) })
	eventually(t, "the end of the Secret", func() error { return absent(home.Get(ctx, client.ObjectKeyFromObject(secret), secret)) })
	must(t, absent(remote.Get(ctx, key(remoteTenant, "mypool"), copied)))

	slice, secret = begin()
	stop()
	must(t, home.Get(ctx, client.ObjectKeyFromObject(secret), secret))
	secret.Data = nil
	must(t, home.Update(ctx, secret))
	must(t, home.Delete(ctx, slice))
	must(t, home.Delete(ctx, secret))
	run(t, rome.Config, &lines{})
	eventually(t, "the end of the slice without a kubeconfig", func() error { return absent(home.Get(ctx, client.ObjectKeyFromObject(slice), slice)) })
	eventually(t, "the end of the Secret without a kubeconfig", func() error { return absent(home.Get(ctx, client.ObjectKeyFromObject(secret), secret)) })
}

// TestSliceIsNotCached: a deleted Secret leaves no finalizer on a slice that the cache does not show.
func TestSliceIsNotCached(t *testing.T) {
	t.Parallel()
	rome, milan, home, _ := consumerAndProvider(t)
	ctx := t.Context()
	shown := labels.SelectorFromSet(labels.Set{"shown": api.True})
	run(t, rome.Config, &lines{}, func(o *manager.Options) {
		o.Cache.ByObject = map[client.Object]cache.ByObject{&authv1beta1.ResourceSlice{}: {Label: shown}}
	})
	slice, secret := sliceTo("milan", "mypool"), identitySecret(t, tenant, "milan", milan.Config)
	slice.Finalizers = []string{api.FinalizerReplicated}
	create(t, home, slice)
	create(t, home, secret)
	eventually(t, "the Secret is in use", func() error {
		must(t, home.Get(ctx, client.ObjectKeyFromObject(secret), secret))
		if len(secret.Finalizers) == 0 {
			return errors.New("it has no finalizer")
		}
		return nil
	})
	must(t, home.Delete(ctx, secret))
	eventually(t, "the Secret is gone", func() error { return absent(home.Get(ctx, client.ObjectKeyFromObject(secret), secret)) })
	must(t, home.Get(ctx, client.ObjectKeyFromObject(slice), slice))
	if len(slice.Finalizers) > 0 {
		t.Errorf("the slice is left with %v", slice.Finalizers)
	}
}

// TestPeersLeaveEachOthersAlone: what is replicated to one provider is not touched by the
// replication to another one, which has the same finalizer.
func TestPeersLeaveEachOthersAlone(t *testing.T) {
	t.Parallel()
	rome, there := apitest.Start(t), apitest.Start(t) // one API server is both providers
	home, remote := clientOf(t, rome.Config), clientOf(t, there.Config)
	ctx := t.Context()
	run(t, rome.Config, &lines{})
	maps := map[string]*offv1beta1.NamespaceMap{}
	for _, peer := range []string{"milan", "turin"} {
		namespace := "liqo-tenant-" + peer
		create(t, home, tenantNamespace(namespace, peer))
		create(t, remote, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "at-" + peer}})
		create(t, home, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: "cplane-secret", Namespace: namespace,
				Labels:      map[string]string{api.LabelIdentityType: "ControlPlane", api.LabelRemoteClusterID: peer},
				Annotations: map[string]string{api.AnnotationRemoteTenantNamespace: "at-" + peer},
			},
			Data: map[string][]byte{api.KubeconfigField: kubeconfig(t, there.Config)},
		})
		maps[peer] = &offv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
			Name: "map", Namespace: namespace, Labels: map[string]string{api.LabelReplication: "true", api.LabelRemoteID: peer},
		}, Spec: offv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"shop": "shop-rome"}}}
		create(t, home, maps[peer])
	}
	// answer writes the status there and waits for it here.
	answer := func(peer, name string) {
		t.Helper()
		copied := &offv1beta1.NamespaceMap{}
		eventually(t, "the copy of the map", func() error {
			if err := remote.Get(ctx, key("at-"+peer, "map"), copied); err != nil {
				return err
			}
			copied.Status.CurrentMapping = map[string]offv1beta1.RemoteNamespaceStatus{"shop": {RemoteNamespace: name, Phase: offv1beta1.NamespaceAccepted}}
			return remote.Status().Update(ctx, copied)
		})
		eventually(t, "the answer of the map", func() error {
			must(t, home.Get(ctx, client.ObjectKeyFromObject(maps[peer]), maps[peer]))
			if maps[peer].Status.CurrentMapping["shop"].RemoteNamespace != name {
				return errors.New("no answer")
			}
			return nil
		})
	}
	answer("turin", "first")
	answer("milan", "first")
	before := maps["milan"].ResourceVersion
	answer("turin", "second") // its engine has seen milan's answer before
	must(t, home.Get(ctx, client.ObjectKeyFromObject(maps["milan"]), maps["milan"]))
	if now := maps["milan"]; now.ResourceVersion != before {
		t.Errorf("the map for milan was written when nobody asked for it: %+v", now.Status)
	}
}

// TestOnlyATenantNamespaceHoldsAnIdentity: whoever may write Secrets elsewhere, or is another peer,
// starts nothing in a peer's name. Labels may come after the Secret.
func TestOnlyATenantNamespaceHoldsAnIdentity(t *testing.T) {
	t.Parallel()
	rome := apitest.Start(t)
	home, ctx := clientOf(t, rome.Config), t.Context()
	run(t, rome.Config, &lines{})
	nowhere := &rest.Config{Host: "https://127.0.0.1:1"} // port 1: nobody listens
	offloaded := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-oslo", Labels: map[string]string{api.LabelRemoteClusterID: "milan"}}}
	late := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}
	var secrets []*corev1.Secret
	for _, namespace := range []*corev1.Namespace{offloaded, tenantNamespace("liqo-tenant-oslo", "oslo"), late} {
		secret := identitySecret(t, namespace.Name, "milan", nowhere)
		create(t, home, namespace)
		create(t, home, secret)
		secrets = append(secrets, secret)
	}
	late.Labels = tenantNamespace(tenant, "milan").Labels
	must(t, home.Update(ctx, late))
	eventually(t, "the finalizer of the Secret", func() error {
		must(t, home.Get(ctx, client.ObjectKeyFromObject(secrets[2]), secrets[2]))
		if len(secrets[2].Finalizers) == 0 {
			return errors.New("replication has not begun")
		}
		return nil
	})
	for _, secret := range secrets[:2] {
		must(t, home.Get(ctx, client.ObjectKeyFromObject(secret), secret))
		if len(secret.Finalizers) > 0 {
			t.Errorf("secret %s/%s counts as the identity at milan", secret.Namespace, secret.Name)
		}
	}
}

func tenantNamespace(name, peer string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: peer,
	}}}
}

// identitySecret holds the credentials of the control plane at a peer.
func identitySecret(t *testing.T, namespace, peer string, server *rest.Config) *corev1.Secret {
	t.Helper()
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "cplane-secret", Namespace: namespace,
			Labels:      map[string]string{api.LabelIdentityType: "ControlPlane", api.LabelRemoteClusterID: peer},
			Annotations: map[string]string{api.AnnotationRemoteTenantNamespace: remoteTenant},
		},
		Data: map[string][]byte{api.KubeconfigField: kubeconfig(t, server)},
	}
}

func sliceTo(peer, name string) *authv1beta1.ResourceSlice {
	return &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: tenant,
			Labels: map[string]string{"user": "label", api.LabelReplication: "true", api.LabelRemoteID: peer, api.LabelRemoteClusterID: peer},
		},
		Spec: authv1beta1.ResourceSliceSpec{Class: "default"},
	}
}

// kubeconfig writes a configuration as users keep it in the Secret.
func kubeconfig(t *testing.T, c *rest.Config) []byte {
	t.Helper()
	text, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "default-context",
		Contexts:       map[string]*clientcmdapi.Context{"default-context": {Cluster: "milan", AuthInfo: "rome"}},
		Clusters:       map[string]*clientcmdapi.Cluster{"milan": {Server: c.Host, CertificateAuthorityData: c.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"rome": {ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, Token: c.BearerToken}},
	})
	must(t, err)
	return text
}

func clientOf(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	must(t, err)
	return c
}

func create(t *testing.T, c client.Client, obj client.Object) {
	t.Helper()
	must(t, c.Create(t.Context(), obj))
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func absent(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("still there (%v)", err)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, patience.Limit, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatal(patience.GaveUp(what, last))
	}
}
