// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/liqo-go/liqo/internal/patience"
)

// TestMemoryIsReturned shows that the memory of a burst is returned soon after it, even if nothing
// more is allocated.
func TestMemoryIsReturned(t *testing.T) {
	const burst = 200 // MB
	before := resident(t)
	pages := make([]byte, burst<<20)
	for i := 0; i < len(pages); i += 4096 {
		pages[i] = 1
	}
	if grown := resident(t) - before; grown < burst/2 {
		t.Fatalf("%d MB took %d", burst, grown)
	}
	runtime.KeepAlive(pages)
	go returnMemory(t.Context(), time.Second) // it gives back once, so not while the burst lasts, however slow the machine is
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience.Limit, true, func(context.Context) (bool, error) {
		return resident(t)-before < burst/4, nil
	})
	if err != nil {
		t.Errorf("gave up after %s: waited until memory is returned, %d MB more than before are resident",
			patience.Limit, resident(t)-before)
	}
}

// resident returns the resident memory of this process in MB.
func resident(t *testing.T) (mb int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			if _, err := fmt.Sscan(string(rest), &mb); err != nil {
				t.Fatal(err)
			}
		}
	}
	return mb >> 10
}
