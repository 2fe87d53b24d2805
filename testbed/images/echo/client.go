// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// clientFlags are common to all clients.
type clientFlags struct {
	n       int
	pause   time.Duration
	timeout time.Duration
	size    int
	account bool
	targets []string
}

func parseClient(name string, args []string) (clientFlags, error) {
	var c clientFlags
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.IntVar(&c.n, "n", 1, "how often; 0: for ever")
	f.DurationVar(&c.pause, "i", time.Second, "pause between two")
	f.DurationVar(&c.timeout, "timeout", 5*time.Second, "patience with one")
	f.IntVar(&c.size, "size", 32, "bytes sent by tcp and udp")
	f.BoolVar(&c.account, "account", false, "get as the pod's service account, from an API server")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	c.targets = f.Args()
	if len(c.targets) == 0 {
		return c, errors.New("name a target")
	}
	return c, nil
}

// loop asks n times and prints each answer with its time, at last a summary. It fails
// when one attempt failed.
func (c clientFlags) loop(ctx context.Context, target string, ask func(ctx context.Context) (string, error)) error {
	var times []time.Duration
	failures := 0
	for i := 0; c.n == 0 || i < c.n; i++ {
		if i > 0 && !wait(ctx, c.pause) {
			break
		}
		attempt, cancel := context.WithTimeout(ctx, c.timeout)
		began := time.Now()
		answer, err := ask(attempt)
		took := time.Since(began)
		cancel()
		if err != nil {
			failures++
			fmt.Printf("%s %s FAILED %v\n", began.UTC().Format(time.RFC3339Nano), target, err)
			continue
		}
		times = append(times, took)
		fmt.Printf("%s %s %v %s\n", began.UTC().Format(time.RFC3339Nano), target, took.Round(time.Microsecond), answer)
	}
	if c.n != 1 {
		fmt.Printf("%s: %d answered, %d failed%s\n", target, len(times), failures, spread(times))
	}
	if failures > 0 {
		return fmt.Errorf("%s: %d failed", target, failures)
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func spread(times []time.Duration) string {
	if len(times) == 0 {
		return ""
	}
	low, high, sum := times[0], times[0], time.Duration(0)
	for _, t := range times {
		low, high, sum = min(low, t), max(high, t), sum+t
	}
	return fmt.Sprintf(", min %v avg %v max %v", low, sum/time.Duration(len(times)), high)
}

func get(ctx context.Context, args []string) error {
	c, err := parseClient("get", args)
	if err != nil {
		return err
	}
	// Each on a connection of its own: the point is the path.
	transport := &http.Transport{DisableKeepAlives: true}
	web := &http.Client{Transport: transport}
	if c.account {
		if web.Transport, err = asAccount(transport); err != nil {
			return err
		}
	}
	var failed error
	for _, url := range c.targets {
		failed = errors.Join(failed, c.loop(ctx, url, func(ctx context.Context) (string, error) { return fetch(ctx, web, url) }))
	}
	return failed
}

// bearer shows a token.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// asAccount shows the token of the pod's service account, to servers of the CA beside it.
func asAccount(transport *http.Transport) (http.RoundTripper, error) {
	const folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
	token, err := os.ReadFile(folder + "token")
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(folder + "ca.crt")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	return bearer{string(token), transport}, nil
}

func fetch(ctx context.Context, web *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := web.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", resp.Status, body[:min(len(body), 300)])
	}
	if len(body) > 2000 {
		return fmt.Sprintf("%d bytes", len(body)), nil
	}
	return strings.TrimSpace(string(body)), nil
}

// exchangeTCP keeps one connection for all exchanges: it shows whether connections
// survive what happens meanwhile.
func exchangeTCP(ctx context.Context, args []string) error {
	c, err := parseClient("tcp", args)
	if err != nil {
		return err
	}
	dialer := net.Dialer{Timeout: c.timeout}
	conn, err := dialer.DialContext(ctx, "tcp", c.targets[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	reader := bufio.NewReader(conn)
	greeting, err := firstLine(reader)
	if err != nil {
		return err
	}
	fmt.Printf("local=%s %s\n", conn.LocalAddr(), greeting)
	payload := payloadOf(c.size)
	return c.loop(ctx, c.targets[0], func(ctx context.Context) (string, error) {
		return roundTrip(ctx, conn, reader, payload)
	})
}

func roundTrip(ctx context.Context, conn net.Conn, reader *bufio.Reader, payload []byte) (string, error) {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := conn.Write(payload); err != nil {
		return "", err
	}
	answer := make([]byte, len(payload))
	if _, err := io.ReadFull(reader, answer); err != nil {
		return "", err
	}
	if !bytes.Equal(answer, payload) {
		return "", errors.New("another answer than what was sent")
	}
	return fmt.Sprintf("%d bytes", len(payload)), nil
}

func exchangeUDP(ctx context.Context, args []string) error {
	c, err := parseClient("udp", args)
	if err != nil {
		return err
	}
	conn, err := net.Dial("udp", c.targets[0])
	if err != nil {
		return err
	}
	defer conn.Close()
	buffer := make([]byte, 65535)
	return c.loop(ctx, c.targets[0], func(ctx context.Context) (string, error) {
		deadline, _ := ctx.Deadline()
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
		if _, err := conn.Write(payloadOf(c.size)); err != nil {
			return "", err
		}
		n, err := conn.Read(buffer)
		line, _, _ := strings.Cut(string(buffer[:n]), "\n")
		return line, err
	})
}

// payloadOf is a line of size bytes.
func payloadOf(size int) []byte {
	return append(bytes.Repeat([]byte("x"), max(0, size-1)), '\n')
}

// follow copies a file that another pod serves, and tries again when that fails. What was copied has reached the disk.
func follow(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("name a URL and a file")
	}
	from, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	self, err := os.Hostname()
	if err != nil {
		return err
	}
	if leader, _, _ := strings.Cut(from.Hostname(), "."); leader == self {
		fmt.Println(self, "leads")
		return sleep(ctx, nil)
	}
	for wait(ctx, time.Second) {
		if err := replicate(ctx, args[0], args[1]); err != nil {
			fmt.Println("not copied:", err)
		}
	}
	return nil
}

func replicate(ctx context.Context, from, to string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	f, err := os.Create(to + ".new")
	if err != nil {
		return err
	}
	_, err = io.Copy(f, response.Body)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}
