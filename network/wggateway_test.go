// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// TestPodsOfUsersAreNotCompared: a change of a pod that is no gateway costs no list of pods. There may
// be thousands, each of which changes several times.
func TestPodsOfUsersAreNotCompared(t *testing.T) {
	t.Parallel()
	row := Options{}.replica().(ctl.Controller[*corev1.Pod, plan.ReplicaInput])
	mapped := 0
	for _, w := range row.Watches {
		if _, ok := w.Kind.(*corev1.Pod); !ok || w.Map == nil {
			continue
		}
		mapped++
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		if got := w.Map(t.Context(), unread{t}, pod); len(got) > 0 {
			t.Errorf("a pod of a user is mapped to %v", got)
		}
	}
	if mapped == 0 {
		t.Error("no map of pods was tried")
	}
}

// unread is a reader that is not read.
type unread struct{ t *testing.T }

func (u unread) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	u.t.Error("an object is read")
	return nil
}

func (u unread) List(context.Context, client.ObjectList, ...client.ListOption) error {
	u.t.Error("objects are listed")
	return nil
}
