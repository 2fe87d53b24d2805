// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/story"
	"github.com/liqo-go/liqo/reflection/translate"
)

// TestTrimmingLosesNothingThatIsRead tells every story of a pod also with trimmed objects: the same
// comes out, less what was trimmed. What is made of a part is taken by nobody: InPart says so.
func TestTrimmingLosesNothingThatIsRead(t *testing.T) {
	story.Each(t, "testdata/*.txtar", func(t *testing.T, file *story.Story) {
		s := read(t, file)
		home, ok := s.home.(*corev1.Pod)
		if !ok {
			return
		}
		shadow, report := as[*offv1beta1.ShadowPod](s.remote), as[*corev1.Pod](s.report)
		tokens := as[*corev1.Secret](s.remote)
		for _, phase := range []corev1.PodPhase{home.Status.Phase, corev1.PodRunning} { // what has started is kept in part
			home := home.DeepCopy()
			home.Status.Phase = phase
			homePart, shadowPart, reportPart := trimmed(home, translate.TrimPod), trimmed(shadow, translate.TrimShadowPod), trimmed(report, translate.TrimReport)
			tokensPart := trimmed(tokens, translate.TrimTokens)

			want, got := translate.Pod(home, shadow, s.view), translate.Pod(homePart, shadowPart, s.view)
			if shadow != nil || want == nil || !translate.InPart(homePart) {
				alike(t, "pushed", trimmed(want, translate.TrimShadowPod), trimmed(got, translate.TrimShadowPod))
			} else if got == nil {
				t.Error("nothing is pushed of a part")
			}
			if shadow != nil && want != nil {
				changes, seen := !equality.Semantic.DeepEqual(shadow, want), !equality.Semantic.DeepEqual(shadowPart, got)
				if changes != seen {
					t.Errorf("the ShadowPod changes: %t, of its part: %t", changes, seen)
				}
				alike(t, "pushed of a whole ShadowPod", want, translate.Pod(homePart, shadow, s.view))
			}
			pulled, part := translate.PodStatus(home, shadow, report, s.view), translate.PodStatus(homePart, shadowPart, reportPart, s.view)
			alike(t, "pulled status", pulled.Status, part.Status)
			alike(t, "labels of what is pulled", pulled.Labels, part.Labels)
			delete(pulled.Annotations, corev1.LastAppliedConfigAnnotation) // nobody reads or changes it
			alike(t, "annotations of what is pulled", pulled.Annotations, part.Annotations)
			alike(t, "grace", translate.Grace(home, report), translate.Grace(homePart, reportPart))

			sources := translate.TokenSources(home, s.view)
			alike(t, "sources of tokens", sources, translate.TokenSources(homePart, s.view))
			certificates := translate.CertificateSources(home)
			alike(t, "number of certificates", len(certificates), len(translate.CertificateSources(homePart)))
			alike(t, "renewal", fmt.Sprint(translate.CertificateRefresh(home, tokens, certificates)),
				fmt.Sprint(translate.CertificateRefresh(homePart, tokensPart, translate.CertificateSources(homePart))))
			alike(t, "tokens", trimmed(translate.Tokens(home, tokens, s.view), translate.TrimTokens),
				trimmed(translate.Tokens(homePart, tokensPart, s.view), translate.TrimTokens))
			if len(sources) > 0 {
				alike(t, "refresh", translate.TokenRefresh(home, tokens, sources).String(), translate.TokenRefresh(homePart, tokensPart, sources).String())
			}
		}
	})
}

// TestWhatIsTrimmedIsKnown: a pod that waits may be made at the provider from what is known of it,
// one that runs and a ShadowPod are read whole before; trimming again takes nothing more.
func TestWhatIsTrimmedIsKnown(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", ImagePullPolicy: corev1.PullAlways}}}}
	for phase, part := range map[corev1.PodPhase]bool{"": false, corev1.PodPending: false, corev1.PodRunning: true, corev1.PodFailed: true} {
		pod.Status.Phase = phase
		once := trimmed(pod, translate.TrimPod)
		if translate.InPart(once) != part {
			t.Errorf("a pod that is %q is known in part: %t, want %t", phase, !part, part)
		}
		alike(t, "twice", once, trimmed(once, translate.TrimPod))
	}
	shadow := &offv1beta1.ShadowPod{Spec: offv1beta1.ShadowPodSpec{Pod: pod.Spec}}
	if translate.InPart(shadow) || !translate.InPart(trimmed(shadow, translate.TrimShadowPod)) {
		t.Error("a ShadowPod is known in part when it was trimmed, and only then")
	}
}

