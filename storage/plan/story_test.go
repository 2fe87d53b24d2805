// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/storage/plan"
)

var update = flag.Bool("update", false, "rewrite the expected plans of the stories")

// TestStories plans for the first document of each story and compares everything that is planned.
// This cluster is "rome"; "milan" provides. Claims named by a UID back others.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := tell(t, documents(t, archive.Files[0].Data))
			if *update {
				archive.Files = append(archive.Files[:1], txtar.File{Name: "plan.yaml", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if len(archive.Files) < 2 {
				t.Fatal("no expected plan; run with -update")
			} else if diff := cmp.Diff(string(archive.Files[1].Data), got); diff != "" {
				t.Errorf("plan differs (-want +got):\n%s", diff)
			}
		})
	}
}

func documents(t *testing.T, text []byte) []client.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.New(), serializer.EnableStrict).UniversalDeserializer()
	var objects []client.Object
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		obj, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("decode: %v\n%s", err, document)
		}
		objects = append(objects, obj.(client.Object))
	}
	return objects
}

func tell(t *testing.T, objects []client.Object) string {
	t.Helper()
	rest := objects[1:]
	switch root := objects[0].(type) {
	case *corev1.PersistentVolume:
		out := show(t, root, plan.Released(plan.ReleasedInput{Root: root, Backing: first[*corev1.PersistentVolumeClaim](rest)}))
		return fmt.Sprintf("removable: %t\n", plan.Removable(root)) + out
	case *corev1.PersistentVolumeClaim:
		if root.Namespace == "liqo-storage" {
			return show(t, root, plan.Unused(plan.UnusedInput{Root: root, Claim: first[*corev1.PersistentVolumeClaim](rest)}))
		}
		if len(root.Finalizers) > 0 {
			return text(t, map[string]any{"abandoned": plan.Abandoned(root, values[*offloadingv1beta1.NamespaceMap](rest))})
		}
		return fmt.Sprintf("provisioning: %t\n", plan.Provisioning(root)) + show(t, root, plan.Claim(claimInput(root, rest)))
	}
	t.Fatalf("no plan for %T", objects[0])
	return ""
}

func claimInput(root *corev1.PersistentVolumeClaim, rest []client.Object) plan.ClaimInput {
	in := plan.ClaimInput{
		Root: root, Node: first[*corev1.Node](rest), Classes: values[*storagev1.StorageClass](rest), Namespace: "liqo-storage",
		Backing: first[*corev1.PersistentVolumeClaim](rest), Volume: first[*corev1.PersistentVolume](rest),
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
func show(t *testing.T, root client.Object, p ctl.Plan) string {
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
	for _, obj := range p.Delete {
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

func first[P client.Object](objects []client.Object) P {
	var none P
	for _, obj := range objects {
		if p, ok := obj.(P); ok {
			return p
		}
	}
	return none
}

func values[P interface {
	*T
	client.Object
}, T any](objects []client.Object) []T {
	var out []T
	for _, obj := range objects {
		if p, ok := obj.(P); ok {
			out = append(out, *p)
		}
	}
	return out
}
