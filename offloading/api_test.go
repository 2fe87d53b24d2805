// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/offloading"
	"github.com/liqo-go/liqo/offloading/plan"
)

// cluster is a real API server on which controllers and admission server of the room run. There is
// no scheduler, garbage collector or controller manager; tests do their work.
type cluster struct {
	client.Client
	server *apitest.Server
	port   int
	// stop ends the controllers, before the test does.
	stop func()
}

func start(t *testing.T, wraps ...transport.WrapperFunc) cluster {
	t.Helper()
	server := apitest.Start(t)
	c, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	k := cluster{Client: c, server: server, port: freePort(t)}
	k.create(t, namespace("liqo", nil))
	k.webhooks(t, k.port)
	k.bind(t, "controller", "../deploy/liqo/files/rbac/controller.yaml")
	config := server.ConfigFor("controller")
	for _, wrap := range wraps {
		config.Wrap(wrap)
	}
	k.stop = run(t, config, k.port)
	return k
}

// bind gives a user the rights a process has in an installation.
func (k cluster) bind(t *testing.T, user, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.Unmarshal(text, role); err != nil {
		t.Fatal(err)
	}
	k.create(t, role, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	})
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// webhooks leads the API server to the admission server by the Service's name, which the
// certificate is for; the Service is an alias of this machine.
func (k cluster) webhooks(t *testing.T, port int) {
	t.Helper()
	k.create(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: api.ControllerManagerName, Namespace: "liqo"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{
			{Port: int32(port)},
		}},
	})
	config := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
			Name: api.ControllerManagerName, Namespace: "liqo", Path: &path, Port: new(int32(port)),
		}}
	}
	rule := func(group, version, resource string, operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{Operations: operations, Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource},
		}}}
	}
	none, ignore := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Ignore
	k.create(t, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: api.WebhookName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "pod.mutate.liqo.io", ClientConfig: config("/mutate/pod"), Rules: rule("", "v1", "pods", "CREATE", "UPDATE"), FailurePolicy: &ignore,
			SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{api.LabelSchedulingEnabled: api.True}},
		}, {
			Name: "shadowpod.mutate.liqo.io", ClientConfig: config("/mutate/shadowpods"), SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			Rules: rule("offloading.liqo.io", "v1beta1", "shadowpods", "CREATE", "UPDATE"),
		}, {
			Name: "podcertificate.mutate.liqo.io", ClientConfig: config("/mutate/podcertificaterequests"), SideEffects: &none,
			Rules: rule("certificates.k8s.io", "v1", "podcertificaterequests", "CREATE"), AdmissionReviewVersions: []string{"v1"},
		}},
	})
}

// run starts the room in a manager set up like that of the controller role, and returns how to end it.
func run(t *testing.T, config *rest.Config, port int) func() {
	t.Helper()
	mgr, err := manager.New(config, manager.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctl.Queues(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range offloading.Controllers(offloading.Options{
		Kubelet: plan.KubeletSettings{ClusterID: "milan", LiqoNamespace: "liqo", ReflectIPs: true, RuntimeClass: api.RuntimeClassName},
		NamespaceBounds: plan.NamespaceBounds{
			Quota: corev1.ResourceList{"count/configmaps": resource.MustParse("10")}, Secrets: 10, ClaimSize: resource.MustParse("1Ti"),
		},
		DefaultOptions: types.NamespacedName{Namespace: "liqo", Name: api.VkOptionsTemplateName}, GuestPods: plan.GuestPods{RuntimeClasses: []string{"tolerant"}}, EnforceResources: true, ReplaceLostPods: true, PodSecurity: "baseline", WebhookPort: port, WebhookSecret: api.WebhookCertsSecret,
	}) {
		if err := r.Register(mgr); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func namespace(name string, set map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}}
}

func (k cluster) create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, obj := range objects {
		if err := k.Create(t.Context(), obj); err != nil {
			t.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
		}
	}
}

// says changes the status of an object, and retries after conflicts.
func (k cluster) says(t *testing.T, obj client.Object, what func()) {
	t.Helper()
	before := obj.DeepCopyObject().(client.Object)
	what()
	if err := k.Status().Patch(t.Context(), obj, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// admits creates a pod once admission treats it as wanted, which takes until caches and webhook
// configuration are up to date.
func (k cluster) admits(t *testing.T, pod *corev1.Pod, tolerates bool) {
	t.Helper()
	k.until(t, "admission of pod "+pod.Name, func(ctx context.Context) error {
		trial := pod.DeepCopy()
		err := k.Create(ctx, trial, client.DryRunAll)
		if err == nil && tolerated(trial) != tolerates {
			err = fmt.Errorf("tolerations %v", trial.Spec.Tolerations)
		}
		return err
	})
	k.create(t, pod)
	if tolerated(pod) != tolerates {
		t.Errorf("admission gave pod %s the tolerations %v", pod.Name, pod.Spec.Tolerations)
	}
}

// until waits for a condition, which returns what is still missing.
func (k cluster) until(t *testing.T, what string, met func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		err := met(ctx)
		if ctx.Err() == nil { // else err reports the limit
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(patience.GaveUp(what, last))
	}
}

// gone is the condition that an object does not exist.
func (k cluster) gone(obj client.Object) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		if err == nil {
			return fmt.Errorf("%T %s is still there, finalizers %v", obj, obj.GetName(), obj.GetFinalizers())
		}
		return client.IgnoreNotFound(err)
	}
}

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

func container(cpu string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
	}}}}
}

