// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// sent is a pod that its user sends to the provider, whose claim only the provider has.
const sent = `
apiVersion: v1
kind: Pod
metadata: {name: sent, namespace: data}
spec:
  nodeName: milan
  terminationGracePeriodSeconds: 0
  containers: [{name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never, volumeMounts: [{name: disk, mountPath: /disk}]}]
  volumes: [{name: disk, persistentVolumeClaim: {claimName: theirs}}]
`

const theirs = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: theirs, namespace: data-rome}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`

// databaseReady waits until all replicas of the database are ready.
func databaseReady(t *testing.T) {
	t.Helper()
	rome.kubectl(t, "-n", "data", "rollout", "status", "statefulset/db", patiently)
}

// databaseOnBoth runs a replica of the database at home and one at the provider. Each writes its name to its volume.
func databaseOnBoth(t *testing.T) {
	rome.kubectl(t, "create", "namespace", "data")
	rome.must(t, "offload", "namespace", "data")
	rome.kubectl(t, "cordon", "milan")
	rome.apply(t, database)
	databaseReady(t)
	rome.kubectl(t, "uncordon", "milan")
	rome.kubectl(t, "cordon", "rome-n1", "rome-n2")
	rome.kubectl(t, "-n", "data", "scale", "statefulset/db", "--replicas=2")
	databaseReady(t)
	rome.kubectl(t, "uncordon", "rome-n1", "rome-n2")
	for _, pod := range []string{"db-0", "db-1"} {
		typed(t, "this is "+pod, "-n", "data", "exec", "-i", pod, "--", "/echo", "write", "/disk/name")
	}
}

// volumesStayWhereTheyAre: one replica at home and one next door, each with its data, which it
// finds again when it comes back.
func volumesStayWhereTheyAre(t *testing.T) {
	databaseOnBoth(t)
	place := func(pod string) string {
		return rome.kubectl(t, "-n", "data", "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
	}
	home := place("db-0")
	if !strings.HasPrefix(home, "rome-n") || place("db-1") != "milan" {
		t.Fatalf("the pods are on %s and %s", home, place("db-1"))
	}
	for _, pod := range []string{"db-0", "db-1"} {
		rome.replace(t, "data", "pod/"+pod)
	}
	databaseReady(t)
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

	// The consumer reads what lies there, so administrators are not let by chance: the chart lists who is.
	writer := []string{"--as=aksService", "--as-group=system:masters"}
	if out, err := milan.ask("-n", "data-rome", "create", "secret", "generic", "ours"); err == nil || !strings.Contains(out, "was made for the consumer rome") {
		t.Errorf("a Secret of an administrator: %v\n%s", err, out)
	}
	file := filepath.Join(t.TempDir(), "claim.yaml")
	if err := os.WriteFile(file, []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	milan.kubectl(t, append(writer, "apply", "-f", file)...)
	rome.apply(t, sent)
	rome.kubectl(t, "-n", "data", "wait", "pod/sent", "--for=condition=Ready", patiently)
	rome.kubectl(t, "-n", "data", "delete", "pod", "sent", patiently)
	milan.kubectl(t, "-n", "data-rome", "delete", "pvc", "theirs", patiently)

	// A volume in use is not moved. The others are, also when the first attempt is broken off.
	_, stderr, code := rome.liqoctl(t, "move", "volume", "disk-db-0", "-n", "data", "--target-node", "milan")
	if code != 1 || !strings.Contains(stderr, "it is used by pod db-0") {
		t.Errorf("a volume in use is moved: exit code %d\n%s", code, stderr)
	}
	rome.kubectl(t, "-n", "data", "scale", "statefulset/db", "--replicas=0")
	rome.kubectl(t, "-n", "data", "wait", "--for=delete", "pod", "--all", patiently)
	move := func(claim, node string) []string {
		return []string{"--kubeconfig", rome.kubeconfig, "move", "volume", claim, "-n", "data", "--target-node", node}
	}
	broken := exec.Command(find("liqoctl"), move("disk-db-1", home)...)
	if err := broken.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the claim is on its way", func() (string, bool) {
		got, err := rome.ask("-n", "liqo-storage", "get", "pvc", "-o", `jsonpath={.items[*].metadata.annotations.storage\.liqo\.io/moved-claim}`)
		return got, err == nil && strings.Contains(got, "disk-db-1")
	})
	_ = broken.Process.Kill() // fails only when it has ended already
	_ = broken.Wait()
	said := make(chan string, 2)
	for claim, node := range map[string]string{"disk-db-1": home, "disk-db-0": "milan"} {
		go func() {
			_, stderr, err := command("liqoctl", move(claim, node)...)
			said <- fmt.Sprintf("%s%v", stderr, err)
		}()
	}
	for range 2 {
		if said := <-said; !strings.Contains(said, "Restore completed") || !strings.Contains(said, "moved to node") {
			t.Fatalf("move volume printed\n%s", said)
		}
	}
	rome.kubectl(t, "-n", "data", "scale", "statefulset/db", "--replicas=2")
	databaseReady(t)
	for pod, node := range map[string]string{"db-0": "milan", "db-1": home} {
		if place(pod) != node {
			t.Errorf("%s is on %s, its volume was moved to %s", pod, place(pod), node)
		}
		if got := rome.kubectl(t, "-n", "data", "exec", pod, "--", "/echo", "cat", "/disk/name"); got != "this is "+pod {
			t.Errorf("%s found on its moved volume: %s", pod, got)
		}
	}
	eventually(t, "home has one volume left, and no copy", func() (string, bool) {
		got, err := rome.ask("-n", "liqo-storage", "get", "pvc", "-o", `jsonpath={.items[*].metadata.labels.storage\.liqo\.io/virtual-pvc-name}`)
		return got, err == nil && got == "disk-db-1"
	})

	// What would delete data says so; only who agrees loses it.
	for _, verb := range [][]string{{"unoffload", "namespace", "data"}, {"unpeer", "--remote-kubeconfig", milan.kubeconfig}} {
		_, stderr, code := rome.liqoctl(t, verb...)
		if !strings.Contains(stderr, "The data of 1 volume will be lost: data/disk-db-0 at milan") || code != 1 {
			t.Errorf("%s: exit code %d\n%s", verb[0], code, stderr)
		}
	}

	// A claim that is deleted takes its data along, wherever that is.
	rome.kubectl(t, "-n", "data", "delete", "statefulset", "db")
	rome.kubectl(t, "-n", "data", "delete", "pvc", "disk-db-0", "disk-db-1", patiently)
	for _, c := range []cluster{rome, milan} {
		eventually(t, "no volume is left at "+c.name, func() (string, bool) {
			got, err := c.ask("get", "pv,pvc", "-A", "--ignore-not-found", "-o", "name")
			return got, err == nil && got == ""
		})
	}
	if _, stderr := rome.must(t, "unoffload", "namespace", "data", "--skip-confirm"); strings.Contains(stderr, "will be lost") {
		t.Errorf("unoffload speaks of volumes that are gone:\n%s", stderr)
	}
	rome.kubectl(t, "delete", "namespace", "data", patiently)
}

// volumesOutliveLiqo: who uninstalls keeps the data, with pods that go on using it, and who installs
// again has the claims looked after again.
func volumesOutliveLiqo(t *testing.T) {
	rome.kubectl(t, "create", "namespace", "data")
	rome.apply(t, database)
	ready := func() { rome.kubectl(t, "-n", "data", "rollout", "status", "statefulset/db", patiently) }
	ready()
	typed(t, "precious", "-n", "data", "exec", "-i", "db-0", "--", "/echo", "write", "/disk/name")
	holds := func() {
		t.Helper()
		if got := rome.kubectl(t, "-n", "data", "exec", "db-0", "--", "/echo", "cat", "/disk/name"); got != "precious" {
			t.Errorf("db-0 has on its volume: %s", got)
		}
	}
	if _, stderr, code := rome.liqoctl(t, "uninstall", "--purge", "--skip-confirm"); code != 1 || !strings.Contains(stderr, "data of the claims data/disk-db-0") {
		t.Errorf("a purge takes data: exit code %d\n%s", code, stderr)
	}
	rome.must(t, "uninstall", "--skip-confirm")
	rome.replace(t, "data", "pod/db-0")
	ready()
	holds()
	if stdout, stderr, code := rome.install(t); code != 0 {
		t.Fatalf("install beside volumes: exit code %d\n%s%s", code, stdout, stderr)
	}
	rome.replace(t, "data", "pod/db-0")
	ready()
	holds()
	rome.kubectl(t, "-n", "data", "patch", "pvc", "disk-db-0", "--patch", `{"spec": {"resources": {"requests": {"storage": "2Mi"}}}}`)
	eventually(t, "the volume grows", func() (string, bool) {
		got, err := rome.ask("-n", "data", "get", "pvc", "disk-db-0", "-o", "jsonpath={.status.capacity.storage}")
		return got, err == nil && got == "2Mi"
	})
	rome.kubectl(t, "delete", "namespace", "data", patiently)
	eventually(t, "no volume is left", func() (string, bool) {
		got, err := rome.ask("get", "pv,pvc", "-A", "--ignore-not-found", "-o", "name")
		return got, err == nil && got == ""
	})
}
