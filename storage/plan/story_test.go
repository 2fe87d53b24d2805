// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/story"
	"github.com/liqo-go/liqo/storage/plan"
)

// TestStories plans for the first document of each story and compares everything that is planned.
// This cluster is "rome"; "milan" provides. Claims named by a UID back others.
func TestStories(t *testing.T) {
	story.Each(t, "testdata/*.txtar", func(t *testing.T, s *story.Story) {
		s.Expect(t, "plan.yaml", tell(t, story.Objects(t, s.Files[0].Data)))
	})
}

func tell(t *testing.T, objects []client.Object) string {
	t.Helper()
	rest := objects[1:]
	switch root := objects[0].(type) {
	case *corev1.PersistentVolume:
		out := show(t, root, plan.Released(plan.ReleasedInput{Root: root, Backing: story.First[*corev1.PersistentVolumeClaim](rest)}))
		return fmt.Sprintf("removable: %t\n", plan.Removable(root)) + out
	case *corev1.PersistentVolumeClaim:
		if root.Namespace == "liqo-storage" {
			return show(t, root, plan.Unused(plan.UnusedInput{
				Root: root, Claim: story.First[*corev1.PersistentVolumeClaim](rest), Volume: story.First[*corev1.PersistentVolume](rest),
			}))
		}
		if len(root.Finalizers) > 0 {
			return text(t, map[string]any{"abandoned": plan.AbandonedInput{
				Root: root, Maps: story.Values[*offloadingv1beta1.NamespaceMap](rest), Nodes: story.Values[*offloadingv1beta1.VirtualNode](rest),
			}.Abandoned()})
		}
		return fmt.Sprintf("provisioning: %t\n", plan.Provisioning(root)) + show(t, root, plan.Claim(claimInput(root, rest)))
	}
	t.Fatalf("no plan for %T", objects[0])
	return ""
}

func claimInput(root *corev1.PersistentVolumeClaim, rest []client.Object) plan.ClaimInput {
	in := plan.ClaimInput{
		Root: root, Node: story.First[*corev1.Node](rest), Classes: story.Values[*storagev1.StorageClass](rest), Namespace: "liqo-storage",
		Backing: story.First[*corev1.PersistentVolumeClaim](rest), Volume: story.First[*corev1.PersistentVolume](rest),
		RealClass: root.Annotations["the story's real class"],
	}
	for i := range in.Classes {
		if in.Classes[i].Provisioner == api.StorageProvisioner {
			in.Class = &in.Classes[i]
		}
	}
	return in
}

// show writes a plan.
func show(t *testing.T, root client.Object, p desired.Plan) string {
	t.Helper()
	out := map[string]any{"state": []string{"Ready", "Waiting", "Blocked"}[p.State]}
	if p.Reason != "" {
		out["verdict"] = p.Reason + ": " + p.Message
	}
	var objects, deleted []any
	for _, obj := range p.Objects {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			t.Fatal(err)
		}
		delete(u, "status")
		u["kind"] = strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1.")
		objects = append(objects, u)
	}
	for _, obj := range story.Deleted(p) {
		deleted = append(deleted, strings.TrimPrefix(fmt.Sprintf("%T %s/%s", obj, obj.GetNamespace(), obj.GetName()), "*"))
	}
	if objects != nil {
		out["objects"] = objects
	}
	if deleted != nil {
		out["delete"] = deleted
	}
	if p.Fill != nil {
		patch, err := client.MergeFrom(root).Data(p.Fill)
		if err != nil {
			t.Fatal(err)
		}
		out["fill"] = string(patch)
	}
	return text(t, out)
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
