// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"time"
)

// ping sends an ICMP echo request again and again, whether or not the one before was answered, and prints at last
// what came of them. The answer to the last of n requests may take as long as the timeout. It sleeps between two: the
// ping of iputils keeps a processor busy for the last 10 ms before it sends, and comes late itself where others want
// the processor.
func ping(ctx context.Context, args []string) error {
	c, err := parseClient("ping", args)
	if err != nil {
		return err
	}
	at, err := net.ResolveIPAddr("ip4", c.targets[0])
	if err != nil {
		return err
	}
	conn, err := net.DialIP("ip4:icmp", nil, at)
	if err != nil {
		return err
	}
	defer conn.Close()
	id := uint16(os.Getpid())
	end := make(chan struct{})
	all := make(chan answers)
	go func() { all <- read(conn, id, c.n, end) }()
	left := c.timeout
	for n := 0; c.n == 0 || n < c.n; n++ {
		if n > 0 && !wait(ctx, c.pause) {
			left = 0
			break
		}
		_, _ = conn.Write(echoRequest(id, uint64(n))) // an error, as without a route, is a loss
	}
	close(end)
	if err := conn.SetReadDeadline(time.Now().Add(left)); err != nil {
		return err
	}
	a := <-all
	fmt.Printf("%s: %d answered, %d lost, longest gap %v\n", c.targets[0], a.count, a.lost(), a.gap)
	if a.count == 0 {
		return fmt.Errorf("%s: nothing was answered", c.targets[0])
	}
	return nil
}

// answers counts replies to numbered echo requests.
type answers struct {
	count       int
	first, last uint64
	seen        map[uint64]bool
	// at is when the last reply came, gap is the longest time between two replies.
	at  time.Time
	gap time.Duration
}

// lost is how many requests were not answered though one before and one after were.
func (a *answers) lost() int {
	if a.count == 0 {
		return 0
	}
	return int(a.last-a.first) + 1 - a.count
}

func (a *answers) take(n uint64, now time.Time) {
	if a.seen[n] {
		return
	}
	a.seen[n] = true
	if a.count == 0 {
		a.first, a.last, a.at = n, n, now
	}
	a.count++
	a.first, a.last = min(a.first, n), max(a.last, n)
	a.gap, a.at = max(a.gap, now.Sub(a.at)), now
}

// read takes answers until the last of n requests is answered, or end is closed and a read fails. n = 0 has no last.
func read(conn *net.IPConn, id uint16, n int, end <-chan struct{}) answers {
	a := answers{seen: map[uint64]bool{}}
	for b := make([]byte, 1500); a.count == 0 || n == 0 || a.last < uint64(n-1); {
		size, _, err := conn.ReadFromIP(b) // not Read, which leaves the IP header
		if err != nil {
			select {
			case <-end:
				return a
			default:
				continue // an ICMP error
			}
		}
		if whose, number, ok := echoReply(b[:size]); ok && whose == id {
			a.take(number, time.Now())
		}
	}
	return a
}

const (
	icmpEchoRequest, icmpEchoReply = 8, 0 // RFC 792
	icmpEchoLen                    = 16   // header and number
)

func echoRequest(id uint16, n uint64) []byte {
	b := make([]byte, icmpEchoLen)
	b[0] = icmpEchoRequest
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], uint16(n))
	binary.BigEndian.PutUint64(b[8:], n)
	sum := uint32(0) // RFC 1071
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum&0xffff + sum>>16
	sum += sum >> 16
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum))
	return b
}

func echoReply(b []byte) (id uint16, n uint64, ok bool) {
	if len(b) != icmpEchoLen || b[0] != icmpEchoReply {
		return 0, 0, false
	}
	return binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint64(b[8:]), true
}
