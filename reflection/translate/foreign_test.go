// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/reflection/translate"
)

// TestReferencesOfAPod names the objects that a pod uses, wherever it does, also from what a cache
// keeps of a pod that runs and of one that is debugged later.
func TestReferencesOfAPod(t *testing.T) {
	t.Parallel()
	const spec = `
imagePullSecrets: [{name: pull}]
volumes:
- {name: a, configMap: {name: files}}
- {name: b, secret: {secretName: files}}
- {name: c, persistentVolumeClaim: {claimName: disk}}
- name: d
  projected: {sources: [{configMap: {name: part}}, {secret: {name: part}}, {configMap: {name: kube-root-ca.crt}}]}
initContainers:
- {name: init, envFrom: [{configMapRef: {name: init}}]}
- {name: side, restartPolicy: Always, env: [{name: S, valueFrom: {secretKeyRef: {name: side, key: s, optional: true}}}]}
containers:
- {name: main, envFrom: [{secretRef: {name: all}}, {prefix: P_, configMapRef: {name: all}}]}
- {name: more, env: [{name: C, valueFrom: {configMapKeyRef: {name: one, key: c}}}]}
ephemeralContainers:
- name: debugger
  envFrom: [{configMapRef: {name: debug}}]
  env: [{name: D, valueFrom: {secretKeyRef: {name: debug, key: d}}}]
`
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`configmap "all"`, `configmap "debug"`, `configmap "files"`, `configmap "init"`, `configmap "one"`,
		`configmap "part"`,
		`persistentvolumeclaim "disk"`,
		`secret "all"`, `secret "debug"`, `secret "files"`, `secret "part"`, `secret "pull"`, `secret "side"`,
	}
	for _, phase := range []corev1.PodPhase{corev1.PodPending, corev1.PodRunning} {
		pod.Status.Phase = phase
		translate.TrimPod(pod)
		var got []string
		for _, r := range translate.References(&pod.Spec) {
			got = append(got, fmt.Sprint(r))
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", phase, diff)
		}
	}
}
