// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/patience"
)

// TestQuotaHolds creates 200 ShadowPods at once. As many pods are created as fit into the quota,
// and never more, although the controller restarts meanwhile.
func TestQuotaHolds(t *testing.T) {
	t.Parallel()
	const asked, fit = 200, 50
	k := start(t)
	quota := &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Name: "slice", Namespace: "tenant-turin"}}
	quota.Spec.User, quota.Spec.Resources = "slice", corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(fit, resource.DecimalSI)}
	nsmap := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Name: "milan", Namespace: "tenant-turin", Labels: map[string]string{api.LabelReplicated: api.True},
	}}
	nsmap.Spec.DesiredMapping = map[string]string{"demo": "demo-turin"}
	k.create(t, namespace("tenant-turin", map[string]string{api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: "turin"}), quota, nsmap)
	consumer := k.as(t, "slice", "turin")
	k.answers(t, consumer)

	var asking sync.WaitGroup
	for i := range asked {
		asking.Go(func() {
			if err := insist(t.Context(), consumer, fmt.Sprintf("web-%d", i)); err != nil {
				t.Errorf("pod %d: %v", i, err)
			}
		})
	}
	k.until(t, "the first pods", func(ctx context.Context) error {
		if n := k.pods(t); n < fit/5 {
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
	k.stop()
	k.stop = run(t, k.server.ConfigFor("controller"), k.port)
	k.until(t, "all pods that fit", func(ctx context.Context) error {
		switch n := k.pods(t); {
		case n > fit:
			t.Fatalf("%d pods, and the quota has room for %d", n, fit)
		case n < fit:
			return fmt.Errorf("%d pods", n)
		}
		return nil
	})
	asking.Wait()
	if n := k.pods(t); n != fit {
		t.Errorf("%d pods, and the quota has room for %d", n, fit)
	}
}

// answers waits until the admission server responds: it refuses a pod with a negative request.
func (k cluster) answers(t *testing.T, consumer client.Client) {
	t.Helper()
	k.until(t, "what would make room for others is refused", func(ctx context.Context) error {
		p := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: "less", Namespace: "demo-turin", Labels: map[string]string{api.LabelOrigin: "turin"}}}
		p.Spec.Pod = container("-1000")
		switch err := consumer.Create(ctx, p); {
		case err == nil:
			t.Fatal("a pod that asks for less than nothing is accepted")
		case !strings.Contains(err.Error(), "less than nothing"):
			return err // nobody answers yet
		}
		return nil
	})
}

func (k cluster) pods(t *testing.T) int {
	t.Helper()
	var list corev1.PodList
	if err := k.List(t.Context(), &list, client.InNamespace("demo-turin")); err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// insist creates a ShadowPod until it is accepted or the quota refuses it; while the controller
// restarts, requests fail.
func insist(ctx context.Context, c client.Client, name string) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		p := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "demo-turin", Labels: map[string]string{api.LabelOrigin: "turin"}}}
		p.Spec.Pod = container("1")
		err := c.Create(ctx, p)
		last = err
		switch {
		case err == nil, apierrors.IsAlreadyExists(err), strings.Contains(err.Error(), "quota usage exceeded"):
			return true, nil
		case apierrors.IsInternalError(err), apierrors.IsTooManyRequests(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
			return false, nil
		}
		return false, err
	})
	if wait.Interrupted(err) {
		return errors.New(patience.GaveUp("an answer to a new pod", last))
	}
	return err
}
