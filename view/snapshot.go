// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"reflect"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// Snapshot holds the objects of one cluster at one moment, as far as the user may read them. Its methods
// beside Add and Sort change nothing, so that it can be shared.
type Snapshot struct {
	// ClusterID and Namespace are those of the installation.
	ClusterID, Namespace string
	// Command is how the user calls liqoctl. It is part of remedies.
	Command string
	// Hidden holds, by kind, why objects are missing: "the user may not list them", for example. Such a list is empty.
	Hidden map[string]string
	// Namespaces are the only ones that were read, of kinds that InNamespaces holds for; empty = all.
	Namespaces []string
	// Stale says why the objects may be old: the last error of a watch. It is empty while all is well.
	Stale string
	// Traffic holds the rates of tunnels by the peer's cluster ID. A peer is missing if its rates are not known.
	Traffic map[string]Traffic
	// PeerObjects are those of all peers, without Secrets.
	PeerObjects
	// ForeignClusters are the peers.
	ForeignClusters corev1beta1.ForeignClusterList
	PublicKeys      netv1beta1.PublicKeyList
	InternalNodes   netv1beta1.InternalNodeList
	Networks        ipamv1alpha1.NetworkList
	IPs             ipamv1alpha1.IPList
	NamespaceMaps   offv1beta1.NamespaceMapList
	Quotas          offv1beta1.QuotaList
	ShadowPods      offv1beta1.ShadowPodList
	Offloadings     offv1beta1.NamespaceOffloadingList
	Deployments     appsv1.DeploymentList
	Nodes           corev1.NodeList
	Pods            corev1.PodList
	Services        corev1.ServiceList
	EndpointSlices  discoveryv1.EndpointSliceList
	Claims          corev1.PersistentVolumeClaimList
	Events          corev1.EventList
}

// Lists returns pointers to all lists of objects except those of Secrets, to be filled.
func (s *Snapshot) Lists() []runtime.Object {
	return []runtime.Object{&s.ForeignClusters, &s.Configurations, &s.Servers, &s.Clients, &s.Fabrics, &s.Connections,
		&s.Tenants, &s.Identities, &s.VirtualNodes, &s.Slices, &s.PublicKeys, &s.InternalNodes, &s.Networks, &s.IPs,
		&s.NamespaceMaps, &s.Quotas, &s.ShadowPods, &s.Offloadings, &s.Deployments, &s.Nodes, &s.Pods, &s.Services,
		&s.EndpointSlices, &s.Claims, &s.Events}
}

// InNamespaces reports whether objects of a kind are in the namespaces of users. The other kinds with a namespace are
// in those of Liqo and of peerings.
func InNamespaces(kind string) bool {
	return slices.Contains([]string{"NamespaceOffloading", "ShadowPod", "Pod", "Service", "EndpointSlice",
		"PersistentVolumeClaim", "Event"}, kind)
}

// itemsOf returns the items of a typed list.
func itemsOf(list runtime.Object) reflect.Value {
	return reflect.ValueOf(list).Elem().FieldByName("Items")
}

// KindOf returns the kind of the items of a typed list.
func KindOf(list runtime.Object) string { return itemsOf(list).Type().Elem().Name() }

// NewItem returns an empty object of the kind of a typed list's items.
func NewItem(list runtime.Object) Object {
	return reflect.New(itemsOf(list).Type().Elem()).Interface().(Object)
}

// Add adds an object to its list and reports whether there is one for its kind.
func (s *Snapshot) Add(object Object) bool {
	for _, list := range s.Lists() {
		if items := itemsOf(list); items.Type().Elem() == reflect.TypeOf(object).Elem() {
			items.Set(reflect.Append(items, reflect.ValueOf(object).Elem()))
			return true
		}
	}
	return false
}

// Sort orders each list by namespace and name. It changes the snapshot, and is called before it is shared.
func (s *Snapshot) Sort() {
	for _, list := range s.Lists() {
		items := itemsOf(list)
		at := func(i int) Object { return items.Index(i).Addr().Interface().(Object) }
		sort.Slice(items.Interface(), func(i, j int) bool {
			a, b := at(i), at(j)
			return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName())) < 0
		})
	}
}

