// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"strings"
	"testing"
)

// database is a StatefulSet whose volumes come to be where its pods are.
const database = `
apiVersion: v1
kind: Service
metadata: {name: db, namespace: data}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: data}
spec:
  serviceName: db
  replicas: 1
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: db
        image: testbed.local/echo:1
        imagePullPolicy: Never
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        volumeMounts: [{name: disk, mountPath: /disk}]
  volumeClaimTemplates:
  - metadata: {name: disk}
    spec: {storageClassName: liqo, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`

// volumesStayWhereTheyAre: one replica at home and one next door, each with its data, which it
// finds again when it comes back.
func volumesStayWhereTheyAre(t *testing.T) {
	rome.kubectl(t, "create", "namespace", "data")
	rome.must(t, "offload", "namespace", "data")
	ready := func() { rome.kubectl(t, "-n", "data", "rollout", "status", "statefulset/db", "--timeout=90s") }
	place := func(pod string) string {
		return rome.kubectl(t, "-n", "data", "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
	}
	rome.kubectl(t, "cordon", "milan")
	rome.apply(t, database)
	ready()
	rome.kubectl(t, "uncordon", "milan")
	rome.kubectl(t, "cordon", "rome-n1", "rome-n2")
	rome.kubectl(t, "-n", "data", "scale", "statefulset/db", "--replicas=2")
	ready()
	rome.kubectl(t, "uncordon", "rome-n1", "rome-n2")
	home := place("db-0")
	if !strings.HasPrefix(home, "rome-n") || place("db-1") != "milan" {
		t.Fatalf("the pods are on %s and %s", home, place("db-1"))
	}
	for _, pod := range []string{"db-0", "db-1"} {
		typed(t, "this is "+pod, "-n", "data", "exec", "-i", pod, "--", "/echo", "write", "/disk/name")
	}

	rome.kubectl(t, "-n", "data", "delete", "pod", "db-0", "db-1")
	ready()
	for pod, node := range map[string]string{"db-0": home, "db-1": "milan"} {
		if place(pod) != node {
			t.Errorf("%s came back on %s, away from its volume on %s", pod, place(pod), node)
		}
		if got := rome.kubectl(t, "-n", "data", "exec", pod, "--", "/echo", "cat", "/disk/name"); got != "this is "+pod {
			t.Errorf("%s found on its volume: %s", pod, got)
		}
	}
	if got := milan.kubectl(t, "-n", "data-rome", "get", "pvc", "-o", "jsonpath={.items[*].metadata.name} {.items[*].spec.storageClassName}"); got != "disk-db-1 local" {
		t.Errorf("milan has the claims and classes %s", got)
	}

	// What would delete data says so; only who agrees loses it.
	for _, verb := range [][]string{{"unoffload", "namespace", "data"}, {"unpeer", "--remote-kubeconfig", milan.kubeconfig}} {
		_, stderr, code := rome.liqoctl(t, verb...)
		if verb[0] == "unpeer" && !strings.Contains(stderr, "The data of 1 volume will be lost: data/disk-db-1 at milan") || code != 1 {
			t.Errorf("%s: exit code %d\n%s", verb[0], code, stderr)
		}
	}

	// A claim that is deleted takes its data along, wherever that is.
	rome.kubectl(t, "-n", "data", "delete", "statefulset", "db")
	rome.kubectl(t, "-n", "data", "delete", "pvc", "disk-db-0", "disk-db-1", "--timeout=60s")
	for _, c := range []cluster{rome, milan} {
		eventually(t, "no volume is left at "+c.name, func() (string, bool) {
			got, err := c.ask("get", "pv,pvc", "-A", "--ignore-not-found", "-o", "name")
			return got, err == nil && got == ""
		})
	}
	if _, stderr := rome.must(t, "unoffload", "namespace", "data", "--skip-confirm"); strings.Contains(stderr, "will be lost") {
		t.Errorf("unoffload speaks of volumes that are gone:\n%s", stderr)
	}
	rome.kubectl(t, "delete", "namespace", "data", "--timeout=60s")
}