// TestConsumer shows the life of a virtual node: it gets its kubelet and NamespaceMap, an offloaded
// namespace is mapped, admission changes its pods, earlier pods are replaced, and everything is
// deleted at the end.
func TestConsumer(t *testing.T) {
	t.Parallel()
	k := start(t)
	options := &offloadingv1beta1.VkOptionsTemplate{ObjectMeta: metav1.ObjectMeta{Name: api.VkOptionsTemplateName, Namespace: "liqo"}}
	options.Spec.ContainerImage, options.Spec.CreateNode = "liqo:v1", true
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: "rome", Namespace: "tenant-rome"}}
	vn.Spec.ClusterID, vn.Spec.KubeconfigSecretRef = "rome", &corev1.LocalObjectReference{Name: "kubeconfig"}
	first := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "first", Namespace: "demo"}, Spec: container("1")}
	nso := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: "offloading", Namespace: "demo"}}
	k.create(t, options, namespace("demo", nil),
		namespace("tenant-rome", map[string]string{api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: "rome"}), first, vn, nso)

	full, placeless := k.placeless(t)

	deployment := &appsv1.Deployment{}
	k.until(t, "virtual kubelet", func(ctx context.Context) error { return k.Get(ctx, key("tenant-rome", "vk-rome"), deployment) })
	binding := &rbacv1.ClusterRoleBinding{}
	k.until(t, "rights", func(ctx context.Context) error { return k.Get(ctx, key("", "liqo-node-rome"), binding) })
	nsmap := &offloadingv1beta1.NamespaceMap{}
	k.until(t, "map", func(ctx context.Context) error {
		err := k.Get(ctx, key("tenant-rome", "rome"), nsmap)
		if err == nil && nsmap.Spec.DesiredMapping["demo"] != "demo-milan" {
			err = fmt.Errorf("mapping %v", nsmap.Spec.DesiredMapping)
		}
		return err
	})
	k.until(t, "the pod that came first", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(first), first)
		if err == nil && !tolerated(first) {
			err = fmt.Errorf("tolerations %v", first.Spec.Tolerations)
		}
		return err
	})
	k.admits(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "second", Namespace: "demo"}, Spec: container("1")}, true)

	k.admitsClaims(t)

	k.says(t, nsmap, func() {
		nsmap.Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"demo": {RemoteNamespace: "demo-milan", Phase: offloadingv1beta1.NamespaceAccepted},
		}
	})
	k.until(t, "phase", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(nso), nso)
		if err == nil && nso.Status.OffloadingPhase != offloadingv1beta1.OffloadingReady {
			err = fmt.Errorf("status %+v", nso.Status)
		}
		return err
	})
	k.keepsVolumes(t, vn, nso)
	k.losesItsNode(t, vn)
	k.endConsumer(t, vn, nso)
	k.goesBack(t, full, placeless)
}

// keepsVolumes shows that a namespace whose selector does not match the provider's labels any more
// stays mapped until its volume is deleted.
func (k cluster) keepsVolumes(
	t *testing.T, vn *offloadingv1beta1.VirtualNode, nso *offloadingv1beta1.NamespaceOffloading,
) {
	t.Helper()
	patch := func(obj client.Object, text string) {
		t.Helper()
		if err := k.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	mapped := func(wanted bool, selectors string) {
		t.Helper()
		k.until(t, fmt.Sprintf("mapped: %t", wanted), func(ctx context.Context) error {
			m := &offloadingv1beta1.NamespaceMap{}
			err := k.Get(ctx, key("tenant-rome", "rome"), m)
			matched := strings.HasPrefix(m.Annotations["offloading.liqo.io/selectors"], selectors)
			if err == nil && ((m.Spec.DesiredMapping["demo"] != "") != wanted || !matched) {
				err = fmt.Errorf("mapping %v, annotations %v", m.Spec.DesiredMapping, m.Annotations)
			}
			return err
		})
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "held", Namespace: "demo"}}
	claim.Finalizers = []string{api.ClaimFinalizer("rome")}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	k.create(t, claim)
	patch(vn, `{"spec":{"labels":{"tier":"gold"}}}`)
	patch(nso, `{"spec":{"clusterSelector":{"nodeSelectorTerms":[
		{"matchExpressions":[{"key":"tier","operator":"Exists"}]}]}}}`)
	mapped(true, "demo=")
	patch(vn, `{"spec":{"labels":{"tier":null,"class":"gold"}}}`)
	k.until(t, "the reason why the namespace stays", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(nso), nso)
		ready := meta.FindStatusCondition(nso.Status.Conditions, desired.ConditionReady)
		if err == nil && (ready == nil || ready.Reason != "VolumesKept") {
			err = fmt.Errorf("condition %+v", ready)
		}
		return err
	})
	mapped(true, "demo=")
	patch(claim, `{"metadata":{"finalizers":null}}`)
	patch(vn, `{"spec":{"labels":{"class":"silver"}}}`)
	mapped(false, "")
	patch(nso, `{"spec":{"clusterSelector":null}}`)
	mapped(true, "")
}

