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
	// attempts and pause limit the retries while the server does not answer or a connection breaks.
	// A changed network between clusters, or the replacement of a gateway, may need that long.
	attempts = 20
	pause    = 3 * time.Second
	// dialTimeout limits one attempt to connect.
	dialTimeout = 10 * time.Second
	// progressInterval is the time between two lines about the progress.
	progressInterval = 2 * time.Second

	// copyName is the file of the copy in its volume, and copyBegun that of an incomplete copy.
	copyName  = "copy.tar"
	copyBegun = "copy.part"
)

// client copies between a server's volume and the copy in a folder. The server may be in another
// cluster and is not trusted: redirects are not followed, and all reads are limited.
type client struct {
	url, token, folder string
	// size is that of the claim in bytes, and the maximum of the copy and of the files in it.
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

// permanent is an error that is not retried.
type permanent struct{ error }

func (l permanent) Unwrap() error { return l.error }

// retry calls try until it succeeds, fails permanently, or has been called attempts times.
func (c *client) retry(ctx context.Context, try func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		err := try(ctx)
		if err == nil || attempt == attempts || ctx.Err() != nil || errors.As(err, new(permanent)) {
			return err
		}
		_, _ = fmt.Fprintf(c.say, "trying again: %v\n", err) // progress only
		select {
		case <-ctx.Done():
		case <-time.After(c.pause):
		}
	}
}

// pull downloads the archive of the volume into the copy.
func (c *client) pull(ctx context.Context) error {
	answer, err := c.ask(ctx, http.MethodGet, "/", nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end, or given up
	begun := filepath.Join(c.folder, copyBegun)
	file, err := os.Create(begun)
	if err != nil {
		return permanent{fmt.Errorf("make the copy: %w", err)}
	}
	sum, disk := sha256.New(), &firstError{to: file}
	stream := limited(c.reporting(answer.Body, 0), c.size)
	err = inspect(io.TeeReader(stream, io.MultiWriter(disk, sum)), c.size)
	if disk.err == nil && err == nil {
		disk.err = file.Sync()
	}
	if disk.err = errors.Join(disk.err, file.Close()); disk.err != nil {
		return permanent{fmt.Errorf("write the copy: %w", disk.err)}
	}
	if reason := answer.Trailer.Get(trailerError); reason != "" {
		return permanent{errors.New(reason)}
	}
	if err != nil {
		return fmt.Errorf("read the volume: %w", err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != answer.Trailer.Get(trailerDigest) {
		return fmt.Errorf("read the volume: the digest is %s, not %s", got, answer.Trailer.Get(trailerDigest))
	}
	if err := os.Rename(begun, filepath.Join(c.folder, copyName)); err != nil {
		return permanent{fmt.Errorf("name the copy: %w", err)}
	}
	return nil
}

// push uploads the copy into the volume, and verifies it by the digest of the volume.
func (c *client) push(ctx context.Context) error {
	file, err := os.Open(filepath.Join(c.folder, copyName))
	if err != nil {
		return permanent{fmt.Errorf("open the copy: %w", err)}
	}
	defer func() { _ = file.Close() }() // only read
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	if err != nil {
		return permanent{fmt.Errorf("read the copy: %w", err)}
	}
	want := hex.EncodeToString(sum.Sum(nil))
	if have, err := c.digest(ctx); err != nil || have == want {
		return err // an earlier attempt succeeded, and its response was lost
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return permanent{fmt.Errorf("read the copy: %w", err)}
	}
	answer, err := c.ask(ctx, http.MethodPut, "/", c.reporting(file, size))
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // empty
	have, err := c.digest(ctx)
	if err == nil && have != want {
		err = permanent{fmt.Errorf("the volume does not keep what is written to it: its digest is %s, not %s",
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

// ask sends a request. Any response but 200 is a permanent error.
func (c *client) ask(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return nil, permanent{err}
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
	return nil, permanent{fmt.Errorf("the server of the volume says: %s", strings.TrimSpace(string(text)))}
}

// firstError keeps the first error of a writer, to tell errors of the disk from those of the network.
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

// reporting returns a reader that prints every progressInterval how many MiB were read, and of how
// many if size is not 0.
func (c *client) reporting(from io.Reader, size int64) io.Reader {
	return &progress{Reader: from, say: c.say, size: size, last: time.Now()}
}

type progress struct {
	io.Reader
	say        io.Writer
	size, done int64
	last       time.Time
}

func (t *progress) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	t.done += int64(n)
	if time.Since(t.last) > progressInterval {
		t.last = time.Now()
		of := ""
		if t.size > 0 {
			of = fmt.Sprintf(" of %d", t.size>>20)
		}
		_, _ = fmt.Fprintf(t.say, "%d%s MiB\n", t.done>>20, of) // progress only
	}
	return n, err
}
