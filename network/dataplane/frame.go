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

// On a TCP connection each WireGuard message is a frame: its length in two bytes, the larger first,
// and the message as it would stand in a UDP packet. Nothing else is ever sent.
//
//	┌─ 2 bytes ─┬─ length bytes ─┐┌─ 2 bytes ─┬─ …
//	│  length   │    message     ││  length   │
//	└───────────┴────────────────┘└───────────┴─ …
const frameHeader = 2

// maxFrame is the largest frame: what two bytes can count, and its header.
const maxFrame = frameHeader + device.MaxMessageSize

// readSize is of the buffer a connection is read into: about 90 packets of a usual tunnel, which
// go through WireGuard as one batch (128 at most), and more than the largest frame.
const readSize = 128 << 10

var errNotFrames = errors.New("what is received is not WireGuard")

// frameReader cuts a stream into frames.
type frameReader struct {
	from io.Reader
	// buffers take turns: one is with whoever asked for frames while the other is filled.
	buffers [2][]byte
	// rest is the begin of a frame at the end of buffers[0].
	rest []byte
}

func newFrameReader(from io.Reader) *frameReader {
	return &frameReader{from: from, buffers: [2][]byte{make([]byte, readSize), make([]byte, readSize)}}
}

// next waits for whole frames, one at least. They are valid until next is called for the second
// time. An error is final: a stream that lost its way does not find it again.
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
			return buffer[:whole], nil // an error comes again
		}
		if err != nil {
			return nil, err
		}
	}
}

// wholeFrames tells how many bytes at the begin of b are whole frames, or that no frame of
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

// checkMessage checks a message of which only the begin may be there: its type in the first byte,
// three zeros, and the size that belongs to the type. So whoever speaks another language is known
// by the first bytes.
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

// cutFrame takes the first message off whole frames.
func cutFrame(frames []byte) (message, rest []byte) {
	end := frameHeader + int(binary.BigEndian.Uint16(frames))
	return frames[frameHeader:end], frames[end:]
}

// appendFrame is the opposite of cutFrame.
func appendFrame(frames, message []byte) []byte {
	return append(binary.BigEndian.AppendUint16(frames, uint16(len(message))), message...)
}
