// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"fmt"
	"strings"
	"testing"
)

// waiting is a pod for the nodes of milan, with a request of CPU and an image.
const waiting = `apiVersion: v1
kind: Pod
metadata: {name: waiting, namespace: waits}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {liqo.io/remote-cluster-id: milan}
  containers:
  - {name: echo, image: "testbed.local/%s", imagePullPolicy: Never, resources: {requests: {cpu: %s}}}
`

// whyAPodWaits makes pods wait for one cause after another. Each is named from rome alone, and with access to milan.
func whyAPodWaits(t *testing.T) {
	rome.kubectl(t, "create", "namespace", "waits")
	rome.kubectl(t, "-n", "waits", "wait", "--for=create", "serviceaccount/default", patiently)
	rome.apply(t, fmt.Sprintf(waiting, "echo:1", "10m"))
	because(t, "NotOffloaded", "NotOffloaded")
	rome.must(t, "offload", "namespace", "waits") // as the answer says
	rome.kubectl(t, "-n", "waits", "wait", "pod/waiting", "--for=condition=Ready", patiently)
	because(t, "Nothing", "Nothing")

	again(t, "nothing:1", "10m")
	because(t, "ImageMissing", "ImageMissing")

	again(t, "echo:1", "1000")
	because(t, "NodeTooSmall", "NodeTooSmall")

	milan.kubectl(t, "-n", "waits-rome", "create", "resourcequota", "full", "--hard=pods=0")
	milan.kubectl(t, "-n", "waits-rome", "wait", "resourcequota/full", "--for=jsonpath={.status.hard.pods}=0",
		patiently)
	again(t, "echo:1", "10m")
	because(t, "ProviderHasNoPlace", "ProviderRefuses")

	rome.must(t, "unoffload", "namespace", "waits", "--skip-confirm")
	rome.kubectl(t, "delete", "namespace", "waits", patiently)
}

// again replaces the pod by one with another image and request.
func again(t *testing.T, image, cpu string) {
	t.Helper()
	rome.kubectl(t, "-n", "waits", "delete", "pod", "waiting", patiently)
	rome.apply(t, fmt.Sprintf(waiting, image, cpu))
}

// because waits until liqoctl names the cause without access to milan, and with it.
func because(t *testing.T, alone, both string) {
	t.Helper()
	for _, ask := range []struct {
		reason string
		args   []string
	}{{alone, nil}, {both, []string{"--remote-kubeconfig", milan.kubeconfig}}} {
		eventually(t, "why names "+ask.reason, func() (string, bool) {
			stdout, stderr, code := rome.liqoctl(t, append([]string{"why", "pod/waiting", "-n", "waits", "-o", "json"}, ask.args...)...)
			return stdout + stderr, code == 0 && strings.Contains(stdout, `"reason": "`+ask.reason+`"`)
		})
	}
}
