// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/ctl"
)

// certificateStart returns the metric with the start of this cluster's certificates at providers.
// Their lifetime differs, so an alert needs both times.
func certificateStart() ctl.Registrar {
	return ctl.Gauges{
		Name:   "liqo_identity_certificate_start_timestamp_seconds",
		Help:   "Time from which the certificate for a provider is valid.",
		Labels: certificateLabels(), Read: perCertificate(func(c *x509.Certificate) time.Time { return c.NotBefore }),
	}
}

// certificateEnd returns the metric with their end.
func certificateEnd() ctl.Registrar {
	return ctl.Gauges{
		Name:   "liqo_identity_certificate_end_timestamp_seconds",
		Help:   "Time until which the certificate for a provider is valid; it is renewed after two thirds of its life.",
		Labels: certificateLabels(), Read: perCertificate(func(c *x509.Certificate) time.Time { return c.NotAfter }),
	}
}

func certificateLabels() []string { return []string{"cluster_id", "identity", "type"} }

// perCertificate returns a time of the certificates in all Identities. Identities without a valid
// one are left out: their conditions say why.
func perCertificate(of func(*x509.Certificate) time.Time) func(context.Context, client.Reader) ([]ctl.Gauge, error) {
	return func(ctx context.Context, r client.Reader) (all []ctl.Gauge, err error) {
		var identities authv1beta1.IdentityList
		if err := r.List(ctx, &identities); err != nil {
			return nil, fmt.Errorf("list Identities: %w", err)
		}
		for i := range identities.Items {
			spec := &identities.Items[i].Spec
			c, err := plan.ParseCertificate(plan.Held(spec.AuthParams))
			if err != nil {
				continue
			}
			labels := []string{spec.ClusterID, identities.Items[i].Name, string(spec.Type)}
			all = append(all, ctl.Gauge{Value: float64(of(c).Unix()), Labels: labels})
		}
		return all, nil
	}
}
