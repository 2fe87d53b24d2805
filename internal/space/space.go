// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package space makes network namespaces for tests: pods, nodes and gateways of whole clusters,
// joined by cables, without root and without a trace. Tests call Main from their TestMain.
package space

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/liqo-go/liqo/internal/patience"
)

// Main runs the tests in user and network namespaces of their own. It needs no root, and the tests
// change nothing outside.
func Main(m *testing.M) {
	if os.Getenv("LIQO_TEST_NAMESPACE") != "" {
		// Fuzz workers inherit the namespace of the process that started them.
		if !slices.Contains(os.Args, "-test.fuzzworker") {
			if err := furnish(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), "LIQO_TEST_NAMESPACE=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   unix.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		fmt.Fprintf(os.Stderr, "make namespaces: %v\n", err)
	}
	if err != nil {
		os.Exit(1)
	}
}

// furnish adds a loopback device and an unreachable default route to the tests' namespace: an API
// server that a test starts determines its own address from them.
func furnish() error {
	for _, args := range []string{
		"link set lo up", "link add eth0 type veth peer name eth1", "addr add 192.0.2.1/24 dev eth0",
		"link set eth0 up", "link set eth1 up", "route add default via 192.0.2.2",
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	return nil
}

// Space is a network namespace with a thread of its own. It ends with the test.
type Space struct {
	t    testing.TB
	Name string
	fd   int
	work chan func()
	// heard holds the sources of all UDP requests.
	mu    sync.Mutex
	heard map[string]bool
}

// New returns a new namespace.
func New(t testing.TB, name string) *Space {
	t.Helper()
	s := &Space{t: t, Name: name, work: make(chan func()), heard: map[string]bool{}}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			s.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		ready <- err
		for f := range s.work {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("make namespace %s: %v", name, err)
	}
	t.Cleanup(func() { close(s.work); unix.Close(s.fd) })
	s.IP("link set lo up")
	return s
}

// Do runs f on the namespace's thread.
func (s *Space) Do(f func()) {
	done := make(chan struct{})
	s.work <- func() { defer close(done); f() }
	<-done
}

// Try runs a command in the namespace.
func (s *Space) Try(stdin, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var err error
	s.Do(func() { err = cmd.Start() })
	if err == nil {
		err = cmd.Wait()
	}
	return out.String(), err
}

// Run runs a command that must succeed.
func (s *Space) Run(stdin, name string, args ...string) string {
	s.t.Helper()
	out, err := s.Try(stdin, name, args...)
	if err != nil {
		s.t.Fatalf("%s: %s %s: %v\n%s", s.Name, name, strings.Join(args, " "), err, out)
	}
	return out
}

// IP runs ip.
func (s *Space) IP(args string) string {
	s.t.Helper()
	for {
		// The kernel reports that a change interrupted the dump, which is frequent on a slow
		// machine.
		if out := s.Run("", "ip", strings.Fields(args)...); !strings.Contains(out, "Dump was interrupted") {
			return out
		}
	}
}

// NFT loads rules.
func (s *Space) NFT(script string) { s.t.Helper(); s.Run(script, "nft", "-f", "-") }

// Forwards makes the namespace a router, as nodes are.
func (s *Space) Forwards() {
	s.t.Helper()
	var err error
	s.Do(func() {
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err == nil {
				err = os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0)
			}
		}
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// Cable connects two namespaces by a pair of devices that are up.
func Cable(a *Space, nameA string, b *Space, nameB string) {
	a.t.Helper()
	a.IP(fmt.Sprintf("link add %s type veth peer name %s netns /proc/%d/fd/%d", nameA, nameB, os.Getpid(), b.fd))
	a.IP("link set " + nameA + " up")
	b.IP("link set " + nameB + " up")
}

// Serve answers TCP and UDP requests with their source address.
func (s *Space) Serve(addr string) {
	s.t.Helper()
	var l net.Listener
	var p net.PacketConn
	var err error
	s.Do(func() {
		if l, err = net.Listen("tcp", addr); err == nil {
			p, err = net.ListenPacket("udp", addr)
		}
	})
	if err != nil {
		s.t.Fatalf("%s: listen: %v", s.Name, err)
	}
	s.t.Cleanup(func() { l.Close(); p.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, hostOf(c.RemoteAddr()))
			c.Close()
		}
	}()
	go func() {
		b := make([]byte, 9000)
		for {
			_, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.heard[hostOf(from)] = true
			s.mu.Unlock()
			p.WriteTo([]byte(hostOf(from)), from)
		}
	}()
}

func hostOf(a net.Addr) string {
	host, _, _ := net.SplitHostPort(a.String())
	return host
}

// askLimit is how long Asks waits for an answer. It allows for a lost packet.
const askLimit = 3 * time.Second

// Asks returns the source address that a server observed; the error says that it did not answer in
// time. A UDP request has size bytes.
func (s *Space) Asks(network, from, to string, size int) (string, error) {
	return s.asks(network, from, to, size, askLimit)
}

// AsksUntilAnswered is Asks for an answer that must come. Each try waits twice as long as the last
// one.
func (s *Space) AsksUntilAnswered(t testing.TB, network, from, to string, size int) (seen string) {
	t.Helper()
	limit := askLimit
	Eventually(t, fmt.Sprintf("an answer from %s over %s to %s", to, network, s.Name), func() (err error) {
		seen, err = s.asks(network, from, to, size, limit)
		limit *= 2
		return err
	})
	return seen
}

func (s *Space) asks(network, from, to string, size int, limit time.Duration) (string, error) {
	var c net.Conn
	var err error
	dialer := net.Dialer{Timeout: limit}
	if ip := net.ParseIP(from); ip != nil && network == "tcp" {
		dialer.LocalAddr = &net.TCPAddr{IP: ip}
	} else if ip != nil {
		dialer.LocalAddr = &net.UDPAddr{IP: ip}
	}
	s.Do(func() { c, err = dialer.Dial(network, to) })
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(limit))
	if network == "udp" {
		c.Write(make([]byte, size))
		b := make([]byte, 100)
		n, err := c.Read(b)
		return string(b[:n]), err
	}
	b, err := io.ReadAll(c)
	return string(b), err
}

// PingsUntilAnswered runs ping, whose last argument is an address, until one is answered.
func (s *Space) PingsUntilAnswered(t testing.TB, args ...string) {
	t.Helper()
	Eventually(t, fmt.Sprintf("an answer to %s, which runs ping %s", s.Name, strings.Join(args, " ")), func() error {
		out, err := s.Try("", "ping", append([]string{"-c1", "-W5"}, args...)...)
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		return err
	})
}

// Dial opens a connection from the namespace, on a thread of its own that waits for the response.
func (s *Space) Dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err = unix.Setns(s.fd, unix.CLONE_NEWNET); err == nil {
			c, err = new(net.Dialer).DialContext(ctx, network, addr)
		}
	}()
	<-done
	return c, err
}

