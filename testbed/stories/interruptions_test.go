// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/seed"
)

// What comes in between a peering: processes that die, and certificates that end.

// unpeerLines are what unpeer prints about a peering that liqoctl peer made.
const unpeerLines = ` INFO   (local) All resourceslices deleted
 INFO   (local) Ensured resourceslices absence
 INFO   (local) All virtualnodes deleted
 INFO   (local) Ensured virtualnodes absence
 INFO   (local) No leftover resourceslices on consumer cluster
 INFO   (local) Identity control plane correctly deleted
 INFO   (remote) Tenant correctly deleted
 INFO   (local) Gateway client correctly deleted
 INFO   (remote) Gateway server correctly deleted
 INFO   (local) Network configuration correctly deleted
 INFO   (remote) Network configuration correctly deleted
`

// killedAtAStep peers and unpeers while the controllers of both clusters are killed after a step, chosen
// by chance; in full runs after each.
func killedAtAStep(t *testing.T) {
	up, down := strings.Split(strings.TrimSuffix(peerLines, "\n"), "\n"), strings.Split(strings.TrimSuffix(unpeerLines, "\n"), "\n")
	rounds := len(up)
	if !*soak {
		chance := seed.Rand(t)
		up, down, rounds = up[chance.IntN(len(up)):], down[chance.IntN(len(down)):], 1
	}
	for i := range rounds {
		for _, c := range []struct {
			step string
			args []string
			want string
		}{
			{up[i], []string{"peer", "--remote-kubeconfig", milan.kubeconfig, "--gw-server-service-type", "NodePort"}, peerLines},
			{down[i%len(down)], []string{"unpeer", "--remote-kubeconfig", milan.kubeconfig}, unpeerLines},
		} {
			t.Run(c.args[0]+" after "+strings.TrimPrefix(c.step, " INFO   "), func(t *testing.T) {
				if out := killedAfter(t, c.step, c.args...); out != c.want {
					t.Errorf("it printed:\n%s", out)
				}
				if c.args[0] == "peer" {
					peeringIsShown(t)
				} else {
					nothingLeft(t)
				}
			})
		}
	}
}