// losesItsNode shows that a node without createNode is drained and deleted, and created again with
// createNode. Labels of users are kept.
func (k cluster) losesItsNode(t *testing.T, vn *offloadingv1beta1.VirtualNode) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: vn.Name, Labels: map[string]string{api.LabelType: api.TypeVirtualNode, "rack": "7"}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "there", Namespace: "demo"}, Spec: container("1")}
	pod.Spec.NodeName = node.Name
	k.create(t, node, pod)
	createNode := func(wanted string) {
		if err := k.Patch(t.Context(), vn, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"createNode":`+wanted+`}}`))); err != nil {
			t.Fatal(err)
		}
	}
	told := func(wanted bool) {
		k.until(t, "the kubelet is told "+fmt.Sprint(wanted), func(ctx context.Context) error {
			deployment := &appsv1.Deployment{}
			err := k.Get(ctx, key(vn.Namespace, "vk-"+vn.Name), deployment)
			if args := deployment.Spec.Template.Spec.Containers; err == nil && slices.Contains(args[0].Args, "--create-node=false") == wanted {
				err = fmt.Errorf("arguments %v", args[0].Args)
			}
			return err
		})
	}
	cordoned := func(wanted bool) {
		k.until(t, fmt.Sprintf("cordoned: %t", wanted), func(ctx context.Context) error {
			err := k.Get(ctx, client.ObjectKeyFromObject(node), node)
			if err == nil && node.Spec.Unschedulable != wanted {
				err = fmt.Errorf("unschedulable: %t", node.Spec.Unschedulable)
			}
			return err
		})
	}
	createNode("false")
	cordoned(true)
	createNode("true")
	cordoned(false)
	createNode("false")
	k.until(t, "eviction", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if err == nil && pod.DeletionTimestamp == nil {
			err = fmt.Errorf("the pod stays")
		}
		return err
	})
	told(true)
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		t.Errorf("the node went before its pod: %v", err)
	}
	if err := k.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	k.until(t, "the node's end", k.gone(node))
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(vn), vn); err != nil || vn.Annotations["offloading.liqo.io/labels-of-users"] != "rack=7" {
		t.Errorf("the labels users put on the node are forgotten: %v (%v)", vn.Annotations, err)
	}
	told(false)
	createNode("true")
	told(true)
}

// owned returns a pod whose controller would replace it.
func owned(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "demo", OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: new(true),
	}}}, Spec: container("1")}
}

// placeless creates a virtual node and a pod for which its provider has no room.
func (k cluster) placeless(t *testing.T) (*corev1.Node, *corev1.Pod) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "full", Labels: map[string]string{api.LabelType: api.TypeVirtualNode}}}
	pod := owned("placeless")
	pod.Spec.NodeName = node.Name
	k.create(t, node, pod)
	k.says(t, node, func() {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	})
	k.says(t, pod, func() {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/2 nodes are available",
		}}
	})
	return node, pod
}

// goesBack shows that half a minute after its creation the pod is deleted, and that the node is
// tainted.
func (k cluster) goesBack(t *testing.T, node *corev1.Node, pod *corev1.Pod) {
	t.Helper()
	made := pod.CreationTimestamp.Time
	k.until(t, "the pod's end", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if err == nil && pod.DeletionTimestamp == nil {
			err = fmt.Errorf("the pod stays")
		}
		return client.IgnoreNotFound(err)
	})
	if age := time.Since(made); age < 30*time.Second {
		t.Errorf("the provider was given %s to find a place", age)
	}
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil ||
		!slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == api.NoRoomTaintKey }) {
		t.Errorf("the node has taints %v (%v)", node.Spec.Taints, err)
	}
	var told eventsv1.EventList
	k.until(t, "event", func(ctx context.Context) error {
		err := k.List(ctx, &told, client.InNamespace("demo"))
		if err == nil && !slices.ContainsFunc(told.Items, func(e eventsv1.Event) bool {
			return e.Reason == "ProviderHasNoRoom" && strings.Contains(e.Note, "0/2 nodes are available")
		}) {
			err = fmt.Errorf("nobody is told")
		}
		return err
	})
}

// admitsClaims shows which pods with claims may run in another cluster: those whose volumes can be
// in any cluster, and those that select virtual nodes.
func (k cluster) admitsClaims(t *testing.T) {
	t.Helper()
	k.create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, Provisioner: api.StorageProvisioner},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Provisioner: "example.com/disk"})
	for _, class := range []string{"liqo", "disk"} {
		spec := corev1.PersistentVolumeClaimSpec{
			StorageClassName: new(class), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}
		k.create(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: class, Namespace: "demo"}, Spec: spec})
		for name, source := range map[string]corev1.VolumeSource{
			"claims-" + class: {PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: class}},
			"brings-" + class: {Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: spec}}},
		} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "demo"}, Spec: container("1")}
			pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}}
			k.admits(t, pod, class == "liqo")
		}
	}
	far := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "far", Labels: map[string]string{api.LabelType: api.TypeVirtualNode, "region": "far"}}}
	k.create(t, far)
	chooses := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "chooses", Namespace: "demo"}, Spec: container("1")}
	chooses.Spec.NodeSelector = map[string]string{"region": "far"}
	chooses.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}}
	k.admits(t, chooses, true)
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(chooses), chooses); err != nil {
		t.Fatal(err)
	}
	chooses.Spec.Tolerations = []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}} // as a manifest says
	if err := k.Update(t.Context(), chooses); err != nil || !tolerated(chooses) {
		t.Errorf("pod that leaves out its toleration: %v; %v", err, chooses.Spec.Tolerations)
	}
	if err := k.Delete(t.Context(), far); err != nil {
		t.Fatal(err)
	}
}

func tolerated(pod *corev1.Pod) bool {
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.Key == api.VirtualNodeTaintKey {
			return true
		}
	}
	return false
}

// endConsumer deletes offloading and virtual node. The provider never responds and is declared
// dead, so nothing waits for it.
func (k cluster) endConsumer(t *testing.T, vn *offloadingv1beta1.VirtualNode, nso *offloadingv1beta1.NamespaceOffloading) {
	t.Helper()
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rome", Labels: map[string]string{api.LabelType: api.TypeVirtualNode}}}
	bound := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bound", Namespace: "demo"}, Spec: container("1")}
	bound.Spec.NodeName = "rome"
	waits := owned("waits")
	kubelet := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "vk-rome-0", Namespace: vn.Namespace, Labels: map[string]string{api.LabelVirtualNode: vn.Name}}, Spec: container("1")}
	k.create(t, node, bound, waits, kubelet)
	kubelets, strangers := k.servingRequests(t, vn)
	for _, obj := range []client.Object{nso, vn} {
		if err := k.Delete(ctx, obj); err != nil {
			t.Fatal(err)
		}
	}
	k.until(t, "cordon", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(node), node)
		if err == nil && !node.Spec.Unschedulable {
			err = fmt.Errorf("node is schedulable")
		}
		return err
	})
	k.until(t, "phase", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(nso), nso)
		if err == nil && nso.Status.OffloadingPhase != offloadingv1beta1.OffloadingTerminating {
			err = fmt.Errorf("status %+v", nso.Status)
		}
		return err
	})
	k.until(t, "eviction", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(bound), bound)
		if err == nil && bound.DeletionTimestamp == nil {
			err = fmt.Errorf("the pod stays")
		}
		return err
	})
	k.until(t, "the end of the pod that was to be offloaded", k.gone(waits))
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "vk-rome", Namespace: "tenant-rome"}}
	none := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	if err := k.Patch(ctx, deployment, none); err != nil {
		t.Fatal(err)
	}
	k.until(t, "a virtual kubelet that ends the pod", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)
		if err == nil && *deployment.Spec.Replicas != 1 {
			err = fmt.Errorf("it is scaled to %d", *deployment.Spec.Replicas)
		}
		return err
	})
	fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome", Annotations: map[string]string{api.AnnotationPermanentlyUnreachable: api.True}}}
	fc.Spec.ClusterID = "rome"
	k.create(t, fc)
	k.until(t, "offloading", k.gone(nso))
	// The remote namespaces go while the virtual kubelet ends.
	k.until(t, "map", k.gone(&offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Name: "rome", Namespace: "tenant-rome"}}))
	if err := errors.Join(k.Get(ctx, client.ObjectKeyFromObject(vn), vn), k.Delete(ctx, kubelet)); err != nil {
		t.Fatal(err)
	}
	k.until(t, "virtual node", k.gone(vn))
	k.until(t, "the kubelet's request for a certificate", k.gone(kubelets))
	if err := k.Get(ctx, client.ObjectKeyFromObject(strangers), strangers); err != nil {
		t.Errorf("somebody else's request is gone too: %v", err)
	}
	k.until(t, "node", k.gone(node))
	k.until(t, "deployment", k.gone(deployment))
	k.until(t, "rights", k.gone(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "liqo-node-rome"}}))
	ns := &corev1.Namespace{}
	if err := k.Get(ctx, key("", "demo"), ns); err != nil || ns.Labels[api.LabelSchedulingEnabled] != "" {
		t.Errorf("namespace keeps labels %v (%v)", ns.Labels, err)
	}
}

// servingRequests creates a request for the serving certificate of a virtual node as its kubelet
// does, and an equal one as another user.
func (k cluster) servingRequests(t *testing.T, vn client.Object) (kubelets, strangers *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	subject := pkix.Name{CommonName: plan.NodeUser(vn.GetName()), Organization: []string{plan.NodesGroup}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject, IPAddresses: []net.IP{{192, 0, 2, 1}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	request := func() *certificatesv1.CertificateSigningRequest {
		return &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "liqo-kubelet-", Labels: map[string]string{
				api.LabelManaged: api.True, api.LabelVirtualNode: vn.GetName(),
			}},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
				SignerName: certificatesv1.KubeletServingSignerName,
				Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
			},
		}
	}
	user := "system:serviceaccount:" + vn.GetNamespace() + ":" + api.VirtualKubeletName(vn.GetName())
	as, err := client.New(k.server.ConfigFor(user, "system:masters"), client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	kubelets, strangers = request(), request()
	if err := as.Create(t.Context(), kubelets); err != nil {
		t.Fatal(err)
	}
	k.create(t, strangers)
	return kubelets, strangers
}

// TestProvider shows that a consumer's map becomes a namespace and that its ShadowPods become pods
// within its quota, also in a burst. A deleted pod is created again.
func TestProvider(t *testing.T) {
	t.Parallel()
	k := start(t)
	ctx := t.Context()
	quota := &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Name: "slice", Namespace: "tenant-turin"}}
	quota.Spec.User, quota.Spec.Resources = "slice", corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10")}
	nsmap := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Name: "milan", Namespace: "tenant-turin", Labels: map[string]string{api.LabelReplicated: api.True},
	}}
	nsmap.Spec.DesiredMapping = map[string]string{"demo": "demo-turin", "bad": "kube-system", "refused": "refused-turin"}
	k.refuseNamespace(t, "refused-turin")
	k.create(t, namespace("tenant-turin", map[string]string{api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: "turin"}), quota, nsmap)
	k.until(t, "mapping", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(nsmap), nsmap)
		current := nsmap.Status.CurrentMapping
		if err == nil && (current["demo"].Phase != offloadingv1beta1.NamespaceAccepted || current["bad"].Phase != offloadingv1beta1.NamespaceCreationLoopBackOff) {
			err = fmt.Errorf("mapping %v", current)
		}
		return err
	})
	k.until(t, "the refusal of a namespace", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(nsmap), nsmap)
		stalled := meta.FindStatusCondition(nsmap.Status.Conditions, desired.ConditionStalled)
		if err == nil && (stalled == nil || !strings.Contains(stalled.Message, "refused-turin") || !strings.Contains(stalled.Message, "not here")) {
			err = fmt.Errorf("conditions %v", nsmap.Status.Conditions)
		}
		return err
	})
	consumer := k.as(t, "slice", "turin")
	shadow := func(name, cpu string) *offloadingv1beta1.ShadowPod {
		p := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "demo-turin", Labels: map[string]string{api.LabelOrigin: "turin"}}}
		p.Spec.Pod = container(cpu)
		return p
	}
	foreign := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", Namespace: "demo-turin"}, Spec: container("1")}
	k.create(t, foreign)
	k.answers(t, consumer)
	for i := range 10 {
		web := shadow(fmt.Sprintf("web-%d", i), "1")
		if i == 4 {
			c := &web.Spec.Pod.Containers[0]
			c.Env = []corev1.EnvVar{{Name: "TWICE", Value: "1"}, {Name: "TWICE", Value: "2"}}
			c.Ports = []corev1.ContainerPort{{Name: "one", ContainerPort: 8080}, {Name: "other", ContainerPort: 8080}}
		}
		if err := consumer.Create(ctx, web); err != nil {
			t.Fatal(err)
		}
	}
	k.until(t, "the refusal of a pod over quota", func(ctx context.Context) error { // once admission has seen the others
		err := consumer.Create(ctx, shadow("over", "1"), client.DryRunAll)
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), "peering cpu quota usage exceeded - free 0 / requested 1") {
			return nil
		}
		return fmt.Errorf("it answers %w", err)
	})
	strange := shadow("strange", "1")
	strange.Labels[api.LabelOrigin] = "rome"
	if err := consumer.Create(ctx, strange); !apierrors.IsForbidden(err) {
		t.Errorf("pod of another origin: %v", err)
	}
	bold := shadow("bold", "0")
	bold.Spec.Pod.HostNetwork = true
	if err := consumer.Create(ctx, bold); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "hostNetwork is not granted to pods of consumers") {
		t.Errorf("pod on the host's network: %v", err)
	}
	pods := &corev1.PodList{}
	k.until(t, "pods", func(ctx context.Context) error {
		err := k.List(ctx, pods, client.InNamespace("demo-turin"))
		if err == nil && len(pods.Items) != 10 { // one of them is the foreign one
			err = fmt.Errorf("%d pods", len(pods.Items))
		}
		return err
	})
	k.isNotTaken(t, foreign)
	k.followsItsShadow(t, &pods.Items[4])
	k.isResizedAndDebugged(t, consumer, &pods.Items[1])
	k.isAnEndpoint(t, &pods.Items[5])
	k.staysAsItWasMade(t, consumer, shadow("tolerant", "0"))
	k.tellsRefusals(t, consumer, shadow("privileged", "0")) // and allows them
	k.comesBack(t, &pods.Items[2])
	k.comesBackAfterADrain(t, &pods.Items[3])
	k.goesWithItsShadow(t, consumer, &pods.Items[4])
	k.runsOnce(t, consumer, quota, shadow("job", "1"))
	k.endProvider(t, nsmap)
}

// isAnEndpoint shows that a pod of the consumer is an endpoint while it has the address.
func (k cluster) isAnEndpoint(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	shadow := &offloadingv1beta1.ShadowEndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Name: "leader-1", Namespace: pod.Namespace,
		Annotations: map[string]string{api.AnnotationProviderEndpoints: `[{"addresses":["10.20.0.5"]}]`},
	}}
	shadow.Spec.Template.AddressType = discoveryv1.AddressTypeIPv4
	k.create(t, shadow)
	slice := &discoveryv1.EndpointSlice{}
	leads := func(n int) {
		t.Helper()
		k.until(t, fmt.Sprintf("a slice of %d endpoints", n), func(ctx context.Context) error {
			err := k.Get(ctx, client.ObjectKeyFromObject(shadow), slice)
			if err == nil && len(slice.Endpoints) != n {
				err = fmt.Errorf("endpoints %v", slice.Endpoints)
			}
			return err
		})
	}
	leads(0)
	bind := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	if err := k.SubResource("binding").Create(t.Context(), pod, bind); err != nil {
		t.Fatal(err)
	}
	k.says(t, pod, func() { pod.Status.PodIP, pod.Status.PodIPs = "10.20.0.5", []corev1.PodIP{{IP: "10.20.0.5"}} })
	leads(1)
	if node := slice.Endpoints[0].NodeName; node == nil || *node != "n1" {
		t.Errorf("the endpoint is on %v", node)
	}
	k.says(t, pod, func() { pod.Status.PodIP, pod.Status.PodIPs = "10.20.0.6", []corev1.PodIP{{IP: "10.20.0.6"}} })
	leads(0)

	// A slice is planned again when a node gets an address that one of its endpoints has.
	shadow = &offloadingv1beta1.ShadowEndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "far", Namespace: pod.Namespace}}
	shadow.Spec.Template = offloadingv1beta1.EndpointSliceTemplate{
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.30.0.7"}}},
	}
	k.create(t, shadow)
	leads(1)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n9"}}
	k.create(t, node)
	k.says(t, node, func() {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.30.0.7"}}
	})
	leads(0)
}

// refuseNamespace lets a policy of the cluster refuse a namespace.
func (k cluster) refuseNamespace(t *testing.T, name string) {
	t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "names"}}
	policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"}},
		},
	}}}
	policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "object.metadata.name != '" + name + "'", Message: "not here"}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "names"}}
	binding.Spec.PolicyName, binding.Spec.ValidationActions = "names", []admissionregistrationv1.ValidationAction{"Deny"}
	k.create(t, policy, binding)
	k.until(t, "policy", func(ctx context.Context) error {
		if err := k.Create(ctx, namespace(name, nil), client.DryRunAll); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("not yet in force: %w", err)
		}
		return nil
	})
}

// isNotTaken shows that a pod of somebody else is not changed. The ShadowPod of its name reports
// it, and gets its own pod once the name is free.
func (k cluster) isNotTaken(t *testing.T, foreign *corev1.Pod) {
	t.Helper()
	var now corev1.Pod
	k.until(t, "event about the foreign pod", func(ctx context.Context) error {
		var events eventsv1.EventList
		err := k.List(ctx, &events, client.InNamespace(foreign.Namespace))
		if err == nil && !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Reason == "PodExists" && e.Regarding.Name == foreign.Name &&
				e.Note == "Pod demo-turin/web-0 was made by somebody else; delete or rename it"
		}) {
			err = fmt.Errorf("none among %d", len(events.Items))
		}
		return err
	})
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(foreign), &now); err != nil || now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the foreign pod was touched: error %v, labels %v", err, now.Labels)
	}
	if err := k.Delete(t.Context(), foreign, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	k.until(t, "pod of the freed name", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(foreign), &now)
		if err == nil && now.Labels[api.LabelManagedBy] == "" {
			err = fmt.Errorf("still the foreign one")
		}
		return err
	})
}

// tellsRefusals shows that a pod which the API server refuses is reported on the ShadowPod, and that
// the creation is retried.
func (k cluster) tellsRefusals(t *testing.T, consumer client.Client, shadow *offloadingv1beta1.ShadowPod) {
	t.Helper()
	ctx := t.Context()
	shadow.Spec.Pod.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
	if err := consumer.Create(ctx, shadow); err != nil {
		t.Fatal(err)
	}
	k.until(t, "event about the refusal", func(ctx context.Context) error {
		var events eventsv1.EventList
		err := k.List(ctx, &events, client.InNamespace(shadow.Namespace))
		if err == nil && !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Reason == "ApplyRefused" && e.Regarding.Name == shadow.Name && strings.Contains(e.Note, "violates PodSecurity")
		}) {
			err = fmt.Errorf("none among %d", len(events.Items))
		}
		return err
	})
	k.until(t, "condition", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(shadow), shadow)
		if err == nil && !meta.IsStatusConditionTrue(shadow.Status.Conditions, desired.ConditionStalled) {
			err = fmt.Errorf("conditions %v", shadow.Status.Conditions)
		}
		return err
	})
	ns := namespace(shadow.Namespace, nil)
	allow := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`))
	if err := k.Patch(ctx, ns, allow); err != nil {
		t.Fatal(err)
	}
	k.until(t, "the pod once it is allowed", func(ctx context.Context) error {
		return k.Get(ctx, client.ObjectKeyFromObject(shadow), &corev1.Pod{})
	})
	k.until(t, "condition after", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(shadow), shadow)
		if err == nil && !meta.IsStatusConditionTrue(shadow.Status.Conditions, desired.ConditionReady) {
			err = fmt.Errorf("conditions %v", shadow.Status.Conditions)
		}
		return err
	})
}

