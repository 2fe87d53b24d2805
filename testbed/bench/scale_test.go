// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/scale.md and its pictures again, of docs/scale.json")

// TestScalePage: tables and pictures of docs/scale.md are what its points make.
func TestScalePage(t *testing.T) {
	const docs = "../../docs"
	if *update {
		must(t, drawScale(docs))
	}
	files, err := scaleFiles(docs)
	must(t, err)
	if len(files) < 2 {
		t.Fatalf("only %d files are made", len(files))
	}
	for _, name := range sortedKeys(files) {
		have, err := os.ReadFile(filepath.Join(docs, name))
		must(t, err)
		if string(have) != files[name] {
			t.Errorf("docs/%s differs from what docs/scale.json makes; run this test with -update", name)
		}
		if strings.HasSuffix(name, ".svg") {
			for d := xml.NewDecoder(strings.NewReader(files[name])); err == nil; {
				_, err = d.Token()
			}
			if err != io.EOF {
				t.Errorf("docs/%s: %v", name, err)
			}
		}
	}
}

// TestGrowth: what was not measured grows as the last that was.
func TestGrowth(t *testing.T) {
	const name = "rome liqo controller"
	at := func(n int, seconds, mb float64) point {
		return point{N: n, Seconds: seconds, CPU: map[string]float64{name: seconds / 2, "rome etcd": 9}, Memory: map[string]float64{name: mb}}
	}
	got := growth([]series{{Name: "pods", Points: []point{at(0, 0, 20), at(100, 5, 21), at(1000, 90, 30)}}})
	const want = `| | measured | 10 times | 100 times |
|---|---|---|---|
| pods | **1000** | **10,000** | **100,000** |
| – until all are in place | 95 s | 17 min | 2.8 h |
| – CPU of Liqo for that | 48 s | 8.3 min | 83 min |
| – memory, controller of rome | 30 MB | 120 MB | 1020 MB |
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
