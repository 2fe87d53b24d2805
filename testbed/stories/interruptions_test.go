// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/rand"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
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
		seed := time.Now().UnixNano()
		t.Logf("one step of each, by seed %d", seed)
		chance := rand.New(rand.NewSource(seed))
		up, down, rounds = up[chance.Intn(len(up)):], down[chance.Intn(len(down)):], 1
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
					peered(t)
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
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, find("liqoctl"), append([]string{"--kubeconfig", rome.kubeconfig}, args...)...)
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
	return all.String()
}

// certificatesRenew, while rome is peered with milan: the test clusters sign for ten minutes, so that all
// certificates are replaced during these stories. What a user has open stays open.
func certificatesRenew(t *testing.T) {
	ends := typing(t, strings.Fields(offloaded(t, "{.metadata.name}"))[0])
	for _, story := range []struct {
		name string
		tell func(t *testing.T)
	}{
		{"both directions", bothDirections},
		{"pods at two providers reach each other", leafToLeaf},
	} {
		began := time.Now()
		if !t.Run(story.name, story.tell) {
			return
		}
		t.Logf("%s: %s", story.name, time.Since(began).Round(100*time.Millisecond))
	}
	began := time.Now()
	end := time.After(8 * time.Minute) // what two thirds of ten minutes and 1.1 times that can come to
	for again := time.NewTicker(time.Second); !renewed(t); {
		select {
		case <-again.C:
		case <-end:
			t.Fatal("certificates that were signed for ten minutes were not renewed in time")
		}
	}
	t.Logf("renewed after %s more", time.Since(began).Round(time.Second))
	reflects(t, "shop", "after-the-certificates")
	if log := rome.kubectl(t, "-n", "shop", "logs", strings.Fields(offloaded(t, "{.metadata.name}"))[0]); !strings.Contains(log, "http=:8080") {
		t.Errorf("log of a pod at milan: %q", log)
	}
	ends()
}

// renewed tells whether rome's identities at milan all have certificates made later than they were.
func renewed(t *testing.T) bool {
	t.Helper()
	const backdated = 5 * time.Minute // by Kubernetes' signer
	lines := strings.Split(rome.kubectl(t, "-n", "liqo-tenant-milan", "get", "identities", "-o",
		`jsonpath={range .items[*]}{.metadata.creationTimestamp} {.spec.authParams.signedCRT}{"\n"}{end}`), "\n")
	return len(lines) == 2 && !slices.ContainsFunc(lines, func(line string) bool {
		created, encoded, _ := strings.Cut(line, " ")
		since, err := time.Parse(time.RFC3339, created)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := base64.StdEncoding.DecodeString(encoded)
		block, _ := pem.Decode(text)
		if block == nil {
			t.Fatalf("no certificate in %q", line)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return certificate.NotBefore.Add(backdated).Before(since.Add(time.Minute))
	})
}

// typing keeps a terminal open in a pod at milan and types a number every 200 ms, and returns a function that
// ends it and expects every line to have come back.
func typing(t *testing.T, pod string) (ends func()) {
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
	t.Cleanup(cancel)
	return func() {
		t.Helper()
		close(stop)
		sent := <-typed
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), sent) {
			t.Errorf("a terminal in a pod at milan ended or lost lines: %v\n%s\nwas typed, and this came back:\n%s", err, sent, out.String())
		}
	}
}
