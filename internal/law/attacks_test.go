// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of attacks of docs/security.md and testdata/persists.txt")

// attack is a test that tries something a peer may try.
type attack struct{ what, outcome, name, file string }

const (
	attacksPage  = "../../docs/security.md"
	attacksBegin = "<!-- attacks: go test ./internal/law -run TestSecurityPage -update -->\n"
	attacksEnd   = "<!-- end of attacks -->\n"
)

// TestSecurityPage compares the table of docs/security.md with the tests that try attacks, which say in their
// comments what they try and what comes of it.
func TestSecurityPage(t *testing.T) {
	page, err := os.ReadFile(attacksPage)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(page), attacksBegin)
	_, tail, ends := strings.Cut(rest, attacksEnd)
	if !begins || !ends {
		t.Fatalf("%s lacks the lines between which the table stands:\n%s%s", attacksPage, attacksBegin, attacksEnd)
	}
	want := head + attacksBegin + attackTables(attacks(t)) + attacksEnd + tail
	if *update {
		if err := os.WriteFile(attacksPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(page) {
		t.Errorf("%s is not what the tests say; run 'go test ./internal/law -update' and review the difference", attacksPage)
	}
}

// TestSecurityComments: a comment of another form is refused, and what Markdown would read as a sign is text.
func TestSecurityComments(t *testing.T) {
	got, err := parseAttack("TestAttackX", "TestAttackX: a peer asks\nfor *|<all>.\n\nOutcome: it gets nothing. It is told.\n")
	if want := (attack{what: `A peer asks for \*\|&lt;all>.`, outcome: "It gets nothing. It is told.", name: "TestAttackX"}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, doc := range []string{
		"", "TestAttackX tries.", "TestAttackX: a peer asks.", "TestAttackX: a peer asks.\nOutcome: nothing.", "TestAttackY: a peer asks.\n\nOutcome: nothing.",
		"TestAttackX: a peer asks.\n\nOutcome: nothing.\n\nMore.", "TestAttackX: a peer asks.\n\nOutcome: nothing",
	} {
		if got, err := parseAttack("TestAttackX", doc); err == nil {
			t.Errorf("%q is taken for %+v", doc, got)
		}
	}
}

// attacks are the tests of the repository that try attacks, by file and name. Beside functions named TestAttack and
// TestTimedAttack these are steps of stories on real clusters.
func attacks(t *testing.T) []attack {
	t.Helper()
	var list []attack
	err := filepath.WalkDir("../..", func(file string, entry fs.DirEntry, err error) error {
		base := filepath.Base(file)
		hidden := strings.HasPrefix(base, ".") && file != "../.." || base == "testdata" || base == "bin"
		switch {
		case err != nil:
			return err
		case entry.IsDir() && hidden:
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		name := regexp.MustCompile(`^Test(Timed)?Attack[A-Z]`)
		file = strings.TrimPrefix(filepath.ToSlash(file), "../../")
		if path.Dir(file) == "testbed/stories" {
			name = regexp.MustCompile(`^(attack|Test(Timed)?Attack)[A-Z]`)
		}
		source, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", file), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range source.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !name.MatchString(f.Name.Name) {
				continue
			}
			a, err := parseAttack(f.Name.Name, f.Doc.Text())
			if err != nil {
				t.Errorf("%s: %v", file, err)
			}
			a.file = file
			list = append(list, a)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 20 {
		t.Fatalf("found only %d attacks", len(list))
	}
	slices.SortFunc(list, func(a, b attack) int { return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.name, b.name)) })
	return list
}

var attackForm = regexp.MustCompile(`^(\w+): (.+\.)\n\nOutcome: (.+\.)$`)

// parseAttack reads the comment of a test.
func parseAttack(name, doc string) (attack, error) {
	paragraphs := strings.Split(strings.TrimSpace(doc), "\n\n")
	for i := range paragraphs {
		paragraphs[i] = strings.Join(strings.Fields(paragraphs[i]), " ")
	}
	found := attackForm.FindStringSubmatch(strings.Join(paragraphs, "\n\n"))
	if found == nil || found[1] != name {
		return attack{}, fmt.Errorf("the comment of %s must read %q", name, name+": <who does what>.\n\nOutcome: <what happens>.")
	}
	return attack{what: cell(found[2]), outcome: cell(found[3]), name: name}, nil
}

// cell is a text as Markdown shows it in a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;").Replace(strings.ToUpper(text[:1]) + text[1:])
}

// attackTables is a table for each room.
func attackTables(list []attack) string {
	byRoom := map[string][]attack{}
	for _, a := range list {
		byRoom[top(a.file)] = append(byRoom[top(a.file)], a)
	}
	var out strings.Builder
	for _, room := range slices.Sorted(maps.Keys(byRoom)) {
		fmt.Fprintf(&out, "\n### %s\n\n| attack | what happens | test |\n|---|---|---|\n", room)
		for _, a := range byRoom[room] {
			fmt.Fprintf(&out, "| %s | %s | [%s](../%s) |\n", a.what, a.outcome, a.name, a.file)
		}
	}
	return out.String() + "\n"
}
