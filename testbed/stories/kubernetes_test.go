// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"fmt"
	"slices"
	"testing"
)

// minors are the versions of Kubernetes that TestKubernetes goes through, at most.
var minors = []string{"1.34", "1.35", "1.36", "1.37"}

// TestKubernetes takes two peered clusters from the version of the flag -kubernetes to the next one, and on to the
// newest, at each step the consumer first and then the provider: the API server goes before the kubelets, which are
// replaced under running containers. It is part of `make test-versions` only, which builds these versions.
func TestKubernetes(t *testing.T) {
	from := slices.Index(minors, *kubernetes)
	if from < 0 || from == len(minors)-1 {
		t.Fatalf("run it with -kubernetes and one of %v, which it starts from", minors[:len(minors)-1])
	}
	beginNew(t)
	steps := []story{
		{"install", install},
		{"peer", peerFirst},
		{"a namespace is offloaded", offloadNamespace},
		{"each cluster has a volume", databaseOnBoth},
	}
	for _, version := range minors[from+1:] {
		for _, c := range []*cluster{&rome, &milan} {
			steps = append(steps, story{c.name + " goes to " + version, func(t *testing.T) { c.goesTo(t, version) }})
		}
	}
	tellAll(t, append(steps,
		story{"both have kept their volumes", volumesAreKept},
		story{"unpeer leaves nothing", unpeer},
		story{"uninstall leaves nothing", uninstall},
	))
}

// goesTo replaces the programs of Kubernetes on all nodes of a cluster. Meanwhile a connection from a pod at home to
// one at the provider stays, and afterwards both clusters have all objects of before, and a new pod runs.
func (c *cluster) goesTo(t *testing.T, version string) {
	before := map[string]map[string]object{rome.name: rome.objects(t), milan.name: milan.objects(t)}
	stays := connected(t)
	if out, err := testbed("up", "--kubernetes", c.name+"="+version); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.rolled(t)
	eventually(t, "the virtual node is Ready", func() (string, bool) {
		got, err := rome.ask("get", "node", milan.name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		return got, err == nil && got == "True"
	})
	stays(c.name + " goes to " + version)
	for _, of := range []cluster{rome, milan} {
		of.keeps(t, before[of.name])
	}
	rome.apply(t, fmt.Sprintf(single, "shop", "since", "nodeSelector: {liqo.io/type: virtual-node}"))
	if node := nodeOf(t, "shop", "since"); node != milan.name {
		t.Errorf("a new pod is on %s", node)
	}
	rome.echo(t, "shop", "since", "get", "http://web/")
	rome.kubectl(t, "-n", "shop", "delete", "pod", "since", patiently)
	peeringIsShown(t)
}
