// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
)

// shareVariable names the environment variable with the socket of the process that shares servers.
const shareVariable = "LIQO_APITEST_SOCKET"

// offer is how a shared server is entered, or why there is none. It is the first and only message of
// the sharing process on a connection. The server belongs to the other end until that closes its
// half of the connection, or writes to it, which stops the server. Then the connection is closed.
type offer struct {
	Host          string
	CA, Cert, Key []byte
	Error         string `json:",omitempty"`
}

// Share runs a command, such as "go test ./...", and shares servers between its processes. A start of a
// server takes 8 s of CPU, and each package would start its own. It returns the command's error.
func Share(command ...string) error {
	dir, err := workdir()
	if err != nil {
		return err
	}
	socket := filepath.Join(dir, "share")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	go serve(listener)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), shareVariable+"="+socket)
	return cmd.Run()
}

func serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		go hand(conn)
	}
}

// hand lends a server to the other end of a connection.
func hand(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s, err := take(ctx)
	if err != nil {
		_ = json.NewEncoder(conn).Encode(offer{Error: err.Error()})
		return
	}
	tls := s.Config.TLSClientConfig
	_ = json.NewEncoder(conn).Encode(offer{Host: s.Config.Host, CA: tls.CAData, Cert: tls.CertData, Key: tls.KeyData})
	if n, _ := conn.Read(make([]byte, 1)); n > 0 {
		s.Stop()
		return
	}
	if err := give(s); err != nil {
		fmt.Fprintf(os.Stderr, "reset API server: %v\n", err)
	}
}

// lease borrows a server from the process that shares them.
func lease(ctx context.Context, socket string) (*Server, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	end, _ := ctx.Deadline() // none is no time limit
	_ = conn.SetReadDeadline(end)
	var o offer
	err = json.NewDecoder(conn).Decode(&o)
	_ = conn.SetReadDeadline(time.Time{})
	if err == nil && o.Error != "" {
		err = errors.New(o.Error)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &Server{
		lease: conn,
		Config: &rest.Config{
			Host:            o.Host,
			TLSClientConfig: rest.TLSClientConfig{CAData: o.CA, CertData: o.Cert, KeyData: o.Key},
			QPS:             -1,
		},
		kill: func() {
			_, _ = conn.Write([]byte{0})
			_, _ = io.Copy(io.Discard, conn) // ends when the server has ended
		},
	}, nil
}

// giveBack ends a lease and returns when the server is reset.
func giveBack(conn net.Conn) error {
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, conn)
	return errors.Join(err, conn.Close())
}
