// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/reflection/translate"
)

// TestPodsOfStrangersAreTaken sends pods as charts of others have them: with what the local API
// server fills in, the provider's takes the remote pod, at the Pod Security level of its
// namespaces.
func TestPodsOfStrangersAreTaken(t *testing.T) {
	t.Parallel()
	c := clientOf(t, apitest.Start(t))
	for name, level := range map[string]string{homeNS: "privileged", remoteNS: "baseline"} {
		labels := map[string]string{"pod-security.kubernetes.io/enforce": level}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if err := c.Create(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("testdata/strangers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	v := translate.View{
		Consumer: consumer, Provider: provider, Node: node, Namespaces: map[string]string{homeNS: remoteNS},
	}
	for manifest := range strings.SplitSeq(string(text), "\n---\n") {
		home := &corev1.Pod{}
		if err := yaml.UnmarshalStrict([]byte(manifest), home); err != nil {
			t.Fatal(err)
		}
		home.Namespace, home.Spec.NodeName = homeNS, node
		if err := c.Create(t.Context(), home, client.DryRunAll); err != nil {
			t.Errorf("%s: not taken locally: %v", home.Name, err)
			continue
		}
		shadow := translate.Pod(home, nil, v)
		remote := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: shadow.Name, Namespace: shadow.Namespace, Labels: shadow.Labels, Annotations: shadow.Annotations,
		}}
		remote.Spec = *shadow.Spec.Pod.DeepCopy()
		if err := c.Create(t.Context(), remote, client.DryRunAll); err != nil {
			t.Errorf("%s: %v", home.Name, err)
		}
	}
}
