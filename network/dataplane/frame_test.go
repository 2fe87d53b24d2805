// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// maxFrame is the size of the largest frame with its header, in bytes.
const maxFrame = frameHeader + device.MaxMessageSize

// FuzzFrames: however a stream is cut into pieces, the reader returns its frames in order, up to
// the first bytes that are no frame of WireGuard.
func FuzzFrames(f *testing.F) {
	message := func(kind byte, size int) []byte { return append([]byte{kind, 0, 0, 0}, make([]byte, size-4)...) }
	handshake := appendFrame(nil, message(device.MessageInitiationType, device.MessageInitiationSize))
	f.Add(handshake, 1)
	f.Add(appendFrame(handshake, message(device.MessageTransportType, device.MaxMessageSize)), 1000)
	f.Add(append(bytes.Clone(handshake), "GET / HTTP/1.1\r\n\r\n"...), 7)
	f.Add([]byte("\x00\x00"), 1)
	f.Add(bytes.Repeat(appendFrame(nil, message(device.MessageTransportType, 1400)), 200), 1<<20)
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		var got []byte
		r := newFrameReader(&pieces{bytes.NewReader(stream), max(piece, 1)})
		var before, held []byte // what was handed out last, and a copy of it
		for {
			frames, err := r.next()
			if !bytes.Equal(before, held) {
				t.Fatal("frames change while the next are read")
			}
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, errNotFrames) {
					t.Fatal(err)
				}
				break
			}
			before, held = frames, bytes.Clone(frames)
			for rest := frames; len(rest) > 0; {
				var m []byte
				m, rest = cutFrame(rest)
				got = appendFrame(got, m)
			}
		}
		want, err := wholeFrames(stream)
		if err == nil && want != len(got) || !bytes.HasPrefix(stream, got) {
			t.Fatalf("%d bytes of frames came out of %d, error %v", len(got), want, err)
		}
		if rest := stream[len(got):]; err == nil && len(rest) > maxFrame {
			t.Fatalf("%d bytes were not taken for a frame", len(rest))
		}
	})
}

// pieces reads at most this many bytes at once.
type pieces struct {
	from io.Reader
	most int
}

func (p *pieces) Read(b []byte) (int, error) { return p.from.Read(b[:min(len(b), p.most)]) }

// TestRedialAfter: during a handover the server closes a connection that lasted, and its successor
// is dialled immediately. After other connections the pauses grow.
func TestRedialAfter(t *testing.T) {
	for _, c := range []struct {
		claim        string
		waited       time.Duration
		good         bool
		lasted, want time.Duration
	}{
		{"one that lasted", 0, true, lasting, 0},
		{"one that lasted, hard to get", redialMax, true, time.Hour, 0},
		{"one that ended soon", 0, true, lasting - 1, redialFirst},
		{"one that ended soon, hard to get", redialMax, true, 0, redialFirst},
		{"none", 0, false, 0, redialFirst},
		{"none, though it hung for long", 0, false, time.Hour, redialFirst},
		{"none again", redialFirst, false, 0, 2 * redialFirst},
		{"none for long", redialMax, false, 0, redialMax},
	} {
		if got := redialAfter(c.waited, c.good, c.lasted); got != c.want {
			t.Errorf("%s: %v, want %v", c.claim, got, c.want)
		}
	}
}
