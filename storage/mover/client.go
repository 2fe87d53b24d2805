// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// attempts and pause are the patience with a server that does not answer, or breaks off: what a
	// network between clusters, just changed, or a gateway that is replaced may need.
	attempts = 20
	pause    = 3 * time.Second
	// dialTimeout bounds one attempt to connect.
	dialTimeout = 10 * time.Second
	// sayEvery is how often it is said how far a copy is.
	sayEvery = 2 * time.Second

	// copyName is the copy, in the volume of its own; begun is one that is not whole.
	copyName  = "copy.tar"
	copyBegun = "copy.part"
)

// client moves between a server's volume and the copy in a folder. The server may be in another
// cluster and answer anything: it is not followed elsewhere, and never read without a limit.
type client struct {
	url, token, folder string
	// size is that of the claim, in bytes: a copy is not larger, nor are the files in it.
	size  int64
	pause time.Duration
	say   io.Writer
	http  *http.Client
}

func newClient(address, token, folder string, say io.Writer) *client {
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &client{
		url: "http://" + address, token: token, folder: folder, pause: pause, say: say,
		http: &http.Client{
			Transport: &http.Transport{DialContext: dialer.DialContext, ExpectContinueTimeout: headerTimeout,
				DisableCompression: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// lasting is an error that does not go away by trying again.
type lasting struct{ error }

func (l lasting) Unwrap() error { return l.error }

// again tries until it is done, it cannot be, or the patience ends.
func (c *client) again(ctx context.Context, try func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		err := try(ctx)
		if err == nil || attempt == attempts || ctx.Err() != nil || errors.As(err, new(lasting)) {
			return err
		}
		_, _ = fmt.Fprintf(c.say, "trying again: %v\n", err) // only said
		select {
		case <-ctx.Done():
		case <-time.After(c.pause):
		}
	}
}

// pull makes the copy.
func (c *client) pull(ctx context.Context) error {
	answer, err := c.ask(ctx, http.MethodGet, "/", nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end, or given up
	begun := filepath.Join(c.folder, copyBegun)
	file, err := os.Create(begun)
	if err != nil {
		return lasting{fmt.Errorf("make the copy: %w", err)}
	}
	sum, disk := sha256.New(), &firstError{to: file}
	stream := limited(c.telling(answer.Body, 0), c.size)
	err = inspect(io.TeeReader(stream, io.MultiWriter(disk, sum)), c.size)
	if disk.err == nil && err == nil {
		disk.err = file.Sync()
	}
	if disk.err = errors.Join(disk.err, file.Close()); disk.err != nil {
		return lasting{fmt.Errorf("write the copy: %w", disk.err)}
	}
	if reason := answer.Trailer.Get(trailerError); reason != "" {
		return lasting{errors.New(reason)}
	}
	if err != nil {
		return fmt.Errorf("read the volume: %w", err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != answer.Trailer.Get(trailerDigest) {
		return fmt.Errorf("read the volume: the digest is %s, not %s", got, answer.Trailer.Get(trailerDigest))
	}
	if err := os.Rename(begun, filepath.Join(c.folder, copyName)); err != nil {
		return lasting{fmt.Errorf("name the copy: %w", err)}
	}
	return nil
}

// push brings the copy into the volume, and has the volume read to see that it is there.
func (c *client) push(ctx context.Context) error {
	file, err := os.Open(filepath.Join(c.folder, copyName))
	if err != nil {
		return lasting{fmt.Errorf("open the copy: %w", err)}
	}
	defer func() { _ = file.Close() }() // only read
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	if err != nil {
		return lasting{fmt.Errorf("read the copy: %w", err)}
	}
	want := hex.EncodeToString(sum.Sum(nil))
	if have, err := c.digest(ctx); err != nil || have == want {
		return err // of an attempt whose answer was lost
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return lasting{fmt.Errorf("read the copy: %w", err)}
	}
	answer, err := c.ask(ctx, http.MethodPut, "/", c.telling(file, size))
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // empty
	have, err := c.digest(ctx)
	if err == nil && have != want {
		err = lasting{fmt.Errorf("the volume does not keep what is written to it: its digest is %s, not %s",
			have, want)}
	}
	return err
}

func (c *client) digest(ctx context.Context) (string, error) {
	answer, err := c.ask(ctx, http.MethodGet, "/digest", nil)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 2*sha256.Size)) // in hex
	_ = answer.Body.Close()                                             // read
	return string(text), err
}

// ask sends a request; what the server cannot do lasts.
func (c *client) ask(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, lasting{err}
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		request.Header.Set("Expect", "100-continue") // a refusal comes before the body
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer, nil
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // a line
	_ = answer.Body.Close()                                   // read
	return nil, lasting{fmt.Errorf("the server of the volume says: %s", strings.TrimSpace(string(text)))}
}

// firstError distinguishes errors of the disk from those of the network.
type firstError struct {
	to  io.Writer
	err error
}

func (f *firstError) Write(p []byte) (int, error) {
	n, err := f.to.Write(p)
	if f.err == nil {
		f.err = err
	}
	return n, err
}

// telling says now and then how many MiB have gone by, of how many if that is known.
func (c *client) telling(from io.Reader, size int64) io.Reader {
	return &teller{Reader: from, say: c.say, size: size, last: time.Now()}
}

type teller struct {
	io.Reader
	say        io.Writer
	size, done int64
	last       time.Time
}

func (t *teller) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	t.done += int64(n)
	if time.Since(t.last) > sayEvery {
		t.last = time.Now()
		of := ""
		if t.size > 0 {
			of = fmt.Sprintf(" of %d", t.size>>20)
		}
		_, _ = fmt.Fprintf(t.say, "%d%s MiB\n", t.done>>20, of) // only said
	}
	return n, err
}
