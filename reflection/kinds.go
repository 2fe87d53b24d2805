// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/reflection/translate"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch

// podKinds returns the kinds that one virtual node reflects: its pods and their tokens. pods caches
// the pods of that node in all namespaces. names records which objects that pods use belong to the
// provider.
func podKinds(
	o Options, home *remote.Cluster, pods cache.Cache, names *foreign, trust func(context.Context) error,
) []Kind {
	own := ownSelector(o, requirement(api.LabelNodeName, selection.Equals, o.Node))
	shadowPod := &offv1beta1.ShadowPod{} // one prototype, so that both kinds read one cache
	return []Kind{{
		Name:           "Pod",
		Workers:        o.Reflectors[offv1beta1.ReflectPod].Workers,
		Home:           &corev1.Pod{},
		HomeCache:      pods,
		Remote:         shadowPod,
		RemoteSelector: own,
		Report:         &corev1.Pod{},
		ReportSelector: own,
		HeedsReport:    Heeds(translate.Reports),
		Gather:         gatherPod(home, pods),
		Push:           Typed(translate.Pod),
		Pull:           pullPod(names),
		TrimRemote:     Trim(translate.TrimShadowPod),
		TrimReport:     Trim(translate.TrimReport),
		InPart:         func(obj client.Object) bool { return translate.InPart(obj) },
		Strategic:      true,
		Budget:         podBudget(),
		FinalizesHome:  true,
		Grace: func(o Objects) *int64 {
			return translate.Grace(as[*corev1.Pod](o.Home), as[*corev1.Pod](o.Report))
		},
	}, {
		Name:           "ServiceAccount",
		Workers:        o.Reflectors[offv1beta1.ReflectServiceAccount].Workers,
		Home:           &corev1.Pod{},
		HomeCache:      pods,
		Heeds:          Heeds(translate.ChangesTokens),
		Remote:         &corev1.Secret{},
		RemoteSelector: own.Add(requirement(api.LabelServiceAccountName, selection.Exists)),
		RemoteName:     api.ServiceAccountTokenSecretName,
		FormerName:     api.FormerServiceAccountTokenSecretName,
		HomeName:       func(secret client.Object) string { return translate.PodOfTokens(secret) },
		Report:         shadowPod,
		ReportSelector: own,
		Gather:         gatherTokens(home, newCertificates(home, o.Node), trust),
		Push: func(o Objects, v translate.View) (client.Object, error) {
			pod, secret := as[*corev1.Pod](o.Home), as[*corev1.Secret](o.Remote)
			return orNil(translate.Tokens(pod, secret, v)), translate.Uncertified(pod, secret, v)
		},
		TrimRemote: Trim(translate.TrimTokens),
		TrimReport: Trim(translate.TrimShadowPod),
		Events:     "SATokensReflection",
		Quiet:      true,
	}}
}

// gatherPod reads the keys of the ConfigMaps and Secrets from which containers take variables. They
// are read once for each pod, so no cache holds them. An object that does not exist yet has no
// keys. For a new pod with host ports, it also lists the other pods of the node.
func gatherPod(home, pods client.Reader) GatherFunc {
	return func(ctx context.Context, _ client.Reader, o Objects, v *translate.View) (time.Duration, error) {
		v.EnvKeys = map[string][]string{}
		for _, source := range translate.EnvSources(as[*corev1.Pod](o.Home), as[*offv1beta1.ShadowPod](o.Remote), *v) {
			kind, name, _ := strings.Cut(source, "/")
			obj := &unstructured.Unstructured{}
			obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
			err := home.Get(ctx, types.NamespacedName{Namespace: o.Home.GetNamespace(), Name: name}, obj)
			if client.IgnoreNotFound(err) != nil {
				return 0, fmt.Errorf("get %s %s/%s: %w", kind, o.Home.GetNamespace(), name, err)
			}
			data, _ := obj.Object["data"].(map[string]any)
			v.EnvKeys[source] = slices.Collect(maps.Keys(data))
		}
		pod := as[*corev1.Pod](o.Home)
		if pod == nil || o.Remote != nil || pod.Status.StartTime != nil || !translate.HasHostPort(pod) {
			return 0, nil
		}
		var others corev1.PodList
		if err := pods.List(ctx, &others, client.UnsafeDisableDeepCopy); err != nil {
			return 0, fmt.Errorf("list pods of the node: %w", err)
		}
		v.TakenPort = translate.TakenPort(pod, others.Items)
		return 0, nil
	}
}

