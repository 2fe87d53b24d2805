// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/liqo-go/liqo/view"
)

// Snapshots holds the latest snapshot of a cluster. It can be used by several goroutines.
type Snapshots struct {
	mu     sync.Mutex
	latest *view.Snapshot
	// take returns what replaces latest; nil if nothing has changed since.
	take    func() *view.Snapshot
	changed chan struct{}
	// asked is when the snapshot was asked for last.
	asked time.Time
}

// NewSnapshots returns Snapshots that hold the first one.
func NewSnapshots(first *view.Snapshot) *Snapshots {
	return &Snapshots{latest: first, changed: make(chan struct{})}
}

// Renew replaces the snapshot by what a function returns. It is called once a page needs it, and not at all if Renew
// is called again before. What it returns is not changed any more.
func (s *Snapshots) Renew(take func() *view.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take = take
	close(s.changed)
	s.changed = make(chan struct{})
}

// Get returns the latest snapshot, and a channel that is closed when there is another one.
func (s *Snapshots) Get() (*view.Snapshot, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.take != nil {
		s.latest, s.take = s.take(), nil
	}
	s.asked = time.Now()
	return s.latest, s.changed
}

// wanted reports whether a page is open: those that are kept up to date ask whenever there is a snapshot, which is at
// least each refresh.
func (s *Snapshots) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.asked) < 2*refresh
}

// live sends the changing part of a page as server-sent events: at once, and whenever it looks different.
func (s *Server) live(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Query().Get("page")
	if snapshot, _ := s.snapshots.Get(); r.Method != http.MethodGet || !s.exists(snapshot, path) {
		http.NotFound(w, r)
		return
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, "too many open pages; close some", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for last := ""; ; {
		snapshot, changed := s.snapshots.Get()
		what, _ := s.find(snapshot, path)
		text, err := fragment(what)
		if err != nil {
			return
		}
		if text != last {
			line, _ := json.Marshal(text) // one line, of a string
			if _, err := fmt.Fprintf(w, "data: %s\n\n", line); err != nil || out.Flush() != nil {
				return
			}
			last = text
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *Server) exists(snapshot *view.Snapshot, path string) bool {
	_, ok := s.find(snapshot, path)
	return ok
}
