// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxPrintable is the size of the longest text Printable returns, in bytes. The API server refuses
// an event with a longer note (NoteLengthLimit in pkg/apis/core/validation of Kubernetes).
const MaxPrintable = 1024

// Printable returns text as it is safe to show on a terminal, in a log and in an event: peers write parts of it.
// Control characters, line breaks, invisible characters, marks that change the direction of writing and invalid UTF-8
// are escaped as in Go. Letters of any script, symbols and spaces stay. Of a long text the beginning and the end are
// kept: messages end with what to do. Printable text is returned unchanged.
func Printable(text string) string {
	if strings.ContainsFunc(text, unprintable) || !utf8.ValidString(text) {
		text = escaped(text)
	}
	if len(text) <= MaxPrintable {
		return text
	}
	const gap, end = " … ", MaxPrintable / 4
	head, tail := text[:MaxPrintable-end-len(gap)], text[len(text)-end:]
	return strings.ToValidUTF8(head, "") + gap + strings.ToValidUTF8(tail, "") // without halves of runes
}

func escaped(text string) string {
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			out.WriteString(`\x` + strconv.FormatUint(uint64(text[0]), 16))
		case unprintable(r):
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		default:
			out.WriteRune(r)
		}
		text = text[size:]
	}
	return out.String()
}

// unprintable reports whether a rune is invisible or changes how others are shown. IsGraphic is false for control and
// format characters (Cc, Cf), line separators, private and unassigned runes; marks and fillers without a shape are
// graphic, but ignorable.
func unprintable(r rune) bool {
	return !unicode.IsGraphic(r) || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point,
		unicode.Variation_Selector)
}
