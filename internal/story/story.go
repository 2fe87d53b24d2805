// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package story holds pure functions to what files under testdata say: txtar archives whose first
// parts are YAML that goes in, and whose others are what must come out. Only tests import it.
package story

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/desired"
)

var update = flag.Bool("update", false, "rewrite what the stories expect")

// Story is one archive.
type Story struct {
	txtar.Archive
	file string
}

// Each runs tell as a subtest for every archive that matches the pattern. With -update, it writes
// the archive back as tell left it.
func Each(t *testing.T, pattern string, tell func(t *testing.T, s *Story)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories match %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s := &Story{*archive, file}
			tell(t, s)
			s.save(t)
		})
	}
}

func (s *Story) save(t *testing.T) {
	t.Helper()
	if !*update {
		return
	}
	if err := os.WriteFile(s.file, txtar.Format(&s.Archive), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Part is the text of a part; nil if there is none.
func (s *Story) Part(name string) []byte {
	if i := s.find(name); i >= 0 {
		return s.Files[i].Data
	}
	return nil
}

func (s *Story) find(name string) int {
	return slices.IndexFunc(s.Files, func(f txtar.File) bool { return f.Name == name })
}

// Expect fails the test unless a part equals got. With -update, it replaces the part.
func (s *Story) Expect(t *testing.T, name, got string) {
	t.Helper()
	i := s.find(name)
	switch {
	case *update && i < 0:
		s.Files = append(s.Files, txtar.File{Name: name, Data: []byte(got)})
	case *update:
		s.Files[i].Data = []byte(got)
	case i < 0:
		t.Fatalf("the story has no %s; run with -update", name)
	default:
		if diff := cmp.Diff(string(s.Files[i].Data), got); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", name, diff)
		}
	}
}

// File does the same as Expect for a whole file.
func File(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", path, diff)
	}
}

// Objects decodes YAML documents. A field that the type does not have is an error.
func Objects(t *testing.T, text []byte) []client.Object {
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

// Deleted returns the objects that a plan deletes.
func Deleted(p desired.Plan) []desired.Object {
	var deleted []desired.Object
	for _, a := range p.Actions {
		if a.Verb == desired.Delete {
			deleted = append(deleted, a.Object)
		}
	}
	return deleted
}

// First returns the first object of a type; nil if there is none.
func First[P client.Object, O runtime.Object](objects []O) P {
	var none P
	for _, obj := range objects {
		if p, ok := any(obj).(P); ok {
			return p
		}
	}
	return none
}

// Values returns the objects of a type.
func Values[P interface {
	*T
	client.Object
}, O runtime.Object, T any](objects []O) []T {
	var out []T
	for _, obj := range objects {
		if p, ok := any(obj).(P); ok {
			out = append(out, *p)
		}
	}
	return out
}
