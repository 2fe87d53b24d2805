// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/testbed/podtable"
)

// prelude is what checks call. rome and milan are kubectl at home and next door, in the namespace
// of the row. eventually, is and has retry after 1, 2, then every 3 s, until the row times out. Polling more often
// starves the clusters: each kubectl takes 0.4 s of CPU.
const prelude = `
set -euo pipefail
exec 9>&2; BASH_XTRACEFD=9 # what is traced is not what a command printed
rome() { kubectl --kubeconfig "$ROME" --namespace "$NAMESPACE" "$@"; }
milan() { kubectl --kubeconfig "$MILAN" --namespace "$NAMESPACE-rome" "$@"; }
rest() { sleep $((tries < 3 ? ++tries : tries)); }
eventually() { local tries=0; until "$@"; do rest; done; }
# is <text> <command>: it prints exactly that. has: that among other things.
is() { local want=$1 got tries=0; shift; until got=$("$@" 2>&1) && [[ $got == "$want" ]]; do printf '%s\n' "$*: '$got' is not '$want'"; rest; done; }
has() { local want=$1 got tries=0; shift; until got=$("$@" 2>&1) && [[ $got == *"$want"* ]]; do printf '%s\n' "$*: '$got' has no '$want'"; rest; done; }
fails() { if "$@"; then return 1; fi; }
ready() { rome wait --for=condition=Ready --timeout=600s "$@"; }
run() { rome exec "$1" -- /bin/sh -c "$2"; }
# module <folder of testbed/applications> <module>: the unpacked archive, for manifests it holds
module() { GOWORK=off go -C "../applications/$1" list -m -f '{{.Dir}}' "$2"; }
# The API server of rome runs on no node: this gives it a route to the pods of milan, by way of a node.
api_server_reaches_remote_pods() {
	local pods node
	pods=$(kubectl --kubeconfig "$ROME" get configuration milan -n liqo-tenant-milan -o 'jsonpath={.status.remote.cidr.pod[0]}')
	node=$(rome get nodes --selector '!liqo.io/type' -o 'jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}')
	testbed exec --dir "${ROME%/*/*}" rome cp -- ip route replace "$pods" via "$node"
}
`

// idleRows wait most of their time, for a clock, for measurements or for a kubelet.
var idleRows = []string{"cronjobs", "restart-all", "top-and-autoscaling", "trust-bundles"}

// podsLikeAtHome peers, tests some rows of docs/pods.md, and unpeers. One application and three other rows are tested at
// a time; idleRows start immediately and do not count. Each row applies its manifest first and deletes it after a check
// that passed. Rows of later versions of Kubernetes are left out. More rows at once overload two cores with probes and
// kubectl, and rows time out.
func podsLikeAtHome(t *testing.T) {
	peerFirst(t)
	all, err := podtable.Read("testdata/pods")
	if err != nil {
		t.Fatal(err)
	}
	idle := 0
	for _, r := range all {
		if slices.Contains(idleRows, r.File) {
			idle++
		}
	}
	if idle != len(idleRows) {
		t.Fatalf("idleRows names %v, but only %d of them exist", idleRows, idle)
	}
	minor := min(rome.minor(t), milan.minor(t))
	all = slices.DeleteFunc(all, func(r podtable.Row) bool { return r.Since() > minor })
	all = some(t, all)
	strategies := map[string]string{}
	for _, r := range all {
		strategies[r.Namespace()] = r.Strategy()
	}
	namespaces := slices.Sorted(maps.Keys(strategies))
	for _, n := range namespaces {
		rome.kubectl(t, "create", "namespace", n)
		rome.must(t, "offload", "namespace", n, "--pod-offloading-strategy", strategies[n])
	}
	turns := map[bool]chan struct{}{true: make(chan struct{}, 1), false: make(chan struct{}, 3)}
	outcomes := make([]outcome, len(all))
	var wg sync.WaitGroup
	for i, r := range all {
		wg.Go(func() {
			if !slices.Contains(idleRows, r.File) {
				turns[r.Application()] <- struct{}{}
				defer func() { <-turns[r.Application()] }()
			}
			outcomes[i] = try(r, patience.Limit)
			t.Logf("%s: %s", r.File, outcomes[i])
		})
	}
	wg.Wait()
	for i, r := range all {
		t.Run(r.File, func(t *testing.T) {
			if outcomes[i].err != nil {
				fatal(t, "%s: %s", r.Feature, outcomes[i])
			}
		})
	}
	rome.kubectl(t, append([]string{"delete", "namespace", patiently}, namespaces...)...)
	rome.must(t, "unpeer", "--remote-kubeconfig", milan.kubeconfig)
	nothingLeft(t)
}

// outcome is how the check of a row ended, with the command it typed last, the end of what it printed, and after a wait in
// vain what there is in its namespace.
type outcome struct {
	err  error
	said string
	took time.Duration
}

func (o outcome) String() string {
	if o.err == nil {
		return o.took.Round(time.Second / 10).String()
	}
	return fmt.Sprintf("%s\n%v", o.said, o.err)
}

// typedLine is how bash prints a command of a check.
var typedLine = regexp.MustCompile(`(?m)^\++ .*$`)

// try applies a row's manifest and runs its check for at most the given time.
func try(r podtable.Row, limit time.Duration) outcome {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", prelude+`rome apply -f - <<<"$MANIFEST"
set -x
`+r.Check+`
set +x
rome delete -f - --ignore-not-found --wait=false <<<"$MANIFEST"`)
	cmd.Env = append(os.Environ(), "PATH="+path, "KUBECONFIG=", "ROME="+rome.kubeconfig, "MILAN="+milan.kubeconfig, "NAMESPACE="+r.Namespace(), "MANIFEST="+r.Manifest)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it ends with all it has started
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	here := ""
	if ctx.Err() != nil {
		err = fmt.Errorf("waited %s in vain", limit)
		here, _ = rome.ask("-n", r.Namespace(), "get", "pods,pvc,events", "-o", "wide") // its error is printed in its place
	}
	if typed := typedLine.FindAll(out, -1); err != nil && typed != nil {
		err = fmt.Errorf("%w: %s", err, typed[len(typed)-1])
	}
	return outcome{err: err, said: string(out[max(0, len(out)-3000):]) + here, took: time.Since(began)}
}
