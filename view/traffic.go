// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"
)

// Traffic holds how many bytes a second came from a peer through the tunnel, and went there.
type Traffic struct{ Received, Sent float64 }

// String returns both as text, such as "1.2 MB/s received, 80 kB/s sent".
func (t Traffic) String() string { return rate(t.Received) + " received, " + rate(t.Sent) + " sent" }

// rate returns bytes a second with at most one decimal.
func rate(bytes float64) string {
	unit := 0
	units := []string{"B/s", "kB/s", "MB/s", "GB/s", "TB/s"}
	for bytes >= 999.95 && unit < len(units)-1 { // 999.95 would be shown as 1000.0
		bytes, unit = bytes/1000, unit+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", bytes), ".0") + " " + units[unit]
}

// trafficOf returns the rates of a peer; nil if they are not known.
func (s *Snapshot) trafficOf(peer string) *Traffic {
	if t, known := s.Traffic[peer]; known {
		return &t
	}
	return nil
}
