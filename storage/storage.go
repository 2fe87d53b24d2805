// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage provisions claims of the class "liqo", whose volume comes to be where the first
// pod of the claim runs.
//
// On a real node a claim of a real class backs it, in a namespace of its own; on a virtual node its
// volume here is a placeholder, and the claim itself is made at the provider by reflection. Later
// pods follow by the node affinity of the volume: data has gravity. It is moved on demand only, by
// liqoctl and package mover, and what happens at a provider is not done here. As every provisioner it trusts
// Kubernetes' protocol: the annotations of claims, and the phase and policy of volumes.
//
// Start reading at Controllers, then plan.Claim.
package storage

import (
	"github.com/liqo-go/liqo/internal/ctl"
)

// Options are the settings of the room.
type Options struct {
	// Namespace holds the claims that back those of the virtual class.
	Namespace string
	// RealClass is the class of these; empty = the cluster's default.
	RealClass string
}

// Controllers are everything of the room that runs in the controller role.
func Controllers(o Options) []ctl.Registrar {
	return []ctl.Registrar{claim(o), unused(o), released(o), abandoned(), growing(o)}
}
