// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/seed"
)

// Limits on what a hostile peer costs its victim.
const (
	// maxMemoryGrowth of one process, in MiB.
	maxMemoryGrowth = 100
	// maxStoredGrowth of the victim's etcd, in MiB.
	maxStoredGrowth = 100
	// maxSlowdown is how many times as long a pod may take to start.
	maxSlowdown = 2
	// startTolerance comes on top of that: the kubelet looks at its containers once a second.
	startTolerance = time.Second
)

// hostilePeer has rome, a consumer of milan and a provider for it, attack milan in many ways at once, while turin uses
// milan too. The bounds of milan's namespaces are low enough to be reached within a minute.
func hostilePeer(t *testing.T) {
	from, minutes := seed.Of(t), 1
	installWith(t, "offloading.namespaceBounds.secrets=50", "offloading.namespaceBounds.quota.count/configmaps=50",
		"offloading.namespaceBounds.objectSize=128Ki", "offloading.maxNamespaces=100")
	peerFirst(t)
	if *soak {
		minutes = 10
	}
	rome.visits(t, "milan", "attacker")
	turin := thirdCluster(t)
	milan.must(t, "peer", "--remote-kubeconfig", rome.kubeconfig, "--gw-server-service-type", "NodePort")
	milan.visits(t, "rome", "back")
	scaleLiqoOfRome(t, 0) // it would repair what the attacker writes in its name
	before := milan.resources(t)
	// All clusters share one machine, and the requests use its processors. So the figures are compared with those
	// while the same requests go to rome's own API server, by turns, because others use the machine as well.
	var control, during measured
	own := newAttack(t, from).onItself(t)
	for i := range 2 * uint64(minutes) {
		own.measure(t, turin, turn, &control)
		renewCredentials(t, 2*time.Minute)
		a := newAttack(t, from+i)
		a.measure(t, turin, turn, &during)
		a.check(t)
	}
	for _, whose := range []string{"milan", "turin at milan"} {
		was, is := median(control.starts[whose]), median(during.starts[whose])
		t.Logf("a pod of %s starts in %v, %v without the attack", whose, is, was)
		if is > maxSlowdown*was+startTolerance {
			t.Errorf("a pod of %s starts in %v during the attack, more than %d times %v and %v",
				whose, is, maxSlowdown, was, startTolerance)
		}
	}
	was, is := median(control.gaps), median(during.gaps)
	t.Logf("the longest gaps of turin's pings: %v, without the attack %v", during.gaps, control.gaps)
	if is > planned+was {
		t.Errorf("the longest gap of turin's pings is %v during the attack, more than %v beyond %v", is, planned, was)
	}
	after := milan.resources(t)
	for _, what := range slices.Sorted(maps.Keys(after)) {
		was, is := before[what], after[what]
		t.Logf("%s: %+v, then %+v", what, was, is)
		most := maxMemoryGrowth
		if what == storedData {
			most = maxStoredGrowth
		}
		if is.size-was.size > most {
			t.Errorf("%s has grown from %d to %d MiB", what, was.size, is.size)
		}
		if is.restarts != was.restarts {
			t.Errorf("%s restarted", what)
		}
	}
}

// measured is what was measured during an attack.
type measured struct {
	// starts lists how long pods took to start, by whose they are.
	starts map[string][]time.Duration
	// gaps lists the longest gap of each series of pings from turin to a pod of milan.
	gaps []time.Duration
}

// turn is how long the figures are measured with and without the attack before the other has its turn.
const turn = 30 * time.Second

// pingsLast is how long one series of pings lasts.
const pingsLast = 5 * time.Second

// measure runs the attack and adds what is measured meanwhile to m.
func (a *attack) measure(t *testing.T, turin cluster, duration time.Duration, m *measured) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	if m.starts == nil {
		m.starts = map[string][]time.Duration{}
	}
	target := milanProbe(t, turin)
	var running sync.WaitGroup
	running.Go(func() { a.run(ctx) })
	running.Go(func() {
		for ctx.Err() == nil {
			m.gaps = append(m.gaps, turin.longestGap(t, target, pingsLast))
		}
	})
	for ctx.Err() == nil {
		m.starts["milan"] = append(m.starts["milan"], milan.startPod(t, "own", "milan-n1"))
		m.starts["turin at milan"] = append(m.starts["turin at milan"], turin.startPod(t, "beside", "milan"))
	}
	running.Wait()
}

