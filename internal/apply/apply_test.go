// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apply_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/apply"
)

// TestMapLosesItsKeys: keys go one by one, also the last one, and nothing is sent for nothing.
func TestMapLosesItsKeys(t *testing.T) {
	t.Parallel()
	c, err := client.New(apitest.Start(t).Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	a := apply.New(c, c, "test")
	for _, want := range []map[string]string{{"a": "1", "b": "2"}, {"b": "2"}, {}, {"c": "3"}, nil} {
		desired := &offv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "map"},
			Spec:       offv1beta1.NamespaceMapSpec{DesiredMapping: want},
		}
		if _, err := a.Object(t.Context(), read(t, c), desired); err != nil {
			t.Fatalf("apply %v: %v", want, err)
		}
		got := read(t, c).(*offv1beta1.NamespaceMap).Spec.DesiredMapping
		if len(want)+len(got) > 0 && !cmp.Equal(want, got) {
			t.Errorf("applied %v, got %v", want, got)
		}
		status := desired.DeepCopy()
		status.Status.CurrentMapping = map[string]offv1beta1.RemoteNamespaceStatus{}
		for local := range want {
			status.Status.CurrentMapping[local] = offv1beta1.RemoteNamespaceStatus{RemoteNamespace: local, Phase: offv1beta1.NamespaceAccepted}
		}
		if _, err := a.Status(t.Context(), read(t, c), status); err != nil {
			t.Fatalf("apply status of %v: %v", want, err)
		}
		if got := read(t, c).(*offv1beta1.NamespaceMap).Status.CurrentMapping; len(got) != len(want) {
			t.Errorf("applied the status of %v, got %v", want, got)
		}
		if sent, err := a.Object(t.Context(), read(t, c), desired); sent || err != nil {
			t.Errorf("apply %v again: a request was sent: %t, error %v", want, sent, err)
		}
	}
}

// read gives the object as it is, nil when there is none yet.
func read(t *testing.T, c client.Client) client.Object {
	t.Helper()
	m := &offv1beta1.NamespaceMap{}
	err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "map"}, m)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return m
}

// TestCreated: what Create named and Created does not any more is removed; what others set stays.
func TestCreated(t *testing.T) {
	t.Parallel()
	c, err := client.New(apitest.Start(t).Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	a := apply.New(c, c, "test")
	named := func(labels map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "created", Labels: labels}}
	}
	if err := a.Create(t.Context(), named(map[string]string{"a": "1", "b": "2"})); err != nil {
		t.Fatal(err)
	}
	if err := a.Create(t.Context(), named(nil)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create it again: got error %v, want that it exists", err)
	}
	live := &corev1.ConfigMap{}
	reread := func() {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(named(nil)), live); err != nil {
			t.Fatal(err)
		}
	}
	reread()
	if sent, err := a.Created(t.Context(), live, named(map[string]string{"a": "1", "b": "2"})); sent || err != nil {
		t.Errorf("apply what was created: a request was sent: %t, error %v", sent, err)
	}
	live.Labels["theirs"] = "3"
	if err := c.Update(t.Context(), live, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	// Another process has nothing to remember.
	for range 2 {
		if _, err := apply.New(c, c, "test").Created(t.Context(), live, named(map[string]string{"b": "4"})); err != nil {
			t.Fatal(err)
		}
		reread()
		if diff := cmp.Diff(map[string]string{"b": "4", "theirs": "3"}, live.Labels); diff != "" {
			t.Errorf("labels (-want +got)\n%s", diff)
		}
	}
}

// TestOnlyThatObject checks that an object with a UID is changed while it exists, and not recreated
// once it is gone.
func TestOnlyThatObject(t *testing.T) {
	t.Parallel()
	c, err := client.New(apitest.Start(t).Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	a := apply.New(c, c, "test")
	live := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "seen"}}
	if err := c.Create(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	want := func(value string) error {
		desired := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "seen", UID: live.UID}, Data: map[string]string{"key": value}}
		_, err := a.Object(t.Context(), live, desired)
		return err
	}
	if err := want("1"); err != nil {
		t.Fatal(err)
	}
	other := live.DeepCopy()
	if err := c.Delete(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	if err := want("2"); !apierrors.IsConflict(err) {
		t.Errorf("apply to what is gone: got error %v, want a conflict", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(other), other); !apierrors.IsNotFound(err) {
		t.Errorf("it is there again: %v, %v", other.Data, err)
	}
	other = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "seen"}}
	if err := c.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := want("3"); !apierrors.IsInvalid(err) {
		t.Errorf("apply to another of that name: got error %v, want that it is invalid", err)
	}
}
