// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// archiveOf is an archive of entries; files have as many zeros as their size says.
func archiveOf(t *testing.T, headers ...*tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		h.Mode, h.Format = h.Mode|0o600, tar.FormatPAX
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// sparse is an archive of a file that is one hole of size bytes. Go reads such files, but does not write them.
func sparse(t *testing.T, size int64) []byte {
	const key = "LIE.sparse."
	out := archiveOf(t, &tar.Header{Name: "hole", Size: 512, PAXRecords: map[string]string{
		key + "major": "1", key + "minor": "0", key + "name": "hole", key + "realsize": fmt.Sprint(size),
	}})
	copy(out[len(out)-3*512:], "0\n") // the file's only block, before the two of the end: how many pieces of data it has
	return bytes.ReplaceAll(out, []byte(key), []byte("GNU.sparse."))
}

// sends is a server that sends an archive as it should be sent, and after that what follows.
func sends(archive []byte, follows io.Reader) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", trailerDigest)
		sum := sha256.Sum256(archive)
		_, _ = w.Write(archive)
		_, _ = io.Copy(w, follows) // ends when the client has enough
		w.Header().Set(trailerDigest, hex.EncodeToString(sum[:]))
	})
}

// used is how many bytes files below a folder have, and how many there are.
func used(t *testing.T, folder string) (size, files int64) {
	t.Helper()
	err := filepath.WalkDir(folder, func(_ string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().IsRegular() {
			size += info.Size()
		}
		files++
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return size, files
}

// hostile are archives that must not be taken, and why not.
func hostile(t *testing.T) map[string]struct {
	archive []byte
	says    string
} {
	many := make([]*tar.Header, 0, claimSize/512)
	for i := range cap(many) {
		many = append(many, &tar.Header{Name: fmt.Sprint(i), Typeflag: tar.TypeReg})
	}
	attributes := map[string]string{}
	for i := range 40 {
		attributes[fmt.Sprintf("%suser.%d", xattrs, i)] = strings.Repeat("x", 20<<10)
	}
	const larger = "the volume holds more than the 2097152 bytes of its claim"
	return map[string]struct {
		archive []byte
		says    string
	}{
		"a large file":             {archiveOf(t, &tar.Header{Name: "large", Size: claimSize}), larger},
		"many files":               {archiveOf(t, many...), larger},
		"many folders of one name": {archiveOf(t, slices.Repeat([]*tar.Header{{Name: "./", Typeflag: tar.TypeDir}}, claimSize/512)...), larger},
		"a large hole":             {sparse(t, 1<<40), larger},
		"many attributes":          {archiveOf(t, slices.Repeat([]*tar.Header{{Name: "./", Typeflag: tar.TypeDir, PAXRecords: attributes}}, 3)...), larger},
		"a long name":              {archiveOf(t, &tar.Header{Name: strings.Repeat("d/", 3000), Typeflag: tar.TypeDir}), "a name has 6000 bytes"},
		"a name above":             {archiveOf(t, &tar.Header{Name: "../escaped"}), `"../escaped" is not in the volume`},
		"a name from the root":     {archiveOf(t, &tar.Header{Name: "/tmp/escaped"}), `"/tmp/escaped" is not in the volume`},
		"a link above":             {archiveOf(t, &tar.Header{Name: "l", Linkname: "../escaped", Typeflag: tar.TypeLink}), `"l" is a link out of the volume`},
		"a device":                 {archiveOf(t, &tar.Header{Name: "sda", Typeflag: tar.TypeBlock, Devmajor: 8}), "unexpected type '4'"},
		"no archive":               {bytes.Repeat([]byte("x"), 1<<10), "invalid tar header"},
	}
}

// TestAttackMoverFillsDisk: a provider sends another archive than that of the volume when it is moved: larger than the
// claim, with holes, attributes or more files than fit, or with names, links and devices outside of the volume.
//
// Outcome: the copy is refused while it is made, before the volume at the provider is given up, and takes no more than
// the claim's size. The error names the reason, and the move is not tried again.
func TestAttackMoverFillsDisk(t *testing.T) {
	for name, h := range hostile(t) {
		t.Run(name, func(t *testing.T) {
			c := asking(t, sends(h.archive, bytes.NewReader(nil)))
			c.folder = t.TempDir()
			err := c.pull(t.Context())
			if !errors.As(err, new(permanent)) || !strings.Contains(err.Error(), h.says) {
				t.Errorf("want a permanent error of %q, got %v", h.says, err)
			}
			if _, err := os.Stat(filepath.Join(c.folder, copyName)); err == nil {
				t.Error("there is a copy")
			}
			if size, _ := used(t, c.folder); size > claimSize {
				t.Errorf("%d bytes are written", size)
			}
		})
	}
}

// TestAttackMoverEndlessStream: a provider sends a good archive of a volume and goes on for ever, in plain or compressed,
// sends the consumer to another server, or answers a question for a digest without an end.
//
// Outcome: no more than the claim's size is read and written. Nothing is unpacked, and nobody else is asked.
func TestAttackMoverEndlessStream(t *testing.T) {
	fine := archiveOf(t, &tar.Header{Name: "file", Size: 5})
	pull := func(t *testing.T, server http.Handler) error {
		t.Helper()
		c := asking(t, server)
		c.folder = t.TempDir()
		err := c.pull(t.Context())
		if size, _ := used(t, c.folder); size > claimSize {
			t.Errorf("%d bytes are written", size)
		}
		return err
	}
	if err := pull(t, sends(fine, bytes.NewReader(nil))); err != nil {
		t.Fatalf("what is no attack: %v", err)
	}
	if err := pull(t, sends(fine, zeros{})); err == nil || !strings.Contains(err.Error(), "the volume holds more") {
		t.Errorf("endless: %v", err)
	}
	if err := pull(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("the client would unpack")
		}
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.Copy(gzip.NewWriter(w), zeros{})
	})); !errors.As(err, new(permanent)) {
		t.Errorf("compressed: %v", err)
	}
	another := asking(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another server is asked") }))
	if err := pull(t, http.RedirectHandler(another.url, http.StatusTemporaryRedirect)); !errors.As(err, new(permanent)) {
		t.Errorf("elsewhere: %v", err)
	}
	digest, err := asking(t, sends(nil, zeros{})).digest(t.Context())
	if len(digest) > 100 || err != nil {
		t.Errorf("the digest has %d bytes, %v", len(digest), err)
	}
}

