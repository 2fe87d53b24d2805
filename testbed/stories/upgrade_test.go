// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// former is the commit of the version that users upgrade from: the last one that trusted its peers.
const former = "d687f03e64cab20c18e068eac59ef5f856fa24ef"

// record makes TestTimedUpgrade write the objects of the former version for the test of cmd/liqo-control.
var record = flag.Bool("record", false, "write what the former version made to cmd/liqo-control/testdata/upgrade")

// TestTimedUpgrade takes two peered clusters with pods and volumes from a former version to this one, one after the other,
// and on to a next one. It builds the former version from the history of the repository, so it is part of `make soak`
// only.
func TestTimedUpgrade(t *testing.T) {
	beginNew(t)
	former, next := map[string]time.Duration{}, map[string]time.Duration{}
	tellAll(t, []story{
		{"install and peer with the former version", installFormer},
		{"a namespace is offloaded", offloadNamespace},
		{"each cluster has a volume", databaseOnBoth},
		{"upgrade", func(t *testing.T) { upgrade(t, former) }},
		{"upgrade to the next version", func(t *testing.T) { upgradeToNext(t, next) }},
		{"Helm 3, Helm 4 and liqoctl upgrade what the others did", func(t *testing.T) { rome.anyUpgrades(t); milan.anyUpgrades(t) }},
		{"packets were late by one move of a gateway", func(t *testing.T) {
			m := thisMachine(t)
			most := m.maxGap(fault{most: planned})
			// The controller of the former version moves a gateway while a node's fabric is replaced.
			check(t, "upgrade of the former version of", former, most+m.restart)
			check(t, "upgrade of", next, most)
		}},
		{"unpeer leaves nothing", unpeer},
		{"uninstall leaves nothing", uninstall},
	})
}

// check compares the longest gap of each cluster with the most.
func check(t *testing.T, claim string, gaps map[string]time.Duration, most time.Duration) {
	t.Helper()
	for name, gap := range gaps {
		t.Logf("%s %s: the longest gap is %v of %v", claim, name, gap, most)
		if gap > most {
			t.Errorf("%s %s: the longest gap is %v, more than %v", claim, name, gap, most)
		}
	}
}

// installFormer builds the former version, and installs it and peers with its own liqoctl.
func installFormer(t *testing.T) {
	source := t.TempDir()
	image := filepath.Join(source, "bin", "image.tar")
	for _, script := range []string{
		"git -C " + root + " archive " + former + " | tar -x -C " + source,
		"go build -ldflags='-s -w' -o bin/ ./cmd/liqo ./cmd/liqo-control ./cmd/liqoctl",
		"go run ./deploy/image -tag liqo-go/liqo:former -o " + image + " bin/liqo bin/liqo-control",
	} {
		build := exec.Command("bash", "-o", "pipefail", "-c", script)
		build.Dir = source
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build the former version; the whole history of the repository is needed: %s: %v\n%s", script, err, out)
		}
	}
	onTestbed(t, "load", image)
	now := path
	path = filepath.Join(source, "bin") + ":" + path
	defer func() { path = now }()
	installWith(t, "tag=former")
	peerFirst(t)
}

// upgrade installs this version on the consumer by liqoctl, then on the provider by Helm. Meanwhile packets flow, and
// afterwards all objects of before are there and all pods of users run. The longest gap of each cluster goes into gaps.
func upgrade(t *testing.T, gaps map[string]time.Duration) {
	before := map[string]map[string]object{}
	for _, c := range []cluster{rome, milan} {
		before[c.name] = c.objects(t)
		if *record {
			c.record(t, before[c.name])
		}
	}
	stays := connected(t)
	for _, c := range []cluster{rome, milan} {
		gaps[c.name] = pinged(t, func() {
			if c.name == rome.name {
				c.must(t, c.installation("tag=")...)
			} else {
				c.upgradeByHelm(t)
			}
			c.runs(t, func(image string) bool { return !strings.Contains(image, "former") })
			if c.name == rome.name {
				bothVersions(t)
			}
		}).gap
	}
	stays("upgrade")
	peeringIsShown(t)
	for _, c := range []cluster{rome, milan} {
		c.keeps(t, before[c.name])
	}
	volumesAreKept(t)
}

// volumesAreKept ends what databaseOnBoth began.
func volumesAreKept(t *testing.T) {
	t.Helper()
	for _, pod := range []string{"db-0", "db-1"} {
		if got := rome.kubectl(t, "-n", "data", "exec", pod, "--", "/echo", "cat", "/disk/name"); got != "this is "+pod {
			t.Errorf("%s found on its volume: %s", pod, got)
		}
	}
	rome.kubectl(t, "delete", "namespace", "data", patiently)
}

