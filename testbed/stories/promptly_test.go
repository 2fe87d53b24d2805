// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// promptly is how soon a ForeignCluster must show what has changed.
const promptly = 2 * time.Second

// sumsUpPromptly peers and unpeers in both directions, and expects that the ForeignClusters follow promptly. Watches
// that stay open take the times, because a start of kubectl takes a good part of the bound.
func sumsUpPromptly(t *testing.T) {
	atRome, atMilan := rome.watchSummary(t, "milan"), milan.watchSummary(t, "rome")
	step := func(c cluster, verb, ofRome, ofMilan string) {
		t.Helper()
		args := []string{verb, "--remote-kubeconfig", other(c).kubeconfig}
		if verb == "peer" {
			args = append(args, "--gw-server-service-type", "NodePort")
		}
		c.must(t, args...)
		atRome.expect(t, rome, ofRome)
		atMilan.expect(t, milan, ofMilan)
	}
	step(rome, "peer", givesAll, takesAll)
	step(milan, "peer", bothWays, bothWays)
	step(rome, "unpeer", takesAll, givesAll)
	step(milan, "unpeer", stranger, stranger)
	nothingLeft(t)
}

// sumsUpEachWay peers and unpeers in the other ways that two clusters allow, and expects that the
// ForeignClusters follow promptly.
func sumsUpEachWay(t *testing.T) {
	atRome, atMilan := rome.watchSummary(t, "milan"), milan.watchSummary(t, "rome")
	follow := func(ofRome, ofMilan string) {
		t.Helper()
		atRome.expect(t, rome, ofRome)
		atMilan.expect(t, milan, ofMilan)
	}
	byCommand := func(ofRome, ofMilan string, how ...string) {
		t.Helper()
		rome.must(t, append([]string{"peer", "--remote-kubeconfig", milan.kubeconfig}, how...)...)
		follow(ofRome, ofMilan)
		rome.must(t, "unpeer", "--remote-kubeconfig", milan.kubeconfig)
		follow(stranger, stranger)
	}
	byCommand(givesAll, takesAll, "--in-band", "--gw-server-service-type", "NodePort")
	byCommand(givesPods, takesPods, "--networking-disabled")
	retreat := byHand(t)
	follow(givesPods, takesPods)
	retreat()
	follow(stranger, stranger)
	retreat, remove := declaratively(t)
	follow(givesByOwn, takesPods)
	retreat()
	follow(stranger, stranger)
	nothingLeft(t)
	remove()
}

// sumsUpAfterKill kills the controllers of both clusters after the last step of liqoctl, which
// waits for nothing more. The ForeignClusters follow promptly from when the new controllers are
// ready: then they have a leader.
func sumsUpAfterKill(t *testing.T) {
	atRome, atMilan := rome.watchSummary(t, "milan"), milan.watchSummary(t, "rome")
	step := func(printed, ofRome, ofMilan string, args ...string) {
		t.Helper()
		killedAfter(t, lastLine(printed), append(args, "--remote-kubeconfig", milan.kubeconfig)...)
		atRome.expect(t, rome, ofRome)
		atMilan.expect(t, milan, ofMilan)
	}
	step(peerLines, givesAll, takesAll, "peer", "--gw-server-service-type", "NodePort")
	step(unpeerLines, stranger, stranger, "unpeer")
	nothingLeft(t)
}

// watchedSummary holds what a ForeignCluster sums up, as a watch reports it.
type watchedSummary struct {
	peer string

	mu    sync.Mutex // guards the rest
	now   string
	since time.Time // when now arrived
	err   error     // why the watch ended
}

// foreignCluster is what is read of a ForeignCluster.
type foreignCluster struct {
	Metadata struct{ Name string }
	Status   struct {
		Role    string
		Modules struct{ Networking, Authentication, Offloading conditions }
		conditions
	}
}

type conditions struct {
	Conditions []struct{ Type, Status string }
}

func (c conditions) statuses() string {
	var all []string
	for _, condition := range c.Conditions {
		all = append(all, condition.Status)
	}
	return strings.Join(all, " ")
}

// summary prints what the JSONPath of the same name does.
func (f foreignCluster) summary() string {
	answers := ""
	for _, c := range f.Status.Conditions {
		if c.Type == "APIServerStatus" {
			answers = c.Status
		}
	}
	m := f.Status.Modules
	return fmt.Sprintf("%s: %s; %s; %s; %s", f.Status.Role, m.Networking.statuses(), m.Authentication.statuses(),
		m.Offloading.statuses(), answers)
}

// watchSummary watches the ForeignCluster of a peer until the test ends.
func (c cluster) watchSummary(t *testing.T, peer string) *watchedSummary {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server+"/apis/core.liqo.io/v1beta1/foreignclusters?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	open := http.Client{Transport: c.web.Transport} // without the time limit of web
	response, err := open.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("watch ForeignClusters of %s: %s", c.name, response.Status)
	}
	t.Cleanup(func() { response.Body.Close() })
	w := &watchedSummary{peer: peer}
	go w.follow(json.NewDecoder(response.Body))
	return w
}

func (w *watchedSummary) follow(events *json.Decoder) {
	for {
		var event struct {
			Type   string
			Object foreignCluster
		}
		err := events.Decode(&event)
		w.mu.Lock()
		if err != nil {
			w.err = err
			w.mu.Unlock()
			return
		}
		if said := event.Object.summary(); event.Object.Metadata.Name == w.peer && said != w.now {
			w.now, w.since = said, time.Now()
		}
		w.mu.Unlock()
	}
}

// expect waits for a summary, and expects it promptly. What a provider gives stands once the kubelet of Kubernetes has
// seen that the virtual one is ready, which is later than the Node is.
func (w *watchedSummary) expect(t *testing.T, c cluster, want string) {
	t.Helper()
	if !strings.HasPrefix(want, "Consumer:") && want != stranger {
		c.kubectl(t, "wait", "deployments", "-A", "-l", "offloading.liqo.io/component=virtual-kubelet,liqo.io/remote-cluster-id="+w.peer,
			"--for=condition=Available", patiently)
	}
	ended := time.Now()
	var since time.Time
	eventually(t, c.name+" sums up "+w.peer+" as "+want, func() (string, bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		since = w.since
		return fmt.Sprintf("%s, %v", w.now, w.err), strings.TrimSpace(w.now) == strings.TrimSpace(want)
	})
	took := since.Sub(ended)
	t.Logf("%s sums up %s as %s after %s", c.name, w.peer, want, took.Round(10*time.Millisecond))
	if took > promptly {
		t.Errorf("%s sums up %s as %s after %s, more than %s", c.name, w.peer, want, took, promptly)
	}
}