// thirdCluster starts turin, a consumer of milan that means no harm.
func thirdCluster(t *testing.T) cluster {
	t.Helper()
	image := filepath.Join(root, "bin", "liqo-image.tar")
	if out, err := testbed("up", "--clusters", "turin", "--nodes", "1", "--image", image, shortLived); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	turin, err := known("turin")
	if err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, code := turin.install(t); code != 0 {
		t.Fatalf("install on turin: exit code %d\n%s%s", code, stdout, stderr)
	}
	turin.must(t, "peer", "--remote-kubeconfig", milan.kubeconfig, "--gw-server-service-type", "NodePort")
	turin.apply(t, probes)
	turin.kubectl(t, "rollout", "status", "daemonset/probe", patiently)
	turin.visits(t, "milan", "beside")
	return turin
}

// milanProbe returns the address at which turin reaches a pod of milan.
func milanProbe(t *testing.T, turin cluster) string {
	t.Helper()
	return remapped(t, turin, milan, pods(t, milan, "probe", "{.status.podIP}")[:1])[0]
}

// longestGap pings target every 10 ms from the probe of c, and returns the longest time without an answer. It may be
// called by any goroutine of the test.
func (c cluster) longestGap(t *testing.T, target string, duration time.Duration) time.Duration {
	out, err := testbed("exec", c.name, "n1", "--", "sh", "-c", fmt.Sprintf(
		`exec nsenter -t "$(pgrep -o -x -f /echo)" -n -m /echo ping -n %d -i 10ms %s`, duration/(10*time.Millisecond), target))
	found := theirPings.FindStringSubmatch(out)
	if found == nil {
		t.Errorf("pings from %s to %s: %v\n%s", c.name, target, err, out)
		return 0
	}
	gap, err := time.ParseDuration(found[2])
	if err != nil {
		t.Error(err)
	}
	return gap
}

const starter = `
apiVersion: v1
kind: Pod
metadata: {name: starter, namespace: %s}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 0
  containers: [{name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never}]
`

// startPod creates a pod on a node and returns the time until it was Ready.
func (c cluster) startPod(t *testing.T, namespace, node string) time.Duration {
	t.Helper()
	if _, err := c.ask("get", "namespace", namespace); err != nil {
		c.kubectl(t, "create", "namespace", namespace)
		c.kubectl(t, "-n", namespace, "wait", "--for=create", "serviceaccount/default", patiently)
	}
	began := time.Now()
	c.apply(t, fmt.Sprintf(starter, namespace, node))
	c.kubectl(t, "-n", namespace, "wait", "pod/starter", "--for=condition=Ready", patiently)
	took := time.Since(began)
	c.kubectl(t, "-n", namespace, "delete", "pod", "starter", "--wait=true")
	return took
}

