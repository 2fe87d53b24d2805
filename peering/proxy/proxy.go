// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package proxy is the role by which a consumer reaches this cluster's API server through the
// tunnel, for in-band peerings. It serves HTTP CONNECT only, and forwards every connection to the
// API server, whichever host the request names. TLS is between the consumer and the API server, so
// the proxy needs no rights and cannot read the content. Any pod of a consumer can connect, so
// connections are bounded (limit.go).
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/api"
)

const (
	// apiServer is the address of the API server in every pod's DNS.
	apiServer = "kubernetes.default.svc:443"
	// headerTimeout bounds how long a client may take to send its request.
	headerTimeout = 10 * time.Second
	// dialTimeout bounds the connection to the API server.
	dialTimeout = 10 * time.Second
	// idleTimeout ends a connection over which nothing is sent. Clients of API servers ping after
	// 30 s of silence, and streams of exec after 5 s.
	idleTimeout = 10 * time.Minute
)

// Command is the role's command.
func Command() *cobra.Command {
	h := &handler{log: klog.Background().WithName("proxy")}
	port := api.ProxyPort
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Lead HTTP CONNECT requests to the API server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd.Context(), port, h)
		},
	}
	cmd.Flags().IntVar(&port, "port", port, "port to listen on")
	cmd.Flags().StringVar(&h.target, "force-host", apiServer, "host:port every connection is led to")
	cmd.Flags().StringSliceVar(&h.allowed, "allowed-hosts", nil,
		"hosts (host:port) that may be asked for; empty allows any")
	return cmd
}

// serve runs until ctx ends. Connections that are open then end with the process.
func serve(ctx context.Context, port int, h http.Handler) error {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return fmt.Errorf("listen on port %d: %w", port, err)
	}
	server := newServer(h)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(limited(listener, maxConnections, maxPerAddress)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on port %d: %w", port, err)
	}
	return nil
}

func newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: headerTimeout,
		MaxHeaderBytes: 16 << 10}
}

// handler forwards CONNECT requests to target.
type handler struct {
	target  string
	allowed []string
	log     klog.Logger
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		w.Header().Set("Allow", http.MethodConnect)
		http.Error(w, "only CONNECT is served", http.StatusMethodNotAllowed)
		return
	}
	if len(h.allowed) > 0 && !slices.Contains(h.allowed, r.Host) {
		http.Error(w, "this host is not allowed", http.StatusForbidden)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), dialTimeout)
	defer cancel()
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", h.target)
	if err != nil {
		h.log.Error(err, "dial the API server", "client", r.RemoteAddr)
		http.Error(w, "the API server cannot be reached", http.StatusBadGateway)
		return
	}
	defer func() { _ = server.Close() }() // the tunnel has ended, nothing can be lost
	w.WriteHeader(http.StatusOK)
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		h.log.Error(err, "take over the connection", "client", r.RemoteAddr)
		return
	}
	defer func() { _ = client.Close() }() // as above
	join(client, io.LimitReader(buffered, int64(buffered.Reader.Buffered())), server)
}

// join copies in both directions until both sides have closed theirs, or neither has sent anything
// for idleTimeout. buffered holds what was read of the client together with its request.
func join(client net.Conn, buffered io.Reader, server net.Conn) {
	extend := func() {
		end := time.Now().Add(idleTimeout)
		_, _ = client.SetDeadline(end), server.SetDeadline(end) // fail only for closed connections
	}
	extend()
	done := make(chan struct{})
	go func() {
		fromClient := io.MultiReader(buffered, activity{client, extend})
		_, _ = io.Copy(server, fromClient) // an error ends this direction, as its end does
		closeWrite(server)
		close(done)
	}()
	_, _ = io.Copy(client, activity{server, extend}) // as above
	closeWrite(client)
	<-done
}

// activity calls observed whenever something is read.
type activity struct {
	io.Reader
	observed func()
}

func (a activity) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	if n > 0 {
		a.observed()
	}
	return n, err
}

// closeWrite closes one direction of a connection; the other one stays open.
func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // fails only for a closed connection
	}
}