// followsItsShadow shows that labels are added and removed, and that those of others stay, also on
// a pod that has a variable and a port twice.
func (k cluster) followsItsShadow(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	label := func(obj client.Object, patch string) {
		t.Helper()
		if err := k.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":`+patch+`}}`))); err != nil {
			t.Fatal(err)
		}
	}
	if c := pod.Spec.Containers[0]; len(c.Env) != 2 || len(c.Ports) != 2 {
		t.Fatalf("the pod has variables %v and ports %v", c.Env, c.Ports)
	}
	shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}
	label(pod, `{"theirs": "1"}`)
	for _, step := range []struct{ patch, want string }{{`{"a": "1", "b": "2"}`, "12"}, {`{"a": null}`, "2"}} {
		label(shadow, step.patch)
		k.until(t, "labels after "+step.patch, func(ctx context.Context) error {
			err := k.Get(ctx, client.ObjectKeyFromObject(pod), pod)
			if err == nil && (pod.Labels["a"]+pod.Labels["b"] != step.want || pod.Labels["theirs"] != "1") {
				err = fmt.Errorf("labels %v", pod.Labels)
			}
			return err
		})
	}
}

// staysAsItWasMade shows that what the provider has added to a pod stays, and that labels are still
// updated.
func (k cluster) staysAsItWasMade(t *testing.T, consumer client.Client, shadow *offloadingv1beta1.ShadowPod) {
	t.Helper()
	ctx := t.Context()
	exists := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}
	}
	k.create(t, &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "tolerant"}, Handler: "tolerant", Scheduling: &nodev1.Scheduling{Tolerations: []corev1.Toleration{exists("theirs")}},
	})
	shadow.Spec.Pod.RuntimeClassName, shadow.Spec.Pod.Tolerations = new("tolerant"), []corev1.Toleration{exists("ours"), exists("")}
	if err := consumer.Create(ctx, shadow); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{}
	k.until(t, "pod of a runtime class", func(ctx context.Context) error { return k.Get(ctx, client.ObjectKeyFromObject(shadow), pod) })
	k.until(t, "event about its tolerations", func(ctx context.Context) error {
		var events eventsv1.EventList
		err := k.List(ctx, &events, client.InNamespace(shadow.Namespace))
		if err == nil && !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Reason == "TolerationsNarrowed" && e.Type == corev1.EventTypeWarning && e.Regarding.Name == shadow.Name
		}) {
			err = fmt.Errorf("none among %d", len(events.Items))
		}
		return err
	})
	mirrored := client.RawPatch(types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"c","image":"mirror/image"}]}}`))
	if err := k.Patch(ctx, pod, mirrored); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"1", "2"} {
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"`+value+`"}}}`))
		if err := k.Patch(ctx, shadow, label); err != nil {
			t.Fatal(err)
		}
		k.until(t, "label of a pod the provider changed", func(ctx context.Context) error {
			err := k.Get(ctx, client.ObjectKeyFromObject(shadow), pod)
			if err == nil && pod.Labels["a"] != value {
				err = fmt.Errorf("labels %v", pod.Labels)
			}
			return err
		})
		if image := pod.Spec.Containers[0].Image; image != "mirror/image" || !slices.Contains(pod.Spec.Tolerations, exists("theirs")) {
			t.Errorf("the pod got image %s and tolerations %v", image, pod.Spec.Tolerations)
		}
	}
}

