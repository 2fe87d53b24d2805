// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// root is the root of the repository.
const root = "../.."

// TestWorkflows compares when the workflows of GitHub run and what they call with testdata, and wants their make targets.
func TestWorkflows(t *testing.T) {
	type step struct{ Uses, Run string }
	type job struct {
		RunsOn    string `json:"runs-on"`
		Container struct{ Image string }
		Steps     []step
	}
	type workflow struct {
		On   any `json:"on"`
		Jobs map[string]job
	}
	found, err := filepath.Glob(root + "/.github/workflows/*.yaml")
	must(t, err)
	makefile, err := os.ReadFile(root + "/Makefile")
	must(t, err)
	var lines strings.Builder
	for _, file := range found {
		text, err := os.ReadFile(file)
		must(t, err)
		// YAML 1.1 reads the key "on" as true.
		text = regexp.MustCompile("(?m)^on:").ReplaceAll(text, []byte("\"on\":"))
		var w workflow
		must(t, yaml.Unmarshal(text, &w))
		fmt.Fprintf(&lines, "%s: on %v\n", filepath.Base(file), w.On)
		for _, name := range slices.Sorted(maps.Keys(w.Jobs)) {
			j := w.Jobs[name]
			fmt.Fprintf(&lines, "  %s: on %s in %s\n", name, j.RunsOn, j.Container.Image)
			for _, s := range j.Steps {
				if s.Uses != "" {
					fmt.Fprintf(&lines, "    uses %s\n", s.Uses)
				}
				for _, line := range strings.Split(strings.TrimSpace(s.Run), "\n") {
					if line != "" {
						fmt.Fprintf(&lines, "    run %s\n", line)
					}
				}
			}
		}
		for _, target := range regexp.MustCompile(`(?m)run: make (\S+)`).FindAllStringSubmatch(string(text), -1) {
			if !regexp.MustCompile("(?m)^" + target[1] + ":").Match(makefile) {
				t.Errorf("%s calls make %s, which the Makefile lacks", filepath.Base(file), target[1])
			}
		}
	}
	golden(t, "workflows.txt", lines.String())
}

// TestUpdatesCoverAllModules: each go.mod of the repository is one whose dependencies are kept up to date.
func TestUpdatesCoverAllModules(t *testing.T) {
	var config struct {
		Updates []struct{ Directories []string }
	}
	text, err := os.ReadFile(root + "/.github/dependabot.yml")
	must(t, err)
	must(t, yaml.Unmarshal(text, &config))
	var modules []string
	must(t, filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && file != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "bin") {
			return filepath.SkipDir
		}
		if entry != nil && entry.Name() == "go.mod" {
			modules = append(modules, "/"+strings.TrimPrefix(filepath.Dir(strings.TrimPrefix(file, root+"/")), "."))
		}
		return err
	}))
	slices.Sort(modules)
	if diff := cmp.Diff(modules, config.Updates[0].Directories); diff != "" {
		t.Errorf("modules (-there +updated):\n%s", diff)
	}
}
