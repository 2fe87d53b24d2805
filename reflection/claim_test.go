// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

const inUse = "kubernetes.io/pvc-protection"

// claim is one whose first pod goes to the virtual node.
func claim(name, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: homeNS, Annotations: map[string]string{
			"volume.kubernetes.io/storage-provisioner": api.StorageProvisioner, "volume.kubernetes.io/selected-node": node,
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("liqo"), VolumeName: volume, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// unused plays the controller that knows that no pod uses a claim any more.
func (w *world) unused(c client.Client, namespace, name string) {
	w.Helper()
	w.eventually("end the protection of a claim", func(ctx context.Context) error {
		var claim corev1.PersistentVolumeClaim
		if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &claim); err != nil {
			return err
		}
		claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(f string) bool { return f == inUse })
		return c.Update(ctx, &claim) // the reflection takes its own finalizer away meanwhile
	})
}

// offerStorage lets the provider offer a storage class.
func (w *world) offerStorage() {
	w.Helper()
	var virtual offv1beta1.VirtualNode
	w.must("read virtual node", w.home.Get(w.Context(), types.NamespacedName{Namespace: tenant, Name: node}, &virtual))
	virtual.Spec.StorageClasses = []authv1beta1.StorageType{{StorageClassName: "fast", Default: true}}
	w.must("offer storage", w.home.Update(w.Context(), &virtual))
}

// aVolumeIsAtTheProvider: it is given back when the claim at home is deleted, no pod uses it, and
// nobody wants to retain it; in no other case.
func aVolumeIsAtTheProvider(t *testing.T, w *world) {
	w.offerStorage()
	stop := w.reflect()

	home, remote := claim("data", ""), &corev1.PersistentVolumeClaim{}
	w.create(w.home, home)
	w.exists(w.remote, remote, remoteNS, "data", func() error { return equal("fast", *remote.Spec.StorageClassName) })
	w.exists(w.home, home, homeNS, "data", func() error {
		return equal([]string{inUse, "storage.liqo.io/milan"}, home.Finalizers)
	})

	// What the provider says about it is shown.
	w.create(w.remote, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "data.failed", Namespace: remoteNS},
		InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: remoteNS, Name: "data", UID: remote.UID},
		Type:           corev1.EventTypeWarning, Reason: "ProvisioningFailed", Message: "no room",
	})
	w.event("data", "ProvisioningFailed", "no room (remote)")

	// Deleted while a pod uses it: nothing happens at the provider until that has ended.
	w.must("delete", w.home.Delete(t.Context(), home))
	w.create(w.home, claim("other", ""))
	w.exists(w.remote, remote, remoteNS, "other")
	w.exists(w.remote, remote, remoteNS, "data")
	if remote.DeletionTimestamp != nil {
		t.Error("a volume in use is given back")
	}
	w.unused(w.home, homeNS, "data")
	w.exists(w.remote, remote, remoteNS, "data", func() error {
		if remote.DeletionTimestamp == nil {
			return errors.New("not deleted")
		}
		return nil
	})
	w.must("home is held", w.home.Get(t.Context(), client.ObjectKeyFromObject(home), home))
	w.unused(w.remote, remoteNS, "data")
	w.gone(w.home, home, homeNS, "data")

	// A volume that is to be retained is.
	w.create(w.home, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
	}})
	w.create(w.home, claim("kept", "kept"))
	w.exists(w.remote, remote, remoteNS, "kept")
	w.must("delete", w.home.Delete(t.Context(), claim("kept", "")))
	w.unused(w.home, homeNS, "kept")
	w.gone(w.home, &corev1.PersistentVolumeClaim{}, homeNS, "kept")

	// Nor does another claim of its name, whose volume is at home, take it over or give it back.
	another := claim("kept", "")
	another.Annotations["volume.kubernetes.io/selected-node"] = "worker"
	w.create(w.home, another)
	w.create(w.home, claim("next", ""))
	w.exists(w.remote, remote, remoteNS, "next")
	w.must("read", w.home.Get(t.Context(), client.ObjectKeyFromObject(another), another))
	if err := equal([]string{inUse}, another.Finalizers); err != nil {
		t.Errorf("a claim for a node of home: %v", err)
	}
	w.must("delete", w.home.Delete(t.Context(), another))
	w.unused(w.home, homeNS, "kept")
	w.gone(w.home, another, homeNS, "kept")

	// Nor is one given back whose claim has vanished while nobody looked, as when a cluster is
	// restored.
	stop()
	w.must("read", w.home.Get(t.Context(), types.NamespacedName{Namespace: homeNS, Name: "other"}, home))
	home.Finalizers = nil
	w.must("release", w.home.Update(t.Context(), home))
	w.must("delete", w.home.Delete(t.Context(), home))
	w.gone(w.home, &corev1.PersistentVolumeClaim{}, homeNS, "other")
	stop = w.reflect()
	w.create(w.home, claim("last", ""))
	w.exists(w.remote, remote, remoteNS, "last")
	for _, name := range []string{"kept", "other"} {
		w.exists(w.remote, remote, remoteNS, name)
		if remote.DeletionTimestamp != nil {
			t.Errorf("the volume of claim %s is given back", name)
		}
	}
	// Where the provider has withdrawn our rights the volume is its to remove: nothing waits.
	stop()
	rights := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-rome", Namespace: remoteNS}}
	w.must("read rights", w.remote.Get(t.Context(), client.ObjectKeyFromObject(rights), rights))
	w.must("withdraw rights", w.remote.Delete(t.Context(), rights))
	claims := authorizationv1.ResourceAttributes{Verb: "list", Resource: "persistentvolumeclaims"}
	w.granted(false, claims)
	defer w.reflect()()
	w.must("delete", w.home.Delete(t.Context(), claim("last", "")))
	w.unused(w.home, homeNS, "last")
	w.gone(w.home, home, homeNS, "last")
	rights.ResourceVersion, rights.UID = "", ""
	w.create(w.remote, rights)
	w.granted(true, claims)
}

