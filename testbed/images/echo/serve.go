// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// serve runs all servers until one fails or the process is told to end. An empty
// address leaves a server out.
func serve(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("serve", flag.ContinueOnError)
	web := f.String("http", ":8080", "address")
	tcp := f.String("tcp", ":9000", "address")
	udp := f.String("udp", ":9000", "address")
	files := f.String("files", "", "folder that is served as /files/")
	if err := f.Parse(args); err != nil {
		return err
	}
	failed := make(chan error, 3)
	for address, server := range map[*string]func(string) error{web: httpServer(*files), tcp: serveTCP, udp: serveUDP} {
		if *address != "" {
			go func() { failed <- server(*address) }()
		}
	}
	log.Printf("%s http=%s tcp=%s udp=%s", who(), *web, *tcp, *udp)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// httpServer answers every path with one line; /bytes?n=N with N bytes, /status?code=C
// with that status; /files/ is a folder, if one is named.
func httpServer(files string) func(address string) error {
	mux := http.NewServeMux()
	if files != "" {
		mux.Handle("/files/", http.StripPrefix("/files/", http.FileServer(http.Dir(files))))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s from=%s to=%s %s %s\n", who(), r.RemoteAddr, r.Context().Value(http.LocalAddrContextKey), r.Method, r.URL)
	})
	mux.HandleFunc("/bytes", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.FormValue("n"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.CopyN(w, zeros{}, n) // the client went away: its business
	})
	mux.HandleFunc("/status", func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(r.FormValue("code"))
		if err != nil || code < 200 || code > 599 {
			code = http.StatusBadRequest
		}
		w.WriteHeader(code)
	})
	return func(address string) error { return http.ListenAndServe(address, mux) }
}

// zeros is an endless stream.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// serveTCP greets with one line, then repeats lines.
func serveTCP(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			fmt.Fprintf(conn, "%s from=%s to=%s\n", who(), conn.RemoteAddr(), conn.LocalAddr())
			_, _ = io.Copy(conn, conn) // ends with the connection
		}()
	}
}

// serveUDP answers a datagram with one line about itself and the datagram's bytes.
func serveUDP(address string) error {
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	buffer := make([]byte, 65535)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		answer := append([]byte(fmt.Sprintf("%s from=%s\n", who(), from)), buffer[:n]...)
		if _, err := conn.WriteTo(answer, from); err != nil {
			log.Printf("answer %s: %v", from, err)
		}
	}
}

func lookup(ctx context.Context, names []string) error {
	var failed error
	for _, name := range names {
		addrs, err := net.DefaultResolver.LookupHost(ctx, name)
		failed = errors.Join(failed, err)
		if err == nil {
			fmt.Printf("%s %s\n", name, strings.Join(addrs, " "))
		}
	}
	return failed
}

// firstLine is what a server said about itself.
func firstLine(r *bufio.Reader) (string, error) {
	s, err := r.ReadString('\n')
	return strings.TrimSuffix(s, "\n"), err
}
