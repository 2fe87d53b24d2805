// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// TestReflectorsAreNamedAlike: the values of the chart and the schema of VkOptionsTemplate name the kinds that virtual
// kubelets reflect, and the values have the same defaults.
func TestReflectorsAreNamedAlike(t *testing.T) {
	t.Parallel()
	want := offloadingv1beta1.DefaultReflectors()
	var values struct {
		Offloading struct {
			Reflection map[string]offloadingv1beta1.ReflectorConfig `json:"reflection"`
		} `json:"offloading"`
	}
	data, err := os.ReadFile("liqo/values.yaml")
	if err == nil {
		err = yaml.Unmarshal(data, &values)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := values.Offloading.Reflection
	delete(got, "custom")
	delete(got, "skip")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("values of the chart (-want +got):\n%s", diff)
	}

	schema, err := os.ReadFile("liqo/crds/offloading.liqo.io_vkoptionstemplates.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, rule, _ := strings.Cut(string(schema), "rule: self.all(k, k in [")
	list, _, _ := strings.Cut(rule, "]")
	names := strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune("', \n", r) })
	for key := range want {
		if !slices.Contains(names, key) {
			t.Errorf("the schema does not know %s", key)
		}
	}
	if len(names) != len(want) {
		t.Errorf("the schema knows %v", names)
	}
}
