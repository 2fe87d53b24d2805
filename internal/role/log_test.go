// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package role

import (
	"errors"
	"log"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/klog/v2"
)

// TestAttackLog: a peer writes line breaks that forge log records, escape sequences for the terminal
// of who reads the log, and a million bytes. Its text arrives in error texts and values.
//
// Outcome: each record is one line of printable text, and each value is cut at 1 KiB.
func TestAttackLog(t *testing.T) {
	var out strings.Builder
	Log(&out)
	t.Cleanup(func() { klog.ClearLogger(); log.SetOutput(os.Stderr) })
	hostile := "x\nE0101 00:00:00.000000 1 fake.go:1] \"forged\"\x1b[2J\u202e\u2028\u009b\xff" + strings.Repeat("é", 1<<19)
	records := map[string]func(klog.Logger){
		"error": func(l klog.Logger) { l.Error(errors.New(hostile), "apply") },
		"value": func(l klog.Logger) { l.Info("changed", "message", hostile) },
		"wrapped": func(l klog.Logger) {
			l.Info("dial", "error", &url.Error{Op: "Get", URL: "https://x", Err: errors.New(hostile)})
		},
		"list":         func(l klog.Logger) { l.Info("found", "names", []string{hostile}) },
		"struct":       func(l klog.Logger) { l.Info("found", "object", struct{ Message string }{hostile}) },
		"bytes":        func(l klog.Logger) { l.Info("answered", "body", []byte(hostile)) },
		"kept value":   func(l klog.Logger) { l.WithValues("peer", hostile).WithName("controller").Info("reached") },
		"message":      func(l klog.Logger) { l.Info(hostile) },
		"klog format":  func(klog.Logger) { klog.Infof("answered: %s", hostile) },
		"klog error":   func(klog.Logger) { klog.ErrorS(errors.New(hostile), "watch") },
		"net/http log": func(klog.Logger) { log.Printf("TLS handshake error: %s", hostile) },
	}
	for name, record := range records {
		out.Reset()
		record(klog.Background())
		got := out.String()
		if line, end, _ := strings.Cut(got, "\n"); end != "" || len(line) == 0 || len(line) > 4096 || strings.ContainsAny(line, "\x1b\u202e\u2028\u009b") || !utf8.ValidString(line) {
			t.Errorf("%s: %d bytes, %.2000q", name, len(got), got)
		}
	}
}

// TestLogKeepsItsFormat: records look as those of Kubernetes, and flag --v rules what is logged.
func TestLogKeepsItsFormat(t *testing.T) {
	var out strings.Builder
	logger := Log(&out)
	t.Cleanup(klog.ClearLogger)
	logger.WithName("proxy").Info("reached", "peer", "milan", "attempt", 3, "after", 2*time.Second, "object", klog.KRef("shop", "web"), "nothing", nil)
	logger.Error(nil, "Observed a panic", "stacktrace", "goroutine 1:\nmain()")
	logger.V(1).Info("verbose")
	klog.V(1).Info("verbose")
	var typedNil *url.Error
	logger.Error(typedNil, "stopped")
	var got []string
	for line := range strings.Lines(out.String()) {
		_, text, found := strings.Cut(line, " log_test.go:")
		if _, after, has := strings.Cut(text, "] "); found && has {
			line = after
		}
		got = append(got, line)
	}
	const want = `"reached" logger="proxy" peer="milan" attempt=3 after="2s" object="shop/web" nothing=null
"Observed a panic" stacktrace=<
	goroutine 1:
	main()
 >
"stopped" err="<nil>"
`
	if text := strings.Join(got, ""); text != want {
		t.Errorf("logged\n%s", text)
	}
}
