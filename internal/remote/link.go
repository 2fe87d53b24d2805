// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Link gives access to one provider.
type Link struct {
	*Peer
	*Cluster // its client reads and writes at the provider itself
	// ID is the provider's cluster ID, Namespace this cluster's tenant namespace there; empty = the
	// Secret names none.
	ID, Namespace string

	ctx       context.Context // ends with the link
	cancel    context.CancelFunc
	running   sync.WaitGroup
	mu        sync.Mutex
	copies    map[string]*Copy
	monitored bool
	health    *Health
}

// start runs a task of the link unless the link is closed. l is locked.
func (l *Link) start(task func()) {
	if l.ctx.Err() == nil {
		l.running.Go(task)
	}
}

// close ends connections, copies and checks, and waits for the latter two.
func (l *Link) close() {
	l.mu.Lock()
	l.cancel()
	l.mu.Unlock()
	l.running.Wait()
}

// Health returns the result of the last check, nil before the first one. The first call starts the
// checks. changed is called after each check of a provider that is, or was before, unhealthy. It
// must not block.
func (l *Link) Health(c Checks, changed func()) *Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.monitored {
		l.monitored = true
		l.start(func() { l.Monitor(l.ctx, c, func(_ time.Time, h Health) bool { return l.note(h, changed) }) })
	}
	return l.health
}

// note stores the result of a check, and reports whether the provider is healthy.
func (l *Link) note(h Health, changed func()) bool {
	l.mu.Lock()
	same := l.health != nil && l.health.Code == h.Code && h.Err == nil
	l.health = &h
	l.mu.Unlock()
	if !same {
		changed()
	}
	return h.Code == http.StatusOK
}