// killedAfter runs liqoctl on rome, kills the controllers of both clusters when it has printed a line, and
// gives what it printed. It goes on with the controllers that come up in their place.
func killedAfter(t *testing.T, step string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	args = append(args, patiently, "--kubeconfig", rome.kubeconfig)
	cmd := exec.CommandContext(ctx, find("liqoctl"), args...)
	printed, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for lines := bufio.NewScanner(printed); lines.Scan(); {
		fmt.Fprintln(&all, lines.Text())
		if lines.Text() != step {
			continue
		}
		both(func(c cluster) {
			if out, err := c.ask("-n", "liqo", "delete", "pods", "-l", "app.kubernetes.io/name=controller-manager", "--grace-period=0", "--force"); err != nil {
				t.Errorf("%s: kill the controller: %v\n%s", c.name, err, out)
			}
		})
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("liqoctl %s: %v", args[0], err)
	}
	// After the last step liqoctl waits for nothing. The Deployment may still count a pod that was deleted.
	for _, c := range []cluster{rome, milan} {
		eventually(t, "the new controller of "+c.name+" is ready", func() (string, bool) {
			ready, err := c.ask("-n", "liqo", "get", "pods", "-l", "app.kubernetes.io/name=controller-manager",
				"-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
			return ready, err == nil && ready == "True"
		})
	}
	return waits.ReplaceAllString(all.String(), "")
}

// providerHangs, while rome is peered with milan: milan's API server is stopped in the middle of everything. rome
// says so, and in full runs its node is given up as that of a kubelet which fell silent.
func providerHangs(t *testing.T) {
	const (
		told    = 40 * time.Second // 15 s until the next look, 6 s of silence before the question, 5 s for it, and a busy machine
		givenUp = 80 * time.Second // 50 s after the last lease, which is no later than the stop, and a busy machine
	)
	milan.signalAPIServer(t, "STOP")
	defer milan.signalAPIServer(t, "CONT") // also of one that goes on already
	began := time.Now()
	says := func(status string) func() (string, bool) {
		return func() (string, bool) {
			got, err := rome.ask("get", "foreignclusters", "milan", "-o", `jsonpath={.status.conditions[?(@.type=="APIServerStatus")].status}`)
			return got, err == nil && got == status
		}
	}
	after := func(most time.Duration, what string, ask func() (string, bool)) {
		t.Helper()
		eventually(t, what, ask)
		took := time.Since(began).Round(time.Second)
		t.Logf("%s: after %s", what, took)
		if took > most {
			t.Errorf("%s: after %s, more than %s", what, took, most)
		}
	}
	after(told, "rome says that milan does not answer", says("Error"))
	if *soak {
		after(givenUp, "the virtual node is given up", func() (string, bool) {
			got, err := rome.ask("get", "node", "milan", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
			return got, err == nil && got == "Unknown"
		})
	}
	milan.signalAPIServer(t, "CONT")
	milan.answersAgain(t)
	eventually(t, "rome says that milan answers", says("Established"))
	nodeReady(t)
	peeringIsShown(t)
}

// session is what a user has open while all certificates are replaced: the test clusters sign for ten minutes.
type session struct {
	// test outlasts its stories.
	test *testing.T
	// at is rome as it was when the session began. New clusters need a new session.
	at *http.Client
	// before are the certificates of that time.
	before []string
	// ends ends the terminal in a pod at milan.
	ends func(t *testing.T)
}

// begin opens a terminal in a pod at milan, unless it is open.
func (s *session) begin(t *testing.T) {
	t.Helper()
	if s.at != rome.web {
		s.at, s.before = rome.web, certificates(t)
		s.ends = typing(t, s.test, strings.Fields(offloadedPods(t, "{.metadata.name}"))[0])
	}
}

// lasts waits until all certificates are others than those of the beginning. What the user has open stays open.
func (s *session) lasts(t *testing.T) {
	s.begin(t)
	eventually(t, "all certificates are renewed", func() (string, bool) {
		now := certificates(t)
		return strings.Join(now, "\n"), !slices.ContainsFunc(now, func(c string) bool { return slices.Contains(s.before, c) })
	})
	reflects(t, "shop", "after-the-certificates")
	if log := rome.kubectl(t, "-n", "shop", "logs", strings.Fields(offloadedPods(t, "{.metadata.name}"))[0]); !strings.Contains(log, "http=:8080") {
		t.Errorf("log of a pod at milan: %q", log)
	}
	s.ends(t)
}

// certificates are those of rome's identities at milan.
func certificates(t *testing.T) []string {
	t.Helper()
	return strings.Fields(rome.kubectl(t, "-n", "liqo-tenant-milan", "get", "identities", "-o", "jsonpath={.items[*].spec.authParams.signedCRT}"))
}

// typing keeps a terminal open in a pod at milan until the test ends, and types a number every 200 ms. It returns a
// function that ends it and expects every line to have come back.
func typing(t, test *testing.T, pod string) (ends func(t *testing.T)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, find("kubectl"), "--kubeconfig", rome.kubeconfig, "-n", "shop", "exec", "-i", pod, "--", "/echo", "cat")
	keys, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop, typed := make(chan struct{}), make(chan string)
	go func() {
		var sent strings.Builder
		for next := time.NewTicker(200 * time.Millisecond); ; {
			select {
			case <-next.C:
				line := fmt.Sprintf("%d\n", sent.Len())
				sent.WriteString(line)
				_, _ = keys.Write([]byte(line)) // what does not arrive does not come back
			case <-stop:
				_, _ = keys.Write([]byte("exit\n"))
				_ = keys.Close()
				typed <- sent.String()
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	test.Cleanup(cancel)
	return func(t *testing.T) {
		t.Helper()
		close(stop)
		sent := <-typed
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), sent) {
			t.Errorf("a terminal in a pod at milan ended or lost lines: %v\n%s\nwas typed, and this came back:\n%s", err, sent, out.String())
		}
	}
}
