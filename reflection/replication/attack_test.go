// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package replication_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
)

// writes counts the writes that reached a cluster's etcd.
type writes struct{ count, bytes atomic.Int64 }

// stored counts the writes of some kinds in the tenant namespace.
func stored(t *testing.T, config *rest.Config, lists ...client.ObjectList) *writes {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme.New()})
	must(t, err)
	var out writes
	for _, list := range lists {
		w, err := c.Watch(t.Context(), list, client.InNamespace(tenant))
		must(t, err)
		t.Cleanup(w.Stop)
		go func() {
			for event := range w.ResultChan() {
				text, err := json.Marshal(event.Object)
				if err != nil {
					t.Error(err)
				}
				out.count.Add(1)
				out.bytes.Add(int64(len(text)))
			}
		}()
	}
	return &out
}

// TestAttackStatusFillsEtcd: a provider writes statuses of 1 MiB to its copies of a ResourceSlice, a NamespaceMap and a
// Renew, one after the other and each unlike the one before, so that the consumer copies them until its etcd is full.
//
// Outcome: the consumer ignores a status that is too large, says so in one event, and takes of the others at most 20
// at once and one a second. Another slice is answered meanwhile, and the last status comes back in the end.
func TestAttackStatusFillsEtcd(t *testing.T) {
	t.Parallel()
	rome, milan, home, remote := consumerAndProvider(t)
	ctx := t.Context()
	run(t, rome.Config, &lines{})
	fast := rest.CopyConfig(milan.Config)
	fast.QPS = -1 // no limit at the client
	attacker := clientOf(t, fast)
	create(t, home, identitySecret(t, tenant, "milan", milan.Config))
	meta := *sliceTo("milan", "milan").ObjectMeta.DeepCopy()
	wish := &offv1beta1.NamespaceMap{ObjectMeta: *meta.DeepCopy(), Spec: offv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{"shop": "shop-rome"}}}
	renew := &authv1beta1.Renew{ObjectMeta: *meta.DeepCopy(), Spec: authv1beta1.RenewSpec{ConsumerClusterID: "rome"}}
	slice, other := sliceTo("milan", "milan"), sliceTo("milan", "other")
	kinds := []client.Object{&authv1beta1.ResourceSlice{}, &offv1beta1.NamespaceMap{}, &authv1beta1.Renew{}}
	for _, obj := range []client.Object{slice, wish, renew, other} {
		create(t, home, obj)
	}
	for _, copied := range kinds {
		eventually(t, "the copy of slice milan", func() error { return remote.Get(ctx, key(remoteTenant, "milan"), copied) })
	}
	eventually(t, "the copy of slice other", func() error { return remote.Get(ctx, key(remoteTenant, "other"), &authv1beta1.ResourceSlice{}) })
	written := stored(t, rome.Config, &authv1beta1.ResourceSliceList{}, &offv1beta1.NamespaceMapList{}, &authv1beta1.RenewList{})
	says := func(kind client.Object, name string, status any) {
		t.Helper()
		text, err := json.Marshal(map[string]any{"status": status})
		must(t, err)
		copied := kind.DeepCopyObject().(client.Object)
		copied.SetNamespace(remoteTenant)
		copied.SetName(name)
		must(t, attacker.Status().Patch(ctx, copied, client.RawPatch(types.MergePatchType, text)))
	}
	answer := func(message string, labels map[string]string) any {
		return authv1beta1.ResourceSliceStatus{NodeLabels: labels, Conditions: []authv1beta1.ResourceSliceCondition{
			{Type: authv1beta1.ResourceSliceResources, Status: authv1beta1.ResourceSliceAccepted, Message: message},
		}}
	}
	answers := func(name string) error {
		got := &authv1beta1.ResourceSlice{}
		must(t, home.Get(ctx, key(tenant, name), got))
		if len(got.Status.Conditions) == 0 || got.Status.Conditions[0].Message != "last" {
			return fmt.Errorf("slice %s has %d conditions, and no last answer", name, len(got.Status.Conditions))
		}
		return nil
	}

	told := func() error {
		var events corev1.EventList
		must(t, home.List(ctx, &events, client.InNamespace(tenant)))
		count := 0
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "ResourceSlice" && strings.Contains(e.Message, "more than 65536 bytes") {
				count++
			}
		}
		if count != 1 {
			return fmt.Errorf("%d events tell of an answer that is ignored", count)
		}
		return nil
	}
	says(kinds[0], "milan", answer("", map[string]string{"a": strings.Repeat("x", 900<<10)}))
	eventually(t, "one event of an answer that is ignored", told)

	// First statuses of 1 MiB, of which all, the beginnings of messages, or nothing may come back;
	// then small ones of the slice, as fast as the provider can.
	const half = 2 * time.Second
	began := time.Now()
	for round := 0; time.Since(began) < half; round++ {
		text := fmt.Sprint(round, strings.Repeat("x", 900<<10))
		for _, part := range []string{text[:60<<10], text} {
			says(kinds[0], "milan", answer("", map[string]string{"a": part}))
			says(kinds[2], "milan", authv1beta1.RenewStatus{AuthParams: &authv1beta1.AuthParams{APIServer: part}})
		}
		says(kinds[0], "milan", answer(text, map[string]string{"a": ""}))
		strangers := map[string]offv1beta1.RemoteNamespaceStatus{"shop": {RemoteNamespace: text[:60<<10], Phase: offv1beta1.NamespaceAccepted}}
		for i := range 100 {
			strangers[fmt.Sprint("stranger-", i)] = offv1beta1.RemoteNamespaceStatus{RemoteNamespace: text[:8<<10], Phase: offv1beta1.NamespaceAccepted}
		}
		says(kinds[1], "milan", offv1beta1.NamespaceMapStatus{CurrentMapping: strangers, Conditions: []metav1.Condition{{
			Type: "Stalled", Status: metav1.ConditionTrue, Reason: "Told", Message: text[:30<<10], LastTransitionTime: metav1.Now(),
		}}})
	}
	for round := 0; time.Since(began) < 2*half || round < 100; round++ {
		says(kinds[0], "milan", answer(fmt.Sprint(round), map[string]string{"a": ""}))
	}
	says(kinds[0], "other", answer("last", nil))
	answered := time.Now()
	eventually(t, "the answer of slice other", func() error { return answers("other") })
	t.Logf("another slice is answered after %s", time.Since(answered))

	// In a minute 10 MiB may be written for an object of each of four kinds: 20 states at once and
	// 60 later ones.
	count, bytes, took := written.count.Load(), written.bytes.Load(), time.Since(began)
	states := 20 + int64(took.Seconds()) + 1
	t.Logf("%d writes of %d bytes", count, bytes)
	if most := states * 10 << 20 / 80; bytes > most {
		t.Errorf("%d bytes are written in %s, more than %d", bytes, took, most)
	}
	const others = 40 // of the map and the Renew, and the begin of all: they change less often
	if most := states + others; count > most {
		t.Errorf("%d states are written in %s, more than %d", count, took, most)
	}
	must(t, told())

	says(kinds[0], "milan", answer("last", map[string]string{"a": ""}))
	says(kinds[1], "milan", offv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offv1beta1.RemoteNamespaceStatus{
		"shop": {RemoteNamespace: "shop-rome", Phase: offv1beta1.NamespaceAccepted},
	}})
	says(kinds[2], "milan", authv1beta1.RenewStatus{AuthParams: &authv1beta1.AuthParams{APIServer: "https://last"}})
	eventually(t, "the answer of slice milan", func() error { return answers("milan") })
	eventually(t, "the last statuses of map and Renew", func() error {
		must(t, home.Get(ctx, client.ObjectKeyFromObject(wish), wish))
		must(t, home.Get(ctx, client.ObjectKeyFromObject(renew), renew))
		if wish.Status.CurrentMapping["shop"].RemoteNamespace != "shop-rome" || renew.Status.AuthParams.APIServer != "https://last" {
			return errors.New("the last statuses have not come back")
		}
		return nil
	})
	if wish.Labels[api.LabelRemoteID] != "milan" || len(wish.Status.CurrentMapping) != 1 {
		t.Errorf("the map has the namespaces %v", wish.Status.CurrentMapping)
	}
}
