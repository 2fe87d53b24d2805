// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/tools/txtar"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/liqo-go/liqo/cli"
)

// remedy matches a command in the answers of the stories of why.
var remedy = regexp.MustCompile(`(?m)^  (?:type     |         ) (kubectl|liqoctl) (.*?)(?: # at .*)?$`)

// TestRemediesOfWhy: every command that an answer names is one of liqoctl, with its flags, or one that kubectl knows, about
// a kind that an API server with Liqo has.
func TestRemediesOfWhy(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../why/testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]string{}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range remedy.FindAllStringSubmatch(string(archive.Files[len(archive.Files)-1].Data), -1) {
			commands[m[1]+" "+m[2]] = m[1]
		}
	}
	if len(commands) < 30 {
		t.Fatalf("found only %d commands", len(commands))
	}
	s := newSession(t, "rome")
	for _, command := range slices.Sorted(maps.Keys(commands)) {
		args := callsOf(commands[command], command)[0]
		if commands[command] == "liqoctl" {
			parses(t, command, args)
			continue
		}
		args = append([]string{"--kubeconfig", filepath.Join(s.dir, "rome")}, args...)
		out, err := exec.CommandContext(t.Context(), binary(t, "kubectl"), args...).CombinedOutput()
		if err != nil && !strings.Contains(string(out), "(NotFound)") {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
}

// parses checks that liqoctl knows a command, without running it.
func parses(t *testing.T, command string, args []string) {
	t.Helper()
	root := cli.Root("liqoctl", genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard})
	var reached *cobra.Command
	recordCalls(root, &reached)
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		t.Errorf("%s: %v", command, err)
	} else if reached == nil || reached.HasSubCommands() && !hasOwnAction(reached) {
		t.Errorf("%s: only shows help", command)
	}
}
