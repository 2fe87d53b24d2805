// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	"github.com/liqo-go/liqo/network/gateway/plan"
	kernel "github.com/liqo-go/liqo/network/plan"
)

const (
	// retryWrite is after an error of the API server.
	retryWrite = time.Second
	// lookAgain is between two looks at a tunnel without pings; with them it is at most as long.
	lookAgain = 10 * time.Second
	// conditionReady is True while the peer's gateway answers.
	conditionReady = "Ready"
)

// +kubebuilder:rbac:groups=networking.liqo.io,resources=connections,namespace=tenant,verbs=get;list;watch;create;update;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=gatewayservers;gatewayclients,namespace=tenant,verbs=get
// +kubebuilder:rbac:groups=networking.liqo.io,resources=connections/status,namespace=tenant,verbs=update;patch

// record is what the API server was told.
type record struct {
	// Connection is as the API server has it; nil = not known.
	*netv1beta1.Connection
	// at is when its status was written last.
	at time.Time
}

// keepConnection keeps the Connection as the pings say, until the context ends, and makes it again when somebody
// took it away. There is none before the peer's key is known.
func (g *gateway) keepConnection(ctx context.Context) error {
	var written record
	var w witness
	var beside sync.WaitGroup
	defer beside.Wait()
	if g.PingEnabled {
		beside.Go(func() { g.measure(ctx, &w) })
	}
	if !g.Server {
		beside.Go(func() { g.knock(ctx, &w) })
	}
	others := make(chan struct{}, 1) // somebody changed it, or we
	beside.Go(func() { g.shown.Keep(ctx, func() { notify(others) }) })
	var again <-chan time.Time // pings that go on bring the next look
	if !g.PingEnabled {
		looks := time.NewTicker(lookAgain)
		defer looks.Stop()
		again = looks.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-others:
			stands := func(c netv1beta1.Connection) bool {
				return g.isOurs(c) && (written.Connection == nil || c.UID == written.UID)
			}
			list := g.shown.List()
			i := slices.IndexFunc(list, stands)
			switch {
			case i < 0:
				written.Connection = nil
			case meta.IsStatusConditionFalse(list[i].Status.Conditions, netv1beta1.ConnectionGatewayRunning):
				written.Connection = &list[i] // the controller asks whether we run
			default:
				continue
			}
		case <-g.pinger.changed:
		}
		if !g.leads.Load() {
			written.Connection = nil // another replica may write now
			continue
		}
		now := time.Now()
		next, err := g.report(ctx, &w, written, now)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The state of the connection could not be written")
			written.Connection = nil
			pause(ctx, retryWrite)
			notify(g.pinger.changed)
			continue
		}
		written = next
	}
}

// report writes what changed and returns what the API server was told then; no Connection when there is to be none.
func (g *gateway) report(ctx context.Context, w *witness, written record, now time.Time) (record, error) {
	if written.Connection == nil {
		found, err := g.ensureConnection(ctx)
		if err != nil || found == nil {
			return written, err
		}
		written.Connection = found
	}
	want := written.DeepCopy()
	g.pinger.shaken(g.traffic().Handshake)
	h, value := g.health(now, written.Status.Value)
	want.Status.Value = value
	g.reported.Store(&want.Status.Value)
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
	g.explain(&want.Status, g.see(w, g.pinger.Health(), now), w.measured(), now)
	if equal(written.Status, want.Status) || !plan.Notable(&written.Status, &want.Status, now.Sub(written.at), g.LatencyInterval) {
		return written, nil
	}
	logChange(ctx, &written.Status, &want.Status)
	if err := merge(ctx, g.connections(g.client.Networking.Patch(types.MergePatchType)).SubResource("status"), object{"status": want.Status}); err != nil {
		return written, fmt.Errorf("write status of Connection %s/%s: %w", want.Namespace, want.Name, err)
	}
	return record{want, now}, nil
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

// isOurs tells whether a Connection is ours, as it should be but for its status.
func (g *gateway) isOurs(c netv1beta1.Connection) bool {
	want := g.connection()
	for k, v := range want.Labels {
		if c.Labels[k] != v {
			return false
		}
	}
	return c.Name == want.Name && equal(c.Spec, want.Spec) && equal(c.OwnerReferences, want.OwnerReferences)
}

// gone tells whether the GatewayServer or GatewayClient is, with which the Connection goes.
func (g *gateway) gone(ctx context.Context) (bool, error) {
	if g.UID == "" {
		return false, nil // nobody told which it is
	}
	owner := g.connection().OwnerReferences[0]
	found := &metav1.PartialObjectMetadata{}
	err := g.client.Networking.Get().Namespace(g.Namespace).Resource(strings.ToLower(owner.Kind) + "s").Name(owner.Name).Do(ctx).Into(found)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("get %s %s/%s: %w", owner.Kind, g.Namespace, owner.Name, err)
	}
	return found.UID != g.UID || found.DeletionTimestamp != nil, nil
}

