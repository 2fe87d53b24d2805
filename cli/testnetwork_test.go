// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/echo"
)

// golden compares made texts with the files of a story.
func golden(t *testing.T, story string, made map[string]string) {
	t.Helper()
	path := "testdata/trial/" + story + ".txtar"
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range archive.Files {
		got, ok := made[part.Name]
		if !ok {
			t.Errorf("the story wants %s, which is not made", part.Name)
		}
		if diff := cmp.Diff(string(part.Data), got); diff != "" {
			archive.Files[i].Data = []byte(got)
			if flag.Lookup("update").Value.String() != "true" {
				t.Errorf("%s differs (-want +got):\n%s", part.Name, diff)
			}
		}
	}
	if len(made) != len(archive.Files) {
		t.Errorf("%d parts made, the story has %d", len(made), len(archive.Files))
	}
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTrialObjects: a test creates these objects in the consumer rome and in its provider milan.
func TestTrialObjects(t *testing.T) {
	e := &env{scheme: scheme.New(), labels: map[string]string{api.LabelManaged: api.True}}
	rome, milan := &cluster{id: "rome", env: e}, &cluster{id: "milan", env: e}
	pods := map[string]trialPods{
		"rome":  {cluster: "rome", replicas: 2, image: "registry.example/liqo:v1", pull: corev1.PullIfNotPresent},
		"milan": {cluster: "milan", replicas: 1, image: "registry.example/liqo:v1", pull: corev1.PullIfNotPresent, offloaded: true},
	}
	tr := &trial{testOptions: &testOptions{ip: true, balancer: true, podNodePort: true, internet: "1.1.1.1"}, consumer: rome, all: []*cluster{rome, milan}, pods: pods}
	parts := map[string]string{}
	for _, m := range append([]trialObject{{rome, trialNamespaceObject()}}, tr.trialObjects()...) {
		manifest, err := e.manifest(m.object)
		if err != nil {
			t.Fatal(err)
		}
		text, err := encode(manifest.Object, "yaml")
		if err != nil {
			t.Fatal(err)
		}
		parts[m.id+" "+strings.ToLower(manifest.GetKind())+" "+manifest.GetName()] = text
	}
	golden(t, "objects", parts)
	tr.basic = true
	var names []string
	for _, m := range tr.trialObjects() {
		names = append(names, m.object.GetName())
	}
	if diff := cmp.Diff([]string{"netshoot-rome", "netshoot-milan", "netshoot"}, names); diff != "" {
		t.Errorf("the basic test makes other things (-want +got):\n%s", diff)
	}
}

// TestChecks: rome has two nodes and the provider milan one. Both have the endpoints of all pods,
// with different addresses.
func TestChecks(t *testing.T) {
	sites := []site{{
		id: "rome", pods: []string{"netshoot-rome-a", "netshoot-rome-b"}, hosts: []string{"netshoot-host-rome-a"},
		endpoints: []endpoint{{"10.10.1.2", "rome", "netshoot-rome-a"}, {"10.10.2.2", "rome", "netshoot-rome-b"}, {"10.71.0.9", "milan", "netshoot-milan-a"}},
		nodes:     []string{"172.16.0.1", "fd00::2"}, reachable: []string{"198.51.100.1", "fd00::2"}, nodePort: 30080, balancers: []string{"203.0.113.7"},
		internet: "1.1.1.1", remapped: map[string]string{"milan": "10.72.0.1"},
	}, {
		id: "milan", pods: []string{"netshoot-milan-a"}, hosts: []string{"netshoot-host-milan-a"},
		endpoints: []endpoint{{"10.10.0.9", "milan", "netshoot-milan-a"}, {"10.71.1.2", "rome", ""}, {"10.71.2.2", "rome", ""}},
		nodes:     []string{"172.16.1.1"}, reachable: []string{"172.16.1.1"}, nodePort: 31234, balancers: []string{"203.0.113.8"},
		internet: "1.1.1.1", remapped: map[string]string{"rome": "10.73.0.1"},
	}}
	parts := map[string]string{}
	for name, o := range map[string]*testOptions{
		"--basic": {basic: true, ip: true, podNodePort: true}, "no flags": {}, "all flags": {ip: true, balancer: true, podNodePort: true, outsideNodePort: true},
	} {
		var text strings.Builder
		for _, p := range paths(o) {
			for _, c := range p.checks(sites) {
				line := fmt.Sprintf("%-24s %-7s %-21s %-17s %s %s", c.kind, c.from, c.pod, c.to, c.url, c.want)
				if p.enabled {
					fmt.Fprintln(&text, strings.TrimRight(line, " "))
				}
			}
		}
		parts[name] = text.String()
	}
	golden(t, "checks", parts)
}

// TestTrialResults: an answer of another pod than the wanted one is a failure; any pod of a Service
// may answer. The table counts the successes of each path.
func TestTrialResults(t *testing.T) {
	between := func(kind kindOfCheck, to, want string, a echo.Answer) result {
		return resultOf(check{kind: kind, from: "rome", pod: "netshoot-rome-a", to: to, url: "http://10.71.0.9:8080/", want: want}, a)
	}
	results := append(endpointResults([]site{{id: "rome"}, {id: "milan", missing: []string{"2 of 3 endpoints are known"}}}),
		between(podToPod, "milan", "netshoot-milan-a", echo.Answer{Name: "netshoot-milan-a", Latency: 1260 * time.Microsecond}),
		between(podToPod, "milan", "netshoot-milan-b", echo.Answer{Name: "netshoot-milan-a", Latency: time.Millisecond}),
		between(podToPod, "rome", "netshoot-rome-a", echo.Answer{Error: "no answer within 5s"}),
		between(podToService, "service", "", echo.Answer{Name: "netshoot-milan-a", Latency: 2 * time.Millisecond}),
	)
	var printed strings.Builder
	if err := table(&printed, results); err != nil {
		t.Fatal(err)
	}
	shown := newPrinter(&printed, &printed)
	(&trial{script: &script{printer: shown}}).report(podToPod, 3, failures(results))
	golden(t, "results", map[string]string{"printed": printed.String()})
}

// TestTrialNodes: which nodes get pods, and which addresses are tried.
func TestTrialNodes(t *testing.T) {
	node := func(name string, labels map[string]string, taint corev1.TaintEffect, ready corev1.ConditionStatus) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if taint != "" {
			n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: taint}}
		}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: "ip of " + name}}
		return n
	}
	nodes := []corev1.Node{
		node("master", map[string]string{labelControlPlane: ""}, corev1.TaintEffectNoSchedule, corev1.ConditionTrue),
		node("one", nil, "", corev1.ConditionTrue),
		node("two", nil, corev1.TaintEffectPreferNoSchedule, corev1.ConditionTrue),
		node("broken", nil, "", corev1.ConditionFalse),
		node("milan", map[string]string{api.LabelType: api.TypeVirtualNode}, "", corev1.ConditionTrue),
	}
	if got := workers(nodes); got != 2 {
		t.Errorf("%d nodes for pods, want 2", got)
	}
	for choice, want := range map[string][]string{
		"all": {"ip of master", "ip of one", "ip of two", "ip of broken"}, "control-planes": {"ip of master"}, "workers": {"ip of one", "ip of two", "ip of broken"},
	} {
		if diff := cmp.Diff(want, addressesOf(nodes, choice, corev1.NodeExternalIP, corev1.NodeInternalIP)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", choice, diff)
		}
	}
}

// TestPorts: one port or several, each once.
func TestPorts(t *testing.T) {
	for text, want := range map[string]string{"0": "0", "51840": "51840", "1,65535": "1,65535", "70000": "", "-1": "", "a": "", "5,5": "", "": ""} {
		var p ports
		err := p.Set(text)
		if got := p.String(); err == nil && got != want || err != nil && want != "" {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// TestTrialArguments: wrong flags are an error before the first request.
func TestTrialArguments(t *testing.T) {
	for arguments, want := range map[string]string{
		"":                         `required flag(s) "remote-kubeconfigs" not set`,
		"-p x --np-nodes some":     `invalid argument "some" for "--np-nodes" flag: "some" is none of all, workers, control-planes`,
		"-p x --ip-address nobody": `--ip-address: "nobody" is not an address`,
	} {
		root := Root("liqoctl", genericiooptions.NewTestIOStreamsDiscard())
		root.SetArgs(append([]string{"test", "network"}, strings.Fields(arguments)...))
		if err := root.ExecuteContext(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%q: %v", arguments, err)
		}
	}
}
