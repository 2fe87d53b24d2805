// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The ways to peer two clusters. Unless it says otherwise, a story begins and ends without a peering.

// summary prints what a ForeignCluster sums up: role, then networking, authentication, offloading, and
// whether the peer's API server answers.
const summary = `{.status.role}: {.status.modules.networking.conditions[*].status}; {.status.modules.authentication.conditions[*].status}; ` +
	`{.status.modules.offloading.conditions[*].status}; {.status.conditions[?(@.type=="APIServerStatus")].status}`

const (
	tunnelUp   = "Ready Ready Ready Established"
	givesAll   = "Provider: " + tunnelUp + "; Ready; Ready Ready; Established"
	takesAll   = "Consumer: " + tunnelUp + "; Ready; ; "
	givesPods  = "Provider: ; Ready; Ready Ready; Established"
	takesPods  = "Consumer: ; Ready; ; "
	bothWays   = "ConsumerAndProvider: " + tunnelUp + "; Ready Ready; Ready Ready; Established"
	givesByOwn = "Provider: ; ; Ready Ready; Established"
	stranger   = "Unknown: ; ; ; "
)

// sumsUp waits until the ForeignCluster of a peer is right.
func (c cluster) sumsUp(t *testing.T, peer, want string) {
	t.Helper()
	eventually(t, c.name+" sums up "+peer+" as "+want, func() (string, bool) {
		got, err := c.ask("get", "foreignclusters", peer, "-o", "jsonpath="+summary)
		return got, err == nil && got == strings.TrimSpace(want)
	})
}

// guest is a pod on the virtual node of a provider.
const guest = `
apiVersion: v1
kind: Pod
metadata: {name: guest, namespace: %s}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {liqo.io/remote-cluster-id: %s}
  containers:
  - {name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never}
`

// visits runs a pod of a new namespace at a provider, and returns a function that takes the namespace away.
func (c cluster) visits(t *testing.T, provider, namespace string) (leave func()) {
	t.Helper()
	c.kubectl(t, "create", "namespace", namespace)
	c.must(t, "offload", "namespace", namespace)
	c.guestAt(t, provider, namespace)
	return func() {
		t.Helper()
		c.must(t, "unoffload", "namespace", namespace, "--skip-confirm")
		c.kubectl(t, "delete", "namespace", namespace, patiently)
	}
}

// guestAt runs the pod and reads its log.
func (c cluster) guestAt(t *testing.T, provider, namespace string) {
	t.Helper()
	c.kubectl(t, "-n", namespace, "wait", "--for=create", "serviceaccount/default", patiently)
	c.apply(t, fmt.Sprintf(guest, namespace, provider))
	c.kubectl(t, "-n", namespace, "wait", "pod/guest", "--for=condition=Ready", patiently)
	c.hears(t, namespace)
}

// hears waits until the log of the pod at the provider can be read: a pod is Ready before its
// program prints a line.
func (c cluster) hears(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, "the log of the pod at the provider says that it serves", func() (string, bool) {
		log, err := c.ask("-n", namespace, "logs", "guest")
		return log, err == nil && strings.Contains(log, "http=:8080")
	})
}

// reflects expects that a new ConfigMap of rome's namespace appears at milan.
func reflects(t *testing.T, namespace, name string) {
	t.Helper()
	rome.kubectl(t, "-n", namespace, "create", "configmap", name)
	eventually(t, name+" is reflected", func() (string, bool) {
		out, err := milan.ask("-n", namespace+"-rome", "get", "configmap", name)
		return out, err == nil
	})
}

