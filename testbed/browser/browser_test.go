// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// site serves pages by path. All but /bad have no script.
func site(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/bad" {
			w.Header().Set("Content-Security-Policy", "script-src 'unsafe-inline'; style-src 'none'; connect-src *")
			_, _ = fmt.Fprint(w, `<body style="color: red">bad<img src="/absent"><script>
				console.error("one", 1); fetch("http://other.example/x").catch(() => {}); throw new Error("two");</script>`)
			return
		}
		if r.URL.Path == "/absent" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `<link rel="icon" href="data:,"><h1>%s</h1><p hidden>unseen</p><a href="/next">Go on</a>
			<svg><a href="/drawn"><text y="20">Drawn</text></a></svg>`, r.URL.Path)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func start(t *testing.T) *Browser {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), limit)
	t.Cleanup(stop)
	b, err := Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// must fails the test at the first error.
func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestDrive: links are followed with mouse and keys, and texts are found once they can be seen.
func TestDrive(t *testing.T) {
	b, home := start(t), site(t)
	must(t, b.Open(home+"/first"), b.Await(limit, "h1", "/first"), b.Await(limit, "svg", ""),
		b.Click("Go on"), b.Await(limit, "h1", "/next"), b.Click("Drawn"), b.Await(limit, "h1", "/drawn"),
		b.Press(Tab), b.Press(Enter), b.Await(limit, "h1", "/next"))
	if text, err := b.Text("body"); err != nil || strings.Contains(text, "unseen") {
		t.Error(text, err)
	}
	if err := b.Await(time.Second, "body", "unseen"); err == nil || !strings.Contains(err.Error(), "Go on") {
		t.Error("a hidden text is found, or the error does not show the page: ", err)
	}
	if got := b.Complaints(); len(got) > 0 {
		t.Error(got)
	}
}

// TestAwaitTextInPlace: a text is found that takes the place of another in the same node.
func TestAwaitTextInPlace(t *testing.T) {
	b := start(t)
	must(t, b.Open(site(t)+"/first"), b.Eval(`setTimeout(() => {
		document.querySelector("h1").firstChild.nodeValue = "later"; }, 300)`, new(int)), b.Await(limit, "h1", "later"))
}

// TestSettings: the window and what pages prefer and may do change.
func TestSettings(t *testing.T) {
	b, home := start(t), site(t)
	must(t, b.Open(home), b.Resize(360, 640), b.Scheme("dark"))
	var got string
	must(t, b.Eval(`innerWidth + " " + matchMedia("(prefers-color-scheme: dark)").matches`, &got))
	picture, err := b.Picture()
	must(t, err, b.Scripts(false), b.Open(home+"/bad"), b.Await(limit, "body", "bad"))
	if got != "360 true" || http.DetectContentType(picture) != "image/png" {
		t.Error(got, len(picture))
	}
	for _, c := range b.Complaints() {
		if strings.Contains(c, "console: ") {
			t.Error(c)
		}
	}
}

// TestComplaints: everything that a page does wrong is listed.
func TestComplaints(t *testing.T) {
	b, home := start(t), site(t)
	must(t, b.Open(home+"/bad"), b.Await(limit, "body", "bad"))
	for _, want := range []string{`console: "one" 1`, "exception", "two", "404", "security: ", "style-src",
		"request to another host: http://other.example/x"} {
		all := ""
		if err := wait.PollUntilContextTimeout(t.Context(), polling, limit, true, func(context.Context) (bool, error) {
			all = strings.Join(b.Complaints(), "\n") // Chromium tells of them in its own time
			return strings.Contains(all, want), nil
		}); err != nil {
			t.Errorf("gave up after %s: waited for %q in the complaints, which are\n%s", limit, want, all)
		}
	}
}

// TestNothingIsLeft: Close ends all processes and removes all files, also of a browser that ended with its context, as
// those of tests do.
func TestNothingIsLeft(t *testing.T) {
	left := func() (found []string) {
		lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
		must(t, err)
		for _, file := range lines {
			if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), os.TempDir()+"/chromedp") {
				found = append(found, string(line))
			}
		}
		entries, err := os.ReadDir(os.TempDir())
		must(t, err)
		for _, e := range entries {
			found = append(found, e.Name())
		}
		return found
	}
	t.Setenv("TMPDIR", t.TempDir())
	for name, ended := range map[string]bool{"by Close": false, "with its context": true} {
		ctx, stop := context.WithTimeout(t.Context(), limit)
		b, err := Start(ctx)
		must(t, err)
		if len(left()) < 3 {
			t.Error("found too few processes of Chromium: ", left())
		}
		if ended {
			stop()
		}
		b.Close()
		stop()
		if found := left(); len(found) > 0 {
			t.Error(name, found)
		}
	}
}
