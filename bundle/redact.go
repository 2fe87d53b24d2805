// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	// hidden replaces redacted text; text that is shorter than hidden is replaced by as many of its characters.
	hidden = "***"
	// separatedLength is the length of a key of WireGuard with a byte in front of it.
	separatedLength = 45
	// maxEncodings bounds how often base64 within base64 is decoded: a Secret within a kubeconfig within an
	// annotation has two.
	maxEncodings = 3
	// minEncoded is the length of the shortest base64 that is decoded, and minText that of the shortest text within it
	// that is searched, in bytes.
	minEncoded, minText = 40, 16
	// maxPasses bounds how often a text is redacted again because a replacement formed a new match.
	maxPasses = 8
	// maxName is the length of the longest name of a credential, and maxVariable that of what lies between the
	// beginning of an environment variable and its value, in bytes.
	maxName, maxVariable = 24, 128
	// maxKey bounds the distance from the begin of a private key to its end, in bytes: one of RSA with 16384 bits has
	// 12600.
	maxKey = 16 << 10
	// betweenKeyLines is a regular expression; see beforeKeyLine.
	betweenKeyLines = `(?:\s|\\+[nr]|\d{4}-\d\d-\d\dT[\d:.]+Z|(?:Proc-Type|DEK-Info): [\w,-]+)+`
)

// forms are the forms of credentials and what replaces them. Each begins with a literal, which keeps the search fast.
var forms = []struct {
	of   *regexp.Regexp
	with string
}{
	// JSON Web Tokens, such as those of service accounts: base64 of `{"`.
	{regexp.MustCompile(`eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?`), hidden},
	// Tokens in headers. The shortest is longer than the words that follow "bearer" in prose.
	{regexp.MustCompile(`earer(\s+)[\w.~+/=-]{16,}`), "earer${1}" + hidden},
	{regexp.MustCompile(`://[^\s/@:]+:[^\s/@]+@`), "://" + hidden + "@"}, // name and password in a URL
	{regexp.MustCompile(`AKIA[A-Z0-9]{16}`), hidden},                     // access keys of AWS
	{regexp.MustCompile(`ASIA[A-Z0-9]{16}`), hidden},
	{regexp.MustCompile(`gh[pousr]_\w{20,}`), hidden}, // tokens of GitHub
}

var (
	// keyBegin and keyEnd match the first and the last line of a private key.
	keyBegin = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`)
	keyEnd   = regexp.MustCompile(`-----END [A-Z0-9 ]*PRIVATE KEY-----`)
	// beforeKeyLine and afterKeyLine match what separates the lines of a key: line feeds, which can be escaped, spaces,
	// the times of a log, and the headers of an encrypted key.
	beforeKeyLine = regexp.MustCompile(betweenKeyLines + `$`)
	afterKeyLine  = regexp.MustCompile(`^` + betweenKeyLines)
	// named matches the value behind the name of a credential: what is hidden already, or one in quotes, which can be
	// escaped, a block of YAML with escaped line feeds, which ends at a quote, or what runs to white space or a quote.
	named = regexp.MustCompile(`^[:=]*>?\s*(?:(\*\*\*)[,;&})\]]|(\\*"(?:[^"\\]|\\.)*"?|` +
		`'(?:[^']|'')*'?|[|>][-+\d]*\\+[nr](?:[^"\\]|\\.)*|` +
		`(?:[^\s"']*(?i:bearer|basic)\s+)?[^\s"']+))`)
	// block matches the beginning of a block of YAML: its lines follow.
	block = regexp.MustCompile(`^[ \t]*(?:[&!]\S*[ \t]+)*[|>][-+\d]*[ \t]*(?:[ \t]#[^\n]*)?\r?\n`)
	// variable matches the beginning of an environment variable in JSON and YAML, up to its value.
	variable = regexp.MustCompile(`(?i)name[\\"']*\s*:\s*[\\"']*([\w.-]+)[\\"']*(?:[\s,]|\\+[nr])*[\\"']*value$`)
	// encodedKey matches the keys of WireGuard: 32 bytes in base64.
	encodedKey = regexp.MustCompile(`^[A-Za-z0-9+/]{43}=$`)
	// separatedKey matches a key of WireGuard with a separator in front of it, as in a path.
	separatedKey = regexp.MustCompile(`^[-_/+][A-Za-z0-9+/]{43}=$`)
	// credentials are the ends of names of credentials, in lower case and without what separates words.
	credentials = []string{"password", "passwd", "passphrase", "token", "authorization", "privatekey", "presharedkey",
		"apikey", "accesskey", "accesskeyid", "secretkey", "clientsecret", "keydata"}
	// words are credentials' names that count as whole words only: "bypass" names none.
	words = []string{"pass", "pwd", "psk"}
)

