// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/internal/remote"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update

// askedAfter is how many intervals may pass without a request to a provider that is heard: what answers on the
// way to an API server need not be the API server.
const askedAfter = 3

// lease tells the node controller that the provider answers. It is renewed only then, so a
// provider that is lost makes the node not ready after the usual grace.
type lease struct {
	leases   coordinationclient.LeaseInterface
	peer     *remote.Peer
	node     string
	duration time.Duration
	interval time.Duration
	timeout  time.Duration
	// changed is called when the provider starts or stops answering.
	changed func()

	// current is the lease as last written, asked when the provider was last sent a request; only run uses them.
	current *coordinationv1.Lease
	asked   time.Time

	mu      sync.Mutex
	owner   *metav1.OwnerReference
	answers bool
}

func newLease(leases coordinationclient.LeaseInterface, peer *remote.Peer, f *Flags, changed func()) *lease {
	interval := f.NodePingInterval
	if interval <= 0 {
		interval = f.NodeLeaseDuration / 4
	}
	return &lease{
		leases: leases, peer: peer, node: f.NodeName, changed: changed,
		duration: f.NodeLeaseDuration, interval: interval, timeout: f.NodePingTimeout,
	}
}

// own makes the lease go with the Node.
func (l *lease) own(node *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owner = &metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}
}

// alive reports whether the provider answered last time.
func (l *lease) alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers
}

// run checks and renews until ctx ends.
func (l *lease) run(ctx context.Context) error {
	var renewed time.Time
	for again := time.NewTicker(l.interval); ; {
		began := time.Now()
		l.check(ctx, began)
		// A quarter of the duration: three renewals in a row may fail before the node is lost.
		if l.alive() && began.Sub(renewed) >= l.duration/4-l.interval/2 {
			if err := l.renew(ctx); err == nil {
				renewed = began
			} else if ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "renew node lease")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

// check listens whether the provider's API server lives, and asks it when it is not heard from now on, or has
// not been asked for long. Any answer of a healthy server counts, also that we may not ask.
func (l *lease) check(ctx context.Context, now time.Time) {
	if l.alive() && now.Sub(l.asked) < askedAfter*l.interval && l.peer.Heard(ctx, now) {
		return
	}
	l.asked = now
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	err := l.livez(ctx)
	l.mu.Lock()
	before := l.answers
	l.answers = err == nil
	l.mu.Unlock()
	if before == (err == nil) {
		return
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "the provider does not answer any more")
	} else {
		log.FromContext(ctx).Info("the provider answers")
	}
	l.changed()
}

func (l *lease) livez(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.peer.Config().Host+"/livez", nil)
	if err != nil {
		return fmt.Errorf("check the provider: %w", err)
	}
	resp, err := l.peer.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("check the provider: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("check the provider: %s", resp.Status)
	}
	return nil
}

// renew writes the lease; one that somebody else changed or deleted is read again next time.
func (l *lease) renew(ctx context.Context) error {
	l.mu.Lock()
	owner := l.owner
	l.mu.Unlock()
	if owner == nil {
		return nil // there is no Node yet
	}
	if l.current == nil {
		found, err := l.leases.Get(ctx, l.node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			l.current, err = l.leases.Create(ctx, l.renewed(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.node}}, *owner), metav1.CreateOptions{})
			return l.keep(err)
		}
		if err != nil {
			return fmt.Errorf("get lease %s: %w", l.node, err)
		}
		l.current = found
	}
	var err error
	l.current, err = l.leases.Update(ctx, l.renewed(l.current, *owner), metav1.UpdateOptions{})
	return l.keep(err)
}

// keep forgets what is known of the lease after a write that failed.
func (l *lease) keep(err error) error {
	if err == nil {
		return nil
	}
	l.current = nil
	return fmt.Errorf("write lease %s: %w", l.node, err)
}

func (l *lease) renewed(from *coordinationv1.Lease, owner metav1.OwnerReference) *coordinationv1.Lease {
	out := from.DeepCopy()
	out.OwnerReferences = []metav1.OwnerReference{owner}
	out.Spec.HolderIdentity = &l.node
	out.Spec.LeaseDurationSeconds = new(int32(l.duration.Seconds()))
	out.Spec.RenewTime = new(metav1.NowMicro())
	return out
}
