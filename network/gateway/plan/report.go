// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// Report holds what the API server was told of the connection.
type Report struct {
	// Running reports that a write is not finished.
	Running bool
	// Due requests a report, and Retry is the earliest time of it. Next is the time of the next one
	// without pings.
	Due         bool
	Retry, Next time.Time
	// Changed reports that the Connection in the cache changed since the last write.
	Changed bool
	// Stored is the Connection as the API server has it; nil = not known.
	Stored *netv1beta1.Connection
	// At is the time when its status was written last.
	At time.Time
	// Value is the state reported last; "" = none yet.
	Value netv1beta1.ConnectionStatusValue
}

const (
	// retryWrite is the time after an error of the API server.
	retryWrite = time.Second
	// reportAgain is the time between two reports about a tunnel without pings.
	reportAgain = 10 * time.Second
	// conditionReady is True while the peer's gateway answers.
	conditionReady = "Ready"
)

// decide keeps the Connection as the pings say, and creates it again if somebody deleted it. There
// is none before the peer's key is known.
func (r *Report) decide(d *decider, fresh bool) {
	r.take(d)
	if !d.Holds {
		r.Stored = nil // another replica may write now
		return
	}
	if !d.in.PingEnabled && d.due(r.Next) {
		r.Due, r.Next = true, d.now.Add(reportAgain)
		d.due(r.Next)
	}
	switch {
	case !r.Due || r.Running || !d.due(r.Retry):
	case r.Stored == nil && d.Peer == "": // none is created, but an existing one has to say so
		if c := d.in.Connection; c != nil && d.in.isOurs(c) {
			r.Stored = c
			d.Reading.Requested = true
		}
	case r.Stored == nil:
		r.Running = true
		d.act(EnsureConnection{d.in.NewConnection()})
	case !fresh:
		d.Reading.Requested = true
	default:
		r.Due = false
		r.write(d)
	}
}

// take considers results of writes, and changes of the Connection by others.
func (r *Report) take(d *decider) {
	if w := d.in.Written; w != nil {
		r.Running = false
		switch {
		case w.Failed:
			r.Stored, r.Due, r.Retry = nil, true, d.now.Add(retryWrite)
		case w.Status:
			r.Stored, r.At = w.Connection, d.now
		default:
			r.Stored, r.Due = w.Connection, w.Connection != nil
		}
	}
	if r.Changed = r.Changed || d.in.ConnectionChanged; !r.Changed || r.Running {
		return
	}
	r.Changed = false
	switch c := d.in.Connection; {
	case c == nil || !d.in.isOurs(c) || r.Stored != nil && r.Stored.UID != c.UID:
		r.Stored, r.Due = nil, true
	case meta.IsStatusConditionFalse(c.Status.Conditions, netv1beta1.ConnectionGatewayRunning):
		r.Stored, r.Due = c, true // the controller asks whether a gateway runs
	}
}

// write has the status written if it changed.
func (r *Report) write(d *decider) {
	before := &r.Stored.Status
	want := r.Stored.DeepCopy()
	var h Health
	h, want.Status.Value = d.Connection(d.now, before.Value, d.in.Ping)
	r.Value = want.Status.Value
	if h.Latency > 0 {
		last := netv1beta1.ConnectionLatency{}
		if before.Latency != nil {
			last = *before.Latency
		}
		old, _ := time.ParseDuration(last.Value)
		if NotableLatency(d.now, last.Timestamp.Time, old, h.Latency, d.in.LatencyInterval) {
			want.Status.Latency = &netv1beta1.ConnectionLatency{
				Value: h.Latency.Round(10 * time.Microsecond).String(), Timestamp: metav1.NewTime(d.now),
			}
		}
	}
	explain(d, &want.Status)
	if Equal(before, &want.Status) || !Notable(before, &want.Status, d.now.Sub(r.At), d.in.LatencyInterval) {
		return
	}
	for _, c := range want.Status.Conditions { // a latency is no reason for a message
		old := meta.FindStatusCondition(before.Conditions, c.Type)
		if old == nil || old.Status != c.Status || old.Reason != c.Reason {
			d.log("The connection changed", "value", want.Status.Value,
				"condition", c.Type, "status", c.Status, "reason", c.Reason, "message", c.Message)
		}
	}
	r.Running = true
	d.act(WriteStatus{want})
}

