// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/liqo-go/liqo/cli"
	"github.com/liqo-go/liqo/internal/patience"
)

// terminal opens a pseudo terminal; what is written to it is read from the screen.
func terminal(t *testing.T) (user, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	user, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return user, screen
}

// TestTerminal: a terminal shows the object that a wait is for, and the problem that it reports.
func TestTerminal(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	archive, err := txtar.ParseFile("testdata/cluster/uninstall-refuses-while-in-use.txtar")
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(t, "rome")
	for _, name := range []string{"rome.yaml", "busy.yaml", "verdict.yaml"} {
		s.apply(t, "rome", s.file(t, archive, name))
	}
	const want = "Unoffloading namespace a: 4 pods still run remotely (four, one, three and 1 more); waiting for the remote namespaces at milan"
	text := onTerminal(t, want, "unoffload", "namespace", "a", "--skip-confirm", "--timeout", patience.Limit.String(), "--kubeconfig", s.dir+"/rome")
	if !strings.Contains(text, want) {
		t.Errorf("the terminal showed %q, want in it %q", text, want)
	}
}

// onTerminal returns what a terminal shows of a call of liqoctl that fails. The time of the call
// passes when a text is shown.
func onTerminal(t *testing.T, text string, args ...string) string {
	t.Helper()
	user, screen := terminal(t)
	ctx, expire := context.WithCancelCause(t.Context())
	defer expire(nil)
	shown := make(chan string)
	go func() {
		var all strings.Builder
		for part := make([]byte, 4096); ; {
			n, err := screen.Read(part)
			all.Write(part[:n])
			if strings.Contains(all.String(), text) {
				expire(cli.ErrTimeout)
			}
			if err != nil { // the user has left
				shown <- all.String()
				return
			}
		}
	}()
	streams := genericiooptions.IOStreams{In: user, Out: user, ErrOut: user}
	if code := cli.Run(ctx, append([]string{"liqoctl"}, args...), streams); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if err := user.Close(); err != nil {
		t.Fatal(err)
	}
	return <-shown
}

// TestNoColour: a terminal gets colours unless the user or the terminal does not want them.
func TestNoColour(t *testing.T) {
	for _, c := range []struct {
		noColour, term string
		want           bool
	}{{"", "xterm", true}, {"1", "xterm", false}, {"", "dumb", false}} {
		t.Setenv("NO_COLOR", c.noColour)
		t.Setenv("TERM", c.term)
		text := onTerminal(t, "cannot use the kubeconfig", "info", "--kubeconfig", t.TempDir()+"/missing")
		if has := strings.Contains(text, "\x1b"); has != c.want || !strings.Contains(text, "cannot use the kubeconfig") {
			t.Errorf("NO_COLOR=%s TERM=%s: %q", c.noColour, c.term, text)
		}
	}
}