// Text returns a text without credentials: private keys, tokens, passwords, and base64 with any of these. A key of
// WireGuard, which can be a public or a private one, becomes the beginning of its SHA-256 sum, so that keys can be
// compared. The result is never longer than the text, and redacting it again changes nothing. Text cannot know a
// secret of no known form and without a name; Object therefore leaves out whole fields.
func Text(text []byte) []byte {
	for range maxPasses {
		before := text
		text = replace(text, nextKey)
		text = replace(text, nextKeyEnd)
		text = replace(text, nextNamed)
		for _, form := range forms { // later: a value can begin with one
			text = form.of.ReplaceAll(text, []byte(form.with))
		}
		text = replace(text, nextBootstrapToken)
		text = replace(text, nextEncoded)
		if bytes.Equal(before, text) {
			break
		}
	}
	return text
}

// match is a part of a text to be replaced.
type match struct {
	from, to int
	with     string
}

// replace returns the text with all matches replaced. next returns the first match in a text; ok is false if no match
// is left.
func replace(text []byte, next func(text []byte) (m match, ok bool)) []byte {
	var out []byte
	for {
		m, ok := next(text)
		if !ok {
			break
		}
		out = append(append(out, text[:m.from]...), m.with...)
		text = text[m.to:]
	}
	if out == nil {
		return text
	}
	return append(out, text...)
}

// nextKey finds a private key by its first line. If no last line follows within maxKey bytes, because the message was
// cut, the key ends with its last line of base64. Only the last line of a key is short.
func nextKey(text []byte) (m match, ok bool) {
	begin := keyBegin.FindIndex(text)
	if begin == nil {
		return m, false
	}
	m = match{begin[0], begin[1], hidden}
	near := text[m.to:min(len(text), m.to+maxKey)]
	if other := keyBegin.FindIndex(near); other != nil {
		near = near[:other[0]]
	}
	if end := keyEnd.FindIndex(near); end != nil {
		m.to += end[1]
		return m, true
	}
	for {
		separator := len(afterKeyLine.Find(near))
		n := countBegin(near[separator:], isKeyByte)
		rest := near[separator+n:]
		isWord := len(rest) > 0 && slices.Contains([]byte(" \t:"), rest[0])
		if n == 0 || n < minEncoded && isWord {
			return m, true
		}
		m.to, near = m.to+separator+n, rest
		if n < minEncoded {
			return m, true
		}
	}
}

// nextKeyEnd finds the end of a private key without the beginning, as in a log that begins within a key.
func nextKeyEnd(text []byte) (m match, ok bool) {
	end := keyEnd.FindIndex(text)
	if end == nil {
		return m, false
	}
	for from, isFull := end[0], false; ; {
		before := text[:from]
		separator := beforeKeyLine.Find(before[max(0, len(before)-maxVariable):])
		before = before[:len(before)-len(separator)]
		n := countEnd(before, isKeyByte)
		if n > 0 && n < len(before) && before[len(before)-n-1] == '\\' {
			n-- // the letter of an escaped line feed
		}
		isCut := isFull && n == len(before)                      // where the text begins
		if n == 0 || n < minEncoded && from < end[0] && !isCut { // only the last line is short
			return match{from, end[1], hidden}, true
		}
		from, isFull = len(before)-n, n >= minEncoded
	}
}

func isKeyByte(b byte) bool { return isDigit(b) || b == '=' }

