// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/liqo-go/liqo/api"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"own words", "node \"milan\" is not Ready; run 'liqoctl info' (C:\\milan)", "node \"milan\" is not Ready; run 'liqoctl info' (C:\\milan)"},
		{"letters of other scripts", "Zürich  東京　ミラノ عربي हिन्दी עברית ✔ 🚀", "Zürich  東京　ミラノ عربي हिन्दी עברית ✔ 🚀"},
		{"terminal", "a\x1b[2J\x1b]0;title\x07b\x7fc\u009bd", `a\x1b[2J\x1b]0;title\ab\x7fc\u009bd`},
		{"line breaks", "a\nb\r\nc\td\u2028e\u2029f\vg\fh\u0085i\x00j", `a\nb\r\nc\td\u2028e\u2029f\vg\fh\u0085i\x00j`},
		{"direction", "a\u202eb\u2066c\u2069d\u200ee\u200ff\u061cg", `a\u202eb\u2066c\u2069d\u200ee\u200ff\u061cg`},
		{"invisible", "a\u200bb\u200dc\ufeffd\u00ade\u3164f\ufe0fg\U000e0041h\u2800", `a\u200bb\u200dc\ufeffd\u00ade\u3164f\ufe0fg\U000e0041h` + "\u2800"},
		{"invalid", "a\xffb\xc3(c\xe2\x82", `a\xffb\xc3(c\xe2\x82`},
		{"replacement character", "a\ufffdb", "a\ufffdb"},
	} {
		if got := api.Printable(c.text); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.name, got, c.want)
		}
	}
	got := api.Printable("get pods: " + strings.Repeat("é", 5000) + "; check the peer")
	if len(got) > api.MaxPrintable || !strings.HasPrefix(got, "get pods: é") || !strings.HasSuffix(got, "é; check the peer") || !strings.Contains(got, "é … é") {
		t.Errorf("a long text becomes %q", got)
	}
}

// FuzzPrintable: whatever a peer writes, what is shown of it is one short line of visible text.
func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[31m\nb\u202e\xff")
	f.Add(strings.Repeat("\u202e", 700))
	f.Add(strings.Repeat("é", 800))
	f.Fuzz(func(t *testing.T, text string) {
		got := api.Printable(text)
		if len(got) > api.MaxPrintable || !utf8.ValidString(got) {
			t.Errorf("%q becomes %d bytes, %q", text, len(got), got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
				t.Errorf("%q becomes %q with %U", text, got, r)
			}
		}
		if again := api.Printable(got); again != got {
			t.Errorf("%q becomes %q, and that %q", text, got, again)
		}
	})
}