// peerInBand: the clusters reach each other's API servers through the tunnel only, rome also after both
// gateways and the server's port have changed. Then milan uses rome as well: rome's direction goes, comes back, and goes last.
func peerInBand(t *testing.T) {
	restored := nodesAsBefore(t)
	// Both listen at one port: what rome asks is dropped, and what it answers.
	onTestbed(t, "fault", "drop", "rome", "milan", "--port", "tcp/"+milan.api[strings.LastIndex(milan.api, ":")+1:])
	t.Cleanup(func() { onTestbed(t, "fault", "heal") })
	probe := pods(t, rome, "probe", "{.metadata.name}")[0]
	if out, err := rome.ask("exec", probe, "--", "/echo", "get", "-timeout", "2s", milan.api+"/livez"); err == nil || strings.Contains(out, "certificate") {
		t.Fatalf("milan's API server is reached without a tunnel: %v\n%s", err, out)
	}
	peer := func(c cluster) {
		t.Helper()
		c.must(t, "peer", "--remote-kubeconfig", other(c).kubeconfig, "--gw-server-service-type", "NodePort", "--in-band")
	}
	peer(rome)
	rome.sumsUp(t, "milan", givesAll)
	milan.sumsUp(t, "rome", takesAll)
	leave := rome.visits(t, "milan", "inside")

	deleteGateway(rome)(t)
	deleteGateway(milan)(t)
	reflects(t, "inside", "after-the-gateways")
	serverMoves(t)

	peer(milan)
	for _, c := range []cluster{rome, milan} {
		c.sumsUp(t, other(c).name, bothWays)
	}
	back := milan.visits(t, "rome", "back")
	rome.must(t, "unpeer", "--remote-kubeconfig", milan.kubeconfig)
	rome.sumsUp(t, "milan", takesAll)
	milan.sumsUp(t, "rome", givesAll)
	milan.hears(t, "back")
	peer(rome)
	milan.must(t, "unpeer", "--remote-kubeconfig", rome.kubeconfig)
	rome.sumsUp(t, "milan", givesAll)
	milan.sumsUp(t, "rome", takesAll)
	left := make(chan string, 1)
	go func() {
		gone, _ := milan.ask("-n", "liqo-tenant-rome", "wait", "tenants/rome", "--for=delete", patiently)
		maps, _ := rome.ask("-n", "liqo-tenant-milan", "get", "namespacemaps", "-o", "name")
		left <- strings.TrimSpace(gone + maps)
	}()
	rome.must(t, "unpeer", "--remote-kubeconfig", milan.kubeconfig)
	if got := <-left; got != "tenant.authentication.liqo.io/rome condition met" {
		t.Errorf("the way to milan's API server ends with the Tenant, when rome has taken back everything; then:\n%s", got)
	}
	nothingLeft(t)
	rome.sumsUp(t, "milan", stranger)
	milan.sumsUp(t, "rome", stranger)
	leave()
	back()
	restored()
}

// serverMoves changes the node port of milan's server, in band: alone, while the server's pod is killed, and by deleting
// the Service while the client begins anew. Rome learns the new port only through the tunnel.
func serverMoves(t *testing.T) {
	t.Helper()
	port := func(port string) {
		t.Helper()
		milan.kubectl(t, "-n", "liqo-tenant-rome", "patch", "gatewayservers", "rome", "--type=merge", "-p", `{"spec":{"endpoint":{"nodePort":`+port+`}}}`)
	}
	follows := func(port, proof string) {
		t.Helper()
		eventually(t, "rome dials port "+port, func() (string, bool) {
			got, err := rome.ask("-n", "liqo-tenant-milan", "get", "gatewayclients", "milan", "-o", "jsonpath={.spec.endpoint.port}")
			return got, err == nil && got == port
		})
		reflects(t, "inside", proof)
	}
	port("30999")
	follows("30999", "after-the-port")
	milan.kubectl(t, "-n", "liqo-tenant-rome", "delete", "pod", activeGateway(t, milan).name, "--wait=false", "--force", "--grace-period=0")
	port("30998")
	follows("30998", "after-pod-and-port")
	milan.kubectl(t, "-n", "liqo-tenant-rome", "patch", "gatewayservers", "rome", "--type=merge", "-p", `{"spec":{"endpoint":{"nodePort":null}}}`)
	milan.kubectl(t, "-n", "liqo-tenant-rome", "delete", "service", "gw-rome")
	deleteGateway(rome, "--force", "--grace-period=0")(t)
	follows("30998", "after-the-service")
}

// bothDirections, while rome is peered with milan: milan uses rome over the same tunnel, and leaves again,
// twice, without rome losing anything.
func bothDirections(t *testing.T) {
	network := func() string {
		t.Helper()
		var all []string
		for _, c := range []cluster{rome, milan} {
			all = append(all, c.kubectl(t, "get", "configurations,gatewayservers,gatewayclients,connections,publickeies,tenants,identities,virtualnodes",
				"-A", "-l", "liqo.io/remote-cluster-id="+other(c).name, "-o", "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.uid}{\"\\n\"}{end}"))
		}
		return strings.Join(all, "\n")
	}
	before, running := network(), offloadedPods(t, "{.metadata.uid}")
	_, stderr := milan.must(t, "peer", "--remote-kubeconfig", rome.kubeconfig, "--gw-server-service-type", "NodePort")
	if n := strings.Count(stderr, "Connection is established"); n != 2 || strings.Contains(stderr, "Gateway server correctly set up") {
		t.Errorf("the tunnel that is there is not looked at, or not the only one:\n%s", stderr)
	}
	for _, c := range []cluster{rome, milan} {
		c.sumsUp(t, other(c).name, bothWays)
	}
	leave := milan.visits(t, "rome", "back")
	_, stderr, code := milan.liqoctl(t, "unpeer", "--remote-kubeconfig", rome.kubeconfig, "--delete-namespaces")
	if code != 1 || !strings.Contains(stderr, "cannot delete the tenant namespace when a bidirectional is enabled") {
		t.Errorf("unpeer --delete-namespaces in one of two directions: exit code %d\n%s", code, stderr)
	}
	for range 2 {
		milan.must(t, "unpeer", "--remote-kubeconfig", rome.kubeconfig)
		rome.sumsUp(t, "milan", givesAll)
		milan.sumsUp(t, "rome", takesAll)
	}
	leave()
	if after := network(); after != before {
		t.Errorf("the other direction changed:\n%s\nbecame\n%s", before, after)
	}
	if after := offloadedPods(t, "{.metadata.uid}"); after != running {
		t.Errorf("pods at milan were %s and are %s", running, after)
	}
}

