// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"strings"
	"testing"
	"time"
)

// steady is what a loss must not harm: a Deployment that stays next door, one that leaves a lost node soon,
// a Job that ends while nobody at home can see it, and a Service over both Deployments.
const steady = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: stays, namespace: steady}
spec:
  selector: {matchLabels: {app: stays}}
  template:
    metadata: {labels: {app: stays, answers: "yes"}}
    spec:
      terminationGracePeriodSeconds: 0
      nodeSelector: {liqo.io/type: virtual-node}
      tolerations:
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 3600}
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 3600}
      containers: [{name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: moves, namespace: steady}
spec:
  selector: {matchLabels: {app: moves}}
  template:
    metadata: {labels: {app: moves, answers: "yes"}}
    spec:
      terminationGracePeriodSeconds: 0
      tolerations:
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      containers: [{name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: ends, namespace: steady}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {liqo.io/type: virtual-node}
      containers: [{name: main, image: "testbed.local/shell:1", imagePullPolicy: Never, args: [-c, "sleep 30"]}]
---
apiVersion: v1
kind: Service
metadata: {name: steady, namespace: steady}
spec: {selector: {answers: "yes"}, ports: [{port: 80, targetPort: 8080}]}
`

// lossesAreSurvived: of the link, in full runs also of a node on either side.
func lossesAreSurvived(t *testing.T) {
	t.Run("the link is cut", linkIsCut)
	if *soak {
		t.Run("a node of the consumer is lost", consumersNodeIsLost)
		t.Run("a node of the provider is lost", providersNodeIsLost)
	}
}

// linkIsCut: each side has lost the other. What has survived that, survives that home hangs.
func linkIsCut(t *testing.T) {
	settle(t)
	uid := rome.kubectl(t, "-n", "steady", "get", "pods", "-l", "app=stays", "-o", "jsonpath={.items[*].metadata.uid}")
	heal := func() { onTestbed(t, "link", "heal", "rome", "milan") }
	t.Cleanup(heal) // also when something fails; twice does no harm
	began := time.Now()
	onTestbed(t, "link", "cut", "rome", "milan")
	eventually(t, "the node is lost", func() (string, bool) {
		got, err := rome.ask("get", "node", "milan", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return got, err == nil && got != "True"
	})
	answering(t, rome, "steady", "milan", "false")
	t.Logf("the node is lost after %s", time.Since(began).Round(time.Second))
	rome.kubectl(t, "-n", "steady", "rollout", "status", "deployment/moves", patiently)
	providerGoesOn(t)
	heal()
	rome.kubectl(t, "wait", "node/milan", "--for=condition=Ready", patiently)
	rome.kubectl(t, "-n", "steady", "wait", "job/ends", "--for=condition=Complete", patiently)
	rome.kubectl(t, "-n", "steady", "rollout", "status", "deployment/stays", patiently)
	answering(t, rome, "steady", "milan", "true")
	answering(t, milan, "steady-rome", "rome", "true")
	if now := rome.kubectl(t, "-n", "steady", "get", "pods", "-l", "app=stays", "-o", "jsonpath={.items[*].metadata.uid}"); now != uid {
		t.Errorf("the pod that stays was %s and is %s", uid, now)
	}
	homeHangs(t, uid)
	// One pod of each, wherever; what was evicted has ended on both sides, and what had ended did not begin again.
	eventually(t, "nothing is there twice", func() (string, bool) {
		home, err := rome.ask("-n", "steady", "get", "pods", "--no-headers", "-o", "custom-columns=:.metadata.labels.app,:.spec.nodeName,:.status.phase")
		if err != nil {
			return home, false
		}
		there, err := milan.ask("-n", "steady-rome", "get", "pods", "-o", "jsonpath={.items[*].metadata.labels.app}")
		lines := strings.Split(home, "\n")
		return home + "\n" + there, err == nil && len(lines) == 3 && strings.Count(home, "Succeeded") == 1 &&
			strings.Count(home, "Running") == 2 && there == "stays"
	})
	rome.kubectl(t, "delete", "namespace", "steady", patiently)
}

// settle makes what a loss must not harm, and runs it next door.
func settle(t *testing.T) {
	t.Helper()
	rome.kubectl(t, "create", "namespace", "steady")
	rome.must(t, "offload", "namespace", "steady")
	rome.kubectl(t, "cordon", "rome-n1", "rome-n2")
	rome.apply(t, steady)
	rome.kubectl(t, "-n", "steady", "rollout", "status", "deployment/stays", patiently)
	rome.kubectl(t, "-n", "steady", "rollout", "status", "deployment/moves", patiently)
	rome.kubectl(t, "uncordon", "rome-n1", "rome-n2")
	rome.kubectl(t, "-n", "steady", "wait", "pod", "-l", "job-name=ends", "--for=jsonpath={.status.startTime}", patiently)
	answering(t, rome, "steady", "milan", "true")
}

// providerGoesOn while home is away: what is deleted is made anew unless it had ended, and the endpoints of
// home are not ready.
func providerGoesOn(t *testing.T) {
	t.Helper()
	madeAnew(t)
	milan.kubectl(t, "-n", "steady-rome", "wait", "pod", "-l", "batch.kubernetes.io/job-name=ends", "--for=jsonpath={.status.phase}=Succeeded", patiently)
	eventually(t, "the provider knows how the Job's pod ended", func() (string, bool) {
		got, err := milan.ask("-n", "steady-rome", "get", "shadowpods", "-l", "batch.kubernetes.io/job-name=ends", "-o", "jsonpath={.items[*].status.phase}")
		return got, err == nil && got == "Succeeded"
	})
	milan.kubectl(t, "-n", "steady-rome", "delete", "pod", "-l", "batch.kubernetes.io/job-name=ends", patiently)
	answering(t, milan, "shop-rome", "rome", "false")
}

// madeAnew deletes the pod that stays where it runs, and waits for another in its place.
func madeAnew(t *testing.T) {
	t.Helper()
	milan.kubectl(t, "-n", "steady-rome", "delete", "pod", "-l", "app=stays", patiently)
	eventually(t, "the pod is made anew without home", func() (string, bool) {
		got, err := milan.ask("-n", "steady-rome", "get", "pods", "-l", "app=stays", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
		return got, err == nil && got == "True"
	})
}

// homeHangs: rome's API server alone is away. Next door a pod is made anew without it, and the Service there
// leads to the pods of both clusters; when it is back, home shows the new pod as the one of before, uid.
func homeHangs(t *testing.T, uid string) {
	t.Helper()
	const stays, moves = "app=stays", "app=moves"
	name := func(app string) string {
		return rome.kubectl(t, "-n", "steady", "get", "pods", "-l", app, "--field-selector", "status.phase=Running", "-o", "jsonpath={.items[0].metadata.name}")
	}
	there, home := name(stays), name(moves)
	rome.signalAPIServer(t, "STOP")
	defer rome.signalAPIServer(t, "CONT") // also of one that goes on already
	madeAnew(t)
	eventually(t, "pods of both clusters answer next door", func() (string, bool) {
		got, err := milan.ask("-n", "steady-rome", "exec", there, "--", "/echo", "get", "-n", "60", "-i", "5ms", "-timeout", "900ms", "http://steady/")
		return got, err == nil && strings.Contains(got, "pod="+there+" ") && strings.Contains(got, "pod="+home+" ")
	})
	rome.signalAPIServer(t, "CONT")
	rome.answersAgain(t)
	nodeReady(t)
	eventually(t, "home shows the pod as it is next door", func() (string, bool) {
		const status = "jsonpath={.items[*].status.containerStatuses[0].containerID} {.items[*].status.containerStatuses[0].ready}"
		here, err := rome.ask("-n", "steady", "get", "pods", "-l", stays, "-o", status)
		if err != nil {
			return here, false
		}
		got, err := milan.ask("-n", "steady-rome", "get", "pods", "-l", stays, "-o", status)
		return here + "\n" + got, err == nil && here == got && strings.HasSuffix(got, " true")
	})
	if now := rome.kubectl(t, "-n", "steady", "get", "pods", "-l", stays, "-o", "jsonpath={.items[*].metadata.uid}"); now != uid {
		t.Errorf("the pod that stays was %s and is %s", uid, now)
	}
}

// answering waits until all endpoints of a namespace that are in a cluster are ready, or none of them is.
func answering(t *testing.T, c cluster, namespace, node, ready string) {
	t.Helper()
	eventually(t, c.name+": endpoints of "+namespace+" on "+node+" are ready: "+ready, func() (string, bool) {
		got, err := c.ask("-n", namespace, "get", "endpointslices", "-o",
			`jsonpath={range .items[*].endpoints[?(@.nodeName=="`+node+`")]}{.conditions.ready} {end}`)
		all := strings.Fields(got)
		return got, err == nil && len(all) > 0 && strings.Count(got, ready) == len(all)
	})
}

// providersNodeIsLost: with the node failure controller, pods of consumers on a lost node are made anew on
// another one, and stay the same pods at home.
func providersNodeIsLost(t *testing.T) {
	controller := func(lost string) {
		milan.must(t, milan.installation("controllerManager.config.enableNodeFailureController="+lost)...)
		milan.kubectl(t, "-n", "liqo", "rollout", "status", "deployment/liqo-controller-manager", patiently)
	}
	stays := activeGateway(t, milan).node // without it there is no way to the provider
	before := map[string]string{"milan-n1": "milan-n2", "milan-n2": "milan-n1"}[stays]
	milan.kubectl(t, "cordon", before)
	controller("true")
	milan.controllerOn(t, stays)
	milan.kubectl(t, "uncordon", before)
	rome.kubectl(t, "create", "namespace", "steady")
	rome.must(t, "offload", "namespace", "steady", "--pod-offloading-strategy", "Remote")
	milan.kubectl(t, "cordon", stays)
	rome.apply(t, steady)
	rome.kubectl(t, "-n", "steady", "rollout", "status", "deployment/moves", patiently)
	milan.kubectl(t, "uncordon", stays)
	pod := rome.kubectl(t, "-n", "steady", "get", "pods", "-l", "app=moves", "-o", "jsonpath={.items[0].metadata.name}")
	lone := rome.kubectl(t, "-n", "steady", "get", "pods", "-l", "app=stays", "-o", "jsonpath={.items[0].metadata.name}")
	endpointOf := func(pod, ready string) {
		t.Helper()
		eventually(t, "the endpoint of "+pod+" at home is ready: "+ready, func() (string, bool) {
			got, err := rome.ask("-n", "steady", "get", "endpointslices", "-o",
				`jsonpath={range .items[*].endpoints[?(@.targetRef.name=="`+pod+`")]}{.conditions.ready}{end}`)
			return got, err == nil && got == ready
		})
	}
	endpointOf(lone, "true")
	node := strings.TrimPrefix(before, "milan-")
	onTestbed(t, "node", "stop", "milan", node)
	endpointOf(lone, "false")
	eventually(t, "the pod runs on another node", func() (string, bool) {
		now, err := milan.ask("-n", "steady-rome", "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
		if err != nil || now != stays {
			return now, false
		}
		got, err := rome.ask("-n", "steady", "get", "pod", pod, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return now + " " + got, err == nil && got == "True"
	})
	milan.startNode(t, node)
	endpointOf(pod, "true")
	endpointOf(lone, "true")
	controller("false")
	rome.kubectl(t, "delete", "namespace", "steady", patiently)
}

// consumersNodeIsLost, with the virtual kubelet on it: another begins in time for the pods next door to stay.
func consumersNodeIsLost(t *testing.T) {
	settle(t)
	kubelet := func() string {
		return rome.kubectl(t, "-n", "liqo-tenant-milan", "get", "pods", "-l", "liqo.io/virtual-node=milan", "--sort-by=.metadata.creationTimestamp",
			"-o", `jsonpath={range .items[*]}{.spec.nodeName} {end}`)
	}
	pods := func() string {
		return rome.kubectl(t, "-n", "steady", "get", "pods", "-l", "app=stays", "-o", "jsonpath={.items[*].metadata.uid}")
	}
	before, uid := kubelet(), pods()
	node := strings.TrimPrefix(before, "rome-")
	onTestbed(t, "node", "stop", "rome", node)
	eventually(t, "the virtual kubelet runs on another node", func() (string, bool) {
		at := kubelet()
		return at, !strings.HasSuffix(at, before)
	})
	rome.kubectl(t, "wait", "node/milan", "--for=condition=Ready", patiently)
	answering(t, rome, "steady", "milan", "true")
	if now := pods(); now != uid {
		t.Errorf("the pod that stays was %s and is %s", uid, now)
	}
	rome.startNode(t, node)
	rome.kubectl(t, "delete", "namespace", "steady", patiently)
}
