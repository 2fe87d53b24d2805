// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/liqo-go/liqo/internal/seed"
)

const (
	token = "known to both"
	// claimSize is enough for all that full makes.
	claimSize = 2 << 20
)

// full is a volume with everything that can be copied.
func full(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	old := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	long := "deep/" + strings.Repeat("a-long-name/", 20)
	for _, step := range []error{
		os.MkdirAll(filepath.Join(dir, long), 0o755),
		os.WriteFile(filepath.Join(dir, long, "file"), []byte("down there"), 0o644),
		os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "large"), bytes.Repeat([]byte("0123456789abcdef"), 1<<16), 0o640),
		os.Link(filepath.Join(dir, "large"), filepath.Join(dir, "same")),
		os.Symlink("../outside", filepath.Join(dir, "link")),
		os.Mkdir(filepath.Join(dir, "private"), 0o700),
		os.WriteFile(filepath.Join(dir, "private", "name with ünicode\nand a line"), []byte("x"), 0o400),
		os.Chtimes(filepath.Join(dir, "private"), old, old),
		os.Chtimes(filepath.Join(dir, "large"), old, old),
		os.Chmod(filepath.Join(dir, "empty"), fs.ModeSetuid|0o755),
		os.Chmod(filepath.Join(dir, "private"), 0o500),
		os.Chmod(dir, 0o770),
		unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.Mkdir(filepath.Join(dir, lostAndFound), 0o700),
	} {
		if step != nil {
			t.Fatal(step)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "private"), 0o700) }) // so that it can be removed
	if err := unix.Setxattr(filepath.Join(dir, "large"), "user.note", []byte("kept\x00too"), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		for name, id := range map[string]int{"large": 999, "private": 70, "link": 1000} {
			if err := os.Lchown(filepath.Join(dir, name), id, id); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func serving(t *testing.T, volume string, around func(http.Handler) http.Handler) *client {
	t.Helper()
	s := &server{volume: volume, tokenHash: hashOf(token), size: claimSize}
	return asking(t, around(s.handler()))
}

// asking is a client of a server.
func asking(t *testing.T, server http.Handler) *client {
	t.Helper()
	listening := httptest.NewServer(server)
	t.Cleanup(listening.Close)
	c := newClient(strings.TrimPrefix(listening.URL, "http://"), token, "", io.Discard)
	c.size, c.pause = claimSize, time.Millisecond
	return c
}

func plainly(h http.Handler) http.Handler { return h }

// breaking ends connections after some amounts of bytes, in either direction.
func breaking(dice *rand.Rand) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if dice.IntN(2) == 0 {
				left := dice.IntN(1 << 20)
				r.Body = io.NopCloser(&ending{r.Body, &left})
				w = &endingWriter{w, &left}
			}
			h.ServeHTTP(w, r)
			if dice.IntN(4) == 0 {
				panic(http.ErrAbortHandler) // the answer is lost
			}
		})
	}
}

type ending struct {
	io.Reader
	left *int
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if *e.left -= n; *e.left < 0 {
		panic(http.ErrAbortHandler)
	}
	return n, err
}

type endingWriter struct {
	http.ResponseWriter
	left *int
}

func (e *endingWriter) Write(p []byte) (int, error) {
	if *e.left -= len(p); *e.left < 0 {
		panic(http.ErrAbortHandler)
	}
	return e.ResponseWriter.Write(p)
}

// listing returns the content of a volume as a user sees it.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var stat unix.Stat_t
		if err := unix.Lstat(name, &stat); err != nil {
			return err
		}
		at, _ := filepath.Rel(dir, name)
		fmt.Fprintf(&out, "%q %o %d:%d", at, stat.Mode, stat.Uid, stat.Gid)
		switch stat.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			target, err := os.Readlink(name)
			fmt.Fprintf(&out, " -> %s %v", target, err)
		case unix.S_IFREG:
			content, err := os.ReadFile(name)
			value := make([]byte, 100)
			n, _ := unix.Getxattr(name, "user.note", value)
			fmt.Fprintf(&out, " %d names, at %d, %d bytes, %x, note %q %v", stat.Nlink, stat.Mtim.Sec, len(content), hashOf(string(content)), value[:max(n, 0)], err)
		case unix.S_IFDIR:
			if at != "." {
				fmt.Fprintf(&out, " at %d", stat.Mtim.Sec)
			}
		}
		out.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestMove copies a volume into another, with connections that break any number of times.