// Tells sends one datagram and does not wait for an answer.
func (s *Space) Tells(from, to string) { s.t.Helper(); s.Sends(from, to, []byte("hello")) }

// Sends is Tells with a content.
func (s *Space) Sends(from, to string, content []byte) {
	s.t.Helper()
	var err error
	s.Do(func() {
		var c net.Conn
		dialer := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}
		if c, err = dialer.Dial("udp", to); err == nil {
			_, err = c.Write(content)
			c.Close()
		}
	})
	if err != nil {
		s.t.Errorf("%s: send from %s to %s: %v", s.Name, from, to, err)
	}
}

// Hears reports whether a datagram from a source arrived.
func (s *Space) Hears(source string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard[source]
}

// resolved matches neighbours and forwarding entries that the kernel learns and forgets by itself.
var resolved = regexp.MustCompile(`(?m)^.*\b(REACHABLE|STALE|DELAY|PROBE|FAILED|INCOMPLETE|NOARP) *\n`)

// Written returns the changes that the kernel reports while f runs, as the monitors of ip and nft
// print them: links, addresses, routes, rules, explicitly added neighbours and forwarding entries,
// and nft tables. f runs once for each of the two monitors.
func (s *Space) Written(f func()) string {
	s.t.Helper()
	var out strings.Builder
	for _, monitor := range [][]string{{"ip", "monitor", "link", "address", "route", "rule", "neigh"}, {"nft", "monitor"}} {
		out.WriteString(s.written(monitor, f))
	}
	return resolved.ReplaceAllString(out.String(), "")
}

