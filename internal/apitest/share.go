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

	"github.com/liqo-go/liqo/internal/patience"
)

// shareVariable names the environment variable with the socket of the process that shares servers.
const shareVariable = "LIQO_APITEST_SOCKET"

// lenderLimit is how long a borrower waits for the lender. It is longer than the limit of the lender,
// which can then say why it gave up.
const lenderLimit = patience.Limit + time.Minute

// offer describes how a borrower reaches its server, or holds the error. The borrower returns the
// server by closing its half of the connection, and stops the server by writing a byte. The lender
// then closes the connection.
type offer struct {
	Host, Etcd, Log      string
	CA, CAKey, Cert, Key []byte
	Error                string `json:",omitempty"`
}

// Share runs a command, such as "go test ./...", and shares servers between its processes. Starting
// a server takes 8 s of CPU, and each package would start its own. Share returns the command's
// error.
func Share(command ...string) error {
	dir, err := workdir()
	if err != nil {
		return err
	}
	socket := filepath.Join(dir, "share"+network())
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

// network returns the name of this process's network namespace; a shared server is reachable only
// from that of its sharing process. It returns "" if there are no namespaces.
func network() string {
	name, _ := os.Readlink("/proc/self/ns/net")
	return name
}

// serve lends servers until the listener is closed.
func serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			panic(fmt.Sprintf("share API servers: %v", err)) // else all tests would wait for a server
		}
		go lend(conn)
	}
}

// lend lends a server to the other end of a connection until that returns or stops it.
func lend(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	defer cancel()
	s, err := take(ctx, nil)
	if err != nil {
		fmt.Fprintf(os.Stderr, "share API servers: %v\n", err) // the borrower may have given up
		_ = json.NewEncoder(conn).Encode(offer{Error: err.Error()})
		return
	}
	tls := s.Config.TLSClientConfig
	_ = json.NewEncoder(conn).Encode(offer{
		Host: s.Config.Host, Etcd: s.state.etcd, Log: s.log, CA: tls.CAData, CAKey: s.caKey, Cert: tls.CertData, Key: tls.KeyData,
	})
	if n, _ := conn.Read(make([]byte, 1)); n > 0 {
		s.Stop()
		return
	}
	if err := give(s); err != nil {
		fmt.Fprintf(os.Stderr, "reset API server %s: %v\n", s.Config.Host, err)
	}
}

// borrow gets a server from the process that shares them.
func borrow(ctx context.Context, socket string) (*Server, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	_ = conn.SetReadDeadline(time.Now().Add(lenderLimit))
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
		log:   o.Log,
		caKey: o.CAKey,
		state: state{etcd: o.Etcd},
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
	_ = conn.SetReadDeadline(time.Now().Add(lenderLimit))
	err := conn.(*net.UnixConn).CloseWrite()
	if err == nil {
		_, err = io.Copy(io.Discard, conn)
	}
	return errors.Join(err, conn.Close())
}