func TestMove(t *testing.T) {
	from := full(t)
	want := listing(t, from)
	for n, r := range seed.Samples(t, 20) {
		around := plainly
		if n > 0 {
			around = breaking(r)
		}
		to, folder := t.TempDir(), t.TempDir()
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(to, "private"), 0o700) }) // as above
		pulling, pushing := serving(t, from, around), serving(t, to, around)
		pulling.folder, pushing.folder = folder, folder
		if err := pulling.retry(t.Context(), pulling.pull); err != nil {
			t.Fatalf("sample %d: pull: %v", n, err)
		}
		if err := pushing.retry(t.Context(), pushing.push); err != nil {
			t.Fatalf("sample %d: push: %v", n, err)
		}
		if info, err := os.Stat(filepath.Join(to, "empty")); err != nil || info.Mode() != 0o755 {
			t.Fatalf("sample %d: the mode is %v, %v", n, info.Mode(), err)
		}
		// Neither is a pipe copied nor what a file system keeps for itself.
		for _, made := range []error{unix.Mkfifo(filepath.Join(to, "pipe"), 0o600), os.Mkdir(filepath.Join(to, lostAndFound), 0o700)} {
			if made != nil {
				t.Fatal(made)
			}
		}
		if err := sameTime(from, to, lostAndFound); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(to, "empty"), fs.ModeSetuid|0o755); err != nil { // which files lose
			t.Fatal(err)
		}
		if got := listing(t, to); got != want {
			t.Fatalf("sample %d: the volume holds\n%s\nnot\n%s", n, got, want)
		}
		// Done once more it finds that all is there.
		if err := pushing.retry(t.Context(), pushing.push); err != nil {
			t.Fatalf("sample %d: push again: %v", n, err)
		}
	}
}

func sameTime(from, to, name string) error {
	info, err := os.Stat(filepath.Join(from, name))
	if err != nil {
		return err
	}
	return os.Chtimes(filepath.Join(to, name), info.ModTime(), info.ModTime())
}

// TestRefusals shows that no data is overwritten, that clients need the token, and that an
// incomplete copy is never taken for a complete one.
func TestRefusals(t *testing.T) {
	from, to, folder := full(t), t.TempDir(), t.TempDir()
	pulling, pushing := serving(t, from, plainly), serving(t, to, plainly)
	pulling.folder, pushing.folder = folder, folder
	fails := func(c *client, do func(context.Context) error, reason string) {
		t.Helper()
		if err := c.retry(t.Context(), do); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("want an error of %q, got %v", reason, err)
		}
	}
	fails(pushing, pushing.push, "open the copy")
	pulling.token = "guessed"
	fails(pulling, pulling.pull, "the token is not that of this move")
	pulling.token = token
	if err := pulling.pull(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "theirs"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	fails(pushing, pushing.push, "the volume holds data already: theirs")
	if kept, err := os.ReadFile(filepath.Join(to, "theirs")); err != nil || string(kept) != "precious" {
		t.Errorf("theirs is %q, %v", kept, err)
	}
	if err := os.WriteFile(filepath.Join(from, marker), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fails(pulling, pulling.pull, "a part of a copy only")
	pulling.url = "http://127.0.0.1:1"
	fails(pulling, pulling.pull, "refused")
}

// TestCopyNeedsRoom shows that a full disk is not a reason to retry.
func TestCopyNeedsRoom(t *testing.T) {
	c := serving(t, full(t), plainly)
	c.folder = t.TempDir()
	if err := os.Symlink("/dev/full", filepath.Join(c.folder, copyBegun)); err != nil {
		t.Fatal(err)
	}
	err := c.pull(t.Context())
	if !errors.As(err, new(permanent)) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
}
