// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// TestNodeOfPodIsNotCached: the provider of a pod is known although the cache does not show its node
// yet.
func TestNodeOfPodIsNotCached(t *testing.T) {
	t.Parallel()
	reader := func(objects ...client.Object) client.Reader {
		return fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).Build()
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{
		api.LabelRemoteClusterID: "milan"}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.PodSpec{NodeName: node.Name}}
	row := Options{}.podIP().(ctl.Controller[*corev1.Pod, plan.PodIPInput])
	in, err := row.Gather(t.Context(), ctl.Reader{Reader: reader(), Live: reader(node)}, pod)
	if err != nil || in.Provider != "milan" {
		t.Errorf("provider %q (%v)", in.Provider, err)
	}
}
