// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"fmt"
	"strings"
	"testing"
)

// guests are a Deployment of two pods with its Service, in the namespace %s.
const guests = `
apiVersion: v1
kind: ConfigMap
metadata: {name: page, namespace: %[1]s}
data: {greeting: hello}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: %[1]s}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never, readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: %[1]s}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

// single is one pod in the namespace %s, with a line of its spec.
const single = `
apiVersion: v1
kind: Pod
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  terminationGracePeriodSeconds: 0
  %[3]s
  containers: [{name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never}]
`

// nodeOf is where a pod of rome runs, when it does.
func nodeOf(t *testing.T, namespace, pod string) string {
	t.Helper()
	rome.kubectl(t, "-n", namespace, "wait", "pod/"+pod, "--for=condition=Ready", patiently)
	return rome.kubectl(t, "-n", namespace, "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
}

// namespacesNextDoor: what they are called, which pods go there, and what happens when somebody takes one away,
// has one of that name, or the namespace leaves its provider.
func namespacesNextDoor(t *testing.T) {
	all := []string{"same", "chosen", "stays", "taken"}
	for _, namespace := range all {
		rome.kubectl(t, "create", "namespace", namespace)
	}
	milan.kubectl(t, "create", "namespace", "taken")
	rome.must(t, "offload", "namespace", "same", "--namespace-mapping-strategy", "EnforceSameName", "--pod-offloading-strategy", "Remote")
	rome.must(t, "offload", "namespace", "chosen", "--namespace-mapping-strategy", "SelectedName", "--remote-namespace-name", "elsewhere", "--pod-offloading-strategy", "Remote")
	rome.must(t, "offload", "namespace", "stays", "--pod-offloading-strategy", "Local")
	for _, namespace := range all[:3] {
		rome.apply(t, fmt.Sprintf(guests, namespace))
	}
	rome.apply(t, fmt.Sprintf(single, "stays", "goes", "runtimeClassName: liqo"))
	for _, namespace := range all[:3] {
		rome.kubectl(t, "-n", namespace, "rollout", "status", "deployment/web", patiently)
	}
	for namespace, want := range map[string]string{"same": "milan milan", "chosen": "milan milan"} {
		if got := rome.kubectl(t, "-n", namespace, "get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"); got != want {
			t.Errorf("pods of the namespace %s are on %s", namespace, got)
		}
	}
	if got := rome.kubectl(t, "-n", "stays", "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}"); strings.Contains(got, "milan") {
		t.Errorf("pods of a namespace whose pods stay are on %s", got)
	}
	if got := nodeOf(t, "stays", "goes"); got != "milan" {
		t.Errorf("a pod of the runtime class is on %s", got)
	}
	for namespace, objects := range map[string]string{"same": "web page", "elsewhere": "web page", "stays-rome": "web page"} {
		if got := milan.kubectl(t, "-n", namespace, "get", "service/web", "configmap/page", "-o", "jsonpath={.items[*].metadata.name}"); got != objects {
			t.Errorf("the namespace %s holds %s", namespace, got)
		}
	}
	// With the same name next door, every name of a Service means the same there.
	pod := strings.Fields(rome.kubectl(t, "-n", "same", "get", "pods", "-o", "jsonpath={.items[*].metadata.name}"))[0]
	for _, name := range []string{"web", "web.same", "web.same.svc"} {
		rome.echo(t, "same", pod, "get", "http://"+name+"/")
	}

	takenAway(t)
	nameIsTaken(t)
	astray(t)

	// A provider that is not chosen any more is left: the pods there end, and are told before.
	_, stderr := rome.must(t, "offload", "namespace", "chosen", "--namespace-mapping-strategy", "SelectedName", "--remote-namespace-name", "elsewhere",
		"--pod-offloading-strategy", "LocalAndRemote", "--selector", "tier=none")
	if !strings.Contains(stderr, `Pods of namespace "chosen" that end, for it is not extended to milan any more: web-`) {
		t.Errorf("leaving a provider printed\n%s", stderr)
	}
	milan.kubectl(t, "wait", "--for=delete", "namespace/elsewhere", patiently)
	eventually(t, "the pods run at home", func() (string, bool) {
		got, err := rome.ask("-n", "chosen", "get", "pods", "-l", "app=web", "--field-selector", "status.phase=Running", "-o", "jsonpath={.items[*].spec.nodeName}")
		return got, err == nil && len(strings.Fields(got)) == 2 && !strings.Contains(got, "milan")
	})

	rome.must(t, append([]string{"unoffload", "namespace", "--skip-confirm"}, all...)...)
	rome.kubectl(t, append([]string{"delete", "namespace", patiently}, all...)...)
	for _, namespace := range []string{"same", "stays-rome", "taken"} {
		if got, err := milan.ask("get", "namespace", namespace); err == nil {
			t.Errorf("milan still has the namespace:\n%s", got)
		}
	}
}

// astray: who makes a strategy stricter, by command or not, is told which pods run where new ones would not, until
// none do.
func astray(t *testing.T) {
	t.Helper()
	says := func(want string) {
		t.Helper()
		eventually(t, "the offloading says "+want, func() (string, bool) {
			got, err := rome.ask("-n", "same", "get", "namespaceoffloading", "offloading",
				"-o", `jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.reason}: {.message}{end}`)
			return got, err == nil && strings.HasPrefix(got, want)
		})
	}
	rome.kubectl(t, "-n", "same", "patch", "namespaceoffloading", "offloading", "--type=merge", "-p", `{"spec":{"podOffloadingStrategy":"Local"}}`)
	says("True PodsAstray: ready, but pods run where new ones would not: web-")
	_, stderr := rome.must(t, "offload", "namespace", "same", "--namespace-mapping-strategy", "EnforceSameName", "--pod-offloading-strategy", "Local")
	if !strings.Contains(stderr, `Pods of namespace "same" that run where new ones would not: web-`) {
		t.Errorf("a stricter strategy printed\n%s", stderr)
	}
	rome.kubectl(t, "-n", "same", "delete", "pods", "-l", "app=web", patiently)
	says("True Ready:")
}

// takenAway: milan's administrator deletes a namespace of rome's, which is made anew with all that was in it.
func takenAway(t *testing.T) {
	t.Helper()
	former := milan.kubectl(t, "get", "namespace", "elsewhere", "-o", "jsonpath={.metadata.uid}")
	milan.kubectl(t, "delete", "namespace", "elsewhere", patiently)
	eventually(t, "the namespace is made anew", func() (string, bool) {
		got, err := milan.ask("get", "namespace", "elsewhere", "-o", "jsonpath={.metadata.uid}")
		return got, err == nil && got != "" && got != former
	})
	eventually(t, "what is reflected is there again", func() (string, bool) {
		got, err := milan.ask("-n", "elsewhere", "get", "configmap", "page", "-o", "jsonpath={.data.greeting}")
		return got, err == nil && got == "hello"
	})
	eventually(t, "pods run there again", func() (string, bool) {
		got, err := milan.ask("-n", "elsewhere", "get", "pods", "--field-selector", "status.phase=Running", "-o", "jsonpath={.items[*].metadata.name}")
		return got, err == nil && len(strings.Fields(got)) == 2
	})
	rome.kubectl(t, "-n", "chosen", "rollout", "status", "deployment/web", patiently)
}

// nameIsTaken: milan has a namespace of the name that is wanted. It is not touched, and when it is gone the
// offloading goes on by itself.
func nameIsTaken(t *testing.T) {
	t.Helper()
	_, stderr, code := rome.liqoctl(t, "offload", "namespace", "taken", "--namespace-mapping-strategy", "EnforceSameName", patiently)
	if code != 1 || !strings.Contains(stderr, `offloading of namespace "taken" to milan failed: CreationLoopBackOff`) {
		t.Errorf("offloading to a name that is taken: exit code %d\n%s", code, stderr)
	}
	if got := milan.kubectl(t, "get", "namespace", "taken", "-o", "jsonpath={.metadata.labels}"); strings.Contains(got, "liqo.io") {
		t.Errorf("the namespace of somebody else became %s", got)
	}
	milan.kubectl(t, "delete", "namespace", "taken", patiently)
	rome.kubectl(t, "-n", "taken", "wait", "namespaceoffloading/offloading", "--for=jsonpath={.status.offloadingPhase}=Ready", patiently)
}

// secondVirtualNode: two virtual nodes lead to milan, the second to one of its nodes only. One of them reflects
// what they have in common; without a node of its own it goes on.
func secondVirtualNode(t *testing.T) {
	rome.must(t, "create", "resourceslice", "second", "--remote-cluster-id", "milan", "--no-virtual-node")
	rome.must(t, "create", "virtualnode", "second", "--remote-cluster-id", "milan", "--resource-slice-name", "second",
		"--labels", "tier=second", "--node-selector", "kubernetes.io/hostname=milan-n2")
	rome.kubectl(t, "wait", "node/second", "--for=condition=Ready", patiently)
	rome.apply(t, fmt.Sprintf(single, "shop", "second", "nodeSelector: {tier: second}"))
	if got := nodeOf(t, "shop", "second"); got != "second" {
		t.Errorf("the pod is on %s", got)
	}
	if got := milan.kubectl(t, "-n", "shop-rome", "get", "pod", "second", "-o", "jsonpath={.spec.nodeName}"); got != "milan-n2" {
		t.Errorf("the virtual node's selector led to %s", got)
	}
	rome.kubectl(t, "-n", "shop", "delete", "pod", "second", patiently)
	arrives := func(name string) {
		t.Helper()
		rome.kubectl(t, "-n", "shop", "create", "configmap", name, "--from-literal=of="+name)
		eventually(t, name+" is reflected", func() (string, bool) {
			got, err := milan.ask("-n", "shop-rome", "get", "configmap", name, "-o", "jsonpath={.data.of}")
			return got, err == nil && got == name
		})
	}
	arrives("with-two")
	patch := func(node string, create bool) {
		t.Helper()
		rome.kubectl(t, "-n", "liqo-tenant-milan", "patch", "virtualnode", node, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"createNode":%t}}`, create))
	}
	patch("second", false)
	rome.kubectl(t, "wait", "--for=delete", "node/second", patiently)
	arrives("without-its-node")
	_, stderr := rome.must(t, "delete", "virtualnode", "second", "--remote-cluster-id", "milan")
	if !strings.Contains(stderr, "Virtual node deleted") {
		t.Errorf("delete virtualnode printed\n%s", stderr)
	}
	arrives("with-one")
	rome.kubectl(t, "-n", "liqo-tenant-milan", "delete", "rslice", "second", patiently)
	rome.kubectl(t, "-n", "shop", "delete", "configmap", "with-two", "without-its-node", "with-one")
}
