// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"

	"github.com/liqo-go/liqo/reflection/translate"
)

// TestUnknownVolume: a source is a field of a volume itself, or of a projection itself.
func TestUnknownVolume(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]bool{
		"spec.volumes.newer":                                       true,
		"spec.volumes.projected.sources.newer":                     true,
		"spec.volumes.projected.newer":                             false,
		"spec.volumes.projected.sources.serviceAccountToken.newer": false,
		"spec.volumes.ephemeral.volumeClaimTemplate.spec.newer":    false,
		"spec.containers.newer":                                    false,
		"spec.newer":                                               false,
	} {
		if got := translate.UnknownVolume(translate.View{Lost: []string{"spec.a", field}}); (got == field) != want {
			t.Errorf("%s is the source of a volume: %t, want %t", field, got == field, want)
		}
	}
}
