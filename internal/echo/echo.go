// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package echo tries paths through a network: a server that answers with its name, and a client
// that asks servers and says who answered and how fast. It runs in pods, of an image without a
// shell, and links nothing but the standard library and the command line.
package echo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
)

const (
	// Port is the default port of servers: above 1023, so that it needs no privilege.
	Port = 8080
	// Patience is how long a server may take to answer.
	Patience = 5 * time.Second

	// longest is how much of a response is read, in bytes: names of pods have at most 253.
	longest = 256
	// atOnce is the maximum of concurrent requests of one call.
	atOnce = 16
	// pause is the time between two attempts: new rules may not be in force on every node yet.
	pause = time.Second
)

// Answer holds the result of a request.
type Answer struct {
	URL string `json:"url"`
	// Name is the name in the server's response; empty = no response.
	Name string `json:"name,omitempty"`
	// Latency is the time from the beginning of the connection to the answer.
	Latency time.Duration `json:"latency,omitempty"`
	// Error describes why there was no response; empty = there was one.
	Error string `json:"error,omitempty"`
}

// Command returns the command of the server, with the client as its subcommand.
func Command() *cobra.Command {
	port, name := Port, os.Getenv("POD_NAME")
	cmd := &cobra.Command{
		Use:   "echo",
		Short: "Answer HTTP requests with the own name, to try a network",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), port, name) },
	}
	cmd.Flags().IntVar(&port, "port", port, "port to listen on; 0 = any")
	cmd.Flags().StringVar(&name, "name", name, "what to answer")
	cmd.AddCommand(client())
	return cmd
}

var errSome = errors.New("some requests failed")

func client() *cobra.Command {
	attempts := 1
	cmd := &cobra.Command{
		Use:   "get URL…",
		Short: "Ask servers and print, line by line, what came of it",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, urls []string) error {
			answers := GetAll(cmd.Context(), urls, attempts)
			out := json.NewEncoder(cmd.OutOrStdout())
			for _, answer := range answers {
				if err := out.Encode(answer); err != nil {
					return fmt.Errorf("print the answers: %w", err)
				}
			}
			if slices.ContainsFunc(answers, func(a Answer) bool { return a.Error != "" }) {
				return errSome
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&attempts, "attempts", attempts, "how often to ask a server that does not answer")
	return cmd
}

// serve answers until ctx ends.
func serve(ctx context.Context, port int, name string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return fmt.Errorf("listen on port %d: %w", port, err)
	}
	server := &http.Server{Handler: Handler(name), ReadHeaderTimeout: Patience}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on port %d: %w", port, err)
	}
	return nil
}

// Handler answers every request with the name.
func Handler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, name) // an error means that the client is gone
	})
}

// GetAll sends requests to all servers concurrently. The results have the order of the addresses.
func GetAll(ctx context.Context, urls []string, attempts int) []Answer {
	out := make([]Answer, len(urls))
	free := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i, url := range urls {
		all.Go(func() {
			free <- struct{}{}
			out[i] = getUntil(ctx, url, attempts)
			<-free
		})
	}
	all.Wait()
	return out
}

func getUntil(ctx context.Context, url string, attempts int) Answer {
	for {
		answer := get(ctx, url)
		attempts--
		if answer.Error == "" || attempts <= 0 {
			return answer
		}
		select {
		case <-ctx.Done():
			return answer
		case <-time.After(pause):
		}
	}
}

// get sends one request over a connection of its own. Any HTTP response counts, because only the
// path is tested.
func get(ctx context.Context, url string) Answer {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	answer, began := Answer{URL: url}, time.Now()
	name, err := ask(ctx, url)
	if err != nil {
		answer.Error = plain(err)
		return answer
	}
	answer.Name, answer.Latency = name, time.Since(began)
	return answer
}

func ask(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true} // no proxy: the path to it would be tested instead
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }() // read as far as needed
	said, err := io.ReadAll(io.LimitReader(response.Body, longest))
	return strings.TrimSpace(string(said)), err
}

// plain returns a network error in plain words.
func plain(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer within %s", Patience)
	}
	var operation *net.OpError
	if errors.As(err, &operation) {
		return operation.Err.Error()
	}
	return err.Error()
}