// zeros never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestAttackMoverFillsVolume: a copy that was made of such an archive, or a client that knows the token, writes it to
// the new volume.
//
// Outcome: the volume takes no more than the claim's size, nothing beside it is touched, files have no setuid bit, and
// the mark of an incomplete copy stays, so that the volume is never taken for whole.
func TestAttackMoverFillsVolume(t *testing.T) {
	for name, h := range hostile(t) {
		t.Run(name, func(t *testing.T) {
			volume := filepath.Join(t.TempDir(), "volume")
			if err := os.Mkdir(volume, 0o700); err != nil {
				t.Fatal(err)
			}
			err := restore(volume, io.MultiReader(bytes.NewReader(h.archive), zeros{}), claimSize)
			if err == nil || !strings.Contains(err.Error(), h.says) {
				t.Errorf("want an error of %q, got %v", h.says, err)
			}
			if size, files := used(t, volume); size > claimSize || files > claimSize/entryCost+2 { // the volume and the mark
				t.Errorf("%d bytes are written, %d files made", size, files)
			}
			if beside, err := os.ReadDir(filepath.Dir(volume)); len(beside) != 1 || err != nil {
				t.Errorf("beside the volume are %v, %v", beside, err)
			}
			if s := (&server{volume: volume}); !s.isPartial() {
				t.Error("the volume is taken for whole")
			}
		})
	}
	volume := t.TempDir()
	rooted := archiveOf(t, &tar.Header{Name: "sh", Mode: 0o6755, Uid: os.Getuid(), Gid: os.Getgid()})
	if err := restore(volume, bytes.NewReader(rooted), claimSize); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(volume, "sh")); err != nil || info.Mode() != 0o755 {
		t.Errorf("the mode is %v, %v", info.Mode(), err)
	}
}
