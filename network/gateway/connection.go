// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

const (
	// redialEager is between two attempts to reach a server that never answered, or no longer does:
	// WireGuard itself tries every 5 s, and only 15 s after the last answer, which is long for
	// somebody who waits for a peering or whose server's pod was replaced.
	redialEager = time.Second
	// redialLate is the same after redialEagerFor without an answer.
	redialLate     = 10 * time.Second
	redialEagerFor = time.Minute
	// retryWrite is after an error of the API server.
	retryWrite = time.Second
)

// +kubebuilder:rbac:groups=networking.liqo.io,resources=connections,namespace=tenant,verbs=get;create;update;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=connections/status,namespace=tenant,verbs=update;patch

// keepConnection keeps the Connection as the pings say, until the context ends. There is none
// before the peer's key is known.
func (g *gateway) keepConnection(ctx context.Context) error {
	var written *netv1beta1.Connection // as the API server has it; nil = not known
	var dials dials
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.pinger.changed:
		}
		if g.peer.Load() == "" || !g.active.Load() {
			written = nil // another replica may write now
			continue
		}
		now := time.Now()
		next, err := g.report(ctx, written, now)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The state of the connection could not be written")
			written = nil
			pause(ctx, retryWrite)
			continue
		}
		written = next
		if err := g.redial(now, &dials); err != nil {
			klog.FromContext(ctx).Error(err, "The server could not be dialled anew")
		}
	}
}

// report writes what changed and returns the Connection as it is then.
func (g *gateway) report(ctx context.Context, written *netv1beta1.Connection, now time.Time) (*netv1beta1.Connection, error) {
	if written == nil {
		found, err := g.ensureConnection(ctx)
		if err != nil {
			return nil, err
		}
		written = found
	}
	want := written.DeepCopy()
	h := g.pinger.Health()
	want.Status.Value = h.Connection(now, written.Status.Value, g.Ping)
	if latency := written.Status.Latency; h.Latency > 0 {
		last := netv1beta1.ConnectionLatency{}
		if latency != nil {
			last = *latency
		}
		old, _ := time.ParseDuration(last.Value)
		if plan.NotableLatency(now, last.Timestamp.Time, old, h.Latency, g.LatencyInterval) {
			want.Status.Latency = &netv1beta1.ConnectionLatency{Value: h.Latency.Round(10 * time.Microsecond).String(), Timestamp: metav1.NewTime(now)}
		}
	}
	meta.SetStatusCondition(&want.Status.Conditions, g.condition(want.Status.Value))
	if equal(written.Status, want.Status) {
		return written, nil
	}
	if want.Status.Value != written.Status.Value {
		klog.FromContext(ctx).Info("The state of the connection changed", "from", written.Status.Value, "to", want.Status.Value)
	}
	if err := merge(ctx, g.connections(g.client.Networking.Patch(types.MergePatchType)).SubResource("status"), object{"status": want.Status}); err != nil {
		return nil, fmt.Errorf("write status of Connection %s/%s: %w", want.Namespace, want.Name, err)
	}
	return want, nil
}

// equal tells whether two values are the same to the API server, which knows times to the second.
func equal(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// connections makes a request be about our Connection.
func (g *gateway) connections(r *rest.Request) *rest.Request {
	return r.Namespace(g.Namespace).Resource("connections").Name(api.GatewayResourceName(g.Name))
}

// ensureConnection returns the Connection, made or put right when needed.
func (g *gateway) ensureConnection(ctx context.Context) (*netv1beta1.Connection, error) {
	want := g.connection()
	found := &netv1beta1.Connection{}
	err := g.connections(g.client.Networking.Get()).Do(ctx).Into(found)
	if apierrors.IsNotFound(err) {
		err := g.client.Networking.Post().Namespace(g.Namespace).Resource("connections").Body(want).Do(ctx).Into(want)
		if err != nil {
			return nil, fmt.Errorf("create Connection %s/%s: %w", want.Namespace, want.Name, err)
		}
		return want, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get Connection %s/%s: %w", want.Namespace, want.Name, err)
	}
	old := found.DeepCopy()
	found.Spec, found.OwnerReferences = want.Spec, want.OwnerReferences
	for k, v := range want.Labels {
		metav1.SetMetaDataLabel(&found.ObjectMeta, k, v)
	}
	if equal(old, found) {
		return found, nil
	}
	patch := object{"metadata": object{"labels": want.Labels, "ownerReferences": want.OwnerReferences}, "spec": want.Spec}
	if err := merge(ctx, g.connections(g.client.Networking.Patch(types.MergePatchType)), patch); err != nil {
		return nil, fmt.Errorf("write Connection %s/%s: %w", want.Namespace, want.Name, err)
	}
	return found, nil
}

// connection goes with the GatewayServer or GatewayClient.
func (g *gateway) connection() *netv1beta1.Connection {
	side := netv1beta1.ConnectionTypeClient
	if g.Server {
		side = netv1beta1.ConnectionTypeServer
	}
	version := netv1beta1.GroupVersion.String()
	c := &netv1beta1.Connection{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: g.Namespace, Name: api.GatewayResourceName(g.Name),
			Labels: map[string]string{api.LabelRemoteClusterID: g.RemoteClusterID, api.LabelManaged: api.True},
		},
		Spec: netv1beta1.ConnectionSpec{Type: side, GatewayRef: corev1.ObjectReference{
			APIVersion: version, Kind: "WgGateway" + string(side), Namespace: g.Namespace, Name: g.Name,
		}},
	}
	if g.UID != "" {
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: "Gateway" + string(side), Name: g.Name, UID: g.UID}}
	}
	return c
}

// condition explains the state.
func (g *gateway) condition(value netv1beta1.ConnectionStatusValue) metav1.Condition {
	implementation := dataplane.Kernel
	g.With(func(d *dataplane.Dataplane) { implementation = d.Implementation(api.TunnelInterface(0)) })
	c := metav1.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: string(value)}
	switch value {
	case netv1beta1.Connected:
		c.Status, c.Message = metav1.ConditionTrue, "the peer's gateway answers; WireGuard runs in the "+implementation
	case netv1beta1.Connecting:
		c.Message = "the peer's gateway has not answered yet; check that it has this cluster's PublicKey and that its address and UDP port are reachable"
	default:
		c.Message = "the peer's gateway no longer answers; check that it runs and that its address and UDP port are reachable"
	}
	return c
}

// dials is what a client remembers between attempts to reach the server.
type dials struct {
	last     time.Time
	received int64 // bytes until then
}

// redial makes a client try the server anew when that is due: at the address its name has now,
// and, when nothing at all came through the tunnel since the last attempt, without the peer's old
// state. The look that follows puts the peer back.
func (g *gateway) redial(now time.Time, d *dials) error {
	h := g.pinger.Health()
	wait := redialLate
	switch {
	case g.Server, !h.Answered.IsZero() && h.Lost == 0:
		return nil
	case now.Sub(h.Started) < redialEagerFor, now.Sub(h.Answered) < redialEagerFor:
		wait = redialEager
	}
	if now.Sub(d.last) < wait {
		return nil
	}
	g.dialer.forget()
	key, _ := g.peer.Load().(string)
	var err error
	g.With(func(plane *dataplane.Dataplane) {
		var traffic dataplane.Traffic
		if traffic, err = plane.Traffic(api.TunnelInterface(0), key); err == nil && traffic.Received == d.received {
			err = plane.Redial(api.TunnelInterface(0), key)
		}
		d.received = traffic.Received
	})
	d.last = now
	g.Look()
	return err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
