// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/liqo-go/liqo/api"
)

// TestCachesKeepWhatIsRead shows what the caches hold: the place of any pod, all of pods for
// consumers but the status that only consumers read, all of Liqo's own pods, and no reflected
// Secret.
func TestCachesKeepWhatIsRead(t *testing.T) {
	t.Parallel()
	whole := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u", Annotations: map[string]string{"a": "b"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: new(true)}}},
		Spec: corev1.PodSpec{NodeName: "n1", RuntimeClassName: new("liqo"), Containers: []corev1.Container{{Name: "c", Image: "web:1"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, HostIP: "172.16.0.1",
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady}, {Type: corev1.DisruptionTarget, Reason: "PreemptionByScheduler"}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "c"}},
		},
	}
	place := corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}
	for _, c := range []struct {
		of     string
		labels map[string]string
		want   func(*corev1.Pod)
	}{
		{"a user", map[string]string{"app": "web"}, func(p *corev1.Pod) {
			p.Labels, p.Annotations, p.Spec, p.Status = nil, nil, corev1.PodSpec{NodeName: "n1", RuntimeClassName: new("liqo")}, place
		}},
		{"a user, offloaded", map[string]string{"app": "web", api.LabelShadowPod: api.True}, func(p *corev1.Pod) {
			p.Labels, p.Annotations = map[string]string{api.LabelShadowPod: api.True}, nil
			p.Spec, p.Status = corev1.PodSpec{NodeName: "n1", RuntimeClassName: new("liqo")}, place
		}},
		{"a consumer", map[string]string{api.LabelManaged: api.True, api.LabelManagedBy: api.ManagedByShadowPod}, func(p *corev1.Pod) {
			p.Status = place
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Reason: "PreemptionByScheduler"}}
		}},
		{"ours", map[string]string{api.LabelManaged: api.True}, func(*corev1.Pod) {}},
	} {
		pod := whole.DeepCopy()
		pod.Labels = c.labels
		want := pod.DeepCopy()
		c.want(want)
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
		got, err := stripPod(pod)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("a pod of %s (%v):\n%s", c.of, err, diff)
		}
	}
	waits := whole.DeepCopy()
	waits.Status.Phase = corev1.PodPending
	got, err := stripPod(waits.DeepCopy())
	if diff := cmp.Diff(any(waits), got); diff != "" || err != nil {
		t.Errorf("a pod that has not started (%v):\n%s", err, diff)
	}

	f := controllerFlags{leaseDuration: standardLease}
	for kind, by := range f.manager().Cache.ByObject {
		if _, secret := kind.(*corev1.Secret); secret && (by.Label.Matches(labels.Set{api.LabelOrigin: "rome"}) || !by.Label.Matches(labels.Set{})) {
			t.Errorf("Secrets that match %s are kept", by.Label)
		}
	}
}

// TestTheGatewayImageIsThatOfTheFlag shows that the flag reaches the options. Templates written for
// three containers name other images.
func TestTheGatewayImageIsThatOfTheFlag(t *testing.T) {
	t.Parallel()
	f := controllerFlags{}
	cmd := &cobra.Command{}
	f.add(cmd)
	if err := cmd.ParseFlags([]string{"--gateway-image=liqo:1"}); err != nil {
		t.Fatal(err)
	}
	if got := f.network.GatewayImage; got != "liqo:1" {
		t.Errorf("gateways run %q, want liqo:1", got)
	}
}

// TestCachedChecks shows that a negative result is checked again each time, and a positive one once a minute.
func TestCachedChecks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, answer := 0, errors.New("not yet")
		ready := cached(func(*http.Request) error { asked++; return answer })
		probe := func(when string, times int, want error, questions int) {
			t.Helper()
			asked = 0
			for range times {
				if err := ready(nil); err != want {
					t.Errorf("%s: %v, want %v", when, err, want)
				}
				time.Sleep(2 * time.Second) // of the bubble's clock
			}
			if asked != questions {
				t.Errorf("%s: asked %d times, want %d", when, asked, questions)
			}
		}
		probe("before it serves", 3, answer, 3)
		answer = nil
		probe("while it serves", 60, nil, 2)
		answer = errors.New("no certificate")
		probe("when it serves no longer", 3, answer, 3)
	})
}

// TestEmptyClusterLabels: --cluster-labels= means no labels, as in manifests of the original.
func TestEmptyClusterLabels(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{"": {}, "a=b,c=d": {"a": "b", "c": "d"}} {
		f := &controllerFlags{}
		cmd := &cobra.Command{}
		f.add(cmd)
		if err := cmd.ParseFlags([]string{"--cluster-labels=" + text}); err != nil {
			t.Fatal(err)
		}
		if err := f.completeIdentity(&rest.Config{}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, f.identity.ClusterLabels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
	}
}
