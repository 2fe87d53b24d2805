// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package browser drives one page of Chromium, without a window, for tests, figures and pictures of the dashboard. It
// acts as users do, with clicks and keys, and reads what they see. It resolves no names, so no page reaches another
// host, and Complaints tells of those that try.
//
// Start with Start. A Browser may not be used by several goroutines, except for Close.
package browser

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/liqo-go/liqo/internal/patience"
)

// limit bounds all actions but Await.
const limit = patience.Limit

// polling is how often a page is asked for what is waited for.
const polling = 10 * time.Millisecond

// Keys for Press.
const (
	Tab   = kb.Tab
	Enter = kb.Enter
)

// Browser is a running Chromium with one open page. Its profile is new and is removed by Close.
type Browser struct {
	ctx   context.Context
	close func()

	mu         sync.Mutex
	host       string // of the last Open
	complaints []string
}

// Start starts Chromium, which ends with the caller's context or by Close. It fails if Chromium is not installed.
func Start(callers context.Context) (*Browser, error) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("find Chromium, which 'make deps' installs: %w", err)
	}
	// One that is killed leaves files behind, so the end of the caller's context closes it.
	ctx, kill := chromedp.NewContext(context.WithoutCancel(callers), chromedp.WithAllocatorOptions(
		chromedp.ExecPath(program), chromedp.NoSandbox, // which root may not have
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1")))
	b := &Browser{ctx: ctx}
	b.close = sync.OnceFunc(func() {
		limited, stop := context.WithTimeout(ctx, limit)
		defer stop()
		if chromedp.Cancel(limited) != nil { // it has crashed, or does not end
			kill()
		}
	})
	context.AfterFunc(callers, b.close)
	err = chromedp.Listen(ctx, b.listen)
	if err == nil {
		_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	}
	if err == nil {
		err = b.Resize(1280, 800)
	}
	if err != nil {
		b.Close()
		return nil, fmt.Errorf("start Chromium: %w", err)
	}
	return b, nil
}

// Close ends Chromium, and returns when all its processes and its profile are gone.
func (b *Browser) Close() { b.close() }

// listen notes what a developer would see in red, and requests to other hosts.
func (b *Browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	complain := func(format string, args ...any) { b.complaints = append(b.complaints, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if to, err := url.Parse(e.Request.URL); err != nil || to.Scheme != "data" && to.Host != b.host {
			complain("request to another host: %s", e.Request.URL)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			var texts []string
			for _, arg := range e.Args {
				texts = append(texts, cmp.Or(arg.Description, string(arg.Value)))
			}
			complain("console: %s", strings.Join(texts, " "))
		}
	case *runtime.EventExceptionThrown:
		complain("exception: %v", &chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails})
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			complain("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	}
}

// Complaints returns what went wrong in all pages so far: errors and warnings of the console, exceptions, violations of
// the Content-Security-Policy, and requests to other hosts than that of Open.
func (b *Browser) Complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.complaints)
}

// Open loads a page. It fails if the server does not answer, but not if it answers with an error.
func (b *Browser) Open(address string) error {
	to, err := url.Parse(address)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.host = to.Host
	b.mu.Unlock()
	return b.do("open "+to.Redacted(), chromedp.Navigate(address))
}

// run runs an action within a time.
func run[T any](b *Browser, within time.Duration, action chromedp.Action[T]) (T, error) {
	ctx, stop := context.WithTimeout(b.ctx, within)
	defer stop()
	return chromedp.Run(ctx, action)
}

func (b *Browser) do(what string, action chromedp.Action[chromedp.Void]) error {
	if _, err := run(b, limit, action); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// await calls a function in the page, also after other pages were loaded, until it returns something. It does not wait
// for mutations: the driver observes none of texts that change in place.
func await[T any](b *Browser, within time.Duration, function string, args ...any) (T, error) {
	ctx, stop := context.WithTimeout(b.ctx, within)
	defer stop()
	for {
		value, err := chromedp.Run(ctx, chromedp.PollFunction[T](function, chromedp.WithPollingInterval(polling),
			chromedp.WithPollingTimeout(0), chromedp.WithPollingArgs(args...)))
		var thrown *chromedp.ExceptionError
		if err == nil || errors.As(err, &thrown) || ctx.Err() != nil {
			return value, err
		} // another page is being loaded
	}
}

// Await waits until an element that a CSS selector matches shows a text; the empty text is in all.
func (b *Browser) Await(within time.Duration, selector, text string) error {
	_, err := await[bool](b, within, `(selector, text = "") => [...document.querySelectorAll(selector)].some(
		(e) => (e.innerText ?? e.textContent).includes(text))`, selector, text)
	if err != nil {
		return fmt.Errorf("wait for %q in %s: %w; the page shows:\n%s", text, selector, err, b.shown())
	}
	return nil
}

// Text returns what the first element that a CSS selector matches shows.
func (b *Browser) Text(selector string) (text string, err error) {
	quoted, _ := json.Marshal(selector)
	err = b.Eval(fmt.Sprintf("document.querySelector(%s).innerText", quoted), &text)
	return text, err
}

// shown returns the beginning of what the page shows, for errors.
func (b *Browser) shown() string {
	text, err := b.Text("body")
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%.4000s", text)
}

// Click waits for a link, button or summary with a text, and clicks on it once nothing covers it.
func (b *Browser) Click(text string) error {
	at, err := await[[]float64](b, limit, `(text) => {
		const it = [...document.querySelectorAll("a, button, summary")].find(
			(e) => (e.innerText ?? e.textContent).trim() === text);
		if (!it) return;
		it.scrollIntoView({ block: "center", behavior: "instant" });
		const { x, y, width, height } = it.getClientRects()[0] ?? {};
		const at = [x + width / 2, y + height / 2];
		return it.contains(document.elementFromPoint(...at)) ? at : undefined;
	}`, text)
	if err != nil {
		return fmt.Errorf("find %q to click on: %w; the page shows:\n%s", text, err, b.shown())
	}
	return b.do("click on "+text, chromedp.MouseClickXY(at[0], at[1]))
}

// Press types keys.
func (b *Browser) Press(keys string) error { return b.do("press keys", chromedp.KeyEvent(keys)) }

// Eval evaluates JavaScript in the page, waits for the result if it is a promise, and decodes it as JSON.
func (b *Browser) Eval(script string, into any) error {
	text, err := run(b, limit, chromedp.Evaluate[[]byte](script, chromedp.EvalAwaitPromise, chromedp.EvalAsValue))
	if err != nil {
		return fmt.Errorf("evaluate %.60s: %w", script, err)
	}
	return json.Unmarshal(text, into)
}

// Resize gives the window another size, in CSS pixels.
func (b *Browser) Resize(width, height int64) error {
	return b.do("resize the window", chromedp.EmulateViewport(width, height))
}

// Scheme chooses what pages prefer: "light" or "dark".
func (b *Browser) Scheme(name string) error {
	_, err := run(b, limit, command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}))
	return err
}

// Scripts lets pages that are opened from now on run scripts, or not.
func (b *Browser) Scripts(allowed bool) error {
	_, err := run(b, limit, command(emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: !allowed}))
	return err
}

// Picture returns what the window shows as PNG.
func (b *Browser) Picture() ([]byte, error) { return run(b, limit, chromedp.CaptureScreenshot()) }

// command returns an action that sends a command of the protocol.
func command[P, R any](c cdp.Command[P, R], parameters P) chromedp.Action[R] {
	return func(ctx context.Context, to *chromedp.Target) (R, error) { return cdp.Call(ctx, to, c, parameters) }
}
