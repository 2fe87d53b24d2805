// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// TestProblemsAreThereOnce: of a ForeignCluster's alert and that of the object it sums up, the
// object's is shown. Alerts without a colon are no repetitions of each other.
func TestProblemsAreThereOnce(t *testing.T) {
	t.Parallel()
	p := &Peer{}
	p.Network.Alerts = []string{"NetworkConnectionStatus: the tunnel lost the peer (Error)",
		"NetworkGatewayPresence: there is no gateway (NotReady)", "connection t/gw-milan: no answer"}
	p.Authentication.Alerts = []string{"APIServerStatus: it does not answer (Error)"}
	p.Offloading.Alerts = []string{"node milan does not exist", "deployment t/vk-milan is not ready"}
	want := []string{"NetworkGatewayPresence: there is no gateway (NotReady)", "connection t/gw-milan: no answer",
		"APIServerStatus: it does not answer (Error)", "node milan does not exist",
		"deployment t/vk-milan is not ready"}
	if got := p.Problems(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestOffloadingProblemsAreThereOnce: what a provider says is left out if the namespace quotes it.
func TestOffloadingProblemsAreThereOnce(t *testing.T) {
	t.Parallel()
	refused := func(message string) offv1beta1.RemoteNamespaceConditions {
		return offv1beta1.RemoteNamespaceConditions{{Type: offv1beta1.NamespaceReady, Status: corev1.ConditionFalse,
			Message: message}}
	}
	o := &offv1beta1.NamespaceOffloading{}
	o.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse,
		Message: "milan: it exists"}}
	o.Status.RemoteNamespacesConditions = map[string]offv1beta1.RemoteNamespaceConditions{
		"milan": refused("it exists"), "turin": refused("it may not")}
	want := []string{"milan: it exists", "turin: it may not"}
	if got := offloadingProblems(o); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
