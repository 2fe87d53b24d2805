// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/storage"
)

const (
	roles = "../deploy/liqo/files/rbac/"
)

// cluster is an API server on which the controllers of the room run, with the rights of an
// installation. The test plays scheduler, volume controllers and the provisioner of the class
// "disk".
type cluster struct {
	*testing.T
	client.Client
}

func start(t *testing.T, options ...func(*rest.Config, *manager.Options)) cluster {
	server := apitest.Start(t)
	c, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	k := cluster{t, c}
	k.must("make client", err)
	for _, name := range []string{api.StorageNamespace, "shop", "liqo-tenant-milan"} {
		k.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	whose := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "controller"}}
	everywhere, here := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	k.read(roles+"controller.yaml", everywhere)
	k.read(roles+"controller-namespaced.yaml", here)
	k.create(everywhere)
	k.create(here)
	k.create(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "controller"}, Subjects: whose, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: everywhere.Name},
	})
	k.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "controller", Namespace: here.Namespace}, Subjects: whose, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: here.Name},
	})
	later := storagev1.VolumeBindingWaitForFirstConsumer
	k.create(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, Provisioner: api.StorageProvisioner, VolumeBindingMode: &later, AllowVolumeExpansion: new(true)})
	k.create(&storagev1.StorageClass{Provisioner: "example.com/disk", VolumeBindingMode: &later, ObjectMeta: metav1.ObjectMeta{
		Name: "disk", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
	}})
	k.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	k.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{
		api.LabelType: api.TypeVirtualNode, api.LabelRemoteClusterID: "milan", api.LabelStorageAvailable: "true",
	}}})
	run(t, server.ConfigFor("controller"), options...)
	return k
}

func run(t *testing.T, config *rest.Config, options ...func(*rest.Config, *manager.Options)) {
	all := manager.Options{Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctl.Queues()}
	for _, set := range options {
		set(config, &all)
	}
	mgr, err := manager.New(config, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range storage.Controllers(storage.Options{Namespace: api.StorageNamespace}) {
		if err := r.Register(mgr); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
}

func (k cluster) read(file string, into any) {
	k.Helper()
	text, err := os.ReadFile(file)
	k.must("read role", err)
	k.must("decode role", yaml.Unmarshal(text, into))
}

func (k cluster) must(what string, err error) {
	k.Helper()
	if err != nil {
		k.Fatalf("%s: %v", what, err)
	}
}

func (k cluster) create(obj client.Object) {
	k.Helper()
	k.must(fmt.Sprintf("create %T %s", obj, obj.GetName()), k.Create(k.Context(), obj))
}

// becomes reads an object until a check succeeds.
func (k cluster) becomes(obj client.Object, check func() error) {
	k.Helper()
	var last error
	err := wait.PollUntilContextTimeout(k.Context(), 20*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		if last = k.Get(ctx, client.ObjectKeyFromObject(obj), obj); last == nil {
			last = check()
		}
		return last == nil, nil
	})
	if err != nil {
		k.Fatalf("%T %s: %v", obj, obj.GetName(), last)
	}
}

// change reads an object and updates it, and retries after conflicts.
func (k cluster) change(obj client.Object, how func()) {
	k.Helper()
	k.becomes(obj, func() error {
		how()
		return k.Update(k.Context(), obj)
	})
}

// says changes the status of an object, and retries after conflicts.
func (k cluster) says(obj client.Object, what func()) {
	k.Helper()
	k.becomes(obj, func() error {
		what()
		return k.Status().Update(k.Context(), obj)
	})
}

func (k cluster) exists(obj client.Object) {
	k.Helper()
	k.becomes(obj, func() error { return nil })
}

func (k cluster) gone(obj client.Object) {
	k.Helper()
	err := wait.PollUntilContextTimeout(k.Context(), 20*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		return apierrors.IsNotFound(k.Get(ctx, client.ObjectKeyFromObject(obj), obj)), nil
	})
	k.must(fmt.Sprintf("end of %T %s", obj, obj.GetName()), err)
}

