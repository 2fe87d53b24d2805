// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// outcome is how a spec ended.
type outcome struct {
	state   string // passed or failed; empty: it did not run
	message string // of a failure, or of a spec that found it cannot run
}

// readReport reads ginkgo's report, by the full names of specs.
func readReport(file string) (map[string]outcome, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			LeafNodeType, LeafNodeText string
			State                      string
			Failure                    struct{ Message string }
		}
	}
	if err := json.Unmarshal(text, &suites); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	outcomes := map[string]outcome{}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			if spec.LeafNodeType != "It" || !strings.Contains(name, "Conformance]") {
				continue
			}
			switch spec.State {
			case "passed":
				outcomes[name] = outcome{"passed", ""}
			case "skipped", "pending", "interrupted":
				outcomes[name] = outcome{"", spec.Failure.Message} // a spec that cannot run says why
			default:
				outcomes[name] = outcome{"failed", spec.Failure.Message}
			}
		}
	}
	return outcomes, nil
}

func count(outcomes map[string]outcome) string {
	counts := map[string]int{}
	for _, o := range outcomes {
		counts[o.state]++
	}
	return fmt.Sprintf("%d passed, %d failed", counts["passed"], counts["failed"])
}

// writePage writes docs/conformance.md, and fails when the virtual node passes less than 98 % of what a real one does,
// or when a spec fails without a reason.
func (b *bed) writePage(note string, virtual, real map[string]outcome) error {
	page, problems := markdown(b.version, note, time.Now(), virtual, real)
	if err := os.WriteFile(filepath.Join(b.repo, "docs", "conformance.md"), []byte(page), 0o644); err != nil {
		return err
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s", strings.Join(problems, "\n"))
	}
	return nil
}

var (
	areaOf  = regexp.MustCompile(`\[sig-([a-z-]+)\] `)
	tag     = regexp.MustCompile(` ?\[[A-Za-z:0-9.]+\]`)
	escapes = strings.NewReplacer("|", `\|`, "*", `\*`, "<", `\<`)
)

// markdown returns the page, and the problems for which the goal is missed.
func markdown(version, note string, at time.Time, virtual, real map[string]outcome) (page string, problems []string) {
	areas := map[string][]string{}
	counts := map[string]int{} // of the specs that pass on a real node, by how they end on the virtual one
	all := maps.Clone(real)
	maps.Copy(all, virtual)
	for name := range all {
		r, v := real[name], virtual[name]
		remark := ""
		switch {
		case why(leftOut(), name) != "":
			r.state, v.state, remark = "left out", "left out", why(leftOut(), name)
		case r.state == "passed":
			counts[v.state]++
			if v.state != "failed" {
				remark = oneLine(v.message)
			} else if remark = why(forbidden(), name); remark == "" {
				remark = "not explained yet: " + oneLine(v.message)
				problems = append(problems, "fails on the virtual node without a reason: "+name)
			}
		default:
			remark = oneLine(r.message)
		}
		area := areaOf.FindStringSubmatch(name)[1]
		short := strings.TrimSpace(tag.ReplaceAllString(areaOf.ReplaceAllString(name, ""), ""))
		areas[area] = append(areas[area], fmt.Sprintf("| %s | %s | %s | %s |\n",
			escapes.Replace(short), cmp.Or(r.state, "not run"), cmp.Or(v.state, "not run"), escapes.Replace(remark)))
	}
	both := counts["passed"] + counts["failed"]
	share := 100 * float64(counts["passed"]) / float64(max(1, both))
	if share < 98 {
		problems = append(problems,
			fmt.Sprintf("only %.1f %% of the specs that pass on a real node pass on the virtual one", share))
	}
	var p strings.Builder
	fmt.Fprintf(&p, preface, version, at.Format(time.DateOnly), note, both, counts["passed"], share)
	for _, area := range slices.Sorted(maps.Keys(areas)) {
		rows := areas[area]
		slices.Sort(rows)
		fmt.Fprintf(&p, "\n## %s\n\n| spec | real node | virtual node | remark |\n|---|---|---|---|\n%s", area,
			strings.Join(slices.Compact(rows), ""))
	}
	return p.String(), problems
}

// why finds the first reason that matches.
func why(reasons []reason, spec string) string {
	for _, r := range reasons {
		if regexp.MustCompile(r.specs).MatchString(spec) {
			return r.why
		}
	}
	return ""
}

// oneLine is the start of a message.
func oneLine(message string) string {
	first, _, _ := strings.Cut(message, "\n")
	return first[:min(len(first), 150)]
}

const preface = `# Kubernetes' own tests on a virtual node

*make test-conformance* runs specs of Kubernetes' e2e.test %s twice, and writes this page: on the virtual node of a
cluster, where each namespace is offloaded with strategy *Remote* as soon as it is made, and on the real nodes of the
provider behind it. These are the specs labelled Conformance or NodeConformance of the areas apps, auth, network, node,
scheduling and of volumes in *test/e2e/common*.

The provider lets consumers have privileged pods, host paths and all runtime classes, and the clusters have different
pod CIDRs. The suite sees the virtual node without its taint, because it skips tainted nodes when it chooses one. The
images hold Debian's programs under the names that specs ask for.

Written: %s. %s

**Of %d specs that ran on both and pass on a real node, %d pass on the virtual one: %.1f %%.**
`