func median(list []time.Duration) time.Duration {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// resource is what a process or a store uses.
type resource struct {
	// size in MiB.
	size int
	// restarts lists the containers and how often each has restarted.
	restarts string
}

// storedData names the database of etcd among resources.
const storedData = "etcd's database"

// residentMemory finds Liqo's processes in the output of ps: KiB, program, role.
var residentMemory = regexp.MustCompile(`(?m)^ *(\d+) /usr/bin/(liqo\S*) (\S+)`)

// resources returns the memory of Liqo's processes, of the largest for each role, and the size of etcd's database.
func (c cluster) resources(t *testing.T) map[string]resource {
	t.Helper()
	all := map[string]resource{}
	for _, node := range []string{"n1", "n2"} {
		out, err := testbed("exec", c.name, node, "--", "ps", "-eo", "rss=,args=")
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, found := range residentMemory.FindAllStringSubmatch(out, -1) {
			kib, err := strconv.Atoi(found[1])
			if err != nil {
				t.Fatal(err)
			}
			role := found[2] + " " + found[3]
			all[role] = resource{size: max(all[role].size, kib/1024)}
		}
	}
	if len(all) < 5 {
		t.Fatalf("Liqo's processes at %s: %v", c.name, all)
	}
	out, err := testbed("exec", c.name, "cp", "--", "stat", "-c", "%s", "/var/lib/etcd/member/snap/db")
	bytes, failed := strconv.Atoi(strings.TrimSpace(out))
	if err != nil || failed != nil {
		t.Fatalf("size of etcd's database: %v, %v\n%s", err, failed, out)
	}
	all[storedData] = resource{size: bytes >> 20}
	all["containers"] = resource{restarts: c.kubectl(t, "get", "pods", "-A", "-l", "app.kubernetes.io/part-of=liqo", "-o",
		"jsonpath={range .items[*]}{.metadata.name}:{.status.containerStatuses[*].restartCount} {end}")}
	return all
}

// attack is what rome sends to milan, and writes for milan to read.
type attack struct {
	seed     uint64
	requests []request
	// frames is a script in Perl that sends frames of the overlay to a node of milan.
	frames string

	mu      sync.Mutex // guards answers
	answers map[string]answer
}

// request is sent again and again. Its path and body are formats of one number, which differs each time.
type request struct {
	client                     *http.Client
	server, method, path, body string
	// mustFail says that no such request may succeed.
	mustFail bool
}

// denied returns the request as one that must not succeed.
func (r request) denied() request {
	r.mustFail = true
	return r
}

// kind names the request among answers.
func (r request) kind() string {
	path, _, _ := strings.Cut(r.path, "?")
	kind := r.method + " " + path[strings.LastIndex(strings.TrimSuffix(path, "/status"), "/")+1:]
	if r.mustFail {
		return kind + ", to be denied"
	}
	return kind
}

// answer counts the answers of one status to requests of one method and path, and holds the beginning of the first.
type answer struct {
	count int
	text  string
}

func newAttack(t *testing.T, seed uint64) *attack {
	t.Helper()
	const (
		tenant    = "/namespaces/liqo-tenant-rome"
		remote    = "/namespaces/attacker-rome"
		authGroup = "authentication.liqo.io/v1beta1"
		offGroup  = "offloading.liqo.io/v1beta1"
		auth      = "/apis/" + authGroup
		off       = "/apis/" + offGroup
	)
	control, slice := asRome(t, identityTypes[0]), asRome(t, identityTypes[1])
	long := strings.Repeat(`\u001b[2Jlong \u202e`, 6000)
	large := strings.Repeat("x", 120<<10)
	object := func(version, kind, metadata, rest string) string {
		return fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": "x-%%d", "annotations": {"a": "\u001b[2J"}, `+
			`"labels": {"liqo.io/replicated": "true", "liqo.io/replication": "false", "liqo.io/originID": "rome", `+
			`"liqo.io/remoteID": "milan", "liqo.io/remote-cluster-id": "rome", "offloading.liqo.io/origin": "rome", `+
			`"offloading.liqo.io/destination": "milan"}%s}, %s}`,
			version, kind, metadata, rest)
	}
	create := func(client *http.Client, path, version, kind, rest string) request {
		return request{client: client, server: milan.server, method: http.MethodPost, path: path, body: object(version, kind, "", rest)}
	}
	shadowPod := func(spec string) request {
		return create(slice, off+remote+"/shadowpods", offGroup, "ShadowPod", `"spec": {"pod": `+spec+`}`).denied()
	}
	inCore := func(resource, kind, rest string) request {
		return create(slice, "/api/v1"+remote+"/"+resource, "v1", kind, rest)
	}
	patch := func(client *http.Client, server, path, body string) request {
		return request{client: client, server: server, method: http.MethodPatch, path: path, body: body}
	}
	answerSlice := func(answer, message string) request {
		return patch(rome.web, rome.server, auth+"/namespaces/liqo-tenant-milan/resourceslices/rome/status", fmt.Sprintf(
			`{"status": {"conditions": [{"type": "Authentication", "status": %q, "reason": "R", "message": "%s", `+
				`"lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`,
			answer, message))
	}
	get := func(client *http.Client, path string) request {
		return request{client: client, server: milan.server, method: http.MethodGet, path: path}
	}
	a := &attack{seed: seed, answers: map[string]answer{}, requests: []request{
		shadowPod(`{"hostNetwork": true, "tolerations": [{"operator": "Exists"}], ` +
			`"containers": [{"name": "c", "image": "none", "securityContext": {"privileged": true}}]}`),
		shadowPod(`{"terminationGracePeriodSeconds": 100000000, ` +
			`"containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": "100k"}}}]}`),
		inCore("secrets", "Secret", `"stringData": {"a": "`+large+`"}`),
		inCore("configmaps", "ConfigMap", `"data": {"a": "`+large+`"}`),
		inCore("services", "Service", `"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}`),
		inCore("persistentvolumeclaims", "PersistentVolumeClaim",
			`"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Pi"}}}`).denied(),
		inCore("events", "Event", `"message": "`+long[:1000]+`", "involvedObject": {"namespace": "attacker-rome"}`),
		{client: slice, server: milan.server, method: http.MethodPost, path: "/api/v1" + remote + "/configmaps",
			body: object("v1", "ConfigMap", `, "finalizers": ["example.com/hold"]`, `"data": {}`), mustFail: true},
		create(slice, off+remote+"/shadowendpointslices", offGroup, "ShadowEndpointSlice",
			`"spec": {"template": {"addressType": "IPv4", "endpoints": `+
				`[{"addresses": ["127.0.0.1"]}, {"addresses": ["172.31.20.10"]}, {"addresses": ["10.110.0.1"]}]}}`),
		create(control, auth+tenant+"/resourceslices", authGroup, "ResourceSlice",
			`"spec": {"class": "default", "consumerClusterID": "rome", "resources": {"cpu": "1M"}}`),
		create(control, auth+tenant+"/renews", authGroup, "Renew",
			`"spec": {"consumerClusterID": "rome", "identityType": "ControlPlane"}`),
		patch(control, milan.server, off+tenant+"/namespacemaps/milan",
			`{"spec": {"desiredMapping": {"n%d": "cert-manager", "m%[1]d": "kube-system", "o%[1]d": "beside-turin", `+
				`"p%[1]d": "x-%[1]d"}}}`),
		get(control, "/api/v1/secrets?x=%d").denied(),
		{client: slice, server: milan.server, method: http.MethodDelete, path: "/api/v1" + remote + "/configmaps/x-%d"},
		answerSlice("Denied", "%d "+long), answerSlice("Accepted", "%d"),
		patch(rome.web, rome.server, off+"/namespaces/liqo-tenant-milan/namespacemaps/rome/status",
			`{"status": {"currentMapping": {"back": {"remoteNamespace": "back-%d", "phase": "Accepted"}}}}`),
		patch(rome.web, rome.server, "/api/v1/namespaces/back-milan/pods/guest/status",
			`{"status": {"message": "%d `+long+`", "conditions": [{"type": "Ready", "status": "False", `+
				`"message": "%[1]d `+long+`"}]}}`),
	}}
	for range 4 { // a flood of reads
		a.requests = append(a.requests, get(slice, "/api/v1"+remote+"/pods?limit=500&x=%d"))
	}
	a.frames = fmt.Sprintf(`$s = IO::Socket::INET->new(Proto => "udp", PeerAddr => "%s:6091"); $p = pack("H*", "%x"); `+
		`for (1..2000) { $s->send($p); select(undef, undef, undef, 0.001) }`,
		nodeAddress(t, milan, "n1"), frame(t, "02:00:0a:50:00:01", datagram(t, "10.11.1.1", "10.10.1.2")))
	return a
}

// onItself returns the same requests to rome's own API server.
func (a *attack) onItself(t *testing.T) *attack {
	t.Helper()
	rome.kubectl(t, "create", "namespace", "itself")
	rome.kubectl(t, "-n", "itself", "create", "quota", "bounds", "--hard=secrets=50,configmaps=50")
	own := &attack{seed: a.seed, requests: slices.Clone(a.requests), frames: a.frames, answers: map[string]answer{}}
	for i := range own.requests {
		r := &own.requests[i]
		r.client, r.server = rome.web, rome.server
		r.path = namespacePath.ReplaceAllString(r.path, "/namespaces/itself/")
	}
	return own
}

var namespacePath = regexp.MustCompile("/namespaces/[^/]+/")

// run sends each request again and again until ctx ends: reads 15 times a second, others 1.5 times, in full runs up to
// 20 times as often. More than that uses all processors of the machine, whoever answers.
func (a *attack) run(ctx context.Context) {
	var running sync.WaitGroup
	for i, r := range a.requests {
		random := rand.New(rand.NewPCG(a.seed, uint64(i)))
		pause := 600 * time.Millisecond
		if r.method == http.MethodGet {
			pause = 60 * time.Millisecond
		}
		if *soak {
			pause /= 20
		}
		running.Go(func() {
			for n := random.IntN(1 << 20); ctx.Err() == nil; n++ {
				a.send(ctx, r, n)
				select { // the attacker's pace
				case <-time.After(time.Duration(random.Int64N(int64(2 * pause)))):
				case <-ctx.Done():
				}
			}
		})
	}
	running.Go(func() {
		for ctx.Err() == nil {
			if out, err := testbed("exec", rome.name, "n1", "--", "perl", "-MIO::Socket::INET", "-e", a.frames); err != nil {
				a.count("frames", "not sent", out)
				return
			}
			a.count("frames", "sent", "")
		}
	})
	running.Wait()
}

// send sends one request and counts the answer.
func (a *attack) send(ctx context.Context, r request, n int) {
	number := func(text string) string {
		if !strings.Contains(text, "%") {
			return text
		}
		return fmt.Sprintf(text, n)
	}
	what := r.kind()
	req, err := http.NewRequestWithContext(ctx, r.method, r.server+number(r.path), strings.NewReader(number(r.body)))
	if err != nil {
		a.count(what, "not sent", err.Error())
		return
	}
	req.Header.Set("Content-Type", "application/json")
	if r.method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := r.client.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			a.count(what, "unanswered", err.Error())
		}
		return
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body) // a part tells enough
	if response.StatusCode < http.StatusBadRequest {
		text = nil
	}
	var status struct{ Message string }
	if json.Unmarshal(text, &status) == nil {
		text = []byte(status.Message)
	}
	a.count(what, strconv.Itoa(response.StatusCode), string(text[:min(len(text), 300)]))
}

