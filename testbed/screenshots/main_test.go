// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// In bytes, of one picture and of all.
const most, mostOfAll = 150_000, 1_000_000

// TestPicturesAreSmall: the PNGs of docs/images are those that 'make screenshots' takes, all are on the page of the
// dashboard, and together they are small. Nothing compares what they show.
func TestPicturesAreSmall(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	page, err := os.ReadFile(filepath.Join(docs, "dashboard.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(docs, "images", "*.png"))
	if err != nil || len(files) != len(shots()) {
		t.Errorf("%d pictures instead of %d, %v", len(files), len(shots()), err)
	}
	all := 0
	for _, s := range shots() {
		picture, err := os.ReadFile(filepath.Join(docs, "images", s.file))
		if err != nil {
			t.Error(err)
			continue
		}
		all += len(picture)
		config, err := png.DecodeConfig(bytes.NewReader(picture))
		if err != nil || config.Width != width || config.Height > maxHeight || len(picture) > most {
			t.Errorf("%s has %d bytes and %d × %d pixels, %v", s.file, len(picture), config.Width, config.Height, err)
		}
		if !strings.Contains(string(page), "(images/"+s.file+")") {
			t.Errorf("docs/dashboard.md does not show %s", s.file)
		}
	}
	if all > mostOfAll {
		t.Errorf("all pictures have %d bytes", all)
	}
}