// peerByHand: nobody has access to both clusters; files go to and fro. There is no network.
func peerByHand(t *testing.T) {
	retreat := byHand(t)
	rome.sumsUp(t, "milan", givesPods)
	milan.sumsUp(t, "rome", takesPods)
	leave := rome.visits(t, "milan", "by-hand")
	retreat()
	nothingLeft(t)
	rome.sumsUp(t, "milan", stranger)
	leave()
}

// byHand peers by files, and returns a function that ends the peering.
func byHand(t *testing.T) (retreat func()) {
	t.Helper()
	milan.must(t, "create", "nonce", "--remote-cluster-id", "rome")
	nonce, _ := milan.must(t, "get", "nonce", "--remote-cluster-id", "rome")
	tenant, _ := rome.must(t, "generate", "tenant", "--remote-cluster-id", "milan", "--remote-tenant-namespace", "liqo-tenant-rome", "--nonce", strings.TrimSpace(nonce))
	milan.apply(t, tenant)
	milan.kubectl(t, "-n", "liqo-tenant-rome", "wait", "--for=condition=Ready", "tenant", "rome", patiently)
	identity, _ := milan.must(t, "generate", "identity", "--remote-cluster-id", "rome", "--remote-tenant-namespace", "liqo-tenant-milan")
	rome.apply(t, identity)
	rome.must(t, "create", "resourceslice", "milan", "--remote-cluster-id", "milan")
	nodeReady(t)
	return func() {
		t.Helper()
		rome.kubectl(t, "-n", "liqo-tenant-milan", "delete", "rslice", "milan", patiently)
		rome.must(t, "unauthenticate", "--remote-kubeconfig", milan.kubeconfig)
		retreated(t, "liqo-tenant-milan", "liqo-tenant-rome")
	}
}

// retreated waits until milan's namespaces for rome are gone, which the commands of one step do
// not.
func retreated(t *testing.T, atRome, atMilan string) {
	t.Helper()
	rome.kubectl(t, "-n", atRome, "wait", "--for=delete", "namespacemaps/milan", patiently)
	milan.kubectl(t, "-n", atMilan, "wait", "--for=delete", "namespacemaps/milan", patiently)
}

// nodeReady waits until rome's virtual node is Ready.
func nodeReady(t *testing.T) {
	t.Helper()
	eventually(t, "the virtual node is Ready", func() (string, bool) {
		out, err := rome.ask("wait", "--for=condition=Ready", "node", "milan", "--timeout=1s")
		return out, err == nil
	})
}

// documented gives the blocks of one language in a section of a page of docs/.
func documented(t *testing.T, page, section, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, found, _ := strings.Cut(string(text), "\n## "+section+"\n")
	found, _, _ = strings.Cut(found, "\n## ")
	var out []string
	for _, block := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(found, -1) {
		out = append(out, block[1])
	}
	if len(out) == 0 {
		t.Fatalf("%s has no %s in section %q", page, language, section)
	}
	return out
}

// peerDeclaratively takes what docs/declarative.md shows, with credentials made by milan's administrator,
// in tenant namespaces of other names; what depends on other things comes before them.
func peerDeclaratively(t *testing.T) {
	began := time.Now()
	retreat, remove := declaratively(t)
	rome.sumsUp(t, "milan", givesByOwn)
	milan.sumsUp(t, "rome", takesPods)
	rome.guestAt(t, "milan", "demo")
	log := rome.kubectl(t, "-n", "liqo", "logs", "deployment/liqo-controller-manager", "--since-time="+began.UTC().Format(time.RFC3339))
	for _, line := range []string{"towards-milan/cplane-secret", "[milan] Starting reflection towards remote cluster", "Resource=resourceslices correctly started"} {
		if !strings.Contains(log, line) {
			t.Errorf("the controller's log lacks %q:\n%s", line, log)
		}
	}
	retreat()
	nothingLeft(t)
	rome.sumsUp(t, "milan", stranger)
	remove()
}

