// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/ctl"
)

// TestGrantsWithALateCache: grants are known although the cache does not show them yet, also those
// of the process before. A grant that was not written does not count.
func TestGrantsWithALateCache(t *testing.T) {
	t.Parallel()
	type held map[string]string // grants by the names of IPs
	reader := func(h held) client.Reader {
		var objects []client.Object
		for name, ip := range h {
			objects = append(objects, &ipamv1alpha1.IP{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)},
				Status:     ipamv1alpha1.IPStatus{IP: ip},
			})
		}
		return fake.NewClientBuilder().WithScheme(scheme.New()).WithObjects(objects...).Build()
	}
	var made grants
	for _, step := range []struct {
		name        string
		cache, live held
		root, note  string
		want        held // nil = the API server was asked, and said what is live
		granted     string
	}{
		{"the process before granted b, and the cache is late", held{"a": "", "b": ""}, held{"a": "", "b": "2"}, "a", "1", nil, ""},
		{"and still is", held{"a": "1", "b": "", "c": ""}, held{"a": "1", "b": "2", "c": ""}, "c", "3", nil, ""},
		{"it has caught up with that, but not with c", held{"a": "1", "b": "2", "c": "", "d": ""}, held{"a": "1", "b": "2", "c": "3", "d": ""}, "d", "4", nil, ""},
		{"from now on it is enough", held{"a": "1", "b": "2", "c": "3", "d": "", "e": ""}, nil, "e", "5", held{"a": "1", "b": "2", "c": "3", "d": "4", "e": ""}, ""},
		{"d is gone, e is late", held{"a": "1", "e": "", "f": ""}, nil, "f", "", held{"a": "1", "e": "5", "f": ""}, ""},
		{"e comes again, and was not written", held{"a": "1", "e": ""}, held{"e": ""}, "e", "6", held{"a": "1", "e": ""}, ""},
		{"e comes again, and was written", held{"a": "1", "e": ""}, held{"e": "6"}, "e", "", held{"a": "1", "e": "6"}, "6"},
		{"e is late still", held{"a": "1", "e": "", "g": ""}, nil, "g", "", held{"a": "1", "e": "6", "g": ""}, ""},
	} {
		var ips ipamv1alpha1.IPList
		root := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: step.root, UID: types.UID(step.root)}}
		of := func(i int) (types.UID, *string) { return ips.Items[i].UID, &ips.Items[i].Status.IP }
		r := ctl.Reader{Reader: reader(step.cache), Live: reader(step.live)}
		if err := made.list(t.Context(), r, root, &root.Status.IP, &ips, of); err != nil {
			t.Fatal(err)
		}
		got := held{}
		for _, ip := range ips.Items {
			got[ip.Name] = ip.Status.IP
		}
		want := step.want
		if want == nil {
			want = step.live
		}
		if !maps.Equal(got, want) || root.Status.IP != step.granted {
			t.Errorf("%s: %v, and the root has %q; want %v and %q", step.name, got, root.Status.IP, want, step.granted)
		}
		if step.note != "" {
			made.late.Begin(root.UID, step.note)
		}
	}
}
