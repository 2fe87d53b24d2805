// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"regexp"
	"testing"
	"time"
)

// TestPing pings the loopback address. Raw ICMP sockets need root, as test clusters do.
func TestPing(t *testing.T) {
	stdout := os.Stdout
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout = w
	err = ping(context.Background(), []string{"-n", "20", "-i", "10ms", "127.0.0.1"})
	os.Stdout = stdout
	w.Close()
	out, _ := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`^127\.0\.0\.1: 20 answered, 0 lost, longest gap (\S+)\n$`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("printed %q", out)
	}
	if gap, err := time.ParseDuration(string(found[1])); err != nil || gap < 5*time.Millisecond {
		t.Errorf("the longest gap is %s, though pings are 10 ms apart", found[1])
	}
}

func TestAnswers(t *testing.T) {
	a := answers{seen: map[uint64]bool{}}
	began := time.Now()
	for _, answer := range []struct {
		n  uint64
		at time.Duration
	}{{1, 0}, {2, 10}, {2, 11}, {5, 40}, {4, 45}, {9, 90}} { // 2 comes twice, 4 after 5
		a.take(answer.n, began.Add(answer.at*time.Millisecond))
	}
	if a.count != 5 || a.lost() != 4 || a.gap != 45*time.Millisecond {
		t.Errorf("%d answered, %d lost, longest gap %v; want 5, 4 (3, 6, 7, 8) and 45ms", a.count, a.lost(), a.gap)
	}
}
