// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package elect

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lock is a Lease that an elector competes for. It remembers who renewed the lease last.
type Lock struct {
	*resourcelock.LeaseLock
	mu     sync.Mutex
	record *resourcelock.LeaderElectionRecord // as last read or written, nil before
	leader string
}

// NewLock returns the lock of a Lease. A restarted process of the same holder continues
// immediately, so concurrent processes need different holders.
func NewLock(c coordinationclient.LeasesGetter, namespace, name, holder string) *Lock {
	return &Lock{LeaseLock: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
		Client:     c,
		LockConfig: resourcelock.ResourceLockConfig{Identity: holder},
	}}
}

// Leader returns the holder that acquired or renewed the lease last. It is empty while no renewal
// was observed: a lease that was found may be that of a process that was killed.
func (l *Lock) Leader() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader
}

// Get reads the lease. A record that differs from the one before was written by a process that lives.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.LeaseLock.Get(ctx)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.record != nil && !record.RenewTime.Equal(&l.record.RenewTime) {
			l.leader = record.HolderIdentity
		}
		l.record = record
	}
	return record, raw, err
}

// Create makes the lease, with this process as its holder.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.written(record, l.LeaseLock.Create(ctx, record))
}

// Update acquires, renews or releases the lease.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.written(record, l.LeaseLock.Update(ctx, record))
}

func (l *Lock) written(record resourcelock.LeaderElectionRecord, err error) error {
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.record, l.leader = &record, record.HolderIdentity
	}
	return err
}
