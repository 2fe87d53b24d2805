// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/liqo-go/liqo/api"
)

// lines holds the lines of a box.
type lines []string

// text appends a line indented by depth, and escapes control characters that a peer may have sent.
func (l *lines) text(depth int, text string) {
	*l = append(*l, strings.Repeat("    ", depth)+api.Printable(text))
}

// add adds a key and its value.
func (l *lines) add(depth int, key, value string) { l.text(depth, key+": "+value) }

// addNonEmpty adds a key and its value, or nothing if the value is empty.
func (l *lines) addNonEmpty(depth int, key, value string) {
	if value != "" {
		l.add(depth, key, value)
	}
}

// addMap appends a key and the sorted pairs below it. It appends nothing if pairs is empty.
func (l *lines) addMap(depth int, key string, pairs map[string]string) {
	if len(pairs) == 0 {
		return
	}
	l.text(depth, key)
	for _, k := range slices.Sorted(maps.Keys(pairs)) {
		l.add(depth+1, k, pairs[k])
	}
}

// addList appends a key and the items below it. It appends nothing if items is empty.
func (l *lines) addList(depth int, key string, items []string) {
	if len(items) == 0 {
		return
	}
	l.text(depth, key)
	for _, item := range items {
		l.text(depth+1, item)
	}
}

// box draws a frame with a title around the lines.
func box(title string, content lines) string {
	title = api.Printable(title)
	width := utf8.RuneCountInString(title) + 2
	for _, line := range content {
		width = max(width, utf8.RuneCountInString(line))
	}
	var out strings.Builder
	fmt.Fprintf(&out, "┌─ %s %s┐\n", title, strings.Repeat("─", width-utf8.RuneCountInString(title)-1))
	for _, line := range content {
		fmt.Fprintf(&out, "| %s%s |\n", line, strings.Repeat(" ", width-utf8.RuneCountInString(line)))
	}
	fmt.Fprintf(&out, "└%s┘\n", strings.Repeat("─", width+2))
	return out.String()
}