// nextNamed finds a value behind the name of a credential, as in command lines, headers, JSON, YAML, environment
// variables and configurations of WireGuard. Empty values in quotes stay.
func nextNamed(text []byte) (m match, ok bool) {
	for at := 0; ; {
		i := bytes.IndexAny(text[at:], ":=")
		if i < 0 {
			return m, false
		}
		at += i + 1
		if !isNamed(text[:at-1]) {
			continue
		}
		if from, to := valueAt(text, at); to-from > 2 || to > from && !isQuote(text[to-1]) {
			return match{from, to, hidden[:min(len(hidden), to-from)]}, true
		}
	}
}

// valueAt returns the bounds of a credential's value, whose name ends at the position at; from equals to if the value
// is missing. If the value itself ends with the name of a credential, the bounds include the value of that credential.
func valueAt(text []byte, at int) (from, to int) {
	for from, to = at, at; ; {
		found := named.FindSubmatchIndex(text[to:])
		if found == nil {
			return from, to
		}
		if to == at {
			from += max(found[2], found[4])
		}
		to += max(found[3], found[5], countBlock(text, to))
		end := bytes.TrimRight(text[from:to], " \t\\\"'")
		if n := len(end) - 1; n < 1 || end[n] != ':' && end[n] != '=' || !isNamed(text[:from+n]) {
			return from, to
		}
	}
}

// countBlock returns how many bytes at a position of a text are a block of YAML: "|" or ">" and the lines below with a
// deeper indentation than its key. Without the beginning of the key's line, any indentation is deeper.
func countBlock(text []byte, at int) (n int) {
	n = len(block.Find(text[at:]))
	if n == 0 {
		return 0
	}
	indentation := 0
	if i := bytes.LastIndexByte(text[:at], '\n'); i >= 0 {
		indentation = countBegin(text[i+1:at], func(b byte) bool { return b == ' ' || b == '-' })
	}
	end := n - 1
	for at+n < len(text) {
		line, _, _ := bytes.Cut(text[at+n:], []byte("\n"))
		if len(bytes.TrimSpace(line)) > 0 {
			if countBegin(line, func(b byte) bool { return b == ' ' }) <= indentation {
				break
			}
			end = n + len(line)
		}
		n += len(line) + 1
	}
	return end
}

func isQuote(b byte) bool { return b == '"' || b == '\'' }

// isNamed reports whether a text ends with the name of a credential, either directly or as the name of an environment
// variable in front of its value.
func isNamed(text []byte) bool {
	if isCredential(string(text[max(0, len(text)-2*maxName):])) {
		return true
	}
	name := bytes.TrimRight(text[max(0, len(text)-maxVariable):], " \t\\\"'")
	if i := len(name) - len("value"); i < 0 || !bytes.EqualFold(name[i:], []byte("value")) {
		return false
	}
	found := variable.FindSubmatch(name)
	return found != nil && isCredential(string(found[1]))
}

// isCredential reports whether a name ends like the name of a credential.
func isCredential(name string) bool {
	name = strings.TrimRight(name, " \t\\\"'")
	if slices.ContainsFunc(words, func(word string) bool { return isLastWord(name, word) }) {
		return true
	}
	name = strings.Map(letterOfName, name[max(0, len(name)-maxName):])
	return slices.ContainsFunc(credentials, func(end string) bool { return strings.HasSuffix(name, end) })
}

// isLastWord reports whether a word is the last one of a name, in any case: of DB_PASS, db-pass and dbPass.
func isLastWord(name, word string) bool {
	i := len(name) - len(word)
	if i < 0 || !strings.EqualFold(name[i:], word) {
		return false
	}
	isUpper := func(b byte) bool { return b >= 'A' && b <= 'Z' }
	isLower := func(b byte) bool { return b >= 'a' && b <= 'z' }
	return i == 0 || isUpper(name[i]) && !isUpper(name[i-1]) || !isUpper(name[i-1]) && !isLower(name[i-1])
}

// letterOfName returns a letter of a name in lower case, and drops what separates its words.
func letterOfName(r rune) rune {
	switch {
	case r == '-', r == '_', r == ' ':
		return -1
	case r >= 'A' && r <= 'Z':
		return r + 'a' - 'A'
	}
	return r
}

