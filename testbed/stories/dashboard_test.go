// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apiresource "k8s.io/apimachinery/pkg/api/resource"

	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/testbed/browser"
)

// onMap matches the problems of the map's red parts.
const onMap = ".broken .problem li"

// screen is a browser that shows the dashboards of both clusters in turn.
type screen struct {
	*browser.Browser
	// addresses are those of the dashboards with their tokens, by cluster.
	addresses map[string]string
}

// newScreen starts a browser and both dashboards. They end with the test.
func newScreen(t *testing.T) *screen {
	t.Helper()
	b, err := browser.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return &screen{b, map[string]string{rome.name: rome.dashboard(t), milan.name: milan.dashboard(t)}}
}

// dashboard starts the dashboard of a cluster and returns its address.
func (c cluster) dashboard(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(find("liqoctl"), "--kubeconfig", c.kubeconfig, "dashboard")
	cmd.Env = append(os.Environ(), "PATH="+path, "KUBECONFIG=")
	printed, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	line, err := bufio.NewReader(printed).ReadString('\n')
	address := regexp.MustCompile(`http://\S+`).FindString(line)
	if address == "" {
		t.Fatalf("%s: liqoctl dashboard printed %q: %v", c.name, line, err)
	}
	return address
}

// red returns what an open map says of problems.
func (s *screen) red() string {
	var all []string
	if err := s.Eval(`[...document.querySelectorAll("`+onMap+`")].map((e) => e.innerText)`, &all); err != nil {
		return err.Error()
	}
	return strings.Join(all, "\n")
}

// open shows the map of a cluster.
func (s *screen) open(t *testing.T, c cluster) {
	t.Helper()
	s.do(t, s.Open(s.addresses[c.name]))
}

func (s *screen) do(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shows waits until an element that a CSS selector matches shows a text.
func (s *screen) shows(t *testing.T, selector, text string) {
	t.Helper()
	s.do(t, s.Await(patience.Limit, selector, text))
}

// loaded returns when the page was loaded. It is the same while the page is only kept up to date.
func (s *screen) loaded(t *testing.T) (at float64) {
	t.Helper()
	s.do(t, s.Eval("performance.timeOrigin", &at))
	return at
}

// trouble is a fault that somebody finds who sees only the dashboard.
type trouble struct {
	name string
	make func(t *testing.T)
	// at is the cluster whose dashboard is seen. red is what its map says, and names the object.
	at  *cluster
	red string
	// link leads from there to a page that has these words: the cause, and what to do.
	link  string
	words func() (string, error)
	// mend is given what the page says. healed is what its summary says afterwards.
	mend   func(t *testing.T, says string)
	healed string
}

// crowd fills the provider's nodes, given what to request on each.
const crowd = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: crowd, namespace: default}
spec:
  selector: {matchLabels: {app: crowd}}
  template:
    metadata: {labels: {app: crowd}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never, resources: {requests: {cpu: %dm}}}
`

// wanting is a pod for milan with a request.
const wanting = `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: seen}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {liqo.io/remote-cluster-id: milan}
  containers:
  - {name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never, resources: {requests: {%s}}}
