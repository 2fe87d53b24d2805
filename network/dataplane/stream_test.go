// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/device"
)

// TestUnusedConnectionsEnd: a client keeps a connection while packets are sent, closes it when none was sent for a
// minute or a little more, and dials again for the next packet.
func TestUnusedConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialled, ended := 0, 0
		b := newTCPBind(func(context.Context, string, string) (net.Conn, error) {
			dialled++
			here, there := net.Pipe()
			go func() {
				for buffer := make([]byte, 1<<10); ; {
					if _, err := there.Read(buffer); err != nil {
						ended++
						return
					}
				}
			}()
			return here, nil
		})
		if _, _, err := b.Open(0); err != nil {
			t.Fatal(err)
		}
		to, err := b.ParseEndpoint("192.0.2.1:51820")
		if err != nil {
			t.Fatal(err)
		}
		send := func() {
			t.Helper()
			packet := make([]byte, device.MessageTransportSize)
			for range 2 { // the first has no connection yet
				_ = b.Send([][]byte{packet}, to)
				synctest.Wait()
			}
		}
		expect := func(connections, closed int) {
			t.Helper()
			if synctest.Wait(); dialled != connections || ended != closed {
				t.Errorf("%d connections were made and %d closed, want %d and %d", dialled, ended, connections, closed)
			}
		}
		for range 10 {
			send()
			time.Sleep(unusedAfter / 2)
		}
		expect(1, 0)
		time.Sleep(unusedAfter)
		expect(1, 1)
		send()
		expect(2, 1)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b.wait()
	})
}

// TestStrangersEnd: a server closes a connection at once if what comes is no frame, and after firstFrame if nothing
// comes.
func TestStrangersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTCPBind(nil)
		if _, _, err := b.Open(0); err != nil {
			t.Fatal(err)
		}
		lasts := func(says string) time.Duration {
			began := time.Now()
			server, stranger := net.Pipe()
			b.admit(b.session, newStream(server, nil))
			if says != "" {
				_, _ = stranger.Write([]byte(says)) // the server need not read all
			}
			_, _ = stranger.Read(make([]byte, 1)) // until it is closed
			return time.Since(began)
		}
		if got := lasts("GET / HTTP/1.1\r\nHost: gateway\r\n\r\n"); got != 0 {
			t.Errorf("a stranger of another language is connected for %v", got)
		}
		if got := lasts(""); got != firstFrame {
			t.Errorf("a stranger that says nothing is connected for %v", got)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		b.wait()
	})
}