// nextBootstrapToken finds a token of kubeadm: 6 characters, a dot and 16 characters.
func nextBootstrapToken(text []byte) (m match, ok bool) {
	const before, after = 6, 16
	for at := 0; ; at++ {
		i := bytes.IndexByte(text[at:], '.')
		if i < 0 {
			return m, false
		}
		at += i
		from, to := at-before, at+1+after
		if from >= 0 && to <= len(text) && countEnd(text[:at], isTokenByte) == before &&
			countBegin(text[at+1:], isTokenByte) == after {
			return match{from, to, hidden}, true
		}
	}
}

func isTokenByte(b byte) bool { return b >= 'a' && b <= 'z' || b >= '0' && b <= '9' }

// countBegin returns how many bytes at the beginning of a text are of a class; countEnd, at its end.
func countBegin(text []byte, of func(byte) bool) (n int) {
	for n < len(text) && of(text[n]) {
		n++
	}
	return n
}

func countEnd(text []byte, of func(byte) bool) (n int) {
	for n < len(text) && of(text[len(text)-1-n]) {
		n++
	}
	return n
}

// nextEncoded finds base64 that is a key, or whose content has credentials.
func nextEncoded(text []byte) (m match, ok bool) {
	for at := 0; at < len(text); at++ {
		n := countBegin(text[at:], isDigit)
		if n < minEncoded {
			at += n
			continue
		}
		to := at + n
		to += countBegin(text[to:min(to+2, len(text))], func(b byte) bool { return b == '=' })
		run := text[at:to]
		switch {
		case encodedKey.Match(run):
			return match{at, to, fmt.Sprintf("key-%.6x", sha256.Sum256(run))}, true
		case encodes(run[:n], maxEncodings):
			return match{at, to, hidden}, true
		case separatedKey.Match(run[max(0, len(run)-separatedLength):]):
			key := run[len(run)-separatedLength+1:]
			return match{to - len(key), to, fmt.Sprintf("key-%.6x", sha256.Sum256(key))}, true
		}
		at = to
	}
	return m, false
}

// isDigit reports whether a byte is a digit of standard or URL-safe base64.
func isDigit(b byte) bool {
	return isTokenByte(b) || b >= 'A' && b <= 'Z' || b == '+' || b == '/' || b == '-' || b == '_'
}

// encodes reports whether a run of base64 has a key or credentials as its content. The run can begin in front of the
// base64, as in a path, so all four alignments are decoded.
func encodes(digits []byte, encodings int) bool {
	digits = bytes.Map(standardDigit, digits)
	content := make([]byte, base64.RawStdEncoding.DecodedLen(len(digits)))
	for offset := range 4 {
		n, _ := base64.RawStdEncoding.Decode(content, digits[offset:]) // up to what is not base64
		if encodedKey.Match(bytes.TrimSpace(content[:n])) {
			return true
		}
		for _, text := range bytes.FieldsFunc(content[:n], isControl) {
			if len(text) >= minText && hasCredentials(text, encodings-1) {
				return true
			}
		}
	}
	return false
}

// isControl reports whether a rune does not occur in texts with credentials. Nearly all of the bytes that the wrong
// alignment gives are such, or lie between them.
func isControl(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r > '~' }

// standardDigit maps a digit of URL-safe base64 to the digit of standard base64.
func standardDigit(digit rune) rune {
	switch digit {
	case '-':
		return '+'
	case '_':
		return '/'
	}
	return digit
}

// hasCredentials reports whether Text would replace a part of a text. Keys without a name do not count, because the
// last line of a certificate can look like a key.
func hasCredentials(text []byte, encodings int) bool {
	for _, form := range forms {
		if form.of.Match(text) {
			return true
		}
	}
	if _, ok := nextNamed(text); ok || keyBegin.Match(text) || keyEnd.Match(text) {
		return true
	}
	for at := 0; encodings > 0 && at < len(text); at++ {
		n := countBegin(text[at:], isDigit)
		if n >= minEncoded && encodes(text[at:at+n], encodings) {
			return true
		}
		at += n
	}
	return false
}