// pullPod pulls the status of the remote pod, if it was made from this ShadowPod and not from a
// former one. The error says that the pod now uses objects of the peer.
func pullPod(names *foreign) func(Objects, translate.View) (client.Object, error) {
	return func(o Objects, v translate.View) (client.Object, error) {
		home, shadow, remote := as[*corev1.Pod](o.Home), as[*offv1beta1.ShadowPod](o.Remote), as[*corev1.Pod](o.Report)
		if shadow != nil && remote != nil && madeFromAnother(remote, shadow.UID) {
			remote = nil
		}
		v.Foreign = names.of(home)
		out := translate.PodStatus(home, shadow, remote, v)
		if message := translate.ForeignObjects(out); message != "" && message != translate.ForeignObjects(home) {
			return out, errors.New(message)
		}
		return out, nil
	}
}

func madeFromAnother(remote *corev1.Pod, shadow types.UID) bool {
	owner := metav1.GetControllerOf(remote)
	return owner != nil && owner.Kind == "ShadowPod" && owner.UID != shadow
}

// +kubebuilder:rbac:groups="",resources=configmaps;secrets,namespace=offloaded,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=ingresses,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=get;list;watch

// +kubebuilder:rbac:groups="",resources=events,namespace=offloaded,verbs=delete

// eventKinds returns the kinds that flow from the provider to the consumer: events about the pods
// of the virtual node. The virtual node that reflects the other objects also reflects events about
// those. In their engine the clusters are swapped: home is the provider.
func eventKinds(o Options, origins ...origin) []Kind {
	o.Consumer, o.Provider = o.Provider, o.Consumer
	tuning := o.Reflectors[offv1beta1.ReflectEvent]
	return []Kind{{
		Name:           "Event",
		Workers:        tuning.Workers,
		AllowList:      tuning.IsAllowList(),
		Home:           &corev1.Event{},
		HomeFields:     translate.ShownEvents(),
		Remote:         &corev1.Event{},
		RemoteSelector: ownSelector(o),
		Gather:         gatherInvolved(origins),
		Push:           Typed(translate.Event),
		WriteLimit:     newWriteLimit(),
		Quiet:          true,
		RetainRemote:   true,
		// The origin of an event that another virtual node reflected may be missing in this cache.
		EndsWithOrigin: func(shown client.Object) bool { return shown.GetLabels()[api.LabelNodeName] == o.Node },
	}}
}

// origin returns the home object of an object of the provider; nil if there is none. The key has
// the home namespace and the name of the remote object.
type origin func(ctx context.Context, kind string, key types.NamespacedName) (*corev1.ObjectReference, error)

// podOf returns an origin that finds the home pods of remote pods and ShadowPods.
func podOf(pods client.Reader) origin {
	return func(ctx context.Context, kind string, key types.NamespacedName) (*corev1.ObjectReference, error) {
		if !ofPod(kind) {
			return nil, nil
		}
		pod, err := get(ctx, pods, key, &corev1.Pod{})
		if pod == nil || err != nil {
			return nil, err
		}
		return &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: key.Namespace, Name: key.Name, UID: pod.GetUID(),
		}, nil
	}
}

// ofPod reports whether an object of this kind stands for a home pod, which existed before it.
func ofPod(kind string) bool { return kind == "Pod" || kind == "ShadowPod" }