// podWith is a pod of home with one volume.
func podWith(name string, volume corev1.Volume) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: homeNS},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, Volumes: []corev1.Volume{volume}},
	}
}

func ofClaim(name string) corev1.Volume {
	return corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

func ofEphemeralClaim(name string) corev1.Volume {
	template := &corev1.PersistentVolumeClaimTemplate{Spec: claim("", "").Spec}
	source := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: template}}
	return corev1.Volume{Name: name, VolumeSource: source}
}

func ownedBy(pod *corev1.Pod) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
}

// TestAttackClaimOfScaledStatefulSet: a StatefulSet whose persistentVolumeClaimRetentionPolicy.whenScaled is Delete is
// scaled down and up. Its controller makes the pod the owner of the claim, which looks like the claim of a generic
// ephemeral volume, so that the new replica would find the data of the deleted one.
//
// Outcome: the claim at the provider is deleted before the one of home is gone. Only a claim that was made for an
// ephemeral volume of its pod is left to the provider.
func TestAttackClaimOfScaledStatefulSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offerStorage()
	defer w.reflect()()

	// As the StatefulSet controller does when it scales down, and then the garbage collector.
	replica := podWith("db-1", ofClaim("data-db-1"))
	w.create(w.home, replica)
	home, remote := claim("data-db-1", ""), &corev1.PersistentVolumeClaim{}
	w.create(w.home, home)
	w.exists(w.remote, remote, remoteNS, home.Name)
	w.exists(w.home, home, homeNS, home.Name, func() error { return equal(2, len(home.Finalizers)) })
	owned := home.DeepCopy()
	owned.OwnerReferences = ownedBy(replica)
	w.must("give the claim to its pod", w.home.Patch(t.Context(), owned, client.MergeFrom(home)))
	w.must("delete the pod", w.home.Delete(t.Context(), replica, client.GracePeriodSeconds(0)))
	w.must("delete the claim", w.home.Delete(t.Context(), home))
	w.unused(w.home, homeNS, home.Name)
	w.exists(w.remote, remote, remoteNS, home.Name, func() error {
		if remote.DeletionTimestamp == nil {
			return errors.New("not deleted")
		}
		return nil
	})
	w.must("home is held", w.home.Get(t.Context(), client.ObjectKeyFromObject(home), home))
	w.unused(w.remote, remoteNS, home.Name)
	w.gone(w.home, home, homeNS, home.Name)

	// A pod may own claims without having ephemeral volumes, as a driver of Spark does, also one of
	// such a name.
	ephemeral := podWith("web", ofEphemeralClaim("cache"))
	for _, pod := range []*corev1.Pod{ephemeral, podWith("driver", ofClaim("driver-data"))} {
		w.create(w.home, pod)
		owned := claim(pod.Name+"-"+pod.Spec.Volumes[0].Name, "")
		owned.OwnerReferences = ownedBy(pod)
		w.create(w.home, owned)
	}
	w.exists(w.remote, remote, remoteNS, "driver-data")
	if err := w.remote.Get(t.Context(), types.NamespacedName{Namespace: remoteNS, Name: "web-cache"}, remote); !apierrors.IsNotFound(err) {
		t.Errorf("the claim of an ephemeral volume is reflected (%v)", err)
	}
}

