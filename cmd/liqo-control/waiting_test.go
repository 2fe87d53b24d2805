// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
)

// TestAWaitingReplicaStays shows that a replica which waits for the lease fills all its caches. A
// cache that does not sync in time ends the process; the limit is 2 minutes for users and less
// here.
func TestAWaitingReplicaStays(t *testing.T) {
	t.Parallel()
	const inTime = 30 * time.Second
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
	o.Controller.CacheSyncTimeout = inTime
	mgr, err := f.assemble(server.Config, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), inTime+5*time.Second)
	defer cancel()
	err = mgr.Start(ctx)
	select {
	case <-mgr.Elected():
		t.Error("it acts, though another has the lease")
	default:
	}
	if err != nil || ctx.Err() == nil {
		t.Errorf("it ends by itself: error %v", err)
	}
}