// goesWithItsShadow shows that the pod of a deleted ShadowPod is deleted though no garbage collector runs.
func (k cluster) goesWithItsShadow(t *testing.T, consumer client.Client, pod *corev1.Pod) {
	t.Helper()
	shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}
	if err := consumer.Delete(t.Context(), shadow, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	k.until(t, "deletion of the pod of a deleted ShadowPod", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if err == nil && pod.DeletionTimestamp == nil {
			err = errors.New("the pod stays")
		}
		return client.IgnoreNotFound(err)
	})
}

// isResizedAndDebugged shows that a pod is updated after its ShadowPod, within the quota. An
// ephemeral container that Pod Security forbids does not prevent another.
func (k cluster) isResizedAndDebugged(t *testing.T, consumer client.Client, pod *corev1.Pod) {
	t.Helper()
	shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}}
	patch := func(c client.Client, spec string) error {
		return c.Patch(t.Context(), shadow, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"pod":`+spec+`}}`)))
	}
	if err := patch(consumer, `{"containers":[{"name":"c","image":"image","resources":{"requests":{"cpu":"2"}}}]}`); err != nil {
		t.Fatal(err)
	}
	k.until(t, "the refusal of a size beyond the quota", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(shadow), shadow)
		stalled := meta.FindStatusCondition(shadow.Status.Conditions, desired.ConditionStalled)
		if err == nil && (stalled == nil || stalled.Reason != "QuotaRefused" || !strings.Contains(stalled.Message, "quota usage exceeded")) {
			err = fmt.Errorf("conditions %v", shadow.Status.Conditions)
		}
		return err
	})
	err := patch(consumer, `{"containers":[{"name":"c","image":"image","resources":{"requests":{"cpu":"500m"}}}],"ephemeralContainers":[`+
		`{"name":"forbidden","image":"tools","securityContext":{"privileged":true}},{"name":"debugger","image":"tools"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	k.until(t, "the pod's size and its debugger", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		cpu := pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]
		if err == nil && (cpu.String() != "500m" || len(pod.Spec.EphemeralContainers) != 1 || pod.Spec.EphemeralContainers[0].Name != "debugger") {
			err = fmt.Errorf("%s and %v", cpu.String(), pod.Spec.EphemeralContainers)
		}
		return err
	})
	if err := patch(consumer, `{"containers":[{"name":"c","image":"image","resources":{"requests":{"cpu":"1"}}}]}`); err != nil {
		t.Fatal(err)
	}
	k.until(t, "the pod's size again", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if cpu := pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]; err == nil && cpu.String() != "1" {
			err = fmt.Errorf("%s", cpu.String())
		}
		return err
	})
}

