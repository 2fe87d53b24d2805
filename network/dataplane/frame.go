// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.zx2c4.com/wireguard/device"
)

// frameHeader is the size of a frame's header in bytes. On a TCP connection each WireGuard message is
// a frame: its length as a big-endian 16-bit number, then the message as a UDP packet would hold it.
//
//	┌─ 2 bytes ─┬─ length bytes ─┐┌─ 2 bytes ─┬─ …
//	│  length   │    message     ││  length   │
//	└───────────┴────────────────┘└───────────┴─ …
const frameHeader = 2

// readSize is the size in bytes of the buffer a connection is read into. It holds about 90 packets
// of a usual tunnel, which WireGuard handles as one batch (128 at most), and more than the largest
// frame.
const readSize = 128 << 10

var errNotFrames = errors.New("what is received is not WireGuard")

// frameReader cuts a stream into frames.
type frameReader struct {
	from io.Reader
	// buffers alternate: the caller of next uses one while the other is filled.
	buffers [2][]byte
	// rest is the incomplete frame at the end of buffers[0].
	rest []byte
}

func newFrameReader(from io.Reader) *frameReader {
	return &frameReader{from: from, buffers: [2][]byte{make([]byte, readSize), make([]byte, readSize)}}
}

// next waits for at least one whole frame. The frames are valid until next is called a second time.
// An error is final: a stream whose frame boundaries are lost cannot be resynchronized.
func (r *frameReader) next() ([]byte, error) {
	r.buffers[0], r.buffers[1] = r.buffers[1], r.buffers[0]
	buffer := r.buffers[0]
	filled := copy(buffer, r.rest)
	for {
		n, err := r.from.Read(buffer[filled:])
		filled += n
		whole, wrong := wholeFrames(buffer[:filled])
		if wrong != nil {
			return nil, wrong
		}
		if whole > 0 {
			r.rest = buffer[whole:filled]
			return buffer[:whole], nil // the next read returns the error again
		}
		if err != nil {
			return nil, err
		}
	}
}

// wholeFrames returns how many bytes at the start of b are whole frames. It fails if no frame of
// WireGuard begins where one should.
func wholeFrames(b []byte) (int, error) {
	whole := 0
	for rest := b; len(rest) >= frameHeader; rest = b[whole:] {
		size := int(binary.BigEndian.Uint16(rest))
		message := rest[frameHeader:min(len(rest), frameHeader+size)]
		if err := checkMessage(size, message); err != nil {
			return 0, err
		}
		if len(message) < size {
			break
		}
		whole += frameHeader + size
	}
	return whole, nil
}

// checkMessage checks a message that may be incomplete: its type in the first byte, three zeros, and
// the size that belongs to the type. Another protocol is thus detected by its first bytes.
func checkMessage(size int, begin []byte) error {
	if size < device.MinMessageSize {
		return fmt.Errorf("%w: a message of %d bytes", errNotFrames, size)
	}
	if len(begin) < 4 {
		return nil
	}
	ok := false
	switch kind := binary.LittleEndian.Uint32(begin); kind {
	case device.MessageInitiationType:
		ok = size == device.MessageInitiationSize
	case device.MessageResponseType:
		ok = size == device.MessageResponseSize
	case device.MessageCookieReplyType:
		ok = size == device.MessageCookieReplySize
	case device.MessageTransportType:
		ok = size >= device.MessageTransportSize
	}
	if !ok {
		return fmt.Errorf("%w: a message of %d bytes begins with %x", errNotFrames, size, begin[:4])
	}
	return nil
}

// cutFrame splits the first message from whole frames.
func cutFrame(frames []byte) (message, rest []byte) {
	end := frameHeader + int(binary.BigEndian.Uint16(frames))
	return frames[frameHeader:end], frames[end:]
}

// appendFrame appends a message with its header to frames.
func appendFrame(frames, message []byte) []byte {
	return append(binary.BigEndian.AppendUint16(frames, uint16(len(message))), message...)
}
