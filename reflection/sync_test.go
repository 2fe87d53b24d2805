// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/liqo-go/liqo/internal/remote"
)

// TestRightsAreWithdrawn when a peer refuses that is ready, or keeps for longer than any start to
// itself whether it is; one that says it is not is waited for.
func TestRightsAreWithdrawn(t *testing.T) {
	t.Parallel()
	key := types.NamespacedName{Namespace: "shop", Name: "data"}
	for _, story := range []struct {
		readyz           int // the answer
		long, withdrawn  bool
		answers, refuses int // of what is tried, one after the other
	}{
		{readyz: http.StatusOK, withdrawn: true, answers: 2, refuses: 2},
		{readyz: http.StatusOK, answers: 2, refuses: 1},
		{readyz: http.StatusForbidden, answers: 1, refuses: 1},
		{readyz: http.StatusForbidden, long: true, withdrawn: true, answers: 1, refuses: 1},
		{readyz: http.StatusNotFound, long: true, withdrawn: true, answers: 1, refuses: 1},
		{readyz: http.StatusInternalServerError, long: true, answers: 1, refuses: 1},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(story.readyz)
			io.WriteString(w, r.URL.Path)
		}))
		defer server.Close()
		there, err := remote.NewCluster(&rest.Config{Host: server.URL}, scheme.Scheme, remote.StaticMapper(scheme.Scheme))
		if err != nil {
			t.Fatal(err)
		}
		w := &worker{Kind: Kind{Finalizer: "held"}, engine: &Engine{Config: Config{Remote: there}}, silence: map[types.NamespacedName]time.Time{}}
		if story.long {
			w.silence[key] = time.Now().Add(-longestStart)
		}
		answers := 0
		withdrawn, err := w.tries(t.Context(), key, func() error {
			if answers++; answers <= story.refuses {
				return apierrors.NewForbidden(schema.GroupResource{}, "data", nil)
			}
			return nil
		})
		if withdrawn != story.withdrawn || answers != story.answers || apierrors.IsForbidden(err) != (story.answers == story.refuses) {
			t.Errorf("%+v: withdrawn %t after %d answers, %v", story, withdrawn, answers, err)
		}
		if w.silence[key].IsZero() != (story.readyz != http.StatusForbidden || story.withdrawn) {
			t.Errorf("%+v: silent since %s", story, w.silence[key])
		}
	}
}
