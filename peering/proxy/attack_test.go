// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/internal/patience"
)

// TestAttackProxyConnections: pods of a consumer open connections to the proxy without end and say nothing, before or
// after they have asked for the API server.
//
// Outcome: of one address, and in all, a number of connections is open at once; others are closed. A connection without
// a request ends after seconds, and a tunnel in which neither side says anything after minutes.
func TestAttackProxyConnections(t *testing.T) {
	t.Parallel()
	const one = 5
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn) }() // ends with the connection
		}
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := newServer(&handler{target: server.Addr().String(), log: klog.Logger{}})
	proxy.ReadHeaderTimeout = patience.Limit // no connection ends by itself while they are counted
	defer func() { _ = proxy.Close() }()
	go func() { _ = proxy.Serve(limited(listener, 100, one)) }() // ends with the proxy

	dial := func(from string) net.Conn {
		t.Helper()
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	tunnel := func(from string) (net.Conn, error) {
		t.Helper()
		conn := dial(from)
		_ = conn.SetDeadline(time.Now().Add(patience.Limit))
		_, _ = fmt.Fprintf(conn, "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
		if err == nil && response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
		return conn, err
	}
	var open []net.Conn
	for range one {
		open = append(open, dial("127.0.0.2"))
	}
	if _, err := tunnel("127.0.0.2"); err == nil {
		t.Errorf("an address has %d connections", one+1)
	}
	if _, err := tunnel("127.0.0.3"); err != nil {
		t.Errorf("another address: %v", err)
	}
	_ = open[0].Close()
	for gaveUp := time.After(patience.Limit); ; {
		_, err := tunnel("127.0.0.2")
		if err == nil {
			break
		}
		select {
		case <-gaveUp:
			t.Fatal(patience.GaveUp("room after a connection has ended", err))
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Run("silent tunnels end", silentTunnelsEnd)
}

// silentTunnelsEnd uses a tunnel seldom, and then no more: it ends idleTimeout after the last byte.
func silentTunnelsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		user, client := net.Pipe()
		server, echo := net.Pipe()
		go func() { _, _ = io.Copy(echo, echo) }() // ends with the tunnel
		ended := make(chan struct{})
		go func() {
			join(client, strings.NewReader(""), server)
			_, _ = client.Close(), server.Close()
			close(ended)
		}()
		for range 3 {
			time.Sleep(idleTimeout - time.Second)
			if _, err := user.Write([]byte("x")); err != nil {
				t.Fatalf("write to a tunnel that is used: %v", err)
			}
			if _, err := io.ReadFull(user, make([]byte, 1)); err != nil {
				t.Fatalf("read from a tunnel that is used: %v", err)
			}
		}
		began := time.Now()
		<-ended
		if silent := time.Since(began); silent != idleTimeout {
			t.Errorf("a silent tunnel ends after %s, want %s", silent, idleTimeout)
		}
	})
}