`

// tunnelTroubles are those of the network.
func tunnelTroubles() []trouble {
	wrong, right := wrongKey(&rome)
	const peer = "no problems"
	return []trouble{
		{name: "UDP is blocked", at: &rome, red: "connection liqo-tenant-milan/gw-milan: no answer from ",
			make: func(t *testing.T) { onTestbed(t, "fault", "drop", "rome", "milan", "--port", "udp", "--both") },
			link: "milan", words: rome.saysOfTunnel, healed: peer,
			mend: func(t *testing.T, _ string) { onTestbed(t, "fault", "heal") }},
		{name: "the key is another", at: &milan,
			red:  "connection liqo-tenant-rome/gw-rome: handshakes arrive that were made for another key",
			make: wrong, link: "rome", words: milan.saysOfTunnel, healed: peer,
			mend: func(t *testing.T, _ string) { right(t) }},
	}
}

// workloadTroubles are those of pods and namespaces. Two are mended by what the page says to type.
func workloadTroubles() []trouble {
	const healed = ": 0 namespaces with problems, 0 pods not ready"
	words := func(text string) func() (string, error) { return func() (string, error) { return text, nil } }
	return []trouble{
		{name: "the quota is used up", at: &rome, link: "milan", healed: "no problems",
			red: "node milan: too little of the granted memory is left",
			make: func(t *testing.T) {
				rome.apply(t, fmt.Sprintf(wanting, "first", "memory: 5Gi"))
				rome.kubectl(t, "-n", "seen", "wait", "pod/first", "--for=condition=Ready", patiently)
				rome.apply(t, fmt.Sprintf(wanting, "second", "memory: 5Gi"))
			},
			words: words("pod seen/second requests 5Gi; delete pods there, or ask for more: "),
			mend: func(t *testing.T, says string) {
				rome.typesAsTold(t, says, "create resourceslice")
				rome.kubectl(t, "-n", "seen", "wait", "pod/second", "--for=condition=Ready", patiently)
			}},
		{name: "the provider's nodes are full", at: &rome, link: "Workloads", healed: healed,
			red: "pod seen/third: ",
			make: func(t *testing.T) {
				cores := apiresource.MustParse(milan.kubectl(t, "get", "nodes", "-o", "jsonpath={.items[0].status.allocatable.cpu}"))
				milan.apply(t, fmt.Sprintf(crowd, cores.MilliValue()-900)) // less than a core is left
				milan.kubectl(t, "rollout", "status", "daemonset/crowd", patiently)
				rome.apply(t, fmt.Sprintf(wanting, "third", "cpu: 1"))
			},
			words: words("have the provider's administrator make room"),
			mend: func(t *testing.T, _ string) {
				milan.kubectl(t, "delete", "daemonset", "crowd", patiently)
			}},
		{name: "the namespace's name is taken", at: &rome, link: "Workloads", healed: healed,
			red: "namespace taken: namespace taken-rome cannot be created at milan",
			make: func(t *testing.T) {
				milan.kubectl(t, "create", "namespace", "taken-rome")
				rome.kubectl(t, "create", "namespace", "taken")
				if _, _, code := rome.liqoctl(t, "offload", "namespace", "taken"); code == 0 {
					t.Error("a name that is taken was given")
				}
			},
			words: words("namespace taken-rome exists there already"),
			mend: func(t *testing.T, says string) {
				rome.typesAsTold(t, says, "unoffload namespace", "--skip-confirm")
				rome.typesAsTold(t, says, "offload namespace", "free")
			}},
	}
}

// saysOfTunnel returns what the condition of a cluster's Connection says.
func (c cluster) saysOfTunnel() (string, error) {
	return c.ask("get", "connections", "-A", "-o", `jsonpath={.items[0].status.conditions[?(@.type=="Ready")].message}`)
}

// typesAsTold runs the command that a page says, with more arguments. An ellipsis at its end is for
// the user to fill in.
func (c cluster) typesAsTold(t *testing.T, says, command string, more ...string) {
	t.Helper()
	told := regexp.MustCompile(`'liqoctl (` + command + ` [^'…]*)…?'`).FindStringSubmatch(says)
	if told == nil {
		t.Fatalf("no command to %s in:\n%s", command, says)
	}
	c.must(t, append(strings.Fields(told[1]), more...)...)
}

// causesAreSeen: each fault gets red on the open map. One link leads to its cause, in the words of the
// conditions, and to what mends it. The page then says by itself that all is well.
func causesAreSeen(t *testing.T) {
	rome.must(t, "peer", "--remote-kubeconfig", milan.kubeconfig, "--gw-server-service-type", "NodePort")
	rome.visits(t, "milan", "seen")
	s := newScreen(t)
	for _, trouble := range slices.Concat(tunnelTroubles(), workloadTroubles()) {
		began := time.Now()
		s.leadsToTheCause(t, trouble)
		t.Logf("%s: %s", trouble.name, time.Since(began).Round(100*time.Millisecond))
	}
	s.do(t, s.Click("Events"))
	s.shows(t, "main", "pod seen/third")
	if wrong := s.Complaints(); len(wrong) > 0 {
		t.Errorf("the browser complains: %q", wrong)
	}
	rome.must(t, "unoffload", "namespace", "seen", "taken", "--skip-confirm")
	rome.kubectl(t, "delete", "namespace", "seen", "taken", "--wait=false")
	milan.kubectl(t, "delete", "namespace", "taken-rome", "--wait=false")
	rome.must(t, "unpeer", "--remote-kubeconfig", milan.kubeconfig)
	nothingLeft(t)
}

// leadsToTheCause makes a fault, goes from the map to its cause, and mends it.
func (s *screen) leadsToTheCause(t *testing.T, f trouble) {
	t.Helper()
	s.open(t, *f.at)
	s.shows(t, "#summary", "no problems")
	before := s.loaded(t)
	f.make(t)
	s.shows(t, onMap, f.red)
	if s.loaded(t) != before {
		t.Errorf("%s: the map was loaded again", f.name)
	}
	s.do(t, s.Click(f.link))
	says := eventually(t, f.name+": the page says the cause", func() (string, bool) {
		shown, _ := s.Text("main")
		words, err := f.words()
		return shown, err == nil && words != "" && strings.Contains(shown, words)
	})
	before = s.loaded(t)
	f.mend(t, says)
	s.shows(t, "#summary", f.healed)
	if s.loaded(t) != before {
		t.Errorf("%s: the page was loaded again", f.name)
	}
}
