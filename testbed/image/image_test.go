// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An archive holds what the runtime checks (digests, names), and equal input gives
// equal bytes.
func TestArchive(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(binary, []byte("ELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	img := Image{Tags: []string{"example.org/tool:1"}, Entrypoint: []string{"/bin/tool"}, User: "1234",
		Files: []File{{Source: binary, Path: "/bin/tool"}, {Link: "tool", Path: "/bin/name"}}}
	var first, second bytes.Buffer
	if err := Write(&first, img); err != nil {
		t.Fatal(err)
	}
	if err := Write(&second, img); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of the same image differ")
	}
	files := read(t, &first)
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal([]byte(files["manifest.json"]), &manifest); err != nil {
		t.Fatal(err)
	}
	layer := files[manifest[0].Layers[0]]
	config := files[manifest[0].Config]
	if manifest[0].RepoTags[0] != "example.org/tool:1" || manifest[0].Config != sum([]byte(config))+".json" {
		t.Errorf("manifest %+v", manifest)
	}
	if !strings.Contains(config, "sha256:"+sum([]byte(layer))) {
		t.Errorf("config %s lacks the layer's digest", config)
	}
	if !strings.Contains(config, `"User":"1234"`) {
		t.Errorf("config %s lacks the user", config)
	}
	inside := read(t, strings.NewReader(layer))
	if inside["bin/name"] != "-> tool" {
		t.Errorf("link is %q", inside["bin/name"])
	}
	if inside["bin/tool"] != "ELF" || !strings.Contains(inside["etc/passwd"], "nobody") {
		t.Errorf("layer holds %v", inside)
	}
}

func read(t *testing.T, r io.Reader) map[string]string {
	t.Helper()
	files := map[string]string{}
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(b)
		if h.Linkname != "" {
			files[h.Name] = "-> " + h.Linkname
		}
	}
}