// deleting waits until somebody has deleted an object, and then plays the controller that protects it.
func (k cluster) deleting(obj client.Object) {
	k.Helper()
	k.becomes(obj, func() error {
		if obj.GetDeletionTimestamp() == nil {
			return errors.New("not deleted")
		}
		return nil
	})
	k.must("end protection", client.IgnoreNotFound(k.Patch(k.Context(), obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
}

func requested() corev1.VolumeResourceRequirements {
	return corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}
}

// claimed creates a claim with a node chosen for its first pod.
func (k cluster) claimed(name, node string) *corev1.PersistentVolumeClaim {
	k.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", Annotations: map[string]string{
			"volume.kubernetes.io/storage-provisioner": api.StorageProvisioner, "volume.kubernetes.io/selected-node": node,
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("liqo"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: requested(),
		},
	}
	k.create(claim)
	return claim
}

// bind plays the volume controller.
func (k cluster) bind(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) {
	k.Helper()
	k.change(claim, func() { claim.Spec.VolumeName = volume.Name })
	k.says(claim, func() {
		claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, AccessModes: volume.Spec.AccessModes, Capacity: volume.Spec.Capacity}
	})
	k.says(volume, func() { volume.Status.Phase = corev1.VolumeBound })
}

func volumeOf(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID)}}
}

// release deletes a claim no pod uses.
func (k cluster) release(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) {
	k.Helper()
	k.must("delete", k.Delete(k.Context(), claim))
	k.deleting(claim)
	k.says(volume, func() { volume.Status.Phase = corev1.VolumeReleased })
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	k := start(t)
	for _, story := range []struct {
		name string
		run  func(cluster)
	}{
		{"a real volume is shown", aRealVolumeIsShown},
		{"a volume elsewhere is a placeholder", aVolumeElsewhereIsAPlaceholder},
		{"a volume grows", aVolumeGrows},
		{"an unused backing claim is deleted", anUnusedClaimIsDeleted},
		{"a deleted node is replaced by another", aDeletedNodeIsReplaced},
		{"a node without room is replaced by another", aNodeWithoutRoomIsReplaced},
		{"a claim is released when its provider is not used any more", aClaimIsReleased},
	} {
		t.Run(story.name, func(t *testing.T) { story.run(cluster{t, k.Client}) })
	}
}

// TestVolumeIsNotCached: each kind has a watch of its own, so the cache may show a bound backing
// claim before its volume. Here it never shows the volume.
func TestVolumeIsNotCached(t *testing.T) {
	t.Parallel()
	shown := labels.SelectorFromSet(labels.Set{desired.LabelManaged: "true"})
	aRealVolumeIsShown(start(t, func(_ *rest.Config, o *manager.Options) {
		o.Cache.ByObject = map[client.Object]cache.ByObject{&corev1.PersistentVolume{}: {Label: shown}}
	}))
}

// TestVolumeIsCachedLate: the cache shows a volume only after its bound claim was reconciled without it.
func TestVolumeIsCachedLate(t *testing.T) {
	t.Parallel()
	late := volumesLate{missed: make(chan struct{})}
	k := start(t, late.set)
	first := k.claimed("in-time", "milan")
	k.exists(volumeOf(first)) // so the cache has synced
	late.held.Store(true)
	claim := k.claimed("late", "milan")
	volume := volumeOf(claim)
	k.exists(volume)
	k.change(claim, func() { claim.Spec.VolumeName = volume.Name })
	late.bound.Store(true)
	k.says(claim, func() {
		claim.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound,
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}}
	})
	k.has(claim, volume, "2Gi")
}

// volumesLate holds the watch of volumes back until one of a bound claim was read and not found.
type volumesLate struct {
	held, bound atomic.Bool
	missed      chan struct{}
	once        sync.Once
}

func (l *volumesLate) set(config *rest.Config, o *manager.Options) {
	config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return lateTransport{rt, l} }
	o.NewClient = func(config *rest.Config, options client.Options) (client.Client, error) {
		c, err := client.New(config, options)
		return lateClient{c, l}, err
	}
}

type lateClient struct {
	client.Client
	*volumesLate
}

