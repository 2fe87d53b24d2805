// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package seed gives tests the seed of their random samples. The seed follows the tree that is
// tested, so a run of the same tree draws the same samples on each machine, and another tree draws
// others.
package seed

import (
	"flag"
	"fmt"
	"hash/fnv"
	"iter"
	mathrand "math/rand"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/quick"
)

// Variable is the environment variable that overrides the seed. Its value is any text.
const Variable = "SEED"

// withoutTree is the seed outside of a Git repository, such as in an unpacked archive.
const withoutTree = "no-tree"

// Text returns the seed as a user types it: the value of SEED, or the first 12 digits of the tree
// of HEAD.
func Text() string {
	if text := os.Getenv(Variable); text != "" {
		return text
	}
	tree, err := exec.Command("git", "rev-parse", "--short=12", "HEAD^{tree}").Output()
	if err != nil {
		return withoutTree
	}
	return strings.TrimSpace(string(tree))
}

// Of returns the seed of a test and logs it. If the test fails, it also logs the command that
// repeats the test with the same samples.
func Of(t testing.TB) uint64 {
	t.Helper()
	text := Text()
	t.Logf("%s=%s", Variable, text)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with: %s", command(text, t.Name()))
		}
	})
	hash := fnv.New64a()
	hash.Write([]byte(text))
	return hash.Sum64()
}

// Rand returns a source of random numbers that starts from the seed of a test.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Of(t), 0))
}

// Quick returns a configuration of testing/quick that draws from the seed of a test.
func Quick(t testing.TB) *quick.Config {
	t.Helper()
	return &quick.Config{Rand: mathrand.New(mathrand.NewSource(int64(Of(t))))}
}

// Samples yields n sources of random numbers, by their numbers. All start from the seed of a test, and
// no two draw the same.
func Samples(t testing.TB, n int) iter.Seq2[int, *rand.Rand] {
	t.Helper()
	from := Of(t)
	return func(yield func(int, *rand.Rand) bool) {
		for i := range n {
			if !yield(i, rand.New(rand.NewPCG(from, uint64(i)))) {
				return
			}
		}
	}
}

// command returns the line that runs one test of this process again, with the same seed and flags.
func command(text, name string) string {
	var flags []string
	flag.Visit(func(f *flag.Flag) {
		own, ofGoTest := strings.CutPrefix(f.Name, "test.")
		switch {
		case slices.Contains([]string{"run", "skip", "paniconexit0", "testlogfile", "count", "v"}, own):
		case ofGoTest:
			flags = append(flags, fmt.Sprintf("-%s=%s", own, f.Value))
		default:
			flags = append(flags, fmt.Sprintf("-%s=%s", f.Name, f.Value))
		}
	})
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
	}
	run := strings.ReplaceAll(strings.Join(parts, "/"), "'", `'\''`)
	return fmt.Sprintf("%s=%s go test %s -count=1 -v -run '%s' %s", Variable, text, directory(), run, strings.Join(flags, " "))
}

// directory returns the folder of the test's package as 'go test' takes it at the repository's root.
func directory() string {
	prefix, err := exec.Command("git", "rev-parse", "--show-prefix").Output()
	if err != nil {
		return "."
	}
	return "./" + strings.TrimSuffix(strings.TrimSpace(string(prefix)), "/")
}