// gatherInvolved reads the home object that an event is about. A recent event about an object other
// than a pod is retried, because the caches may not show that object yet.
func gatherInvolved(origins []origin) GatherFunc {
	const fresh = 5 * time.Second
	return func(ctx context.Context, _ client.Reader, o Objects, v *translate.View) (time.Duration, error) {
		event := as[*corev1.Event](o.Home)
		key := types.NamespacedName{Namespace: v.Namespaces[event.Namespace], Name: event.InvolvedObject.Name}
		for _, find := range origins {
			involved, err := find(ctx, event.InvolvedObject.Kind, key)
			if involved != nil || err != nil {
				v.Involved = involved
				return 0, err
			}
		}
		if !ofPod(event.InvolvedObject.Kind) && time.Since(event.CreationTimestamp.Time) < fresh {
			return time.Second, errNotOurs
		}
		return 0, errNotOurs
	}
}

// namespaceKinds returns the kinds of the other objects in offloaded namespaces. One of a
// provider's virtual nodes reflects them.
func namespaceKinds(o Options, home *remote.Cluster, names *foreign) []Kind {
	own := ownSelector(o)
	kinds := []Kind{
		{
			Name: "Service", Home: &corev1.Service{}, Remote: &corev1.Service{}, RemoteSelector: own,
			Push: TypedOrError(translate.Service),
			Lesser: func(want client.Object) client.Object {
				if s := translate.AnyClusterIP(as[*corev1.Service](want)); s != nil {
					return s
				}
				return nil
			},
		}, {
			Name: "EndpointSlice", RemoteSelector: own,
			Home: &discoveryv1.EndpointSlice{}, Remote: &offv1beta1.ShadowEndpointSlice{},
			AlsoWatches: []client.Object{&corev1.Service{}, &ipamv1alpha1.IP{}},
			Gather:      gatherEndpoints(o.Reflectors[offv1beta1.ReflectService].IsAllowList()),
			Push:        TypedOrError(translate.EndpointSlice),
		}, {
			Name: "ConfigMap", Home: &corev1.ConfigMap{}, Remote: &corev1.ConfigMap{}, RemoteSelector: own,
			RemoteName: func(name string) string { return translate.ConfigMapName(name, o.Consumer) },
			HomeName: func(remote client.Object) string {
				return translate.HomeConfigMapName(remote.GetName(), o.Consumer)
			},
			Push:  Typed(translate.ConfigMap),
			Names: names,
		}, {
			Name: "Secret", Home: &corev1.Secret{}, Remote: &corev1.Secret{},
			RemoteSelector: ownSelector(o, requirement(api.LabelServiceAccountName, selection.DoesNotExist)),
			Push:           Typed(translate.Secret),
			Names:          names,
		}, {
			Name: "Ingress", Home: &networkingv1.Ingress{}, Remote: &networkingv1.Ingress{}, RemoteSelector: own,
			Push: TypedOrError(translate.Ingress),
		}, {
			Name: "PersistentVolumeClaim", RemoteSelector: own,
			Home: &corev1.PersistentVolumeClaim{}, Remote: &corev1.PersistentVolumeClaim{},
			Selects: func(claim client.Object) bool {
				return translate.ClaimElsewhere(claim.(*corev1.PersistentVolumeClaim))
			},
			Gather:       gatherOwner(home),
			Push:         Typed(translate.Claim),
			Pull:         Typed(translate.ClaimStatus),
			Finalizer:    api.ClaimFinalizer(o.Provider),
			RetainRemote: true,
			Ending:       endOfClaim(api.ClaimFinalizer(o.Provider)),
			Names:        names,
		},
	}
	for i := range kinds {
		tuning := o.Reflectors[strings.ToLower(kinds[i].Name)]
		kinds[i].Workers, kinds[i].AllowList = tuning.Workers, tuning.IsAllowList()
	}
	for _, custom := range o.Custom {
		kinds = append(kinds, custom.kind(o))
	}
	return kinds
}

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get

