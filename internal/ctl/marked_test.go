// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/desired"
)

// marking registers a controller at a manager with global labels and annotations.
type marking struct {
	ctl.Registrar
	client client.Client
}

func (m *marking) Register(mgr manager.Manager) error {
	mgr = ctl.Marked(mgr, ctl.Global{
		Labels:      map[string]string{"team": "net", desired.LabelManaged: "false"},
		Annotations: map[string]string{"note": "a,b=c"},
	})
	m.client = mgr.GetClient()
	return m.Registrar.Register(mgr)
}

// patches counts the patches of a path that ends like this.
type patches struct {
	http.RoundTripper
	path string
	n    *atomic.Int32
}

func (p patches) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, p.path) {
		p.n.Add(1)
	}
	return p.RoundTripper.RoundTrip(r)
}

// TestGlobalMetadata: objects that are applied or created get the global labels and annotations, and keep their own.
// Another reconciliation writes nothing.
func TestGlobalMetadata(t *testing.T) {
	t.Parallel()
	marks := &marking{Registrar: wisher()}
	var sent atomic.Int32
	c := run(t, apitest.Start(t), manager.Options{}, func(rt http.RoundTripper) http.RoundTripper {
		return patches{rt, "/configmaps/a", &sent}
	}, marks)
	metadata := func(name string) func() string {
		return func() string {
			made := &corev1.ConfigMap{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: elsewhere, Name: name}, made); err != nil {
				return err.Error()
			}
			return made.Labels["team"] + " " + made.Labels[desired.LabelManaged] + " " + made.Annotations["note"]
		}
	}
	wished := func(objects string) {
		wish(t, c, map[string]string{"wish": objects})
		eventually(t, objects, func() string { return granted(t, c) })
	}
	wished("a=1 b=2")
	eventually(t, "net true a,b=c", metadata("a"))
	wished("a=1")
	before := sent.Load()
	wished("a=1 c=3")
	if after := sent.Load(); before == 0 || after != before {
		t.Errorf("%d applies of an object became %d without a change", before, after)
	}

	create := func(obj client.Object) {
		t.Helper()
		if err := marks.client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "made"}})
	eventually(t, "net false a,b=c", metadata("made"))

	// What is replicated to a peer takes its labels along.
	replicated := map[string]string{api.LabelReplication: api.True}
	create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "replicated", Labels: replicated}})
	eventually(t, "  ", metadata("replicated"))

	// A review has no metadata.
	create(&authenticationv1.SelfSubjectReview{})
}
