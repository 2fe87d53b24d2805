// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"github.com/liqo-go/liqo/internal/patience"
)

// wire forwards connections to an API server until it is cut.
type wire struct {
	listener net.Listener
	mu       sync.Mutex
	open     []net.Conn
	flow     sync.RWMutex // held by who freezes
	passed   atomic.Int64 // bytes, both ways
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener}
	t.Cleanup(w.cut)
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			w.mu.Lock()
			w.open = append(w.open, near, far)
			w.mu.Unlock()
			for _, ends := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					_, _ = io.Copy(through{ends[0], w}, ends[1]) // whichever ends first
					ends[0].Close()
				}()
			}
		}
	}()
	return w
}

// through writes unless the wire is frozen.
type through struct {
	to   io.Writer
	wire *wire
}

func (t through) Write(b []byte) (int, error) {
	t.wire.flow.RLock()
	defer t.wire.flow.RUnlock()
	t.wire.passed.Add(int64(len(b)))
	return t.to.Write(b)
}

// freeze makes the wire behave like an API server that hangs: connections stay open, and no data
// arrives.
func (w *wire) freeze(t *testing.T) {
	w.flow.Lock()
	t.Cleanup(w.flow.Unlock)
}

// cut makes the wire behave like an API server that was killed.
func (w *wire) cut() {
	w.listener.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		c.Close()
	}
}

// stream is one running connection: begin returns once something came through, ended tells how
// it went out.
type stream struct {
	name  string
	begin func(t *testing.T, config *rest.Config, ended chan<- error)
}

// breaks runs many streams of all kinds at once, and cuts the connection to the provider: each
// stream ends with an error.
func breaks(t *testing.T, config *rest.Config, w *wire) {
	const each = 15
	ended := map[string]chan error{}
	var beginning sync.WaitGroup
	for _, s := range []stream{
		{"logs", followLogs},
		{"exec", typeTo("/exec/demo/web/c?command=cat&input=1&output=1&error=1")},
		{"attach", typeTo("/attach/demo/web/c?input=1&output=1&error=1")},
		{"port-forward", forwardOn},
	} {
		ends := make(chan error, each)
		ended[s.name] = ends
		for range each {
			beginning.Go(func() { s.begin(t, config, ends) })
		}
	}
	beginning.Wait()
	if t.Failed() {
		return
	}
	w.cut()
	late := time.After(patience.Limit)
	for name, ends := range ended {
		for range each {
			select {
			case err := <-ends:
				if err == nil || errors.Is(err, io.EOF) {
					t.Errorf("%s looks as if it had come to its end (%v)", name, err)
				}
			case <-late:
				t.Fatalf("%s goes on though the provider is gone", name)
			}
		}
	}
}

func followLogs(t *testing.T, config *rest.Config, ended chan<- error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Error(err)
		return
	}
	resp, err := c.Get(config.Host + "/containerLogs/demo/web/c?follow=true")
	if err != nil {
		t.Error(err)
		return
	}
	lines := bufio.NewReader(resp.Body)
	if _, err := lines.ReadString('\n'); err != nil {
		t.Errorf("first line: %v", err)
	}
	go func() {
		defer resp.Body.Close()
		_, err := lines.ReadString('\n')
		ended <- err
	}()
}

// typeTo uses web sockets: over SPDY a client takes the end of the connection for that of the
// command, whatever it is connected to.
func typeTo(path string) func(t *testing.T, config *rest.Config, ended chan<- error) {
	return func(t *testing.T, config *rest.Config, ended chan<- error) {
		executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, config.Host+path)
		if err != nil {
			t.Error(err)
			return
		}
		in, typed := io.Pipe()
		shown, out := io.Pipe()
		go func() {
			err := executor.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: io.Discard})
			out.CloseWithError(err)
			ended <- err
		}()
		if _, err := typed.Write([]byte("ciao\n")); err != nil {
			t.Errorf("type: %v", err)
		}
		if _, err := bufio.NewReader(shown).ReadString('\n'); err != nil {
			t.Errorf("first answer: %v", err)
		}
	}
}

func forwardOn(t *testing.T, config *rest.Config, ended chan<- error) {
	roundTripper, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Error(err)
		return
	}
	target, err := url.Parse(config.Host + "/portForward/demo/web")
	if err != nil {
		t.Error(err)
		return
	}
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: roundTripper}, http.MethodPost, target)
	ready, went := make(chan struct{}), make(chan error, 1)
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:9090"}, make(chan struct{}), ready, io.Discard, io.Discard)
	if err != nil {
		t.Error(err)
		return
	}
	go func() { went <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-went:
		t.Errorf("forward: %v", err)
		return
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Error(err)
		return
	}
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))))
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := bufio.NewReader(conn).ReadByte(); err != nil {
		t.Errorf("first byte: %v", err)
	}
	go func() {
		defer conn.Close()
		ended <- <-went
	}()
}
