// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
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

// maxUnasked is how many intervals may pass without a check while other responses of the provider
// arrive.
const maxUnasked = 3

// lease renews the Node's Lease while the provider answers. Without renewals the node becomes not
// ready after the usual grace period.
type lease struct {
	leases   coordinationclient.LeaseInterface
	peer     *remote.Peer
	node     string
	duration time.Duration
	checks   remote.Checks
	// changed is called when the provider starts or stops answering.
	changed func()

	// current is the lease as last written, and renewed the time of the last renewal; only run uses
	// them.
	current *coordinationv1.Lease
	renewed time.Time

	owner atomic.Pointer[metav1.OwnerReference] // the Node; nil before it exists
	// answers is set while the provider answers.
	answers atomic.Bool
}

func newLease(leases coordinationclient.LeaseInterface, peer *remote.Peer, f *Flags, changed func()) *lease {
	interval := f.NodePingInterval
	if interval <= 0 {
		interval = f.NodeLeaseDuration / 4
	}
	return &lease{
		leases: leases, peer: peer, node: f.NodeName, changed: changed,
		duration: f.NodeLeaseDuration,
		checks:   remote.Checks{Interval: interval, Timeout: f.NodePingTimeout, MaxUnasked: maxUnasked},
	}
}

// own makes the Node the owner of the lease.
func (l *lease) own(node *corev1.Node) {
	l.owner.Store(&metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID})
}

// run checks the provider and renews the lease until ctx ends.
func (l *lease) run(ctx context.Context) error {
	l.peer.Monitor(ctx, l.checks, func(began time.Time, h remote.Health) bool {
		answers := l.record(ctx, h)
		// A quarter of the duration: three renewals in a row may fail before the node is lost.
		if answers && began.Sub(l.renewed) >= l.duration/4-l.checks.Interval/2 {
			if err := l.renew(ctx); err == nil {
				l.renewed = began
			} else if ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "renew node lease")
			}
		}
		return answers
	})
	return nil
}

// record stores whether the provider answers, and returns it. Any response below 500 counts, such
// as one that forbids the request.
func (l *lease) record(ctx context.Context, h remote.Health) bool {
	answers := h.Err == nil && h.Code < http.StatusInternalServerError
	if l.answers.Swap(answers) == answers {
		return answers
	}
	if answers {
		log.FromContext(ctx).Info("the provider answers")
	} else {
		err := h.Err
		if err == nil {
			err = errors.New(h.Status)
		}
		log.FromContext(ctx).Error(fmt.Errorf("check the provider: %w", err), "the provider does not answer any more")
	}
	l.changed()
	return answers
}

// renew writes the lease. After a failed write, such as a conflict, the lease is read again next
// time.
func (l *lease) renew(ctx context.Context) error {
	owner := l.owner.Load()
	if owner == nil {
		return nil // there is no Node yet
	}
	if l.current == nil {
		found, err := l.leases.Get(ctx, l.node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			fresh := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.node}}
			l.current, err = l.leases.Create(ctx, l.renewal(fresh, *owner), metav1.CreateOptions{})
			return l.written(err)
		}
		if err != nil {
			return fmt.Errorf("get lease %s: %w", l.node, err)
		}
		l.current = found
	}
	var err error
	l.current, err = l.leases.Update(ctx, l.renewal(l.current, *owner), metav1.UpdateOptions{})
	return l.written(err)
}

// written handles the result of a write: after a failure, the stored lease is discarded.
func (l *lease) written(err error) error {
	if err == nil {
		return nil
	}
	l.current = nil
	return fmt.Errorf("write lease %s: %w", l.node, err)
}

// renewal returns the lease to write.
func (l *lease) renewal(from *coordinationv1.Lease, owner metav1.OwnerReference) *coordinationv1.Lease {
	out := from.DeepCopy()
	out.OwnerReferences = []metav1.OwnerReference{owner}
	out.Spec.HolderIdentity = &l.node
	out.Spec.LeaseDurationSeconds = new(int32(l.duration.Seconds()))
	out.Spec.RenewTime = new(metav1.NowMicro())
	return out
}