func (a *attack) count(what, status, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := what + ": " + status
	was, known := a.answers[key]
	if !known {
		was.text = text
	}
	was.count++
	a.answers[key] = was
}

// check prints the answers, and fails if an attack was not tried, or one that must be denied was not.
func (a *attack) check(t *testing.T) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(a.answers)) {
		t.Logf("%s, %d times %s", key, a.answers[key].count, a.answers[key].text)
	}
	untried := map[string]bool{"frames": true}
	for _, r := range a.requests {
		untried[r.kind()] = true
	}
	for key := range a.answers {
		kind, status, _ := strings.Cut(key, ": ")
		switch status {
		case "sent", "200", "201":
			if strings.HasSuffix(kind, "to be denied") {
				t.Errorf("%s: it was granted", kind)
			}
			delete(untried, kind)
		case "403", "404", "422":
			delete(untried, kind)
		}
	}
	if len(untried) > 0 {
		t.Errorf("not tried: %v", slices.Sorted(maps.Keys(untried)))
	}
}

// scaleLiqoOfRome starts or ends the programs that act for rome as a consumer of milan: the controller first, because
// it would start the virtual kubelet again.
func scaleLiqoOfRome(t *testing.T, replicas int) {
	t.Helper()
	for _, d := range [][2]string{{"liqo", "liqo-controller-manager"}, {"liqo-tenant-milan", "vk-milan"}} {
		rome.kubectl(t, "-n", d[0], "scale", "deployment", d[1], fmt.Sprint("--replicas=", replicas))
		eventually(t, "deployment "+d[1]+" is scaled", func() (string, bool) {
			pods, err := rome.ask("-n", d[0], "get", "pods", "-o", "name")
			return pods, err == nil && strings.Contains(pods, d[1]) == (replicas > 0)
		})
	}
}

