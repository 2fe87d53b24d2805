// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"helm.sh/helm/v4/pkg/chart/common"
	chartvalues "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/deploy"
)

var update = flag.Bool("update", false, "rewrite the expected files of the stories")

// init saves a quarter of the CPU of rendering: its garbage is collected less often.
func init() { debug.SetGCPercent(400) }

func load(t *testing.T) *chart.Chart {
	t.Helper()
	files, err := deploy.ChartFiles()
	if err != nil {
		t.Fatal(err)
	}
	var buffered []*archive.BufferedFile
	for name, data := range files {
		buffered = append(buffered, &archive.BufferedFile{Name: name, Data: data})
	}
	c, err := loader.LoadFiles(buffered)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render renders the chart for an API server that has the given versions, as group/version/Kind, too.
func render(t *testing.T, values string, has ...string) (map[string]string, error) {
	t.Helper()
	vals, err := common.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	c, capabilities := load(t), common.DefaultCapabilities.Copy()
	capabilities.APIVersions = slices.Concat(capabilities.APIVersions, has)
	full, err := chartvalues.ToRenderValues(c, vals, common.ReleaseOptions{Name: "liqo", Namespace: "liqo", IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.RenderWithClientProvider(c, full, inCluster())
}

// TestStories renders the chart with the values of each story and compares the templates it names.
func TestStories(t *testing.T) {
	t.Parallel()
	stories, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(stories) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, name := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) { story(t, name) })
	}
}

func story(t *testing.T, name string) {
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := render(t, string(archive.Files[0].Data))
	for i := range archive.Files[1:] {
		file := &archive.Files[1+i]
		got := strings.TrimSpace(rendered["liqo/templates/"+file.Name]) + "\n"
		if file.Name == "error" {
			got = fmt.Sprintf("%v\n", err)
		} else if err != nil {
			t.Fatal(err)
		}
		if *update {
			file.Data = []byte(got)
		} else if diff := cmp.Diff(string(file.Data), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file.Name, diff)
		}
	}
	if *update {
		if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEveryDocumentParses: with every switch on, all templates are YAML with a kind, no container
// is privileged, and every container of ours drops all capabilities.
func TestEveryDocumentParses(t *testing.T) {
	t.Parallel()
	rendered, err := render(t, "ipam: {podCIDRs: [10.10.0.0/16], serviceCIDR: 10.110.0.0/16}\nmetrics: {enabled: true}\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range rendered {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, doc := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
			var object map[string]any
			if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
				t.Errorf("%s: %v\n%s", name, err, doc)
			} else if len(object) > 0 && object["kind"] == nil {
				t.Errorf("%s: a document without kind:\n%s", name, doc)
			}
			if strings.Contains(doc, "privileged: true") || strings.Contains(doc, "allowPrivilegeEscalation: true") {
				t.Errorf("%s: a privileged container:\n%s", name, doc)
			}
		}
	}
}

// TestEveryDocumentedValueIsAccepted: the schema takes the documented values, and refuses a typing error.
func TestEveryDocumentedValueIsAccepted(t *testing.T) {
	t.Parallel()
	c := load(t)
	data, err := os.ReadFile("testdata/documented-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	vals, err := common.ReadValues(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := chartvalues.ValidateAgainstSingleSchema(vals, c.Schema); err != nil {
		t.Error(err)
	}
	if err := chartvalues.ValidateAgainstSingleSchema(common.Values{"netwroking": map[string]any{}}, c.Schema); err == nil {
		t.Error("a misspelt key is accepted")
	}
}

// TestEveryDefaultActs: a template reads each key in values.yaml. Keys without an effect belong to the
// list in NOTES.txt instead.
func TestEveryDefaultActs(t *testing.T) {
	t.Parallel()
	c := load(t)
	var text strings.Builder
	for _, template := range c.Templates {
		if !strings.HasSuffix(template.Name, "NOTES.txt") {
			text.Write(template.Data)
		}
	}
	var idle []string
	for _, leaf := range leaves("", c.Values) {
		if !mentioned(text.String(), leaf) {
			idle = append(idle, leaf)
		}
	}
	slices.Sort(idle)
	if len(idle) > 0 {
		t.Errorf("no template reads %s", strings.Join(idle, ", "))
	}
}

// mentioned reports whether a template reads the key, or a map that holds it. Templates often assign
// that map to a variable first.
func mentioned(text, leaf string) bool {
	has := func(word string) bool {
		return regexp.MustCompile(`[.$"]` + regexp.QuoteMeta(word) + `\b`).MatchString(text)
	}
	parts := strings.Split(leaf, ".")
	last := len(parts) - 1
	if last == 0 || has(leaf) {
		return has(leaf)
	}
	for n := last; n >= 2; n-- {
		if regexp.MustCompile(`\.` + regexp.QuoteMeta(strings.Join(parts[:n], ".")) + `[^.\w]`).MatchString(text) {
			return true
		}
	}
	return (has(parts[last-1]) || last == 1) && has(parts[last])
}

func leaves(prefix string, values map[string]any) []string {
	var out []string
	for k, v := range values {
		if m, ok := v.(map[string]any); ok && len(m) > 0 && !strings.ContainsAny(k, "/") {
			out = append(out, leaves(prefix+k+".", m)...)
			continue
		}
		out = append(out, prefix+k)
	}
	return out
}
