// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/reflection/translate"
)

// pulledFrom is the home pod, of one container, after a provider has said something of its remote
// pod.
func pulledFrom(home *corev1.Pod, says corev1.PodStatus) *corev1.Pod {
	says.Phase, says.StartTime = corev1.PodRunning, new(metav1.NewTime(time.Unix(1, 0)))
	return translate.PodStatus(home, nil, &corev1.Pod{Status: says}, translate.View{Namespaces: map[string]string{"shop": "shop-rome"}})
}

func webPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
	}
}

// TestMuchThatIsSaidIsCut: of a provider's messages the beginnings are shown, of what no kubelet
// says nothing.
func TestMuchThatIsSaidIsCut(t *testing.T) {
	const long = 1 << 20
	text := "x" + strings.Repeat("ö", long/2)
	ends := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: text}}
	got := pulledFrom(webPod(), corev1.PodStatus{
		Message:    text,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Message: text}},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Message: text}}, LastTerminationState: ends},
			{Name: "none", Image: text},
		},
	}).Status
	if len(got.ContainerStatuses) != 1 {
		t.Fatalf("%d containers have a status, want 1", len(got.ContainerStatuses))
	}
	c := got.ContainerStatuses[0]
	for i, message := range []string{got.Message, got.Conditions[0].Message, c.State.Waiting.Message, c.LastTerminationState.Terminated.Message} {
		if want := text[:4095]; message != want {
			t.Errorf("message %d has %d bytes, want the first %d", i, len(message), len(want))
		}
	}
	refused := translate.PodStatus(webPod(), nil, nil, translate.View{
		Namespaces: map[string]string{"shop": "shop-rome"}, Refusal: &metav1.Condition{Message: text},
	})
	if size := refused.Status.Size(); size > 5<<10 {
		t.Errorf("a refusal becomes %d bytes", size)
	}
}

// TestAStatusLargerThanAnyIsNotShown, wherever its bytes are.
func TestAStatusLargerThanAnyIsNotShown(t *testing.T) {
	small := pulledFrom(webPod(), corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", ImageID: strings.Repeat("x", 40<<10)}}})
	if small.Status.Phase != corev1.PodRunning {
		t.Error("a status of 40 kB is not shown")
	}
	large := pulledFrom(webPod(), corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c", ImageID: strings.Repeat("x", 50<<10)}}})
	alike(t, "status", webPod().Status, large.Status)
}