// explain sets the conditions: why the tunnel is in its state, and while it works whether its MTU
// fits and all ports answer.
func explain(d *decider, status *netv1beta1.ConnectionStatus) {
	set := func(what string, good bool, reason, message string) {
		c := metav1.Condition{Type: what, Status: metav1.ConditionFalse, Reason: reason, Message: message}
		if good {
			c.Status = metav1.ConditionTrue
		}
		c.LastTransitionTime = metav1.NewTime(d.now)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	if c := meta.FindStatusCondition(status.Conditions,
		netv1beta1.ConnectionGatewayRunning); c != nil && c.Status == metav1.ConditionFalse {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "GatewayAnswers", "the gateway's process runs"
	}
	if f := d.in.Failing; f == nil {
		meta.RemoveStatusCondition(&status.Conditions, netv1beta1.ConnectionProgrammed)
	} else if d.now.Sub(f.Since) > kernel.RefusedFor {
		set(netv1beta1.ConnectionProgrammed, false, ReasonKernelRefuses, fmt.Sprintf(
			"the gateway's network cannot be made "+
				"as wanted: %s; allow it on the node or in the pod's securityContext, it is tried again", f.Message))
	}
	if status.Value != netv1beta1.Connected {
		d.Evidence.Health = d.Tunnels[0].Health
		reason, message := d.Evidence.Verdict(d.now)
		set(conditionReady, false, reason, message)
		meta.RemoveStatusCondition(&status.Conditions, netv1beta1.ConnectionMTUFits)
		meta.RemoveStatusCondition(&status.Conditions, netv1beta1.ConnectionPortsAnswer)
		return
	}
	message := "the peer's gateway answers; WireGuard runs in the "
	if !d.in.PingEnabled {
		message = "the peer's gateway was reached; pings are off, so nobody asks whether it still is; WireGuard " +
			"runs in the "
	}
	set(conditionReady, true, string(status.Value), message+d.in.Counters.Implementation)
	if d.Path.Fit != nil {
		fits, reason, message := d.Path.Fit.Verdict()
		set(netv1beta1.ConnectionMTUFits, fits, reason, message)
	}
	if len(d.Tunnels) > 1 && d.in.PingEnabled && d.now.Sub(d.Tunnels[0].Started) > EvidenceFor {
		var ports []int
		for _, n := range d.silent() {
			ports = append(ports, d.in.Ports()[n])
		}
		all, reason, message := PortsVerdict(ports, d.in.TCP)
		set(netv1beta1.ConnectionPortsAnswer, all, reason, message)
	}
}

// NewConnection returns the Connection of the gateway without a status. It is removed with the
// GatewayServer or GatewayClient.
func (o Options) NewConnection() *netv1beta1.Connection {
	side := netv1beta1.ConnectionTypeClient
	if o.Server {
		side = netv1beta1.ConnectionTypeServer
	}
	version := netv1beta1.GroupVersion.String()
	c := &netv1beta1.Connection{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: api.GatewayResourceName(o.Name),
			Labels: map[string]string{api.LabelRemoteClusterID: o.RemoteClusterID, api.LabelManaged: api.True},
		},
		Spec: netv1beta1.ConnectionSpec{Type: side, GatewayRef: corev1.ObjectReference{
			APIVersion: version, Kind: "WgGateway" + string(side), Namespace: o.Namespace, Name: o.Name,
		}},
	}
	if o.UID != "" {
		c.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: version, Kind: "Gateway" + string(side), Name: o.Name, UID: o.UID},
		}
	}
	return c
}

// isOurs reports whether a Connection is that of this gateway and, but for its status, as it should
// be.
func (o Options) isOurs(c *netv1beta1.Connection) bool {
	want := o.NewConnection()
	for k, v := range want.Labels {
		if c.Labels[k] != v {
			return false
		}
	}
	return c.Name == want.Name && Equal(c.Spec, want.Spec) && Equal(c.OwnerReferences, want.OwnerReferences)
}

// Equal reports whether two values are the same to the API server, which knows times to the second.
func Equal(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}
