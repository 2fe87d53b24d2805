// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/reflection/translate"
)

// TestLongMessagesAreCut: an event with an eventTime is shown with as much of its message as an API server takes,
// one without, which may say more, with all of it.
func TestLongMessagesAreCut(t *testing.T) {
	v := translate.View{Involved: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web"}}
	for _, c := range []struct {
		name, message, want string
		at                  metav1.MicroTime
	}{
		{"fits", strings.Repeat("a", 1015), strings.Repeat("a", 1015), metav1.NowMicro()},
		{"as long as those of a scheduler", strings.Repeat("a", 1024), strings.Repeat("a", 1015), metav1.NowMicro()},
		{"cut in a rune", strings.Repeat("é", 512), strings.Repeat("é", 507), metav1.NowMicro()},
		{"without eventTime", strings.Repeat("a", 2000), strings.Repeat("a", 2000), metav1.MicroTime{Time: time.Time{}}},
	} {
		origin := &corev1.Event{Reason: "FailedScheduling", Message: c.message, EventTime: c.at}
		got := translate.Event(origin, nil, v).Message
		if got != c.want+" (remote)" || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes, want %d", c.name, len(got), len(c.want)+len(" (remote)"))
		}
	}
}
