// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// ending is a StatefulSet in the namespace %s whose pod runs the command %s when it is told to end, for at most %d s.
const ending = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: slow, namespace: %[1]s}
spec:
  serviceName: slow
  selector: {matchLabels: {app: slow}}
  template:
    metadata: {labels: {app: slow}}
    spec:
      terminationGracePeriodSeconds: %[3]d
      containers:
      - {name: main, image: "testbed.local/shell:1", imagePullPolicy: Never, args: [-c, "trap '%[2]s; exit 0' TERM; while true; do sleep 0.2; done"]}
`

// makeEnding makes a namespace with such a pod, and offloads it if the pod is to run next door.
func makeEnding(t *testing.T, namespace, command string, grace int, offloaded bool) {
	t.Helper()
	rome.kubectl(t, "create", "namespace", namespace)
	if offloaded {
		rome.must(t, "offload", "namespace", namespace, "--pod-offloading-strategy", "Remote")
	}
	rome.apply(t, fmt.Sprintf(ending, namespace, command, grace))
	rome.kubectl(t, "-n", namespace, "rollout", "status", "statefulset/slow", patiently)
}

// namespaceEnds: the remote namespace of one that is deleted ends beside it. Its pod is there at home as long as next
// door, and made again it is a new one. What users' finalizers hold stays next door, too.
func namespaceEnds(t *testing.T) {
	makeEnding(t, "ends", "while [ ! -e /dev/shm/go ]; do sleep 0.2; done", 240, true)
	rome.kubectl(t, "delete", "namespace", "ends", "--wait=false")
	eventually(t, "both namespaces and both pods end", func() (string, bool) {
		var all []string
		for _, at := range []struct {
			cluster
			object []string
		}{{rome, []string{"namespace", "ends"}}, {rome, []string{"-n", "ends", "pod", "slow-0"}},
			{milan, []string{"namespace", "ends-rome"}}, {milan, []string{"-n", "ends-rome", "pod", "slow-0"}}} {
			got, err := at.ask(append([]string{"get", "-o", "jsonpath={.metadata.deletionTimestamp}"}, at.object...)...)
			if err != nil || got == "" {
				return got, false
			}
			all = append(all, got)
		}
		return strings.Join(all, " "), true
	})
	if _, err := rome.ask("-n", "ends", "get", "namespaceoffloading", "offloading"); err == nil {
		t.Error("the NamespaceOffloading waits for the pod")
	}
	rome.kubectl(t, "-n", "ends", "exec", "slow-0", "--", "/bin/sh", "-c", ": > /dev/shm/go")
	rome.kubectl(t, "wait", "--for=delete", "namespace/ends", patiently)
	makeEnding(t, "ends", "true", 30, true)
	if got := milan.kubectl(t, "-n", "ends-rome", "get", "pod", "slow-0", "-o", "jsonpath={.status.phase}{.metadata.deletionTimestamp}"); got != "Running" {
		t.Errorf("the pod of the namespace made again: %s", got)
	}

	rome.apply(t, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk, namespace: ends, finalizers: [example.com/backup]}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}, storageClassName: liqo}
`)
	rome.kubectl(t, "delete", "namespace", "ends", "--wait=false")
	eventually(t, "the offloading says what holds the namespace", func() (string, bool) {
		got, err := rome.ask("-n", "ends", "get", "namespaceoffloading", "offloading", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
		return got, err == nil && strings.Contains(got, "example.com/backup on claim disk")
	})
	if got := milan.kubectl(t, "get", "namespace", "ends-rome", "-o", "jsonpath={.status.phase}"); got != "Active" {
		t.Errorf("a namespace that users hold at home is %s next door", got)
	}
	rome.kubectl(t, "-n", "ends", "patch", "persistentvolumeclaim", "disk", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
	rome.kubectl(t, "wait", "--for=delete", "namespace/ends", patiently)
	milan.kubectl(t, "wait", "--for=delete", "namespace/ends-rome", patiently)
}

// namespaceEndsPromptly: a namespace whose pod runs next door is deleted in the time of one whose pod runs at home, and
// 3 s. Kubernetes looks at it after 5 s, and then as long after a look as half the grace period of its pods.
func namespaceEndsPromptly(t *testing.T) {
	took := map[string]time.Duration{}
	for _, namespace := range []string{"ends-here", "ends-there"} {
		makeEnding(t, namespace, "sleep 21", 30, namespace == "ends-there")
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	for _, namespace := range []string{"ends-here", "ends-there"} {
		running.Go(func() {
			began := time.Now()
			rome.kubectl(t, "delete", "namespace", namespace, patiently)
			mu.Lock()
			defer mu.Unlock()
			took[namespace] = time.Since(began)
		})
	}
	running.Wait()
	t.Logf("at home %s, next door %s", took["ends-here"].Round(100*time.Millisecond), took["ends-there"].Round(100*time.Millisecond))
	if took["ends-there"] > took["ends-here"]+3*time.Second {
		t.Errorf("deleted in %s, and in %s with a pod next door", took["ends-here"], took["ends-there"])
	}
}