// TestAttackClaimOfFormerOwner: a StatefulSet is deleted and made anew, and its
// persistentVolumeClaimRetentionPolicy.whenDeleted is Delete. Its pod would find the data of the
// deleted one. A pod with an ephemeral volume is replaced by one of its name while the claim of the
// former pod still exists. At the provider that claim would keep the new pod from getting its own.
//
// Outcome: the claim of the StatefulSet is deleted at the provider before it is gone at the
// consumer, and made anew. A claim of a former pod is not reflected.
func TestAttackClaimOfFormerOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.offerStorage()
	defer w.reflect()()

	// The StatefulSet controller makes the set the owner of its claim. When the set is deleted, the
	// garbage collector deletes the claim.
	home, remote := claim("data-db-0", ""), &corev1.PersistentVolumeClaim{}
	home.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "former", Controller: new(true)},
	}
	w.create(w.home, home)
	w.exists(w.remote, remote, remoteNS, home.Name)
	former := remote.UID
	w.must("delete the claim", w.home.Delete(t.Context(), home))
	w.unused(w.home, homeNS, home.Name)
	w.unused(w.remote, remoteNS, home.Name)
	w.gone(w.home, home, homeNS, home.Name)
	w.create(w.home, claim(home.Name, ""))
	w.exists(w.remote, remote, remoteNS, home.Name)
	if remote.UID == former {
		t.Error("the claim of the new StatefulSet has the volume of the deleted one")
	}

	ephemeral := podWith("web", ofEphemeralClaim("cache"))
	w.create(w.home, ephemeral)
	left := claim("web-cache", "")
	left.OwnerReferences = ownedBy(ephemeral)
	left.OwnerReferences[0].UID = "former"
	w.create(w.home, left)
	w.create(w.home, claim("next", ""))
	w.exists(w.remote, remote, remoteNS, "next")
	err := w.remote.Get(t.Context(), types.NamespacedName{Namespace: remoteNS, Name: left.Name}, remote)
	if !apierrors.IsNotFound(err) {
		t.Errorf("the claim of a former pod is reflected (%v)", err)
	}
}

// starting is an API server that starts: it refuses everything until it has read who may do what,
// which it has when it is asked for the second time whether it is ready.
type starting struct {
	next      http.RoundTripper
	begins    atomic.Bool
	questions atomic.Int32
}