// gatherOwner skips the claims of generic ephemeral volumes. It reads the pod that may have such a
// volume from the API server: no cache holds all pods of a namespace. A claim of a pod that is gone
// is skipped as well, also if another pod has its name: the garbage collector deletes the claim.
func gatherOwner(home client.Reader) GatherFunc {
	return func(ctx context.Context, _ client.Reader, o Objects, _ *translate.View) (time.Duration, error) {
		claim := as[*corev1.PersistentVolumeClaim](o.Home)
		name := translate.OwnerPod(claim)
		if name == "" {
			return 0, nil
		}
		pod, err := get(ctx, home, types.NamespacedName{Namespace: claim.Namespace, Name: name}, &corev1.Pod{})
		isGone := pod == nil || !metav1.IsControlledBy(claim, pod)
		if err == nil && (isGone || translate.OfEphemeralVolume(claim, as[*corev1.Pod](pod))) {
			err = errNotOurs
		}
		return 0, err
	}
}

// endOfClaim deletes a volume at the provider when a local volume would be deleted: once no pod
// uses the claim, and unless the volume is to be retained. A claim without our finalizer did not
// make the remote volume: a former claim left it, to be retained.
func endOfClaim(mark string) func(context.Context, client.Reader, client.Object) (Ending, error) {
	return func(ctx context.Context, home client.Reader, obj client.Object) (Ending, error) {
		claim := obj.(*corev1.PersistentVolumeClaim)
		if !slices.Contains(claim.Finalizers, mark) {
			return Stays, nil
		}
		if slices.Contains(claim.Finalizers, "kubernetes.io/pvc-protection") {
			return Waits, nil
		}
		if claim.Spec.VolumeName == "" {
			return Goes, nil
		}
		name := types.NamespacedName{Name: claim.Spec.VolumeName}
		volume, err := ctl.Optional(ctx, home, name, &corev1.PersistentVolume{})
		switch {
		case err != nil:
			return Waits, err
		case volume != nil && volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
			return Stays, nil
		}
		return Goes, nil
	}
}

// gatherEndpoints reads the Service of a slice, and the addresses of endpoints that are pods of
// neither the consumer nor the provider.
func gatherEndpoints(serviceAllowList bool) GatherFunc {
	return func(ctx context.Context, r client.Reader, o Objects, v *translate.View) (_ time.Duration, err error) {
		v.ServiceAllowList = serviceAllowList
		namespace := o.Home.GetNamespace()
		if name := o.Home.GetLabels()[discoveryv1.LabelServiceName]; name != "" {
			key := types.NamespacedName{Namespace: namespace, Name: name}
			if v.Service, err = ctl.Optional(ctx, r, key, &corev1.Service{}); err != nil {
				return 0, err
			}
		}
		var ips ipamv1alpha1.IPList
		if err := r.List(ctx, &ips, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return 0, err
		}
		v.External = map[netip.Addr]netip.Addr{}
		for i := range ips.Items {
			from, fromErr := netip.ParseAddr(ips.Items[i].Spec.IP)
			to, toErr := netip.ParseAddr(ips.Items[i].Status.IP)
			if fromErr == nil && toErr == nil {
				v.External[from] = to
			}
		}
		return 0, nil
	}
}

// ownSelector selects the objects that this consumer has reflected to this provider.
func ownSelector(o Options, also ...labels.Requirement) labels.Selector {
	return labels.NewSelector().Add(
		requirement(api.LabelOrigin, selection.Equals, o.Consumer),
		requirement(api.LabelDestination, selection.Equals, o.Provider),
	).Add(also...)
}

// requirement returns one condition on a label. Keys are constants and values are names of objects,
// so an error is a programming error.
func requirement(key string, op selection.Operator, values ...string) labels.Requirement {
	r, err := labels.NewRequirement(key, op, values)
	utilruntime.Must(err)
	return *r
}
