// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What is sent along a way, and what is made of it.

const (
	streamTime = 4 // seconds of one iperf3 run, of TCP after a first one, which is left out
	smallUDP   = "64"
	// httpClients ask one after the other, each over a connection of its own that is kept.
	httpClients = 16
	httpTime    = 3 * time.Second
	httpPort    = "8099"
)

// sample is one look at a way.
type sample struct {
	stream, streams float64   // Mbit/s of one TCP stream and of eight
	cpu             float64   // CPU seconds of both tunnel processes for each Gbit of one stream
	small           float64   // UDP packets of 64 bytes that arrive, thousands per second
	requests        float64   // small HTTP requests per second
	trips           []float64 // round trips in ms, sorted
}

func (e ends) sample(ctx context.Context) (s sample, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if s.trips, err = e.roundTrips(ctx); err != nil {
		return s, err
	}
	before := e.cpu()
	stream, err := e.iperf(ctx)
	if err != nil {
		return s, err
	}
	s.stream = stream.BitsPerSecond / 1e6
	if gbits := s.stream * (streamTime + 1) / 1e3; gbits > 0 {
		s.cpu = (e.cpu() - before) / gbits
	}
	streams, err := e.iperf(ctx, "--parallel", "8")
	if err != nil {
		return s, err
	}
	s.streams = streams.BitsPerSecond / 1e6
	small, err := e.iperf(ctx, "--udp", "--bitrate", "0", "--length", smallUDP)
	if err != nil {
		return s, err
	}
	s.small = float64(small.Packets-small.LostPackets) / small.Seconds / 1e3
	s.requests, err = e.requests(ctx)
	return s, err
}

// cpu is what the tunnel's processes have used so far, in seconds.
func (e ends) cpu() (sum float64) {
	for _, pid := range e.tunnels {
		sum += measure(process{pid: pid}).cpu
	}
	return sum
}

// answered finds the round trip in the lines of ping.
var answered = regexp.MustCompile(`time=([0-9.]+) ms`)

func (e ends) roundTrips(ctx context.Context) ([]float64, error) {
	printed, err := output(e.from(ctx, "ping", "-n", "-i", "0.005", "-c", "400", e.addr))
	if err != nil {
		return nil, err
	}
	var times []float64
	for _, found := range answered.FindAllStringSubmatch(printed, -1) {
		times = append(times, number(found[1]))
	}
	if len(times) == 0 {
		return nil, fmt.Errorf("no round trip in what ping printed:\n%s", printed)
	}
	slices.Sort(times)
	return times, nil
}

// received is what the receiver of iperf3 saw.
type received struct {
	BitsPerSecond float64 `json:"bits_per_second"`
	Packets       int
	LostPackets   int `json:"lost_packets"`
	Seconds       float64
}

// iperf is one run, of TCP without its first second.
func (e ends) iperf(ctx context.Context, args ...string) (received, error) {
	stop, err := background(e.to(ctx, "iperf3", "--server", "--one-off"))
	if err != nil {
		return received{}, fmt.Errorf("%w; run 'go run ./testbed deps' first", err)
	}
	defer stop()
	var result struct {
		Error string // ends with exit code 0
		End   struct {
			TCP received `json:"sum_received"`
			UDP received `json:"sum"`
		}
	}
	udp := slices.Contains(args, "--udp")
	if !udp { // of which the losses would not be left out
		args = append(args, "--omit", "1")
	}
	args = append([]string{"iperf3", "--client", e.addr, "--time", strconv.Itoa(streamTime), "--json", "--connect-timeout", "2000"}, args...)
	err = eventually(ctx, "iperf3 reaches "+e.addr, 30*time.Second, func() (bool, error) {
		printed, err := output(e.from(ctx, args...))
		if err != nil {
			return false, err
		}
		result.Error = ""
		if err := json.Unmarshal([]byte(printed), &result); err != nil {
			return false, err
		}
		if result.Error != "" {
			return false, errors.New(result.Error)
		}
		return true, nil
	})
	if udp {
		return result.End.UDP, err
	}
	return result.End.TCP, err
}

// requests runs this program again at both ends: as server, and as clients that count answers.
func (e ends) requests(ctx context.Context) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	stop, err := background(e.to(ctx, self, serveVerb, net.JoinHostPort("", httpPort)))
	if err != nil {
		return 0, err
	}
	defer stop()
	printed, err := output(e.from(ctx, self, askVerb, "http://"+net.JoinHostPort(e.addr, httpPort)))
	return number(strings.TrimSpace(printed)), err
}

// serveVerb and askVerb are how this program is called at the ends of a way.
const serveVerb, askVerb = "serve", "ask"

// serve answers every request with a few bytes.
func serve(addr string) error {
	return http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "hello\n") // a client that is gone needs no answer
	}))
}

// ask prints how many requests per second were answered, once the server is there.
func ask(ctx context.Context, url string) error {
	transport := &http.Transport{MaxIdleConnsPerHost: httpClients}
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	get := func() error {
		answer, err := client.Get(url)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return errors.Join(err, answer.Body.Close())
	}
	if err := eventually(ctx, url+" answers", 10*time.Second, func() (bool, error) { err := get(); return err == nil, err }); err != nil {
		return err
	}
	var counts [httpClients]int
	var errs [httpClients]error
	var all sync.WaitGroup
	began := time.Now()
	for i := range counts {
		all.Go(func() {
			for time.Since(began) < httpTime && errs[i] == nil {
				errs[i] = get()
				counts[i]++
			}
		})
	}
	all.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	fmt.Println(float64(sum) / time.Since(began).Seconds())
	return errors.Join(errs[:]...)
}
