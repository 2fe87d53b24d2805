// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/internal/desired"
)

// anything finds an empty object of any name.
type anything struct{ client.Reader }

func (anything) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

// TestAForbiddenReadIsAnError, logged and counted, and no refusal of what a root wants: nothing
// else would tell of it.
func TestAForbiddenReadIsAnError(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", nil)
	l := &loop{roots: anything{}, root: &corev1.ConfigMap{}, Controller: Controller[client.Object, any]{
		Gather: func(context.Context, Reader, client.Object) (any, error) { return nil, forbidden },
	}}
	if _, err := l.Reconcile(t.Context(), reconcile.Request{}); !apierrors.IsForbidden(err) {
		t.Errorf("the reconciliation ends with %v", err)
	}
}

// TestRefusalsAreReportedSoon: a lasting refusal is no verdict at once, and one after less than 4 s, so
// that a consumer is told within 5 s of its creation that a pod is refused.
func TestRefusalsAreReportedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &loop{refusedSince: map[types.NamespacedName]time.Time{}}
		key := types.NamespacedName{Namespace: "shop", Name: "web"}
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "web", nil)
		began := time.Now()
		for l.verdictAfter(key, desired.Verdict{}, refused).State != desired.Blocked {
			time.Sleep(l.retryAfter(key, refused))
		}
		if took := time.Since(began); took < refusalReported || took > 4*time.Second {
			t.Errorf("a refusal is reported after %s, want %s to 4 s", took, refusalReported)
		}
	})
}

// TestUntypedKeepsAll shows that untyped copies every field of a controller, also fields added later.
func TestUntypedKeepsAll(t *testing.T) {
	t.Parallel()
	var full Controller[*corev1.ConfigMap, int]
	for _, f := range reflect.ValueOf(&full).Elem().Fields() {
		switch f.Kind() {
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int:
			f.SetInt(1)
		case reflect.Slice:
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		default: // functions
			f.Set(reflect.MakeFunc(f.Type(), func([]reflect.Value) []reflect.Value { return nil }))
		}
	}
	for field, v := range reflect.ValueOf(full.untyped()).Fields() {
		if v.IsZero() {
			t.Errorf("%s is lost", field.Name)
		}
	}
}
