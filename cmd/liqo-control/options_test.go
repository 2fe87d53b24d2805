// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/patience"
)

// TestPairs: global labels and annotations come as pairs, or as JSON where values have commas.
func TestPairs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"":                           {},
		"a=1,b=c=d":                  {"a": "1", "b": "c=d"},
		`{"note": "a,b=c", "x": ""}`: {"note": "a,b=c", "x": ""},
	} {
		got, err := pairs("--global-labels", text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, (-want +got):\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"a", "a=1,", `{"a": 1}`} {
		if got, err := pairs("--global-labels", text); err == nil {
			t.Errorf("%s gives %v", text, got)
		}
	}
}

// TestGlobalFlags: what the controllers make has the labels and annotations of the flags.
func TestGlobalFlags(t *testing.T) {
	t.Parallel()
	c := install(t, "milan", slices.DeleteFunc(chart(t), func(o unstructured.Unstructured) bool {
		return o.GetName() == api.AuthenticationKeysSecret
	}))
	if err := c.Load(t.Context(), c.objects); err != nil {
		t.Fatal(err)
	}
	c.control(t, "--global-labels=team=net", `--global-annotations={"note":"a,b=c"}`)
	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: api.Namespace, Name: api.AuthenticationKeysSecret}}
	made := func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(keys), keys)
		return err == nil, client.IgnoreNotFound(err)
	}
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, made)
	if err != nil {
		t.Fatal(patience.GaveUp("the Secret with the keys", err))
	}
	if keys.Labels["team"] != "net" || keys.Annotations["note"] != "a,b=c" {
		t.Errorf("labels %v, annotations %v", keys.Labels, keys.Annotations)
	}
}
