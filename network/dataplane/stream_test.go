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