// keeps compares the objects of a cluster with those of before: none is gone, made again or orphaned, and no pod of
// users restarted.
func (c cluster) keeps(t *testing.T, before map[string]object) {
	t.Helper()
	after := c.objects(t)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		was, is := before[name], after[name]
		switch {
		case is.Metadata.UID == "" && retired[name] == "":
			t.Errorf("%s: %s is deleted", c.name, name)
		case is.Metadata.UID == "":
		case is.Metadata.UID != was.Metadata.UID:
			t.Errorf("%s: %s is recreated", c.name, name)
		case is.Metadata.DeletionTimestamp != "":
			t.Errorf("%s: %s is being deleted", c.name, name)
		case is.restarts() != was.restarts():
			t.Errorf("%s: %s restarted", c.name, name)
		}
	}
	uids := map[string]bool{}
	for _, o := range after {
		uids[o.Metadata.UID] = true
	}
	for name, o := range after {
		for _, owner := range o.Metadata.OwnerReferences {
			if !uids[owner.UID] && before[name].Metadata.UID != "" && !passing(owner.Kind) {
				t.Errorf("%s: %s is orphaned: its owner %s %s is gone", c.name, name, owner.Kind, owner.Name)
			}
		}
	}
}

// runs waits until all of a cluster's Liqo runs with another image.
func (c cluster) runs(t *testing.T, upgraded func(image string) bool) {
	t.Helper()
	c.kubectl(t, "-n", "liqo", "rollout", "status", "deployment/liqo-controller-manager", "daemonset/liqo-fabric", patiently)
	peer := other(c).name
	eventually(t, "the gateway of "+c.name+" is upgraded", func() (string, bool) {
		image, err := c.ask("-n", "liqo-tenant-"+peer, "get", "deployment", "gw-"+peer, "-o", "jsonpath={..image}")
		return image, err == nil && upgraded(image)
	})
	c.rolled(t)
}

// upgradeToNext upgrades both clusters to this version under another tag. The longest gap of each goes into gaps.
func upgradeToNext(t *testing.T, gaps map[string]time.Duration) {
	image := filepath.Join(t.TempDir(), "image.tar")
	build := exec.Command("go", "run", "./deploy/image/archive", "-tag", "liqo-go/liqo:next", "-o", image, "bin/liqo", "bin/liqo-control")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the next image: %v\n%s", err, out)
	}
	onTestbed(t, "load", image)
	stays := connected(t)
	for _, c := range []cluster{rome, milan} {
		gaps[c.name] = pinged(t, func() {
			c.must(t, c.installation("tag=next")...)
			c.runs(t, func(image string) bool { return strings.Contains(image, "next") })
		}).gap
	}
	stays("upgrade to the next version")
	peeringIsShown(t)
}

// upgradeByHelm upgrades a cluster by Helm 3 and 4, goes back to the former version, and upgrades again. The former
// liqoctl applied under its own name, which Helm's server-side apply would stop at.
func (c cluster) upgradeByHelm(t *testing.T) {
	t.Helper()
	for _, line := range []string{
		"helm3 upgrade", "helm4 test", "helm4 rollback", "helm4 upgrade", "helm3 test",
	} {
		c.helm(t, strings.Fields(line)...)
	}
}

// anyUpgrades lets liqoctl, Helm 3 and Helm 4 upgrade what the others did, on the client's and on the server's side.
func (c cluster) anyUpgrades(t *testing.T) {
	t.Helper()
	for _, line := range []string{
		"helm4 upgrade --server-side=true", "liqoctl", "helm4 upgrade --server-side=false", "liqoctl", "helm3 upgrade", "helm4 upgrade --server-side=true",
		"helm3 upgrade", "liqoctl", "helm4 rollback --server-side=true", "helm4 test",
	} {
		if line == "liqoctl" {
			c.must(t, c.installation("tag=next")...)
			continue
		}
		c.helm(t, strings.Fields(line)...)
	}
}

