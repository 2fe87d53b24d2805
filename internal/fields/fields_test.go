// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package fields_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/liqo-go/liqo/internal/fields"
)

// shelf is a kind whose type is older than the document below.
type shelf struct {
	Spec struct {
		Boards []*board `json:"boards,omitempty"`
		Width  int      `json:"width"`
		Labels map[string]string
		Maker  any   `json:"maker"`
		Lock   board `json:"lock"`
	} `json:"spec"`
}

type board struct {
	wood  `json:",inline"`
	Below *board `json:"below,omitempty"`
}

type wood struct {
	Tree string `json:"tree"`
}

const document = `{"components": {"schemas": {
  "Shelf": {
    "x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Shelf"}],
    "properties": {
      "apiVersion": {}, "kind": {}, "metadata": {}, "status": {"properties": {"new": {}}},
      "colour": {},
      "spec": {"allOf": [{"$ref": "#/components/schemas/Spec"}], "default": {}}
    }
  },
  "Spec": {"properties": {
    "boards": {"items": {"allOf": [{"$ref": "#/components/schemas/Board"}]}},
    "width": {}, "height": {"default": 1}, "maker": {"properties": {"name": {}}}
  }},
  "Board": {"properties": {
    "tree": {}, "thickness": {"$ref": "#/components/schemas/Size"}, "below": {"$ref": "#/components/schemas/Board"}
  }},
  "Size": {"properties": {"mm": {}}},
  "Other": {"x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v2", "kind": "Shelf"}],
    "properties": {"other": {}}}
}}}`

func TestFieldsThatATypeLacks(t *testing.T) {
	t.Parallel()
	var d fields.Document
	if err := json.Unmarshal([]byte(document), &d); err != nil {
		t.Fatal(err)
	}
	missing, extra := d.Compare(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Shelf"}, reflect.TypeFor[shelf]())
	want := fields.Set{
		"colour": nil, "spec.height": float64(1), "spec.boards.thickness": nil,
	}
	if diff := cmp.Diff(want, missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(fields.Set{"spec.lock": nil}, extra); diff != "" {
		t.Errorf("extra (-want +got):\n%s", diff)
	}
	for object, want := range map[string][]string{
		`{"spec": {"width": 1, "height": 1, "boards": [{"tree": "oak"}]}, "status": {"new": 1}}`: nil,
		`{"spec": {"height": 2, "boards": [{"tree": "oak"}, {"thickness": {"mm": 20}}]}}`:        {"spec.boards.thickness", "spec.height"},
		`{"colour": null, "spec": {"boards": [{"thickness": null}, null]}}`:                      nil,
		`{"colour": "red", "spec": {"boards": [{"thickness": {}}], "colour": {"a": "b"}}}`:       {"colour", "spec.boards.thickness"},
	} {
		content := map[string]any{}
		if err := json.Unmarshal([]byte(object), &content); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, missing.Lost(content)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", object, diff)
		}
	}
}