// as returns a client with the rights of a ResourceSlice of the cluster.
func (k cluster) as(t *testing.T, user, group string) client.Client {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: api.ClusterRoleVirtualKubeletRemote}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"offloading.liqo.io"}, Resources: []string{"shadowpods"}, Verbs: []string{"create", "delete", "get", "patch"}},
	}}
	k.create(t, role)
	c, err := client.New(k.server.ConfigFor(user, group), client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	k.until(t, "rights of the consumer", func(ctx context.Context) error {
		err := c.Get(ctx, key("demo-turin", "none"), &offloadingv1beta1.ShadowPod{})
		return client.IgnoreNotFound(err)
	})
	return c
}

// comesBack deletes a pod, waits for another of its name, and sets its phase.
func (k cluster) comesBack(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	before := pod.UID
	if err := k.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	k.until(t, "pod again", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if err == nil && pod.UID == before {
			err = fmt.Errorf("the same pod")
		}
		return err
	})
	k.says(t, pod, func() { pod.Status.Phase = corev1.PodRunning })
	k.hasPhase(t, pod, corev1.PodRunning)
}

// drain ends a pod as a drain and the kubelet of its node do: it deletes the pod with a grace
// period, sets the phase, and removes it.
func (k cluster) drain(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	ctx := t.Context()
	bind := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	if err := k.SubResource("binding").Create(ctx, pod, bind); err != nil {
		t.Fatal(err)
	}
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodFailed} {
		if err := k.Status().Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"`+phase+`"}}`))); err != nil {
			t.Fatal(err)
		}
		if phase == corev1.PodRunning {
			k.hasPhase(t, pod, phase)
			if err := k.Delete(ctx, pod, client.GracePeriodSeconds(60)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := k.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

// hasPhase waits until the status of a ShadowPod has the phase of its pod.
func (k cluster) hasPhase(t *testing.T, pod *corev1.Pod, phase corev1.PodPhase) {
	t.Helper()
	shadow := &offloadingv1beta1.ShadowPod{}
	k.until(t, "phase", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(pod), shadow)
		if err == nil && shadow.Status.Phase != phase {
			err = fmt.Errorf("phase %q", shadow.Status.Phase)
		}
		return err
	})
}

// comesBackAfterADrain shows that the final phase of a drained pod is not taken for the workload's.
func (k cluster) comesBackAfterADrain(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	before := pod.UID
	k.drain(t, pod)
	k.until(t, "pod again", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		if err == nil && pod.UID == before {
			err = fmt.Errorf("the same pod")
		}
		return err
	})
}

// runsOnce shows that a pod which runs to its end is not created again after it may have started,
// even if its end was not observed.
func (k cluster) runsOnce(t *testing.T, consumer client.Client, quota *offloadingv1beta1.Quota, job *offloadingv1beta1.ShadowPod) {
	t.Helper()
	ctx := t.Context()
	if err := k.Patch(ctx, quota, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"resources":{"cpu":"11"}}}`))); err != nil {
		t.Fatal(err)
	}
	job.Spec.Pod.RestartPolicy = corev1.RestartPolicyNever
	k.until(t, "room for the job", func(ctx context.Context) error { return consumer.Create(ctx, job) })
	pod := &corev1.Pod{}
	k.until(t, "pod of the job, which is let go", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(job), pod)
		if err == nil && len(pod.Spec.SchedulingGates) > 0 {
			err = fmt.Errorf("gates %v", pod.Spec.SchedulingGates)
		}
		return err
	})
	if err := k.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil || job.Status.Phase != corev1.PodPending {
		t.Errorf("a pod is let go of which its ShadowPod says %q, error %v", job.Status.Phase, err)
	}
	bind := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	if err := k.SubResource("binding").Create(ctx, pod, bind); err != nil {
		t.Fatal(err)
	}
	if err := k.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	k.hasPhase(t, pod, corev1.PodFailed)
	if err := k.Get(ctx, client.ObjectKeyFromObject(job), pod); !apierrors.IsNotFound(err) {
		t.Errorf("the pod of a job was made anew: %v", err)
	}
}

// endProvider deletes the map: only the namespace created for it is deleted.
func (k cluster) endProvider(t *testing.T, nsmap *offloadingv1beta1.NamespaceMap) {
	t.Helper()
	ctx := t.Context()
	if err := k.Delete(ctx, nsmap); err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{}
	k.until(t, "deletion of the namespace", func(ctx context.Context) error {
		err := k.Get(ctx, key("", "demo-turin"), ns)
		if err == nil && ns.DeletionTimestamp == nil {
			err = fmt.Errorf("the namespace stays")
		}
		return client.IgnoreNotFound(err)
	})
	// No namespace controller runs here: finish for it.
	ns.Spec.Finalizers = nil
	if err := k.SubResource("finalize").Update(ctx, ns); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	k.until(t, "map", k.gone(nsmap))
	if err := k.Get(ctx, key("", "kube-system"), ns); err != nil || ns.DeletionTimestamp != nil {
		t.Errorf("kube-system: %v, deleted %v", err, ns.DeletionTimestamp)
	}
}
