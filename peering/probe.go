// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/peering/plan"
)

// probeSoon is when to read the outcome of a probe that has just been started.
const probeSoon = time.Second

// askedAfter is how many intervals may pass without a request to a peer that is heard.
const askedAfter = 4

// prober asks peers' API servers for /livez, and listens to those that live. A look never waits for the network: it returns the
// last outcome, starts the next probe when it is due and says when to look again, so that a
// peer that is gone slows down nothing else.
type prober struct {
	interval, timeout time.Duration

	mu    sync.Mutex
	peers map[string]*probed
}

// probed is what is known of one peer.
type probed struct {
	kubeconfig []byte
	access     *remote.Peer
	outcome    *plan.Probe
	// looked is when the peer was last asked or listened to, asked when it was last asked.
	looked, asked time.Time
	running       bool
}

func newProber(interval, timeout time.Duration) *prober {
	return &prober{interval: interval, timeout: timeout, peers: map[string]*probed{}}
}

// look returns the last outcome for a peer, nil when there is none yet, and when to look again.
func (p *prober) look(ctx context.Context, id string, kubeconfig []byte) (*plan.Probe, time.Duration) {
	if p.interval <= 0 {
		return nil, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	peer := p.peers[id]
	if peer == nil || !bytes.Equal(peer.kubeconfig, kubeconfig) {
		peer = newProbed(kubeconfig, peer)
		p.peers[id] = peer
	}
	if peer.access == nil {
		return peer.outcome, 0
	}
	if now := time.Now(); !peer.running && now.Sub(peer.looked) >= p.interval {
		peer.looked = now
		if !p.heard(ctx, peer, now) {
			peer.running, peer.asked = true, now
			go p.run(context.WithoutCancel(ctx), peer)
		}
	}
	if peer.running {
		return peer.outcome, probeSoon
	}
	return peer.outcome, max(time.Until(peer.looked.Add(p.interval)), probeSoon)
}

// heard says whether a peer that answered lately need not be asked: an open connection tells that it lives.
func (p *prober) heard(ctx context.Context, peer *probed, now time.Time) bool {
	return peer.outcome != nil && peer.outcome.Alive && now.Sub(peer.asked) < askedAfter*p.interval &&
		peer.access.Heard(ctx, now.Add(-remote.Silence))
}

// forget drops a peer that this cluster has no kubeconfig for any more.
func (p *prober) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.peers, id)
}

// newProbed starts anew with other credentials; the last outcome stands until the next one.
func newProbed(kubeconfig []byte, before *probed) *probed {
	peer := &probed{kubeconfig: bytes.Clone(kubeconfig)}
	if before != nil {
		peer.outcome = before.outcome
	}
	access, err := remote.Listen(kubeconfig)
	if err != nil {
		peer.outcome = &plan.Probe{Message: fmt.Sprintf("the kubeconfig of the control-plane identity cannot be used: %v", err)}
		return peer
	}
	peer.access = access
	return peer
}

func (p *prober) run(ctx context.Context, peer *probed) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	outcome := &plan.Probe{Alive: true}
	if err := livez(ctx, peer.access); err != nil {
		outcome = &plan.Probe{Message: ctl.Steady(err) + "; check that the peer's API server is reachable from here"}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	peer.outcome, peer.running = outcome, false
}

// livez asks the peer's API server whether it lives.
func livez(ctx context.Context, peer *remote.Peer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(peer.Config().Host, "/")+"/livez", nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	response, err := (&http.Client{Transport: peer}).Do(request)
	if err != nil {
		return cause(err)
	}
	defer func() { _ = response.Body.Close() }() // nothing is left to read
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<16))
	if response.StatusCode == http.StatusUnauthorized {
		return errors.New("it does not accept this cluster's certificate; run 'liqoctl authenticate' again")
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("/livez answers %s", response.Status)
	}
	return nil
}

// cause is the core of a network error.
func cause(err error) error {
	var operation *net.OpError
	if errors.As(err, &operation) {
		return fmt.Errorf("%s: %w", operation.Op, operation.Err)
	}
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err
	}
	return err
}
