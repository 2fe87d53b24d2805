// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/liqo-go/liqo/internal/patience"
)

// typedBlock matches commands in a page.
var typedBlock = regexp.MustCompile("(?s)```console\n(.*?)```")

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
			script := "set -euxo pipefail\n"
			for _, block := range typedBlock.FindAllStringSubmatch(string(text), -1) {
				script += block[1]
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-c", script)
			cmd.Dir = folder
			cmd.Env = append(os.Environ(), "PATH="+path, "KUBECONFIG=",
				"ROME="+rome.kubeconfig, "MILAN="+milan.kubeconfig)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it ends with all it has started
			cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
