// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNFTRunsOnItsOwn starts nft from a folder that holds nothing but the files collected for the image.
func TestNFTRunsOnItsOwn(t *testing.T) {
	files, err := NFT("/")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var interpreter string
	for target, file := range files {
		if strings.HasPrefix(path.Base(target), "ld-linux") {
			interpreter = filepath.Join(dir, path.Base(target))
		}
		copyFile(t, file, filepath.Join(dir, path.Base(target)))
	}
	list := exec.Command(interpreter, "--inhibit-cache", "--library-path", dir, "--list", filepath.Join(dir, "nft"))
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		_, library, found := strings.Cut(line, "=> ")
		if found && !strings.HasPrefix(library, dir) {
			t.Errorf("not among the files of the image: %s", line)
		}
	}
}

// TestNFTOfUnpackedPackages finds programs and libraries in folders that hold a package each, also behind a symbolic
// link that is absolute inside them, and names a library that is missing.
func TestNFTOfUnpackedPackages(t *testing.T) {
	installed, err := NFT("/")
	if err != nil {
		t.Fatal(err)
	}
	program, libraries := t.TempDir(), t.TempDir()
	for target, file := range installed {
		if target == nftPath {
			copyFile(t, file, filepath.Join(program, target))
			continue
		}
		real := path.Join(path.Dir(target), "real", path.Base(target))
		copyFile(t, file, filepath.Join(libraries, real))
		if err := os.Symlink(real, filepath.Join(libraries, target)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := NFT(program); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("without libraries: %v", err)
	}
	found, err := NFT(program, libraries)
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != len(installed) {
		t.Errorf("found %v, installed are %v", found, installed)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestEqualInputEqualImage makes an image twice, from folders of different names and files of different times.
func TestEqualInputEqualImage(t *testing.T) {
	digests := map[string]bool{}
	for _, modified := range []time.Time{time.Unix(1, 0), time.Unix(2e9, 0)} {
		file := filepath.Join(t.TempDir(), "liqo")
		if err := os.WriteFile(file, []byte("program"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, modified, modified); err != nil {
			t.Fatal(err)
		}
		made, err := New(Options{Architecture: "arm64", Created: time.Unix(1e9, 0), Labels: map[string]string{"a": "b", "c": "d"},
			Layers: []Files{{"/usr/bin/liqo": file}}, Small: true})
		if err != nil {
			t.Fatal(err)
		}
		digest, err := made.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests[digest.String()] = true
		config, err := made.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Config.User != user || config.Architecture != "arm64" || config.Created.Unix() != 1e9 {
			t.Errorf("config of the image: %+v", config)
		}
	}
	if len(digests) != 1 {
		t.Errorf("equal input made %v", digests)
	}
}