func (s *starting) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path == "/readyz" && s.questions.Add(1) == 2 {
		s.begins.Store(false)
	}
	if s.begins.Load() {
		return says(req, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("not known yet")))
	}
	return s.next.RoundTrip(req)
}

func (s *starting) start() {
	s.questions.Store(0)
	s.begins.Store(true)
}

// aStartingAPIServerRefusesAndKeepsNothing: that it refuses everybody means nothing, and the volume
// is given back when it has started, whether it was known to be there or not.
func aStartingAPIServerRefusesAndKeepsNothing(t *testing.T, w *world) {
	there := &starting{}
	w.options.Remote = rest.CopyConfig(w.options.Remote)
	w.options.Remote.Wrap(func(next http.RoundTripper) http.RoundTripper {
		there.next = next
		return there
	})
	for _, story := range []struct {
		name  string
		known bool
	}{{"known", true}, {"unknown", false}} {
		stop := w.reflect()
		home, remote := claim(story.name, ""), &corev1.PersistentVolumeClaim{}
		w.create(w.home, home)
		w.exists(w.remote, remote, remoteNS, story.name)
		if !story.known {
			stop()
		}
		there.start()
		w.must("delete", w.home.Delete(t.Context(), home))
		w.unused(w.home, homeNS, story.name)
		if !story.known {
			stop = w.reflect()
		}
		w.exists(w.remote, remote, remoteNS, story.name, func() error {
			if remote.DeletionTimestamp == nil {
				return errors.New("not deleted")
			}
			return nil
		})
		w.must("home is held", w.home.Get(t.Context(), client.ObjectKeyFromObject(home), home))
		w.unused(w.remote, remoteNS, story.name)
		w.gone(w.home, home, homeNS, story.name)
		stop()
	}
}

// aVolumeAtTheProviderGrows: what is asked for at home is asked for there; what comes of it is seen
// at home.
func aVolumeAtTheProviderGrows(t *testing.T, w *world) {
	defer w.reflect()()
	class := func(name string, grows bool) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "example.com/disk", AllowVolumeExpansion: &grows}
	}
	w.create(w.home, class("liqo", true))
	stiff := class("fast", false)
	w.create(w.remote, stiff)
	home, remote := claim("growing", "pvc-1"), &corev1.PersistentVolumeClaim{}
	w.create(w.home, home)
	w.exists(w.remote, remote, remoteNS, "growing")
	w.exists(w.home, home, homeNS, "growing", func() error { return equal(2, len(home.Finalizers)) })
	remote.Spec.VolumeName = "pvc-2"
	w.must("bind", w.remote.Update(t.Context(), remote))
	bound := func(size string) corev1.PersistentVolumeClaimStatus {
		return corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}
	}
	remote.Status = bound("1Gi")
	w.must("bind", w.remote.Status().Update(t.Context(), remote))
	w.exists(w.home, home, homeNS, "growing")
	home.Status = bound("1Gi")
	w.must("bind", w.home.Status().Update(t.Context(), home))

	// A class there that does not grow says so here.
	w.exists(w.home, home, homeNS, "growing")
	home.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("3Gi")
	w.must("ask for more", w.home.Update(t.Context(), home))
	w.event("growing", "FailedReflection", "must support resize")
	stiff.AllowVolumeExpansion = new(true)
	w.must("let it grow", w.remote.Update(t.Context(), stiff))
	w.exists(w.remote, remote, remoteNS, "growing", func() error { return equal("3Gi", remote.Spec.Resources.Requests.Storage().String()) })

	remote.Status.Capacity = bound("4Gi").Capacity
	remote.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, Message: "a pod has to start"}}
	w.must("grow", w.remote.Status().Update(t.Context(), remote))
	w.exists(w.home, home, homeNS, "growing", func() error {
		if len(home.Status.Conditions) == 0 {
			return errors.New("no conditions")
		}
		return equal("4Gi a pod has to start", home.Status.Capacity.Storage().String()+" "+home.Status.Conditions[0].Message)
	})
}
