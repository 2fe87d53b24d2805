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
	"os"
	"testing"
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
	const (
		one = 5
		// idle is longer than a busy machine needs to send a byte and receive it.
		idle = 5 * time.Second
	)
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
	proxy := newServer(&handler{target: server.Addr().String(), log: klog.Logger{}, idle: idle})
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
	var talking net.Conn
	for gaveUp := time.After(patience.Limit); talking == nil; {
		conn, err := tunnel("127.0.0.2")
		if err == nil {
			talking = conn
			continue
		}
		select {
		case <-gaveUp:
			t.Fatalf("waited for room after a connection has ended: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	silent, err := tunnel("127.0.0.4")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := silent.Read(make([]byte, 1))
		ended <- err
	}()
	for said := make([]byte, 1); ; {
		if _, err := talking.Write([]byte("x")); err != nil {
			t.Fatalf("a tunnel that is used ends no later than a silent one: %v", err)
		}
		if _, err := io.ReadFull(talking, said); err != nil {
			t.Fatalf("a tunnel that is used ends no later than a silent one: %v", err)
		}
		select {
		case err := <-ended:
			if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a silent tunnel stays: %v", err)
			}
			return
		case <-time.After(50 * time.Millisecond): // the pace of somebody who says little
		}
	}
}