// renewCredentials runs rome's Liqo until the certificates that milan has given to rome are valid for at least validity.
func renewCredentials(t *testing.T, validity time.Duration) {
	t.Helper()
	valid := func() bool {
		return !slices.ContainsFunc(identityTypes, func(label string) bool {
			return time.Until(certificateOfRome(t, label).Leaf.NotAfter) < validity
		})
	}
	if valid() {
		return
	}
	scaleLiqoOfRome(t, 1)
	eventually(t, "milan renews the certificates of rome", func() (string, bool) { return "they end soon", valid() })
	scaleLiqoOfRome(t, 0)
}

// identityTypes select the Secrets with the kubeconfigs that milan has given to rome.
var identityTypes = []string{"liqo.io/identity-type=ControlPlane", "liqo.io/identity-type=ResourceSlice"}

// asRome returns a client with credentials that milan has given to rome, in the Secret that label selects.
func asRome(t *testing.T, label string) *http.Client {
	t.Helper()
	settings := milan.web.Transport.(*http.Transport).TLSClientConfig.Clone()
	settings.Certificates = []tls.Certificate{certificateOfRome(t, label)}
	transport := &http.Transport{TLSClientConfig: settings, MaxIdleConnsPerHost: 64}
	return &http.Client{Timeout: 30 * time.Second, Transport: transport}
}

// certificateOfRome returns the certificate and key of the kubeconfig in the Secret that label selects.
func certificateOfRome(t *testing.T, label string) tls.Certificate {
	t.Helper()
	encoded := rome.kubectl(t, "-n", "liqo-tenant-milan", "get", "secrets", "-l", label,
		"-o", "jsonpath={.items[0].data.kubeconfig}")
	text, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := command("kubectl", "--kubeconfig", file, "config", "view", "--raw", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Users []struct {
			User struct {
				Certificate []byte `json:"client-certificate-data"`
				Key         []byte `json:"client-key-data"`
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &config); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(config.Users[0].User.Certificate, config.Users[0].User.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