// ensureConnection returns the Connection, made or put right when needed; nil when the gateway is being removed.
// Without the peer's key none is made, but one that is there has to say so.
func (g *gateway) ensureConnection(ctx context.Context) (*netv1beta1.Connection, error) {
	if g.peer.Load() == "" {
		list := g.shown.List()
		if i := slices.IndexFunc(list, g.isOurs); i >= 0 {
			return &list[i], nil
		}
		return nil, nil
	}
	want := g.connection()
	found := &netv1beta1.Connection{}
	err := g.connections(g.client.Networking.Get()).Do(ctx).Into(found)
	if apierrors.IsNotFound(err) {
		if gone, err := g.gone(ctx); gone || err != nil {
			return nil, err
		}
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

// explain puts the conditions: why the tunnel is in its state, and while it works whether its MTU
// fits.
func (g *gateway) explain(status *netv1beta1.ConnectionStatus, s plan.Evidence, fit *plan.Fit, now time.Time) {
	if c := meta.FindStatusCondition(status.Conditions, netv1beta1.ConnectionGatewayRunning); c != nil && c.Status == metav1.ConditionFalse {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "GatewayAnswers", "the gateway's process runs"
	}
	if f := g.Failing(); f == nil {
		meta.RemoveStatusCondition(&status.Conditions, netv1beta1.ConnectionProgrammed)
	} else if now.Sub(f.Since) > kernel.RefusedFor {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: netv1beta1.ConnectionProgrammed, Status: metav1.ConditionFalse, Reason: plan.ReasonKernelRefuses,
			Message: fmt.Sprintf("the gateway's network cannot be made as wanted: %v; allow it on the node or in the pod's securityContext, it is tried again", f.Err),
		})
	}
	ready := metav1.Condition{Type: conditionReady, Status: metav1.ConditionFalse}
	if status.Value != netv1beta1.Connected {
		ready.Reason, ready.Message = s.Verdict(now)
		meta.SetStatusCondition(&status.Conditions, ready)
		meta.RemoveStatusCondition(&status.Conditions, netv1beta1.ConnectionMTUFits)
		meta.RemoveStatusCondition(&status.Conditions, netv1beta1.ConnectionPortsAnswer)
		return
	}
	implementation := g.plane.Implementation(api.TunnelInterface(0))
	ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, string(status.Value), "the peer's gateway answers; WireGuard runs in the "+implementation
	if !g.PingEnabled {
		ready.Message = "the peer's gateway was reached; pings are off, so nobody asks whether it still is; WireGuard runs in the " + implementation
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	add := func(what string, good bool, reason, message string) {
		c := metav1.Condition{Type: what, Status: metav1.ConditionFalse, Reason: reason, Message: message}
		if good {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, c)
	}
	if fit != nil {
		fits, reason, message := fit.Verdict()
		add(netv1beta1.ConnectionMTUFits, fits, reason, message)
	}
	if len(g.further) > 0 && g.PingEnabled && now.Sub(s.Started) > plan.EvidenceFor {
		all, reason, message := plan.PortsVerdict(g.ports(g.silent(now)), g.TCP)
		add(netv1beta1.ConnectionPortsAnswer, all, reason, message)
	}
}

// logChange says why the connection is not as it was; a latency is no reason to say anything.
func logChange(ctx context.Context, before, now *netv1beta1.ConnectionStatus) {
	for _, c := range now.Conditions {
		old := meta.FindStatusCondition(before.Conditions, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason {
			klog.FromContext(ctx).Info("The connection changed", "value", now.Value, "condition", c.Type, "status", c.Status, "reason", c.Reason, "message", c.Message)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
