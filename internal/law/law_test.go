// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package law holds no code, only tests of what holds for the whole repository: which package may import which, which
// names must stay, and how long functions, files and lines may be.
package law

import (
	"encoding/json"
	"go/ast"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/liqo-go/liqo/"

// rooms hold the domain; none may know another.
var rooms = []string{"cli", "identity", "network", "offloading", "peering", "reflection", "storage"}

// impure are the imports that would let a plan read the world: it gets everything as input.
var impure = []string{
	"context", "crypto/rand", "io/fs", "k8s.io/client-go", "log", "log/slog", "math/rand", "math/rand/v2", "net/http",
	"os", "os/exec", "github.com/prometheus/client_golang", "github.com/vishvananda/netlink", "sigs.k8s.io/controller-runtime",
	"golang.zx2c4.com/wireguard",
}

// clocks are calls of functions that a plan does not call: it gets time and addresses as input.
var clocks = regexp.MustCompile(`\b(time\.(Now|Since|Until|After|AfterFunc|Sleep|Tick|NewTimer|NewTicker)|` +
	`metav1\.Now(Micro)?|net\.(Dial|Lookup|Listen)\w*)\(`)

type pkg struct {
	ImportPath, Dir string
	GoFiles         []string
	Imports, Deps   []string
}

// TestImportLaw: cmd → rooms → internal → api; rooms never import rooms, but cli, and what it shows peerings by, may
// import pure packages; pure packages import nothing that touches the world.
func TestImportLaw(t *testing.T) {
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		for _, imported := range p.Imports {
			if to, ours := strings.CutPrefix(imported, module); ours && !allowed(from, to) {
				t.Errorf("%s imports %s: cmd → rooms → internal → api, and rooms do not import rooms", from, to)
			}
			if pure(from) && slices.ContainsFunc(impure, func(i string) bool { return imported == i || strings.HasPrefix(imported, i+"/") }) {
				t.Errorf("%s imports %s: a pure package gets time, keys and objects as input", from, imported)
			}
			if from == "internal/desired" && strings.Contains(top(imported), ".") && !strings.HasPrefix(imported, "k8s.io/apimachinery/") {
				t.Errorf("%s imports %s: it has what plans are made of, and apimachinery's types only", from, imported)
			}
			if strings.HasPrefix(imported, "github.com/vishvananda/netlink") && from != "network/dataplane" {
				t.Errorf("%s imports %s: only network/dataplane touches the kernel", from, imported)
			}
		}
	}
}

// TestPlansReachNoWorld: whatever a package that plans imports, it reaches no client and of our internal packages only
// what plans are made of, and it asks no clock.
func TestPlansReachNoWorld(t *testing.T) {
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		if !pure(from) && from != "internal/desired" {
			continue
		}
		for _, dep := range p.Deps {
			own, ours := strings.CutPrefix(dep, module)
			if ours && top(own) == "internal" && own != "internal/desired" ||
				strings.HasPrefix(dep, "sigs.k8s.io/controller-runtime") || strings.HasPrefix(dep, "k8s.io/client-go") {
				t.Errorf("%s reaches %s", from, dep)
			}
		}
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if call := clocks.Find(text); call != nil {
				t.Errorf("%s/%s calls %s): a plan gets time as input", from, file, call)
			}
		}
	}
}

// TestOneEngine: whatever is reconciled is a row of internal/ctl, except replication, whose effect is a running engine
// with queues and caches of its own.
func TestOneEngine(t *testing.T) {
	reconciler := regexp.MustCompile(`\) Reconcile\(ctx context\.Context, \w+ reconcile\.Request\)|reconcile\.Func\(`)
	found := map[string]bool{}
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		if top(from) == "testbed" || from == "internal/ctl" {
			continue
		}
		for _, file := range p.GoFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if reconciler.Match(text) {
				found[from] = true
			}
		}
	}
	if want := map[string]bool{"reflection/replication": true}; !maps.Equal(found, want) {
		t.Errorf("reconcilers beside internal/ctl are in %v", slices.Sorted(maps.Keys(found)))
	}
}

// TestOneGoroutineDecides: in a gateway nothing is shared but by events and the state of the last decision, and no type
// does everything.
func TestOneGoroutineDecides(t *testing.T) {
	const most = 15
	methods := map[string]int{}
	for _, s := range sources(t) {
		if s.dir != "network/gateway" && s.dir != "network/gateway/plan" {
			continue
		}
		for _, i := range s.Imports {
			if i.Path.Value == `"sync/atomic"` {
				t.Errorf("%s imports sync/atomic: send an event to decide, or read the state of the last decision", s.path)
			}
		}
		for _, d := range s.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				on := f.Recv.List[0].Type
				if p, ok := on.(*ast.StarExpr); ok {
					on = p.X
				}
				methods[s.dir+": "+on.(*ast.Ident).Name]++
			}
		}
	}
	for on, n := range methods {
		if n > most {
			t.Errorf("%s has %d methods, of %d at most", on, n, most)
		}
	}
	if len(methods) < 10 {
		t.Errorf("found methods of %d types only", len(methods))
	}
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Deps", module+"...").Output()
	if err != nil {
		t.Fatalf("list packages: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatalf("decode package: %v", err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("found only %d packages", len(all))
	}
	return all
}

// allowed is the law.
func allowed(from, to string) bool {
	switch layer := top(from); {
	case layer == "cmd", layer == "testbed", layer == "docs":
		return true
	case top(to) == "api":
		return true
	case layer == "api":
		return false
	case top(to) == "internal":
		return true
	case layer == "cli" && (pure(to) || slices.Contains([]string{"deploy", "dashboard"}, top(to))):
		return true
	case layer == "dashboard" && slices.Contains([]string{"bundle", "view", "why"}, to),
		(layer == "view" || layer == "why") && pure(to):
		return true
	case slices.Contains(rooms, layer), layer == "deploy":
		return top(to) == layer
	}
	return false
}

// pure tells whether a package decides and never acts.
func pure(p string) bool {
	return slices.Contains([]string{"bundle", "view", "why"}, p) || strings.HasSuffix(p, "/plan") || strings.HasSuffix(p, "/translate")
}

func top(p string) string {
	first, _, _ := strings.Cut(p, "/")
	return first
}
