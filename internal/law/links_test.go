// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	fencedBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	pageLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	pageHeading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// TestLinks checks that each relative link of a page leads to a file, and its anchor to a heading there. It calls no
// other host.
func TestLinks(t *testing.T) {
	links := 0
	err := filepath.WalkDir("../..", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			name := entry.Name()
			if name == "bin" || name == "testdata" || strings.HasPrefix(name, ".") && name != ".." {
				return filepath.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(file, ".md") {
			links += checkLinks(t, file)
		}
		return nil
	})
	if err != nil || links < 200 {
		t.Errorf("found only %d links: %v", links, err)
	}
}

// checkLinks checks the links of one page and returns how many there are.
func checkLinks(t *testing.T, page string) int {
	t.Helper()
	found := pageLink.FindAllStringSubmatch(prose(t, page), -1)
	for _, link := range found {
		if strings.Contains(link[1], "://") || strings.HasPrefix(link[1], "mailto:") {
			continue
		}
		path, anchor, _ := strings.Cut(link[1], "#")
		target := page
		if path != "" {
			target = filepath.Join(filepath.Dir(page), path)
		}
		if _, err := os.Stat(target); err != nil {
			t.Errorf("%s leads to %s: %v", page, link[1], err)
		} else if anchor != "" && !hasHeading(t, target, anchor) {
			t.Errorf("%s leads to %s, which has no such heading", page, link[1])
		}
	}
	return len(found)
}

// prose returns a page without its code.
func prose(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return codeSpan.ReplaceAllString(fencedBlock.ReplaceAllString(string(text), ""), "")
}

// hasHeading reports whether a page has a heading with an anchor, as GitHub makes it: lower case, hyphens for spaces,
// no punctuation.
func hasHeading(t *testing.T, page, anchor string) bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, heading := range pageHeading.FindAllStringSubmatch(fencedBlock.ReplaceAllString(string(text), ""), -1) {
		made := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, heading[1])
		if made == anchor {
			return true
		}
	}
	return false
}
