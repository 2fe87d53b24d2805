// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/patience"
)

const most = "9223372036854775807"

// TestAttackQuantities: a peer asks for amounts, or grants some, with exponents that a process would not come to an
// end with, or that are no amounts, in every field of a pod and of a slice that has a quantity.
//
// Outcome: they are decoded at once, as more than anybody grants. Other texts that look like such numbers stay.
func TestAttackQuantities(t *testing.T) {
	t.Parallel()
	for _, amount := range []string{`"1e2147483647"`, `"1e-2147483647"`, `"1E99999999999999999999"`, `1e2147483647`, `"-.5e+1000"`,
		`" 1e-2147483647"`, `"e2147483647"`, `"+e2147483647"`,
		`"1e1.5"`, `"1e5."`, `"much"`, `""`, `"5i"`, `1.5e300`, `"1\t"`, `"1\u00652147483647"`, `"\u0031e2147483647"`, `"1e\u003999999999"`, `"` + strings.Repeat("9", 100000) + `"`, `"0.` + strings.Repeat("0", 100000) + `1"`} {
		pod := &offv1beta1.ShadowPod{}
		decode(t, `{"spec": {"pod": {
			"overhead": {"cpu": AMOUNT}, "resources": {"limits": {"cpu":AMOUNT}},
			"nodeSelector": {"limits": "none", "requests": "e99999999"},
			"containers": [{"name": "4e123456", "args": ["4e123456", "a\\"], "resources": {"req\u0075ests": {"cpu": AMOUNT, "memory": "1Gi"}, "limits":
{"example.org/x":
AMOUNT}},
				"env": [{"name": "COMMIT", "value": "4e123456"}, {"valueFrom": {"resourceFieldRef": {"divisor":AMOUNT}}}]}],
			"volumes": [{"emptyDir": {"sizeLimit": AMOUNT}}, {"ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": AMOUNT}}}}}}]
		}}}`, amount, pod)
		spec := pod.Spec.Pod
		c, v := spec.Containers[0], spec.Volumes
		for field, got := range map[string]string{
			"overhead": text(spec.Overhead, "cpu"), "limits of the pod": text(spec.Resources.Limits, "cpu"),
			"requests": text(c.Resources.Requests, "cpu"), "limits": text(c.Resources.Limits, "example.org/x"),
			"divisor": c.Env[1].ValueFrom.ResourceFieldRef.Divisor.String(), "sizeLimit": v[0].EmptyDir.SizeLimit.String(),
			"claim": text(v[1].Ephemeral.VolumeClaimTemplate.Spec.Resources.Requests, "storage"),
		} {
			if got != most {
				t.Errorf("%.30s as %s is %.30s", amount, field, got)
			}
		}
		if spec.NodeSelector["limits"] != "none" || spec.NodeSelector["requests"] != "e99999999" {
			t.Errorf("with %.30s the node selector is %v", amount, spec.NodeSelector)
		}
		if c.Name != "4e123456" || c.Args[0] != "4e123456" || c.Env[0].Value != "4e123456" || text(c.Resources.Requests, "memory") != "1Gi" {
			t.Errorf("with %.30s other fields are %v", amount, c)
		}
		slice := &authv1beta1.ResourceSlice{}
		decode(t, `{"spec": {"resources": {"cpu": AMOUNT, "pods": "7"}}, "status": {"resources": {"cpu": AMOUNT}}}`, amount, slice)
		if spec := slice.Spec.Resources; text(spec, "cpu") != most || text(spec, "pods") != "7" || text(slice.Status.Resources, "cpu") != most {
			t.Errorf("with %.30s a slice is %v", amount, slice)
		}
	}
}

func text(amounts corev1.ResourceList, name corev1.ResourceName) string {
	amount := amounts[name]
	return amount.String()
}

// decode fails if it is not done in a time that only endless decoding takes.
func decode(t *testing.T, object, amount string, into any) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- utiljson.Unmarshal([]byte(strings.ReplaceAll(object, "AMOUNT", amount)), into) }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%.30s: %v", amount, err)
		}
	case <-time.After(patience.Limit):
		t.Fatal(patience.GaveUp(fmt.Sprintf("%.30s to be decoded", amount), "nothing"))
	}
}

// TestUsualQuantitiesStay: what people write is decoded as Kubernetes decodes it.
func TestUsualQuantitiesStay(t *testing.T) {
	t.Parallel()
	for _, amount := range []string{"1", "1.5", "100m", "1Gi", "1e3", "1E6", "2e-3", "+1", "-1", ".5", "12345678901234567890", "0", "5k", "2Ei", "3E", "1n", "7u", "10."} {
		object := []byte(`{"resources": {"requests": {"cpu": "` + amount + `"}}, "name": "a"}`)
		var got, want corev1.Container
		if err := api.DecodeBounded(object, &got); err != nil {
			t.Fatal(err)
		}
		if err := utiljson.Unmarshal(object, &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", amount, diff)
		}
	}
}

// FuzzDecodeBounded: any text is decoded in memory, and so in time, that grows with its length only.
// One without long numbers is decoded as without bounds.
func FuzzDecodeBounded(f *testing.F) {
	f.Add([]byte(`{"resources": {"requests": {"cpu": "1e-1000000"}}}`)) // 4 MB without bounds
	f.Add([]byte(`{"env": [{"value": "4e99999999"}], "image": "a@sha256:3e12345"}`))
	f.Add([]byte(`{"resources":{"limits":{"a":1e-999,"b":"\u0031\u00659999"}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var container corev1.Container
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := api.DecodeBounded(text, &container)
		runtime.ReadMemStats(&after)
		if took := int(after.TotalAlloc - before.TotalAlloc); took > 1<<20+1000*len(text) {
			t.Errorf("%d bytes are decoded in %d bytes of memory", len(text), took)
		}
		if again, _ := json.Marshal(container); err == nil && bytes.ContainsAny(text, "eE") && len(again) > 100+10*len(text) {
			t.Errorf("%d bytes became %d", len(text), len(again))
		}
	})
}
