// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/view"
)

// cluster is one of the clusters a verb works on.
type cluster struct {
	client.WithWatch
	side   side
	config *rest.Config
	// namespace is where Liqo is installed.
	namespace string
	// current is the namespace of the kubeconfig; "default" if it names none.
	current string
	// id is the cluster ID; empty if the verb does not need Liqo to be installed.
	id string
	// tenant is the tenant namespace for the other cluster; empty until it is found or created.
	tenant string
	// chosen is the namespace that the user named for the objects; empty if it is to be found.
	chosen string
	// network is the namespace of all gateways, keys and ranges for the other cluster: the tenant
	// namespace, unless they were created elsewhere. Empty until found.
	network string
	// other is the other cluster of a pair; gateway is the name of the gateway for it.
	other   *cluster
	gateway string
	// ranges holds the CIDRs of this cluster; empty until read.
	ranges netv1beta1.ClusterCIDR
	// flags holds the flags that select the cluster, for messages; the flag for the kubeconfig is
	// first.
	flags []string
	env   *env
}

// clusterPrefix returns "local ", "remote " or nothing, the text before "cluster" in messages.
func (s side) clusterPrefix() string {
	if s == noCluster {
		return ""
	}
	return string(s) + " "
}

// apply creates the object or merges its fields into the existing one; it sends nothing if they are
// all there. An object that is being deleted is created again after it is gone. apply uses get,
// create and update only, since a peering user has no other rights.
func (c *cluster) apply(ctx context.Context, desired client.Object) error {
	_, err := c.applied(ctx, desired)
	return err
}

// applied is apply that returns the object as the cluster has it afterwards.
func (c *cluster) applied(ctx context.Context, desired client.Object) (now *unstructured.Unstructured, err error) {
	want, err := c.env.manifest(desired)
	if err != nil {
		return nil, err
	}
	changed := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err = retry.OnError(retry.DefaultRetry, changed, func() error {
		have := &unstructured.Unstructured{}
		have.SetGroupVersionKind(want.GroupVersionKind())
		err := c.Get(ctx, client.ObjectKeyFromObject(want), have)
		if client.IgnoreNotFound(err) != nil {
			return c.describe("read", want, err)
		}
		if have.GetDeletionTimestamp() != nil {
			if err := c.awaitGone(ctx, have); err != nil {
				return err
			}
		}
		if err != nil || have.GetDeletionTimestamp() != nil {
			now = want.DeepCopy()
			return c.describe("create", want, c.Create(ctx, now))
		}
		now = have.DeepCopy()
		merge(now.Object, want.Object)
		if equality.Semantic.DeepEqual(have.Object, now.Object) {
			return nil
		}
		return c.describe("update", want, c.Update(ctx, now))
	})
	return now, err
}

// manifest returns the object as it is sent and printed: with its kind and the user's labels,
// without an empty status.
func (e *env) manifest(object client.Object) (*unstructured.Unstructured, error) {
	out, err := e.untyped(object)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(out.Object, "status")
	unstructured.RemoveNestedField(out.Object, "metadata", "creationTimestamp")
	out.SetLabels(withDefaults(out.GetLabels(), e.labels))
	out.SetAnnotations(withDefaults(out.GetAnnotations(), e.annotations))
	return out, nil
}

// untyped returns a copy of an object with its kind.
func (e *env) untyped(object client.Object) (*unstructured.Unstructured, error) {
	out := &unstructured.Unstructured{}
	if err := e.scheme.Convert(object.DeepCopyObject(), out, nil); err != nil {
		return nil, fmt.Errorf("encode %T: %w", object, err)
	}
	return out, nil
}

// merge copies the fields of src into dst, map by map; it replaces lists.
func merge(dst, src map[string]any) {
	for key, value := range src {
		from, isMap := value.(map[string]any)
		into, wasMap := dst[key].(map[string]any)
		if isMap && wasMap {
			merge(into, from)
			continue
		}
		dst[key] = value
	}
}

// describe wraps an error with the verb of the failed request, its object and its cluster.
func (c *cluster) describe(verb string, object client.Object, err error) error {
	if err == nil {
		return nil
	}
	gvk, _ := apiutil.GVKForObject(object, c.Scheme())
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("the %scluster does not know %s; install Liqo there with '%s install'",
			c.side.clusterPrefix(), gvk.Kind, c.env.name)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errTimeout
	}
	return fmt.Errorf("%s %s of the %scluster: %w", verb, c.nameOf(object), c.side.clusterPrefix(), err)
}

// nameOf returns kind and name as kubectl takes them.
func (c *cluster) nameOf(object client.Object) string {
	gvk, _ := apiutil.GVKForObject(object, c.Scheme())
	return view.Name(gvk.Kind, object)
}

// read fetches an object.
func (c *cluster) read(ctx context.Context, object client.Object) error {
	return c.describe("read", object, c.Get(ctx, client.ObjectKeyFromObject(object), object))
}

// remove deletes an object and returns whether it existed.
func (c *cluster) remove(ctx context.Context, object client.Object) (bool, error) {
	err := c.Delete(ctx, object)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, c.describe("delete", object, err)
}

// annotate sets an annotation of an object that was read before; an empty text removes it.
func (c *cluster) annotate(ctx context.Context, object client.Object, key, text string) error {
	before := object.DeepCopyObject().(client.Object)
	setAnnotation(object, key, text)
	return c.describe("update", object, c.Patch(ctx, object, client.MergeFrom(before)))
}

func setAnnotation(object client.Object, key, text string) {
	annotations := object.GetAnnotations()
	if text == "" {
		delete(annotations, key)
	} else {
		annotations = withDefaults(map[string]string{key: text}, annotations)
	}
	object.SetAnnotations(annotations)
}

// removeAndAwait deletes an object and waits until it is gone.
func (c *cluster) removeAndAwait(ctx context.Context, object client.Object) error {
	if _, err := c.remove(ctx, object); err != nil {
		return err
	}
	return c.awaitGone(ctx, object)
}
