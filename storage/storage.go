// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage provisions claims of the storage class "liqo", whose volume is created in the
// cluster in which the first pod of the claim runs.
//
// On a real node, a claim of a real storage class in another namespace backs it. On a virtual node,
// the local volume is a placeholder, and reflection creates the claim at the provider. The node
// affinity of the volume makes later pods follow. Data is moved on demand only, by liqoctl and
// package mover. The package does nothing at providers. Like every provisioner it relies on
// Kubernetes' protocol: the annotations of claims, and the phase and policy of volumes.
//
// Start reading at Controllers, then plan.Claim.
package storage

import (
	"github.com/liqo-go/liqo/internal/ctl"
)

// Options holds the settings of the controllers.
type Options struct {
	// Namespace holds the claims that back those of the virtual class.
	Namespace string
	// RealClass is the class of the backing claims; empty = the cluster's default.
	RealClass string
}

// Controllers returns the controllers of the room for the controller role.
func Controllers(o Options) []ctl.Registrar {
	return []ctl.Registrar{claim(o), unused(o), released(o), abandoned(), growing(o)}
}
