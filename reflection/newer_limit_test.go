// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"net/http"
	"testing"
)

// TestAttackFieldsWithoutEnd: a provider warns of ever new fields, and of keys of Secrets.
//
// Outcome: a request brings so many at most, none of them a key, and a namespace gets so many events at most.
func TestAttackFieldsWithoutEnd(t *testing.T) {
	t.Parallel()
	ctx, unknown := withWarnings(t.Context())
	for i := range 100 {
		for _, path := range []string{"data.password%d", "spec.field%d"} {
			warnings{}.HandleWarningHeaderWithContext(ctx, http.StatusOK, "", fmt.Sprintf("unknown field %q", fmt.Sprintf(path, i)))
		}
	}
	if len(*unknown) != mostWarned || (*unknown)[1] != "spec.field1" {
		t.Errorf("taken from the warnings of a request: %v", *unknown)
	}
	n, reported := newNewer(), 0
	for i := range 100 {
		for range 2 {
			if n.isNew(place{"Pod", "shop", "cause"}, fmt.Sprint("spec.field", i)) {
				reported++
			}
		}
	}
	if reported != mostReported || !n.isNew(place{"Pod", "other", "cause"}, "spec.field0") {
		t.Errorf("%d events in a namespace", reported)
	}
}