func (c lateClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, obj, opts...)
	if _, volume := obj.(*corev1.PersistentVolume); volume && c.bound.Load() && apierrors.IsNotFound(err) {
		c.once.Do(func() { close(c.missed) })
	}
	return err
}

type lateTransport struct {
	http.RoundTripper
	*volumesLate
}

func (l lateTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/persistentvolumes") && r.URL.Query().Has("watch") {
		response.Body = lateBody{response.Body, r.Context(), l.volumesLate}
	}
	return response, err
}

type lateBody struct {
	io.ReadCloser
	ctx context.Context
	*volumesLate
}

func (b lateBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if b.held.Load() {
		select {
		case <-b.missed:
		case <-b.ctx.Done():
		}
	}
	return n, err
}

func aRealVolumeIsShown(k cluster) {
	claim := k.claimed("data", "n1")
	backing := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: string(claim.UID), Namespace: api.StorageNamespace}}
	k.exists(backing)
	if *backing.Spec.StorageClassName != "disk" || backing.Annotations["volume.kubernetes.io/selected-node"] != "n1" {
		k.Errorf("backed by %+v", backing)
	}
	disk := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk-1"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: requested().Requests, AccessModes: backing.Spec.AccessModes, StorageClassName: "disk",
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/disks/1"}},
	}}
	k.create(disk)
	k.bind(backing, disk)
	volume := volumeOf(claim)
	k.exists(volume)
	if volume.Spec.HostPath.Path != "/disks/1" || volume.Spec.ClaimRef.UID != claim.UID || volume.Spec.StorageClassName != "liqo" {
		k.Errorf("shown as %+v", volume.Spec)
	}
	k.bind(claim, volume)

	k.release(claim, volume)
	k.deleting(backing)
	k.deleting(volume)
	k.gone(volume)
	k.exists(disk) // its own provisioner's to remove
}

func aVolumeElsewhereIsAPlaceholder(k cluster) {
	claim := k.claimed("elsewhere", "milan")
	volume := volumeOf(claim)
	k.exists(volume)
	want := []corev1.NodeSelectorRequirement{{Key: api.LabelRemoteClusterID, Operator: corev1.NodeSelectorOpIn, Values: []string{"milan"}}}
	if diff := cmp.Diff(want, volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions); diff != "" {
		k.Error(diff)
	}
	k.bind(claim, volume)
	backing := &corev1.PersistentVolumeClaim{}
	if err := k.Get(k.Context(), types.NamespacedName{Namespace: api.StorageNamespace, Name: string(claim.UID)}, backing); !apierrors.IsNotFound(err) {
		k.Errorf("the placeholder is backed here (%v)", err)
	}

	// A retained volume stays until its policy is Delete again.
	k.change(volume, func() { volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain })
	k.release(claim, volume)
	k.change(volume, func() { volume.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete })
	k.deleting(volume)
	k.gone(volume)
}

// ask changes the storage request of a claim.
func (k cluster) ask(claim *corev1.PersistentVolumeClaim, size string) {
	k.Helper()
	k.change(claim, func() { claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size) })
}

// has waits until claim and volume have a capacity.
func (k cluster) has(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume, size string) {
	k.Helper()
	check := func(capacity *resource.Quantity) error {
		if capacity.Cmp(resource.MustParse(size)) != 0 {
			return fmt.Errorf("has %s, not %s", capacity, size)
		}
		return nil
	}
	k.becomes(volume, func() error { return check(volume.Spec.Capacity.Storage()) })
	k.becomes(claim, func() error { return check(claim.Status.Capacity.Storage()) })
}

