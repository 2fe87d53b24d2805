// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestSeed: the same tree draws the same samples, SEED draws others.
func TestSeed(t *testing.T) {
	t.Setenv(Variable, "")
	first, again := Rand(t).Uint64(), Rand(t).Uint64()
	t.Setenv(Variable, "another")
	other := Rand(t).Uint64()
	if first != again || first == other {
		t.Errorf("drew %x, then %x, with another seed %x", first, again, other)
	}
}

// TestSamples: samples of one seed differ, and the first is that of Rand.
func TestSamples(t *testing.T) {
	drawn := map[uint64]bool{}
	for i, r := range Samples(t, 3) {
		drawn[r.Uint64()] = true
		if i == 0 && !drawn[Rand(t).Uint64()] {
			t.Error("the first sample is not that of Rand")
		}
	}
	if len(drawn) != 3 {
		t.Errorf("3 samples drew %d numbers", len(drawn))
	}
}

// TestFails fails if it runs below TestRepeats.
func TestFails(t *testing.T) {
	if os.Getenv("SEED_FAIL") != "" {
		t.Run("a user's (only) sample", func(t *testing.T) {
			Of(t)
			t.Error("on purpose")
		})
	}
}

// TestRepeats: a test that fails prints the seed, and the command that repeats it.
func TestRepeats(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-test.run=TestFails", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), Variable+"=mine", "SEED_FAIL=1")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{
		"SEED=mine\n", "repeat with: SEED=mine go test ./internal/seed -count=1 -v -run '^TestFails$/^a_user'\\''s_\\(only\\)_sample$' -timeout=1m0s\n",
	} {
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("want %q in\n%s%v", want, out, err)
		}
	}
}
