// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/reflection/translate"
)

// TestWhoHasAHostPort: the pod that came first, at the same address of the node and by the same
// protocol.
func TestWhoHasAHostPort(t *testing.T) {
	t.Parallel()
	pod := func(uid string, age time.Duration, ports ...corev1.ContainerPort) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), CreationTimestamp: metav1.NewTime(time.Unix(1000, 0).Add(-age))},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Ports: ports}}},
		}
	}
	tcp := func(port int32, ip string) corev1.ContainerPort {
		return corev1.ContainerPort{HostPort: port, HostIP: ip, Protocol: corev1.ProtocolTCP}
	}
	udp := corev1.ContainerPort{HostPort: 80, Protocol: corev1.ProtocolUDP}
	ended, started, host := pod("o", time.Hour, tcp(80, "")), pod("o", -time.Hour, tcp(80, "")), pod("o", time.Hour, tcp(80, ""))
	ended.Status.Phase, host.Spec.HostNetwork = corev1.PodFailed, true
	started.Status.StartTime = &metav1.Time{Time: time.Unix(1000, 0)}
	for claim, c := range map[string]struct {
		port  corev1.ContainerPort
		other corev1.Pod
		want  string
	}{
		"an earlier pod":               {tcp(80, ""), pod("o", time.Hour, tcp(443, ""), tcp(80, "")), "80/TCP"},
		"a later pod":                  {tcp(80, ""), pod("o", -time.Hour, tcp(80, "")), ""},
		"a later pod that has started": {tcp(80, ""), started, "80/TCP"},
		"the pod itself":               {tcp(80, ""), pod("p", 0, tcp(80, "")), ""},
		"a pod that has ended":         {tcp(80, ""), ended, ""},
		"a pod in the host's network":  {tcp(80, ""), host, ""},
		"another port":                 {tcp(81, ""), pod("o", time.Hour, tcp(80, "")), ""},
		"another protocol":             {tcp(80, ""), pod("o", time.Hour, udp), ""},
		"another address":              {tcp(80, "10.0.0.1"), pod("o", time.Hour, tcp(80, "10.0.0.2")), ""},
		"one of all addresses":         {tcp(80, "10.0.0.1"), pod("o", time.Hour, tcp(80, "0.0.0.0")), "80/TCP"},
		"no host port":                 {corev1.ContainerPort{ContainerPort: 80}, pod("o", time.Hour, corev1.ContainerPort{ContainerPort: 80}), ""},
	} {
		p := pod("p", 0, c.port)
		if got := translate.TakenPort(&p, []corev1.Pod{c.other}); got != c.want {
			t.Errorf("%s: %q, want %q", claim, got, c.want)
		}
	}
}
