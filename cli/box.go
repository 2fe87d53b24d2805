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
type lines []line

// line is a text, or a key and its value.
type line struct {
	depth int
	// key ends with a colon; it is empty before a text without one.
	key, text string
}

// text appends a line indented by depth, and escapes control characters that a peer may have sent.
func (l *lines) text(depth int, text string) { *l = append(*l, line{depth, "", api.Printable(text)}) }

// add adds a key and its value.
func (l *lines) add(depth int, key, value string) {
	*l = append(*l, line{depth, api.Printable(key) + ":", api.Printable(value)})
}

// aligned returns the lines as text. The values of successive keys of one depth form a column.
func (l lines) aligned() []string {
	var out []string
	for len(l) > 0 {
		n, width := 1, utf8.RuneCountInString(l[0].key)
		for n < len(l) && l[0].key != "" && l[n].key != "" && l[n].depth == l[0].depth {
			width = max(width, utf8.RuneCountInString(l[n].key))
			n++
		}
		for _, at := range l[:n] {
			text := at.text
			if at.key != "" {
				text = fmt.Sprintf("%-*s %s", width, at.key, at.text)
			}
			out = append(out, strings.Repeat("    ", at.depth)+text)
		}
		l = l[n:]
	}
	return out
}

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
	width, texts := utf8.RuneCountInString(title)+2, content.aligned()
	for _, line := range texts {
		width = max(width, utf8.RuneCountInString(line))
	}
	var out strings.Builder
	fmt.Fprintf(&out, "┌─ %s %s┐\n", title, strings.Repeat("─", width-utf8.RuneCountInString(title)-1))
	for _, line := range texts {
		fmt.Fprintf(&out, "| %s%s |\n", line, strings.Repeat(" ", width-utf8.RuneCountInString(line)))
	}
	fmt.Fprintf(&out, "└%s┘\n", strings.Repeat("─", width+2))
	return out.String()
}