// helm runs a program of Helm: "helm3" or "helm4", the verb, further flags.
func (c cluster) helm(t *testing.T, words ...string) {
	t.Helper()
	args := append(words[1:], "liqo", "--kubeconfig", c.kubeconfig, "--namespace", "liqo", patiently)
	switch words[1] {
	case "upgrade":
		args = append(args, filepath.Join(root, "deploy", "liqo"), "--reset-then-reuse-values", "--set", "tag=", "--wait")
	case "rollback":
		args = append(args, "--wait")
	}
	stdout, stderr, err := command(words[0], args...)
	if err != nil {
		t.Fatalf("%s: %s %s: %v\n%s%s", c.name, words[0], strings.Join(args, " "), err, stdout, stderr)
	}
	if words[1] == "test" && !strings.Contains(stdout+stderr, "ok    Network pod-cidr") {
		t.Errorf("%s: %s test prints no line for a check:\n%s%s", c.name, words[0], stdout, stderr)
	}
}

// retired are the objects of the former chart that this one has no more, each with the reason.
var retired = map[string]string{
	"ValidatingWebhookConfiguration /liqo-webhook": "what it checked is the policy liqo-shadowpods",
}

// bothVersions uses the peering for a minute while the consumer has this version and the provider the former one.
func bothVersions(t *testing.T) {
	t.Helper()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		rome.apply(t, fmt.Sprintf(single, "shop", "between", "nodeSelector: {liqo.io/type: virtual-node}"))
		if node := nodeOf(t, "shop", "between"); node != "milan" {
			t.Errorf("a new pod is on %s", node)
		}
		rome.echo(t, "shop", "between", "get", "http://web/")
		rome.kubectl(t, "-n", "shop", "delete", "pod", "between", patiently)
	}
}

// object is what is compared of an object; raw is all of it.
type object struct {
	Kind     string
	Metadata struct {
		Namespace, Name, UID, DeletionTimestamp string
		OwnerReferences                         []struct{ Kind, Name, UID string }
	}
	Status struct {
		ContainerStatuses []struct{ RestartCount int }
	}
	raw json.RawMessage
}

// restarts is how often containers of a pod of users were restarted.
func (o object) restarts() (n int) {
	for _, c := range o.Status.ContainerStatuses {
		n += c.RestartCount
	}
	return n
}

// passing reports whether objects of a kind come and go by themselves.
func passing(kind string) bool {
	return slices.Contains([]string{"Event", "Lease", "ReplicaSet", "ControllerRevision", "CertificateSigningRequest", "PodMetrics", "NodeMetrics", "APIService", "Job"}, kind)
}

// objects are those of a cluster that an upgrade must not take away: all but those of Kubernetes itself, those that
// come and go, and the pods of Liqo, which a rollout replaces.
func (c cluster) objects(t *testing.T) map[string]object {
	t.Helper()
	kinds := strings.Fields(c.kubectl(t, "api-resources", "--verbs=list,delete", "-o", "name"))
	kinds = slices.DeleteFunc(kinds, func(kind string) bool {
		return strings.HasPrefix(kind, "events") || strings.HasSuffix(kind, "metrics.k8s.io")
	})
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal([]byte(c.kubectl(t, "get", strings.Join(kinds, ","), "-A", "-o", "json", "--show-managed-fields")), &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]object{}
	for _, raw := range list.Items {
		o := object{raw: raw}
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		ofLiqo := o.Metadata.Namespace == "liqo" || strings.HasPrefix(o.Metadata.Namespace, "liqo-tenant-")
		if strings.HasPrefix(o.Metadata.Namespace, "kube-") || passing(o.Kind) || o.Kind == "Pod" && ofLiqo {
			continue
		}
		all[strings.TrimSpace(o.Kind+" "+o.Metadata.Namespace+"/"+o.Metadata.Name)] = o
	}
	return all
}

// record writes the objects for the test that shows them to all controllers, one in a line: those that Liqo's
// controllers read or make, without those of the chart that only the API server acts on.
func (c cluster) record(t *testing.T, objects map[string]object) {
	t.Helper()
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		o := objects[name]
		switch {
		case strings.HasPrefix(o.Metadata.Name, "sh.helm.release"), o.Metadata.Namespace == "default" && o.Kind != "Network",
			slices.Contains([]string{
				"ClusterRole", "ClusterRoleBinding", "CSINode", "CustomResourceDefinition", "Endpoints", "FlowSchema", "IPAddress",
				"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "PriorityClass", "PriorityLevelConfiguration", "ServiceCIDR", "ValidatingAdmissionPolicy",
				"ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration", "VolumeAttributesClass",
			}, o.Kind):
			continue
		}
		if err := json.Compact(&out, o.raw); err != nil {
			t.Fatal(err)
		}
		out.WriteByte('\n')
	}
	file := filepath.Join(root, "cmd", "liqo-control", "testdata", "upgrade", c.name+".jsonl")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
