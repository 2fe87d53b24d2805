// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/liqo-go/liqo/internal/patience"
)

var (
	// typedBlock matches commands in a page.
	typedBlock = regexp.MustCompile("(?s)```console\n(.*?)```")
	// timeLimit matches how long a command in a page waits.
	timeLimit = regexp.MustCompile(`--timeout=\w+`)
)

// typedIn returns a script of the commands of a page, each of which waits as long as tests do.
func typedIn(page string) string {
	script := fmt.Sprintf("set -euxo pipefail\nliqoctl() { command liqoctl \"$@\" %s; }\n", patiently)
	for _, block := range typedBlock.FindAllStringSubmatch(page, -1) {
		script += block[1]
	}
	script = timeLimit.ReplaceAllString(script, patiently)
	return strings.ReplaceAll(script, "/echo get ", "/echo get -timeout "+patience.Limit.String()+" ")
}

// examples types the commands of the page of each example, in its folder. Each ends with the clusters as they were.
func examples(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "examples", "*", "README.md"))
	if err != nil || len(pages) < 5 {
		t.Fatalf("found only %d examples: %v", len(pages), err)
	}
	for _, page := range pages {
		folder := filepath.Dir(page)
		t.Run(filepath.Base(folder), func(t *testing.T) {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience.Limit) // the command that waits gives up before
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-c", typedIn(string(text)))
			cmd.Dir = folder
			cmd.Env = append(os.Environ(), "PATH="+path, "KUBECONFIG=",
				"ROME="+rome.kubeconfig, "MILAN="+milan.kubeconfig)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it ends with all it has started
			cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
			if out, err := cmd.CombinedOutput(); err != nil {
				fatal(t, "%s\n%v after: %s", out, err, lastLine(string(out)))
			}
		})
	}
}
