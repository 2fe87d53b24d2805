// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/gateway/plan"
)

// writeFor bounds a write to the API server.
const writeFor = 5 * time.Second

// +kubebuilder:rbac:groups=networking.liqo.io,resources=connections,namespace=tenant,verbs=get;list;watch;create;update;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=gatewayservers;gatewayclients,namespace=tenant,verbs=get
// +kubebuilder:rbac:groups=networking.liqo.io,resources=connections/status,namespace=tenant,verbs=update;patch

// object is one in JSON.
type object = map[string]any

// writer writes the Connection.
type writer struct{ client rest.Interface }

// write does an action on the Connection.
func (w writer) write(ctx context.Context, action plan.Action) plan.Written {
	bounded, cancel := context.WithTimeout(ctx, writeFor)
	defer cancel()
	var out plan.Written
	var err error
	switch a := action.(type) {
	case plan.EnsureConnection:
		out.Connection, err = w.ensure(bounded, a.Want)
	case plan.WriteStatus:
		out.Connection, out.Status = a.Connection, true
		if err = w.patch(bounded, a.Connection, object{"status": a.Connection.Status}, "status"); err != nil {
			err = fmt.Errorf("write status of Connection %s/%s: %w", a.Connection.Namespace, a.Connection.Name, err)
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The state of the connection could not be written")
		}
		return plan.Written{Failed: true}
	}
	return out
}

// ensure returns the Connection, created or corrected if needed; nil = the gateway is
// being removed.
func (w writer) ensure(ctx context.Context, want *netv1beta1.Connection) (*netv1beta1.Connection, error) {
	connections := func(r *rest.Request) *rest.Request { return r.Namespace(want.Namespace).Resource("connections") }
	found := &netv1beta1.Connection{}
	err := connections(w.client.Get()).Name(want.Name).Do(ctx).Into(found)
	if apierrors.IsNotFound(err) {
		if gone, err := w.gone(ctx, want); gone || err != nil {
			return nil, err
		}
		if err := connections(w.client.Post()).Body(want).Do(ctx).Into(want); err != nil {
			return nil, fmt.Errorf("create Connection %s/%s: %w", want.Namespace, want.Name, err)
		}
		return want, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get Connection %s/%s: %w", want.Namespace, want.Name, err)
	}
	old := found.DeepCopy()
	found.Spec, found.OwnerReferences = want.Spec, want.OwnerReferences
	for k, v := range want.Labels {
		metav1.SetMetaDataLabel(&found.ObjectMeta, k, v)
	}
	if plan.Equal(old, found) {
		return found, nil
	}
	metadata := object{"labels": want.Labels, "ownerReferences": want.OwnerReferences}
	if err := w.patch(ctx, want, object{"metadata": metadata, "spec": want.Spec}); err != nil {
		return nil, fmt.Errorf("write Connection %s/%s: %w", want.Namespace, want.Name, err)
	}
	return found, nil
}

// patch sends a merge patch of the Connection or a subresource of it.
func (w writer) patch(ctx context.Context, c *netv1beta1.Connection, patch object, subresource ...string) error {
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	return w.client.Patch(types.MergePatchType).Namespace(c.Namespace).Resource("connections").Name(c.Name).
		SubResource(subresource...).Body(text).Do(ctx).Error()
}

// gone reports whether the GatewayServer or GatewayClient that owns the Connection is.
func (w writer) gone(ctx context.Context, c *netv1beta1.Connection) (bool, error) {
	if len(c.OwnerReferences) == 0 {
		return false, nil
	}
	owner := c.OwnerReferences[0]
	found := &metav1.PartialObjectMetadata{}
	err := w.client.Get().Namespace(c.Namespace).Resource(strings.ToLower(owner.Kind) + "s").Name(owner.Name).
		Do(ctx).Into(found)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("get %s %s/%s: %w", owner.Kind, c.Namespace, owner.Name, err)
	}
	return found.UID != owner.UID || found.DeletionTimestamp != nil, nil
}
