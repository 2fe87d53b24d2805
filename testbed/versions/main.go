// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command versions runs the stories of users on other versions of Kubernetes, and writes their outcomes into the table
// of docs/compatibility.md. Each argument is a value of the stories' flag -kubernetes, as 1.36 or rome=1.35,milan=1.37.
// The argument "upgrade" runs TestKubernetes instead, which upgrades the clusters of a peering. All stories run, or the
// fraction that the environment variable SAMPLE says.
//
// It starts no cluster itself: 'make test-stories' does. table.go has what is pure.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

func run(parts []string) error {
	commit, err := exec.Command("git", "rev-parse", "--short=8", "HEAD").Output()
	if err != nil {
		return fmt.Errorf("read the commit: %w", err)
	}
	var red []error
	for _, part := range parts {
		result, err := tell(part)
		if err != nil {
			red = append(red, fmt.Errorf("%s: %w; repeat with VERSIONS=%s make test-versions", part, err, part))
		}
		if err != nil && len(result.failed) == 0 {
			continue // it did not come to its end: what stands in the table is still what is known
		}
		page := filepath.Join("docs", "compatibility.md")
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		changed, err := withRow(string(text), result.row(time.Now(), strings.TrimSpace(string(commit))))
		if err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		if err := os.WriteFile(page, []byte(changed), 0o644); err != nil {
			return err
		}
	}
	return errors.Join(red...)
}

// tell runs the stories of one part, shows what they print, and reads it.
func tell(part string) (result, error) {
	sample := cmp.Or(os.Getenv("SAMPLE"), whole)
	cmd := exec.Command("make", "test-stories", "SAMPLE="+sample, "STORY_FLAGS=-v -kubernetes "+part)
	if part == upgrade {
		cmd = exec.Command("make", "test-kubernetes-upgrade")
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return result{}, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return result{}, err
	}
	r := result{part: part, sample: sample}
	lines := bufio.NewReader(io.TeeReader(out, os.Stdout))
	for err == nil {
		var line string
		line, err = lines.ReadString('\n')
		r.read(line)
	}
	return r, cmd.Wait()
}