// declaratively peers by manifests. It returns functions that end the peering, and then remove its
// namespaces.
func declaratively(t *testing.T) (retreat, remove func()) {
	t.Helper()
	names := strings.NewReplacer("liqo-tenant-milan", "towards-milan", "liqo-tenant-rome", "for-rome", "https://192.0.2.9:6443", milan.api)
	manifest := func(section string, n int) string {
		t.Helper()
		return names.Replace(documented(t, "declarative.md", section, "yaml")[n])
	}
	for _, c := range []cluster{rome, milan} {
		c.kubectl(t, "delete", "namespaces", "liqo-tenant-"+other(c).name, "--ignore-not-found", patiently)
	}
	rome.apply(t, manifest("Tenant namespaces", 0))
	milan.apply(t, manifest("Tenant namespaces", 1))
	rome.kubectl(t, "create", "namespace", "demo")
	rome.apply(t, manifest("Namespaces", 0))
	rome.apply(t, manifest("Resources", 0))
	milan.apply(t, manifest("Access", 0))
	credentials := exec.CommandContext(t.Context(), "sh", "-e", "-c", names.Replace(strings.Join(documented(t, "declarative.md", "Access", "console"), "\n")))
	credentials.Dir = t.TempDir()
	credentials.Env = append(os.Environ(), "PATH="+path, "ROME="+rome.kubeconfig, "MILAN="+milan.kubeconfig)
	if out, err := credentials.CombinedOutput(); err != nil {
		t.Fatalf("make credentials: %v\n%s", err, out)
	}
	nodeReady(t)
	retreat = func() {
		t.Helper()
		rome.kubectl(t, "-n", "demo", "delete", "namespaceoffloadings", "offloading", patiently)
		rome.kubectl(t, "-n", "towards-milan", "delete", "rslice", "milan", patiently)
		rome.kubectl(t, "-n", "towards-milan", "delete", "secrets", "cplane-secret", patiently)
		milan.kubectl(t, "-n", "for-rome", "delete", "tenants", "rome", patiently)
		retreated(t, "towards-milan", "for-rome")
	}
	remove = func() {
		t.Helper()
		rome.kubectl(t, "delete", "namespaces", "demo", "towards-milan", patiently)
		milan.kubectl(t, "delete", "namespaces", "for-rome", patiently)
		milan.kubectl(t, "delete", "certificatesigningrequests", "rome")
	}
	return retreat, remove
}

// peerWithoutNetwork: pods run next door all the same.
func peerWithoutNetwork(t *testing.T) {
	_, stderr := rome.must(t, "peer", "--remote-kubeconfig", milan.kubeconfig, "--networking-disabled")
	if want := peerLines[strings.Index(peerLines, " INFO   (local) Tenant namespace"):]; stderr != want {
		t.Errorf("peer printed other lines than the mission:\n%s", stderr)
	}
	rome.sumsUp(t, "milan", givesPods)
	milan.sumsUp(t, "rome", takesPods)
	leave := rome.visits(t, "milan", "apart")
	reflects(t, "apart", "page")
	rome.must(t, "unpeer", "--remote-kubeconfig", milan.kubeconfig)
	nothingLeft(t)
	leave()
}

// peerAsUser: milan's administrator hands one file over, with which rome's peers from a node of its own,
// at which it is read from standard input.
func peerAsUser(t *testing.T) {
	config, _ := milan.must(t, "generate", "peering-user", "--consumer-cluster-id", "rome")
	file := filepath.Join(t.TempDir(), "milan-for-rome")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	asUser := func(verb string) string {
		t.Helper()
		out := onTestbed(t, "exec", "rome", "n1", "--", "sh", "-c", fmt.Sprintf("KUBECONFIG=%s %s %s %s --server %s --remote-kubeconfig - < %s",
			rome.kubeconfig, find("liqoctl"), verb, patiently, rome.api, file))
		return waits.ReplaceAllString(out, "")
	}
	if out := asUser("peer --gw-server-service-type NodePort"); out != peerLines {
		t.Errorf("peer printed other lines than the mission:\n%s", out)
	}
	rome.sumsUp(t, "milan", givesAll)
	milan.sumsUp(t, "rome", takesAll)
	asUser("unpeer")
	nothingLeft(t)
	milan.must(t, "delete", "peering-user", "--consumer-cluster-id", "rome")
	if out, err := testbed("exec", "rome", "n1", "--", "sh", "-c", find("kubectl")+" --kubeconfig "+file+" -n liqo-tenant-rome get tenants"); err == nil {
		t.Errorf("the file still opens milan:\n%s", out)
	}
}