// written runs one monitor. The output between two marks belongs to f.
func (s *Space) written(monitor []string, f func()) string {
	s.t.Helper()
	mark, marked := "254.254.254.254", func() {
		s.IP("addr add 254.254.254.254/32 dev lo")
		s.IP("addr del 254.254.254.254/32 dev lo")
	}
	if monitor[0] == "nft" {
		mark, marked = "ip marker", func() { s.NFT("add table ip marker"); s.NFT("delete table ip marker") }
	}
	cmd := exec.Command(monitor[0], monitor[1:]...)
	var out guarded
	cmd.Stdout, cmd.Stderr = &out, &out
	var err error
	s.Do(func() { err = cmd.Start() })
	if err != nil {
		s.t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	waitMark := func(before string, again func()) string {
		Eventually(s.t, "the mark in the output of the monitor", func() error {
			if !strings.Contains(strings.TrimPrefix(out.String(), before), mark) {
				again()
				return errors.New("no mark")
			}
			return nil
		})
		return strings.TrimPrefix(out.String(), before)
	}
	Eventually(s.t, "IPv6 addresses that are checked for duplicates", func() error {
		if tentative := s.Run("", "ip", "-6", "addr", "show", "tentative"); tentative != "" {
			return errors.New(tentative)
		}
		return nil
	})
	waitMark("", marked) // repeatedly, because the monitor may not listen yet
	before := settled(&out)
	f()
	marked()
	text, _, _ := strings.Cut(waitMark(before, func() {}), mark)
	if i := strings.LastIndex(text, "\n"); i >= 0 {
		return text[:i+1]
	}
	return ""
}

// settled waits until nothing is printed for a while, because a mark is printed in several pieces.
func settled(out *guarded) string {
	text := out.String()
	for {
		time.Sleep(200 * time.Millisecond)
		next := out.String()
		if next == text {
			return text
		}
		text = next
	}
}

// guarded is a buffer for concurrent use.
type guarded struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (g *guarded) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.Write(p)
}

func (g *guarded) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.b.String()
}

// Transfer measures one TCP stream to a server in another namespace, in blocks of 1 MB.
func (s *Space) Transfer(b *testing.B, server *Space, to string) {
	b.Helper()
	_, port, _ := net.SplitHostPort(to)
	var l net.Listener
	var c net.Conn
	var err error
	server.Do(func() { l, err = net.Listen("tcp", ":"+port) })
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if in, err := l.Accept(); err == nil {
			io.Copy(io.Discard, in)
			in.Close()
		}
	}()
	s.Do(func() { c, err = net.DialTimeout("tcp", to, 5*time.Second) })
	if err != nil {
		b.Fatal(err)
	}
	block := make([]byte, 1<<20)
	b.SetBytes(int64(len(block)))
	for b.Loop() {
		if _, err := c.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	c.(*net.TCPConn).CloseWrite()
	<-done
	c.Close()
}

// Eventually waits until f succeeds.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience.Limit)
	err := f()
	for err != nil && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond) // between two checks of the condition
		err = f()
	}
	if err != nil {
		t.Fatal(patience.GaveUp(what, err))
	}
}
