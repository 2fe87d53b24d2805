// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/desired"
)

// requests counts those of a manager, by verb and resource, and makes writes of some fail.
type requests struct {
	http.RoundTripper
	seen *counts
	fail string
}

type counts struct {
	sync.Mutex
	of map[string]int
}

func (c *counts) get(key string) int {
	c.Lock()
	defer c.Unlock()
	return c.of[key]
}

func (r requests) RoundTrip(req *http.Request) (*http.Response, error) {
	resource := ""
	for _, name := range []string{"configmaps", "networks"} {
		if strings.Contains(req.URL.Path, "/"+name) {
			resource = name
		}
	}
	verb := req.Method
	if req.URL.Query().Get("watch") != "" {
		verb = "watch"
	}
	r.seen.Lock()
	r.seen.of[verb+" "+resource]++
	n := r.seen.of[verb+" "+resource]
	r.seen.Unlock()
	if resource == r.fail && verb == http.MethodPatch {
		return nil, fmt.Errorf("read tcp 10.10.0.7:%d->10.96.0.1:443: read: connection reset by peer", 40000+n)
	}
	return r.RoundTripper.RoundTrip(req)
}

// TestFailureIsToldOnce: an error whose text differs each time is written once. What is written
// leads to another look at once, so it would never end.
func TestFailureIsToldOnce(t *testing.T) {
	t.Parallel()
	server, seen := apitest.Start(t), &counts{of: map[string]int{}}
	c := run(t, server, manager.Options{}, func(rt http.RoundTripper) http.RoundTripper {
		return requests{rt, seen, "configmaps"}
	}, wisher())
	wish(t, c, map[string]string{"wish": "a=1"})
	eventually(t, "ApplyFailed", func() string { return ready(t, c) })
	version := func() string {
		var root ipamv1alpha1.Network
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "root"}, &root); err != nil {
			t.Fatal(err)
		}
		return root.ResourceVersion
	}
	more := func(n int) {
		t.Helper()
		tried := seen.get("PATCH configmaps")
		eventually(t, "true", func() string { return strconv.FormatBool(seen.get("PATCH configmaps") >= tried+n) })
	}
	more(3) // the first of them may not have read yet what was written
	before := version()
	more(6)
	if now := version(); now != before {
		t.Errorf("the root was written again: version %s became %s", before, now)
	}
}

// TestPartsComeAfterTheStatus: what a part lets go is noted in the status before, or not let go.
func TestPartsComeAfterTheStatus(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t)
	for fails, resource := range map[bool]string{true: "networks", false: ""} {
		t.Run(fmt.Sprint("status fails: ", fails), func(t *testing.T) {
			seen := &counts{of: map[string]int{}}
			c := run(t, server, manager.Options{}, func(rt http.RoundTripper) http.RoundTripper {
				return requests{rt, seen, resource}
			}, ctl.Controller[*ipamv1alpha1.Network, bool]{
				Name: "parts" + strconv.FormatBool(fails), Quiet: true,
				Gather: func(context.Context, ctl.Reader, *ipamv1alpha1.Network) (bool, error) { return true, nil },
				Plan: func(bool) desired.Plan {
					noted := &ipamv1alpha1.Network{Status: ipamv1alpha1.NetworkStatus{CIDR: "10.70.0.0/16"}}
					before := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "free"}}
					after := before.DeepCopy()
					after.Data = map[string]string{"free": "yes"}
					return desired.Plan{Status: noted, Actions: []desired.Action{{Verb: desired.Merge, Before: before, Object: after, Last: true}}}
				},
			})
			wish(t, c, map[string]string{"fails": strconv.FormatBool(fails)})
			eventually(t, "true", func() string {
				return strconv.FormatBool(seen.get("PATCH networks") > 2 || seen.get("PATCH configmaps") > 0)
			})
			if n := seen.get("PATCH configmaps"); n > 0 == fails {
				t.Errorf("the part was written %d times", n)
			}
		})
	}
}

// TestListsComeInOrder: a plan that names what it was given in the order given says the same each
// time.
func TestListsComeInOrder(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t)
	c := run(t, server, manager.Options{}, nil, ctl.Controller[*ipamv1alpha1.Network, []corev1.ConfigMap]{
		Name:    "lists",
		Watches: []ctl.Watch{{Kind: &corev1.ConfigMap{}, Map: ctl.All(&ipamv1alpha1.NetworkList{})}},
		Gather: func(ctx context.Context, r ctl.Reader, _ *ipamv1alpha1.Network) ([]corev1.ConfigMap, error) {
			var all corev1.ConfigMapList
			err := r.List(ctx, &all, client.HasLabels{"listed"})
			return all.Items, err
		},
		Plan: func(all []corev1.ConfigMap) desired.Plan {
			var names []string
			for _, m := range all {
				names = append(names, m.Namespace+"/"+m.Name)
			}
			return desired.Block("Listed", "%s", strings.Join(names, " "))
		},
	})
	wish(t, c, nil)
	want := []string{}
	for _, ns := range []string{"default", "kube-public"} {
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			want = append(want, ns+"/"+name)
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"listed": ""}}}
			if err := c.Create(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, strings.Join(want, " "), func() string {
		var root ipamv1alpha1.Network
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "root"}, &root); err != nil {
			t.Fatal(err)
		}
		for _, cond := range root.Status.Conditions {
			if cond.Type == desired.ConditionReady {
				return cond.Message
			}
		}
		return ""
	})
}

// TestNextLeaderKnowsWhatThereIs: a replica that waits for its turn already watches, so that it
// need not read everything when another fell silent.
func TestNextLeaderKnowsWhatThereIs(t *testing.T) {
	t.Parallel()
	server, seen := apitest.Start(t), &counts{of: map[string]int{}}
	admin, err := client.New(server.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const lease = "leader"
	if err := admin.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: lease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(3600)), RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}); err != nil {
		t.Fatal(err)
	}
	run(t, server, manager.Options{LeaderElection: true, LeaderElectionID: lease, LeaderElectionNamespace: namespace}, func(rt http.RoundTripper) http.RoundTripper {
		return requests{rt, seen, ""}
	}, wisher())
	eventually(t, "true", func() string {
		return strconv.FormatBool(seen.get("watch networks") > 0 && seen.get("watch configmaps") > 0)
	})
}
