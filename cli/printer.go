// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/liqo-go/liqo/api"
)

// side is the cluster that a line is about.
type side string

const (
	noCluster side = ""
	local     side = "local"
	remote    side = "remote"
)

func (s side) String() string {
	if s == noCluster {
		return ""
	}
	return "(" + string(s) + ") "
}

const (
	labelInfo label = "INFO"
	labelWarn label = "WARN"
	labelErro label = "ERRO"
	labelWait label = "WAIT"

	clearLine = "\r\033[K"
	// noWrap makes a terminal cut off what does not fit on its line (DECAWM); wrap ends that.
	noWrap, wrap = "\033[?7l", "\033[?7h"
)

// waitNamedAfter is how long something may take without a terminal before a line names it: longer than
// steps usually take, so that scripts find the lines they know. On a terminal it is shown at once. The
// line is repeated after twice that time, for logs that nobody scrolls back. Tests shorten it.
var waitNamedAfter = 30 * time.Second

// label is the first word of a status line.
type label string

// colours holds the ANSI colours of labels: green, yellow and red.
var colours = map[label]int{labelInfo: 32, labelWarn: 33, labelErro: 31}

// printer writes status lines. On a terminal it colours them and shows what the command waits for;
// without one, a line names each long wait.
type printer struct {
	w io.Writer
	// tty reports that escape sequences may be written.
	tty bool
	// suffix ends the lines with INFO.
	suffix string

	mu   sync.Mutex
	stop chan struct{}
}

// newPrinter writes to w. Lines are plain unless both w and out, where data goes, are terminals that
// understand escape sequences and the user has not set NO_COLOR (https://no-color.org).
func newPrinter(w, out io.Writer) *printer {
	return &printer{w: w, tty: isTerminal(w) && isTerminal(out) && os.Getenv("NO_COLOR") == "" &&
		os.Getenv("TERM") != "dumb"}
}

// data is standard output. Writing to it clears what the printer shows.
type data struct {
	*printer
	out io.Writer
}

func (d data) Write(b []byte) (int, error) {
	d.clearBusy()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.out.Write(b)
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && info.Name() != filepath.Base(os.DevNull)
}

func (p *printer) info(at side, format string, args ...any) {
	p.line(labelInfo, at, fmt.Sprintf(format, args...)+p.suffix)
}

func (p *printer) warn(at side, format string, args ...any) {
	p.line(labelWarn, at, fmt.Sprintf(format, args...))
}

func (p *printer) erro(at side, err error) { p.line(labelErro, at, oneLine(err.Error())) }

// line prints one status line. It escapes the text, parts of which come from peers.
func (p *printer) line(as label, at side, text string) {
	p.clearBusy()
	p.mu.Lock()
	defer p.mu.Unlock()
	shown := string(as)
	if p.tty {
		shown = fmt.Sprintf("\033[%dm%s\033[0m", colours[as], as)
	}
	fmt.Fprintf(p.w, " %s   %s%s\n", shown, at, api.Printable(text))
}

// oneLine joins the lines of a text.
func oneLine(text string) string {
	var parts []string
	for _, part := range strings.Split(text, "\n") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, " ")
}

// busy shows what is being worked on, until the next line is printed. It calls text each time.
func (p *printer) busy(at side, text func() string) {
	p.clearBusy()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop = make(chan struct{})
	if p.tty {
		go p.spin(p.stop, at, text)
	} else {
		go p.nameWait(p.stop, at, text)
	}
}

// clearBusy clears what busy shows.
func (p *printer) clearBusy() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		close(p.stop)
		p.stop = nil
		if p.tty {
			fmt.Fprint(p.w, clearLine)
		}
	}
}

func (p *printer) spin(stop chan struct{}, at side, text func() string) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	started := time.Now()
	for frame := 0; ; frame++ {
		p.mu.Lock()
		if p.stop != stop {
			p.mu.Unlock()
			return
		}
		fmt.Fprintf(p.w, "%s%s %c %3ds  %s%s%s", clearLine, noWrap, []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")[frame%10],
			int(time.Since(started).Seconds()), at, api.Printable(text()), wrap)
		p.mu.Unlock()
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// nameWait prints a line about what takes long.
func (p *printer) nameWait(stop chan struct{}, at side, text func() string) {
	started := time.Now()
	for next := waitNamedAfter; ; next = 2 * waitNamedAfter {
		select {
		case <-stop:
			return
		case <-time.After(next):
		}
		p.mu.Lock()
		if p.stop == stop {
			fmt.Fprintf(p.w, " %s   %s%s (%s)\n", labelWait, at, api.Printable(text()),
				time.Since(started).Round(time.Second))
		}
		p.mu.Unlock()
	}
}
