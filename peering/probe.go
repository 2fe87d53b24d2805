// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/peering/plan"
)

// maxUnasked is how many intervals may pass without a request to a peer that is alive.
const maxUnasked = 4

// probe returns the outcome of the last check of a peer; nil if there was none yet. It does not
// wait for the peer, whose ForeignCluster is reconciled when the outcome changes.
func (s *summary) probe(id string, secret *corev1.Secret) *plan.Probe {
	if err := remote.Usable(secret.Data[api.KubeconfigField]); err != nil {
		return &plan.Probe{Message: fmt.Sprintf("the kubeconfig of the control-plane identity cannot be used: %v", err)}
	}
	link := s.Links.Get(client.ObjectKeyFromObject(secret))
	if link == nil {
		return nil
	}
	checks := remote.Checks{Interval: s.ProbeInterval, Timeout: s.ProbeTimeout, MaxUnasked: maxUnasked}
	health := link.Health(checks, func() { s.changed.Wake(types.NamespacedName{Name: id}) })
	if health == nil {
		return nil
	}
	return outcome(*health)
}

// outcome returns the health of a peer as its ForeignCluster reports it.
func outcome(h remote.Health) *plan.Probe {
	if err := problem(h); err != nil {
		return &plan.Probe{Message: ctl.Steady(err) + "; check that the peer's API server is reachable from here"}
	}
	return &plan.Probe{Alive: true}
}

// problem returns what is wrong with the peer's API server, nil if it is alive.
func problem(h remote.Health) error {
	var operation *net.OpError
	switch {
	case errors.As(h.Err, &operation):
		return fmt.Errorf("%s: %w", operation.Op, operation.Err)
	case h.Err != nil:
		return h.Err
	case h.Code == http.StatusUnauthorized:
		return errors.New("it does not accept this cluster's certificate; run 'liqoctl authenticate' again")
	case h.Code != http.StatusOK:
		return fmt.Errorf("/livez answers %s", h.Status)
	}
	return nil
}
