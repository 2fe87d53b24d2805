// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Programs of a package come with the libraries they need, on every architecture: those that were unpacked beside
// them, at the place they have in a root file system, and those of the machine.
func TestProgramsComeWithTheirLibraries(t *testing.T) {
	found, err := filepath.Glob("/lib/*-linux-gnu*/libc.so.6")
	if err != nil || len(found) == 0 {
		t.Fatalf("no C library (%v)", err)
	}
	libc := found[0]
	root := t.TempDir()
	for from, to := range map[string]string{"/bin/ls": "bin/ls", libc: libc} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		place := filepath.Join(root, to)
		if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(place, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files, err := withLibraries(t.Context(), root, []string{"bin/*"})
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	for _, f := range files {
		sources[f.Path] = f.Source
	}
	for _, path := range []string{"/bin/ls", libc} {
		if want := filepath.Join(root, path); sources[path] != want {
			t.Errorf("%s is from %q, want %s", path, sources[path], want)
		}
	}
	if len(files) < 4 { // the dynamic linker and libselinux
		t.Errorf("only %v", sources)
	}
	for path, source := range sources {
		if strings.HasPrefix(path, root) || source != path && !strings.HasPrefix(source, root) {
			t.Errorf("%s is from %s", path, source)
		}
	}
	if _, err := withLibraries(t.Context(), root, []string{"bin/ls", "bin/missing"}); err == nil {
		t.Error("a glob without files is accepted")
	}
}
