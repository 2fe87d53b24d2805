// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/reflection/translate"
)

// FuzzPodStatus: whatever a provider tells of a pod changes nothing at home but what is told of it.
func FuzzPodStatus(f *testing.F) {
	f.Add([]byte(`{"metadata": {"labels": {"a": "b"}}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running", "podIP": "10.10.0.5", "startTime": "2026-01-15T12:00:00Z", "containerStatuses": [{"name": "c", "state": {"running": {}}}]}}`))
	f.Add([]byte(`{"metadata": {"deletionTimestamp": "2026-01-15T12:00:00Z"}, "status": {"phase": "?", "podIPs": [{}], "conditions": [{"type": "Ready"}], "initContainerStatuses": [{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		remote := &corev1.Pod{}
		if json.Unmarshal(data, remote) != nil {
			return
		}
		home := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1", Labels: map[string]string{api.LabelManaged: "no"}},
			Spec:       corev1.PodSpec{NodeName: "milan", Containers: []corev1.Container{{Name: "c"}}},
		}
		out := translate.PodStatus(home.DeepCopy(), nil, remote, translate.View{
			Consumer: "rome", Provider: "milan", Node: "milan", Namespaces: map[string]string{"shop": "shop-rome"},
		})
		if diff := cmp.Diff(home.Spec, out.Spec); diff != "" {
			t.Errorf("the provider changed the pod:\n%s", diff)
		}
		if out.Name != home.Name || out.Namespace != home.Namespace || out.UID != home.UID || out.Labels[api.LabelManaged] != "no" || len(out.Finalizers) > 0 {
			t.Errorf("the provider changed the metadata: %+v", out.ObjectMeta)
		}
	})
}
