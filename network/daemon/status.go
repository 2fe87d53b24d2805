// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// Reference identifies an object of the group networking.liqo.io. Namespace is empty for
// cluster-scoped kinds.
type Reference struct{ Kind, Resource, Namespace, Name string }

// ApplyStatus applies a part of the object's status, which the field manager owns from then on.
func (r Reference) ApplyStatus(ctx context.Context, client rest.Interface, manager string, status any) error {
	patch, err := json.Marshal(map[string]any{
		"apiVersion": netv1beta1.GroupVersion.String(), "kind": r.Kind,
		"metadata": map[string]string{"namespace": r.Namespace, "name": r.Name}, "status": status,
	})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	err = client.Patch(types.ApplyPatchType).NamespaceIfScoped(r.Namespace, r.Namespace != "").Resource(r.Resource).
		Name(r.Name).SubResource("status").Param("fieldManager", manager).Param("force", "true").Body(patch).
		Do(ctx).Error()
	if err != nil {
		name := strings.TrimPrefix(r.Namespace+"/"+r.Name, "/")
		return fmt.Errorf("write status of %s %s: %w", r.Kind, name, err)
	}
	return nil
}

// LogFailedWrite logs the error of a write that is repeated later; nil and a deleted object are no
// failures.
func LogFailedWrite(ctx context.Context, err error, message string) {
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).WithCallDepth(1).Error(err, message)
	}
}

// HostStatus is an object in whose status each host reports its own conditions.
type HostStatus struct {
	Reference
	// conditions are those in the status.
	conditions []netv1beta1.HostCondition
	// category is the category of hosts that an object of a user selects.
	category string
}

// FabricStatus returns the HostStatus of an InternalFabric.
func FabricStatus(f *netv1beta1.InternalFabric) HostStatus {
	ref := Reference{"InternalFabric", "internalfabrics", f.Namespace, f.Name}
	return HostStatus{Reference: ref, conditions: f.Status.Conditions}
}

// Report replaces the conditions of the hosts that want names in the object's status. manager returns
// the field manager of a host. Failures are logged with the message.
func (s HostStatus) Report(
	ctx context.Context, client rest.Interface, manager func(host string) string,
	want map[string][]netv1beta1.HostCondition, failure string,
) {
	for host, conditions := range want {
		LogFailedWrite(ctx, s.report(ctx, client, manager(host), host, conditions), failure)
	}
}

// report replaces the conditions of one host. It writes nothing if they differ in their times only.
func (s HostStatus) report(
	ctx context.Context, client rest.Interface, manager, host string, want []netv1beta1.HostCondition,
) error {
	have := slices.DeleteFunc(slices.Clone(s.conditions),
		func(c netv1beta1.HostCondition) bool { return c.Host != host })
	if slices.EqualFunc(want, have, func(a, b netv1beta1.HostCondition) bool {
		b.LastTransitionTime = a.LastTransitionTime
		return a == b
	}) {
		return nil
	}
	want = append([]netv1beta1.HostCondition{}, want...) // null would not be a list
	for i := range want {
		want[i].LastTransitionTime = metav1.NewTime(time.Now())
	}
	return s.ApplyStatus(ctx, client, manager, map[string]any{"conditions": want})
}