// Source returns what explains the state of objects, from the snapshot alone. It goes through the events once, when
// the first warning is asked for: a page uses one source for all objects.
func (s *Snapshot) Source() Source {
	warnings := sync.OnceValue(s.warnings)
	return Source{Command: s.Command, Read: s.read, Pods: s.podsOf, Warning: func(object Object) string {
		return warnings()[about{kindOf(object), object.GetNamespace(), object.GetName()}]
	}}
}

// read copies an object of the snapshot into its argument. The copy shares what it points to.
func (s *Snapshot) read(object Object) error {
	kind := kindOf(object)
	resource := schema.GroupResource{Resource: strings.ToLower(kind)}
	if why, hidden := s.Hidden[kind]; hidden {
		return apierrors.NewForbidden(resource, object.GetName(), errHidden(why))
	}
	for _, list := range s.Lists() {
		items := itemsOf(list)
		if items.Type().Elem() != reflect.TypeOf(object).Elem() {
			continue
		}
		for i := range items.Len() {
			have := items.Index(i).Addr().Interface().(Object)
			if have.GetName() == object.GetName() && have.GetNamespace() == object.GetNamespace() {
				reflect.ValueOf(object).Elem().Set(items.Index(i))
				return nil
			}
		}
	}
	return apierrors.NewNotFound(resource, object.GetName())
}

// errHidden says why the user does not see objects.
type errHidden string

func (e errHidden) Error() string { return string(e) }

func (s *Snapshot) podsOf(namespace string, selected labels.Selector) ([]corev1.Pod, error) {
	if why, hidden := s.Hidden["Pod"]; hidden {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errHidden(why))
	}
	var out []corev1.Pod
	for _, pod := range s.Pods.Items {
		if pod.Namespace == namespace && selected.Matches(labels.Set(pod.Labels)) {
			out = append(out, pod)
		}
	}
	return out, nil
}

// about names the object of an event.
type about struct{ kind, namespace, name string }

// warnings returns the message of the latest warning event about each object.
func (s *Snapshot) warnings() map[about]string {
	latest := map[about]*corev1.Event{}
	for i := range s.Events.Items {
		event := &s.Events.Items[i]
		of := about{event.InvolvedObject.Kind, event.InvolvedObject.Namespace, event.InvolvedObject.Name}
		if last := latest[of]; event.Type == corev1.EventTypeWarning &&
			(last == nil || !EventTime(event).Before(EventTime(last))) {
			latest[of] = event
		}
	}
	out := make(map[about]string, len(latest))
	for of, event := range latest {
		out[of] = oneLine(event.Message)
	}
	return out
}

// EventTime returns when an event was observed last. Clients of events.k8s.io/v1 leave LastTimestamp empty.
func EventTime(event *corev1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	}
	return event.CreationTimestamp.Time
}

// peers returns the ForeignClusters of active peerings by their IDs.
func (s *Snapshot) peers() []corev1beta1.ForeignCluster {
	out := slices.DeleteFunc(slices.Clone(s.ForeignClusters.Items),
		func(f corev1beta1.ForeignCluster) bool { return !IsActive(&f) })
	slices.SortFunc(out, func(a, b corev1beta1.ForeignCluster) int {
		return cmp.Compare(a.Spec.ClusterID, b.Spec.ClusterID)
	})
	return out
}

// of returns the objects of one peer.
func (s *Snapshot) of(peer string) *PeerObjects {
	out := &PeerObjects{}
	out.Configurations.Items = ofPeer(s.Configurations.Items, peer)
	out.Servers.Items = ofPeer(s.Servers.Items, peer)
	out.Clients.Items = ofPeer(s.Clients.Items, peer)
	out.Fabrics.Items = ofPeer(s.Fabrics.Items, peer)
	out.Connections.Items = ofPeer(s.Connections.Items, peer)
	out.Tenants.Items = ofPeer(s.Tenants.Items, peer)
	out.Identities.Items = ofPeer(s.Identities.Items, peer)
	out.VirtualNodes.Items = ofPeer(s.VirtualNodes.Items, peer)
	out.Slices.Items = ofPeer(s.Slices.Items, peer)
	return out
}

// ofPeer returns the objects whose label names a peer.
func ofPeer[T any, P interface {
	*T
	metav1.Object
}](items []T, id string) []T {
	var out []T
	for i := range items {
		if isPeer(P(&items[i]), id) {
			out = append(out, items[i])
		}
	}
	return out
}