// TestOwnKeysTellWhatCameFromHome: labels and annotations that home no longer has go, those of
// others stay, whether the managed fields are whole or trimmed.
func TestOwnKeysTellWhatCameFromHome(t *testing.T) {
	fields := func(manager, raw string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: new(metav1.NewTime(time.Unix(1, 0))),
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(raw),
		}
	}
	remote := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "c", Labels: map[string]string{"home": "was", "theirs": "stays"}, Annotations: map[string]string{"note": "was", "other": "stays"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			fields("kubectl", `{"f:metadata":{"f:labels":{"f:theirs":{}}}}`),
			fields(api.FieldManagerReflection, `{"f:data":{"f:k":{}},"f:metadata":{"f:labels":{".":{},"f:home":{}},"f:annotations":{"f:note":{}}}}`),
			fields(api.FieldManagerReflection, `{"f:status":{}}`),
		},
	}}
	home := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "shop"}}
	part := remote.DeepCopy()
	part.ManagedFields = translate.OwnKeys(part.ManagedFields)
	if len(part.ManagedFields) != 1 {
		t.Errorf("kept: %v", part.ManagedFields)
	}
	v := translate.View{Consumer: "rome", Provider: "milan", Namespaces: map[string]string{"shop": "shop-rome"}}
	whole := translate.ConfigMap(home, remote, v)
	if _, there := whole.Labels["home"]; there || whole.Labels["theirs"] == "" || whole.Annotations["note"] != "" || whole.Annotations["other"] == "" {
		t.Errorf("labels %v, annotations %v", whole.Labels, whole.Annotations)
	}
	got := translate.ConfigMap(home, part, v)
	alike(t, "labels", whole.Labels, got.Labels)
	alike(t, "annotations", whole.Annotations, got.Annotations)
	alike(t, "twice", part.ManagedFields, translate.OwnKeys(part.ManagedFields))
}

// TestEventsThatAreReadAreShown: no event is left out at the provider that would be shown at home,
// and none comes that would not.
func TestEventsThatAreReadAreShown(t *testing.T) {
	v := translate.View{Involved: &corev1.ObjectReference{Kind: "Pod", Name: "web"}}
	for _, reason := range []string{"Scheduled", "Pulling", "Pulled", "Created", "Started", "Killing", "BackOff", "FailedScheduling", ""} {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "shop-rome"}, Type: corev1.EventTypeNormal, Reason: reason}
		shown := translate.Event(event, nil, v) != nil
		if read := translate.ShownEvents().Matches(fields.Set{"reason": reason}); read != shown {
			t.Errorf("event with reason %q: read %t, shown %t", reason, read, shown)
		}
	}
}

// TestALargeEventIsNotShown: none of Kubernetes is, and home would keep it for an hour.
func TestALargeEventIsNotShown(t *testing.T) {
	v := translate.View{Involved: &corev1.ObjectReference{Kind: "Pod", Name: "web"}}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "shop-rome"}, Reason: "BackOff", Message: strings.Repeat("x", 7<<10)}
	if translate.Event(event, nil, v) == nil {
		t.Error("an event of 7 kB is not shown")
	}
	event.Annotations = map[string]string{"more": strings.Repeat("x", 1<<10)}
	if translate.Event(event, nil, v) != nil {
		t.Error("an event of more than 8 kB is shown")
	}
}

// trimmed is a copy that was trimmed; nil stays nil.
func trimmed[T interface {
	*P
	DeepCopyInto(*P)
}, P any](obj T, trim func(T)) T {
	if obj == nil {
		return nil
	}
	out := new(P)
	obj.DeepCopyInto(out)
	trim(out)
	return out
}

func alike(t *testing.T, what string, want, got any) {
	t.Helper()
	if !equality.Semantic.DeepEqual(want, got) {
		t.Errorf("%s (- of whole objects, + of trimmed ones):\n%s", what, cmp.Diff(want, got))
	}
}