func aVolumeGrows(k cluster) {
	claim := k.claimed("growing", "n1")
	backing := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: string(claim.UID), Namespace: api.StorageNamespace}}
	k.exists(backing)
	disk := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk-2"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: requested().Requests, AccessModes: backing.Spec.AccessModes, StorageClassName: "disk",
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/disks/2"}},
	}}
	k.create(disk)
	k.bind(backing, disk)
	volume := volumeOf(claim)
	k.exists(volume)
	k.bind(claim, volume)

	// First the class of the backing claim does not allow expansion, which an event reports; then it does.
	k.ask(claim, "3Gi")
	var events corev1.EventList
	err := wait.PollUntilContextTimeout(k.Context(), 20*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		err := k.List(ctx, &events, client.InNamespace("shop"))
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == "growing" && e.Reason == "VolumeResizeFailed" && strings.Contains(e.Message, "class disk, which lets none grow")
		}), err
	})
	k.must("event", err)
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}
	k.change(class, func() { class.AllowVolumeExpansion = new(true) })
	k.becomes(backing, func() error {
		if backing.Spec.Resources.Requests.Storage().String() != "3Gi" {
			return errors.New("nothing more is asked for")
		}
		return nil
	})

	// The capacity that the disk's provisioner sets is copied.
	k.change(disk, func() { disk.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")} })
	k.says(backing, func() { backing.Status.Capacity = disk.Spec.Capacity })
	k.has(claim, volume, "4Gi")

	// For a volume at a provider, the virtual kubelet writes the status of the claim.
	claim = k.claimed("growing-elsewhere", "milan")
	volume = volumeOf(claim)
	k.exists(volume)
	k.bind(claim, volume)
	k.says(claim, func() { claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")} })
	k.has(claim, volume, "2Gi")
}

func anUnusedClaimIsDeleted(k cluster) {
	for _, name := range []string{"early", strings.Repeat("early-", 20) + "0"} { // the second is no value of a label
		claim := k.claimed(name, "n1")
		backing := &corev1.PersistentVolumeClaim{}
		backing.Name, backing.Namespace = string(claim.UID), api.StorageNamespace
		k.exists(backing)
		k.must("delete", k.Delete(k.Context(), claim))
		k.deleting(claim)
		k.deleting(backing)
		k.gone(backing)
	}
}

func aDeletedNodeIsReplaced(k cluster) {
	claim := k.claimed("lost", "n9")
	k.becomes(claim, func() error {
		if node, ok := claim.Annotations["volume.kubernetes.io/selected-node"]; ok {
			return errors.New("node is " + node)
		}
		return nil
	})
}

// aNodeWithoutRoomIsReplaced plays a provisioner that finds no room on a node, and the scheduler,
// which chooses it again.
func aNodeWithoutRoomIsReplaced(k cluster) {
	const selected = "volume.kubernetes.io/selected-node"
	claim := k.claimed("large", "n1")
	backing := &corev1.PersistentVolumeClaim{}
	backing.Namespace, backing.Name = api.StorageNamespace, string(claim.UID)
	k.exists(backing)
	first := backing.UID
	reject := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+selected+`":null}}}`))
	k.must("remove the node", k.Patch(k.Context(), backing, reject))
	k.becomes(claim, func() error {
		if node, ok := claim.Annotations[selected]; ok {
			return fmt.Errorf("still on %s", node)
		}
		return nil
	})
	k.deleting(backing)
	k.change(claim, func() { claim.Annotations[selected] = "n1" })
	k.becomes(backing, func() error {
		if backing.UID == first || backing.Annotations[selected] != "n1" {
			return fmt.Errorf("backed by %+v", backing.ObjectMeta)
		}
		return nil
	})
}

func aClaimIsReleased(k cluster) {
	m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Name: "milan", Namespace: "liqo-tenant-milan", Labels: map[string]string{api.LabelRemoteClusterID: "milan"}}}
	m.Spec.DesiredMapping = map[string]string{"shop": "shop-rome"}
	k.create(m)
	claim := k.claimed("held", "milan")
	k.change(claim, func() { claim.Finalizers = []string{api.ClaimFinalizer("milan"), api.ClaimFinalizer("oslo")} })
	k.becomes(claim, func() error {
		if slices.Contains(claim.Finalizers, api.ClaimFinalizer("oslo")) {
			return errors.New("held by oslo, where it never was")
		}
		return nil
	})
	if !slices.Contains(claim.Finalizers, api.ClaimFinalizer("milan")) {
		k.Error("let go while milan has it")
	}
	k.must("delete", k.Delete(k.Context(), claim))
	k.must("unoffload", k.Delete(k.Context(), m))
	k.gone(claim)
}
