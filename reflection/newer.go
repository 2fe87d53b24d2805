// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/internal/fields"
	"github.com/liqo-go/liqo/internal/remote"
)

// reasonFieldNotReflected is the reason of the event about a field that an object loses on its way
// to the peer. Upgrade Liqo or the Kubernetes that does not know the field, or do without it.
const reasonFieldNotReflected = "FieldNotReflected"

// droppedByPeer is the cause of a field that the peer's API server does not know.
const droppedByPeer = "its API server does not know it; upgrade that cluster, or do without the field"

const (
	// mostWarned is the number of fields that are taken from the warnings of one request. The peer writes them.
	mostWarned = 16
	// mostReported is the number of fields of a kind that events name in a namespace for one cause.
	mostReported = 64
)

// errUnknownVolume reports that a pod has a volume of a kind that our types lack. Without its source
// it would be an emptyDir.
var errUnknownVolume = errors.New("unknown kind of volume")

// newer holds the fields of the reflected kinds that the home API server has and our types lack. An API
// server of the version of our types has no such field. An older one may have some too, which Kubernetes has
// removed since. Objects of a kind with such fields are read as JSON, once for each change of a spec, and
// the fields that they set are reported.
type newer struct {
	// fields has no entry for a kind without such fields.
	fields atomic.Pointer[map[schema.GroupVersionKind]fields.Set]

	mu       sync.Mutex
	lost     map[lossKey]loss
	reported map[place]map[string]bool // fields
}

func newNewer() *newer {
	n := &newer{lost: map[lossKey]loss{}, reported: map[place]map[string]bool{}}
	n.fields.Store(&map[schema.GroupVersionKind]fields.Set{})
	return n
}

// lossKey identifies a home object.
type lossKey struct {
	kind string
	key  types.NamespacedName
}

// loss holds the fields that an object of some version loses, by some comparison.
type loss struct {
	version string
	by      *map[schema.GroupVersionKind]fields.Set
	fields  []string
}

// place is where a field is reported once, for one cause.
type place struct{ kind, namespace, cause string }

// read compares the OpenAPI of the home API server with the types of kinds. Custom resources have no
// type and lose no field. It reports whether the result differs from the former one.
func (n *newer) read(ctx context.Context, home *remote.Cluster, kinds []Kind) (changed bool, err error) {
	found, documents := map[schema.GroupVersionKind]fields.Set{}, map[schema.GroupVersion]fields.Document{}
	for _, kind := range kinds {
		gvk, err := apiutil.GVKForObject(kind.Home, home.Scheme())
		if _, custom := kind.Home.(runtime.Unstructured); custom || kind.Workers == 0 {
			continue
		} else if err != nil {
			return false, fmt.Errorf("find kind of %T: %w", kind.Home, err)
		}
		document, ok := documents[gvk.GroupVersion()]
		if !ok {
			if document, err = home.Fields(ctx, gvk.GroupVersion()); err != nil {
				return false, err
			}
			documents[gvk.GroupVersion()] = document
		}
		if set, _ := document.Compare(gvk, reflect.TypeOf(kind.Home).Elem()); len(set) > 0 {
			found[gvk] = set
		}
	}
	before := n.fields.Swap(&found)
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.lost)
	return !reflect.DeepEqual(*before, found), nil
}

// lost returns the fields that a home object sets and its type lacks.
func (w *worker) lost(ctx context.Context, key types.NamespacedName, home client.Object) ([]string, error) {
	n := w.engine.newer
	newer := n.fields.Load()
	if len(*newer) == 0 {
		return nil, nil
	}
	gvk, err := apiutil.GVKForObject(home, w.engine.Home.Scheme())
	if err != nil {
		return nil, fmt.Errorf("find kind of %T: %w", home, err)
	}
	missing := (*newer)[gvk]
	if len(missing) == 0 || gvk.Kind != w.Name { // tokens are not made from the fields of a pod
		return nil, nil
	}
	version := fmt.Sprint(home.GetUID(), "/", home.GetGeneration())
	if home.GetGeneration() == 0 { // its kind does not count generations
		version = home.GetResourceVersion()
	}
	n.mu.Lock()
	last := n.lost[lossKey{w.Name, key}]
	n.mu.Unlock()
	if last.version == version && last.by == newer {
		return last.fields, nil
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := w.engine.Home.Get(ctx, key, u); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	last = loss{version, newer, missing.Lost(u.Object)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost[lossKey{w.Name, key}] = last
	return last.fields, nil
}

// forget drops what is known of an object that no longer exists.
func (n *newer) forget(kind string, key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.lost, lossKey{kind, key})
}

// warnings collects the fields that warnings of the peer's API server name, in the context of a request
// that withWarnings has made. Other warnings are dropped, because they would fill the log.
type warnings struct{}

type warningsKey struct{}

// withWarnings returns a context for writes, and the fields that the peer does not know so far.
func withWarnings(ctx context.Context) (context.Context, *[]string) {
	unknown := &[]string{}
	return context.WithValue(ctx, warningsKey{}, unknown), unknown
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (warnings) HandleWarningHeaderWithContext(ctx context.Context, _ int, _, text string) {
	unknown, ok := ctx.Value(warningsKey{}).(*[]string)
	path := fields.Unknown(text)
	ofSpec := strings.HasPrefix(path, "spec.") || !strings.Contains(path, ".") // else keys of Secrets
	if ok && path != "" && ofSpec && len(*unknown) < mostWarned {
		*unknown = append(*unknown, path)
	}
}

// reportDropped records an event for each field of an object that the peer says it does not know. What the
// peer names and the object lacks is ignored, so a peer cannot cause events without end.
func (w *worker) reportDropped(ctx context.Context, home, object client.Object, unknown []string) {
	if len(unknown) == 0 {
		return
	}
	set := fields.Set{}
	for _, path := range unknown {
		set[path] = nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return // what is sent converts
	}
	w.reportLost(ctx, home, set.Lost(content), droppedByPeer)
}

// reportLost records an event for each field that is not reflected, once in a namespace. cause
// completes "is not reflected to cluster …:".
func (w *worker) reportLost(ctx context.Context, home client.Object, lost []string, cause string) {
	n := w.engine.newer
	for _, field := range lost {
		if !n.isNew(place{w.Name, home.GetNamespace(), cause}, field) {
			continue
		}
		message := fmt.Sprintf("field %q is not reflected to cluster %q: %s", field, w.engine.Peer, cause)
		w.events(home, corev1.EventTypeWarning, reasonFieldNotReflected, message)
		log.FromContext(ctx).Info("field is not reflected", "kind", w.Name, "field", field, "cause", cause,
			"object", client.ObjectKeyFromObject(home).String())
	}
}

// isNew reports whether a field has not been reported yet, and may be.
func (n *newer) isNew(at place, field string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.reported[at]
	if known[field] || len(known) == mostReported {
		return false
	}
	if known == nil {
		known = map[string]bool{}
		n.reported[at] = known
	}
	known[field] = true
	return true
}
