// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/patience"
)

// TestAWaitingReplicaStays shows that a replica which waits for the lease fills all its caches. A
// cache that does not sync within 2 minutes would end the process.
func TestAWaitingReplicaStays(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t)
	c, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	consumer{c}.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}}, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: api.ControllerManagerName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(3600)), AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()),
		},
	})
	var f controllerFlags
	cmd := &cobra.Command{}
	f.add(cmd)
	err = cmd.ParseFlags([]string{
		"--cluster-id=rome", "--podcidr=10.10.0.0/16", "--metrics-address=0", "--health-probe-address=0", "--webhook-port=" + freePort(t), "--enable-leader-election",
	})
	if err != nil {
		t.Fatal(err)
	}
	o := f.manager()
	o.Controller.CacheSyncTimeout = patience.Limit
	mgr, err := f.assemble(server.Config, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go pprof.Do(ctx, pprof.Labels("replica", t.Name()), func(ctx context.Context) { ended <- mgr.Start(ctx) })
	fills := ""
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, func(context.Context) (bool, error) {
		var waits bool
		waits, fills = stacksOf(t.Name())
		return len(ended) > 0 || waits && fills == "", nil
	})
	if err != nil {
		t.Fatal(patience.GaveUp("a replica whose caches are filled", fills))
	}
	select {
	case err := <-ended:
		t.Fatalf("it ends by itself: error %v", err)
	case <-mgr.Elected():
		t.Error("it acts, though another has the lease")
	default:
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// stacksOf reports whether the manager of a replica waits for its lease, and returns the stacks of its
// goroutines that fill caches. They have a label, because other tests run beside this one.
func stacksOf(replica string) (waits bool, fills string) {
	var profile bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1) // a buffer returns no error
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		switch {
		case !strings.Contains(stack, fmt.Sprintf(`"replica":%q`, replica)):
		case strings.Contains(stack, "(*LeaderElector)"):
			waits = true
		case strings.Contains(stack, ".Warmup"):
			fills += stack + "\n"
		}
	}
	return waits, fills
}
