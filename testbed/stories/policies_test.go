// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"fmt"
	"strings"
	"testing"
)

// TestPolicies runs what NetworkPolicies may disturb, on clusters that enforce them: -cni policies.
func TestPolicies(t *testing.T) {
	if *cni != "policies" {
		t.Fatal("these clusters enforce no policies; run it with -cni policies")
	}
	tellEach(t, []stage{
		{nothing, installed, []story{{"install", install}}},
		{installed, installed, []story{
			{"policies guard the pods of Liqo", liqoIsGuarded},
			{"peer in band and both ways", peerInBand},
		}},
		{installed, peered, []story{{"peer", peerFirst}}},
		{peered, peered, []story{
			{"every pod reaches every pod", everyPodReachesEveryPod},
			{"every path is tested by liqoctl", everyPathIsTested},
			{"policies count for pods at a provider", policiesCount},
		}},
		{peered, offloaded, []story{{"a namespace is offloaded", offloadNamespace}}},
		{offloaded, installed, []story{{"unpeer leaves nothing", unpeer}}},
		{installed, nothing, []story{{"uninstall leaves nothing", uninstall}}},
	})
}

// guarded is a namespace with a server and clients, friends and strangers at home and at the provider.
const guarded = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: guarded, labels: {app: %[1]s, role: %[2]s}}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {kubernetes.io/hostname: %[3]s}
  containers: [{name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never}]
---
`

// friendsOnly lets only friends to the server.
const friendsOnly = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friends-only, namespace: guarded}
spec:
  podSelector: {matchLabels: {role: server}}
  policyTypes: [Ingress]
  ingress:
  - from: [{podSelector: {matchLabels: {role: friend}}}]
    ports: [{port: 8080}]
`

// policiesCount: a policy of home that selects pods counts for those at the provider as for those at home, whose
// addresses are the pods' own.
func policiesCount(t *testing.T) {
	rome.kubectl(t, "create", "namespace", "guarded")
	rome.must(t, "offload", "namespace", "guarded")
	rome.kubectl(t, "-n", "guarded", "wait", "--for=create", "serviceaccount/default", patiently)
	clients := map[string]string{"friend": "friend", "stranger": "stranger", "friend-there": "friend", "stranger-there": "stranger"}
	manifest := fmt.Sprintf(guarded, "server", "server", "rome-n1")
	for name, role := range clients {
		node := "rome-n1"
		if strings.HasSuffix(name, "-there") {
			node = "milan"
		}
		manifest += fmt.Sprintf(guarded, name, role, node)
	}
	rome.apply(t, manifest)
	rome.kubectl(t, "-n", "guarded", "wait", "pods", "--all", "--for=condition=Ready", patiently)
	server := rome.kubectl(t, "-n", "guarded", "get", "pod", "server", "-o", "jsonpath={.status.podIP}")
	reaches := func(client string) bool {
		address := server
		if strings.HasSuffix(client, "-there") {
			address = remapped(t, milan, rome, []string{server})[0]
		}
		out, err := rome.ask("-n", "guarded", "exec", client, "--", "/echo", "get", "-timeout", "1s", "http://"+address+":8080/")
		return err == nil && strings.Contains(out, "pod=server ")
	}
	for client := range clients {
		eventually(t, client+" reaches the server before there is a policy", func() (string, bool) { return "", reaches(client) })
	}
	rome.apply(t, friendsOnly)
	for client, role := range clients {
		eventually(t, fmt.Sprintf("whether the %s %s reaches the server", role, client), func() (string, bool) {
			is := reaches(client)
			return fmt.Sprint(is), is == (role == "friend")
		})
	}
	rome.must(t, "unoffload", "namespace", "guarded", "--skip-confirm")
	rome.kubectl(t, "delete", "namespace", "guarded", patiently)
}

// liqoIsGuarded: pods of the cluster reach the ports of Liqo's pods that are meant for them, and no other.
func liqoIsGuarded(t *testing.T) {
	node := "n1"
	controller := rome.kubectl(t, "-n", "liqo", "get", "pods", "-l", "app.kubernetes.io/name=controller-manager", "-o", "jsonpath={.items[0].status.podIP}")
	answers := func(port string) bool {
		_, err := rome.inside(node, theProbe, fmt.Sprintf("timeout 1 bash -c 'echo >/dev/tcp/%s/%s'", controller, port))
		return err == nil
	}
	const webhook, health = "9443", "8081"
	eventually(t, "the webhook of the controller is reached", func() (string, bool) { return "", answers(webhook) })
	eventually(t, "the health of the controller is not reached", func() (string, bool) { return "", !answers(health) })
}
