// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package why_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/internal/story"
	"github.com/liqo-go/liqo/why"
)

// TestStories: each story changes a healthy peering of rome with its provider milan by some objects, asks, and shows
// the answer as a user of rome sees it.
//
//	ask          the subject
//	without      objects that the peering lacks
//	unread       kinds that the user may not read in rome
//	rome.yaml    objects of rome, in place of others of the same name
//	milan.yaml   objects of milan; without this part, the user cannot read milan
func TestStories(t *testing.T) {
	story.Each(t, "testdata/*.txtar", func(t *testing.T, s *story.Story) {
		in := input(t, s)
		s.Expect(t, "answer", strings.Join(why.Explain(in).Lines("rome"), "\n")+"\n")
	})
}

// input returns the question of a story.
func input(t *testing.T, s *story.Story) why.Input {
	t.Helper()
	var in why.Input
	var local, remote, without []byte
	for _, part := range s.Files {
		text := string(part.Data)
		switch part.Name {
		case "ask":
			kind, name, _ := strings.Cut(strings.TrimSpace(text), " ")
			in.Subject = why.Subject{Kind: kind, Name: name}
			if namespace, name, ok := strings.Cut(name, "/"); ok {
				in.Namespace, in.Name = namespace, name
			}
		case "without":
			without = part.Data
		case "unread":
			in.Local.Unread = strings.Split(strings.TrimSpace(text), ", ")
		case "rome.yaml":
			local = part.Data
		case "milan.yaml":
			remote = append([]byte{}, part.Data...)
		}
	}
	in.Local.ID, in.Local.Objects = "rome", merged(t, "testdata/rome.yaml", local, strings.Split(string(without), "\n"))
	if slices.ContainsFunc(s.Files, func(f txtar.File) bool { return f.Name == "milan.yaml" }) {
		in.Remote = &why.Cluster{ID: "milan", Objects: merged(t, "testdata/milan.yaml", remote, nil)}
	}
	return in
}

// merged returns the objects of a file, without some and with others in place of them.
func merged(t *testing.T, path string, others []byte, without []string) (out []runtime.Object) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var changed []client.Object
	if len(others) > 0 {
		changed = story.Objects(t, others)
	}
	for _, o := range changed {
		without = append(without, id(o))
		out = append(out, o)
	}
	for _, o := range story.Objects(t, text) {
		if !slices.Contains(without, id(o)) {
			out = append(out, o)
		}
	}
	return out
}

// id returns kind and name of an object as the part "without" names them.
func id(o client.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}

// TestCauses: every reason is in the table of the package, and a story ends with it.
func TestCauses(t *testing.T) {
	table, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	story.Each(t, "testdata/*.txtar", func(t *testing.T, s *story.Story) { told[why.Explain(input(t, s)).Cause.Reason] = true })
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	reason := regexp.MustCompile(`(?m)^(?:const |\t)([A-Z]\w+) += "(\w+)"$`)
	found := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range reason.FindAllStringSubmatch(string(text), -1) {
			if m[1] != m[2] {
				continue // a kind
			}
			found++
			if !told[m[1]] {
				t.Errorf("no story ends with %s", m[1])
			}
			if !regexp.MustCompile(`\b` + m[1] + `\b`).Match(table) {
				t.Errorf("doc.go does not name %s", m[1])
			}
		}
	}
	if found < 40 {
		t.Errorf("found only %d reasons", found)
	}
}
