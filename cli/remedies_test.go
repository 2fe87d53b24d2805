// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/liqo-go/liqo/cli"
)

// needed holds values of required flags.
var needed = map[string]string{
	"remote-cluster-id": "paris", "consumer-cluster-id": "paris", "pod-cidr": "10.0.0.0/16", "external-cidr": "10.70.0.0/16",
	"addresses": "192.0.2.1", "port": "51840", "public-key": strings.Repeat("A", 43) + "=", "resource-slice-name": "paris",
	"resource-group-name": "paris", "resource-name": "paris", "eks-cluster-region": "paris", "eks-cluster-name": "paris",
	"project-id": "paris", "cluster-id": "paris", "credentials-path": "paris", "region": "paris",
	"gateway-type": "server", "gateway-name": "paris", "target-node": "paris",
}

var (
	// withoutLiqo matches the commands that do not need Liqo in the cluster.
	withoutLiqo = regexp.MustCompile(`^liqoctl (install|uninstall|force)\b`)
	quoted      = regexp.MustCompile(`'[^']*'`)
	flagNamed   = regexp.MustCompile(`--([a-z-]+)`)
)

// TestRemedies: if Liqo is not in the expected namespace, or a cluster cannot be reached, the error
// names the flags that can correct it. The command has these flags, with this meaning.
func TestRemedies(t *testing.T) {
	t.Parallel()
	s := newSession(t, "rome", "milan")
	s.apply(t, "rome", []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: liqo}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: liqo-clusterid-configmap, namespace: liqo}, data: {CLUSTER_ID: rome}}`))
	cluster, user := s.admin("milan")
	cluster.Server = "https://127.0.0.1:1" // nobody listens there
	s.kubeconfig(t, "silent", cluster, user)
	tried := 0
	for _, cmd := range leaves(cli.Root("liqoctl", genericiooptions.IOStreams{})) {
		if contactsNothing(cmd) {
			continue
		}
		remote := ""
		for _, name := range []string{"remote-kubeconfig", "remote-kubeconfigs"} {
			if cmd.Flag(name) != nil {
				remote = name
			}
		}
		for _, c := range []struct{ local, remote, says string }{
			{"milan", "rome", "Liqo is not installed"}, {"rome", "milan", "Liqo is not installed"},
			{"silent", "rome", "cannot reach"}, {"rome", "silent", "cannot reach"},
			{"missing", "rome", "cannot use the kubeconfig"}, {"rome", "missing", "cannot use the kubeconfig"},
		} {
			if c.local == "rome" && remote == "" || c.local == "milan" && withoutLiqo.MatchString(cmd.CommandPath()) {
				continue
			}
			args := append(call(cmd), "--kubeconfig", "$DIR/"+c.local)
			if remote != "" {
				args = append(args, "--"+remote, "$DIR/"+c.remote)
			}
			if cmd.Name() == "gather" {
				args = append(args, "--output-file", "$DIR/report.tar.gz")
			}
			text := s.liqoctl(t, slices.Clone(args))
			named := flagNamed.FindAllStringSubmatch(quoted.ReplaceAllString(text, ""), -1)
			if !strings.Contains(text, c.says) || len(named) == 0 {
				t.Errorf("%v says %s", args, text)
			}
			for _, flag := range named {
				switch known := cmd.Flag(flag[1]); {
				case known == nil:
					t.Errorf("%v has no flag %s:\n%s", args, flag[0], text)
				case strings.HasSuffix(flag[1], "namespace") && !strings.HasPrefix(known.Usage, "Namespace Liqo is installed in"):
					t.Errorf("%s of %v is the %s:\n%s", flag[0], args, known.Usage, text)
				}
			}
			tried++
		}
	}
	if tried < 100 {
		t.Errorf("tried only %d calls", tried)
	}
}

// leaves returns the commands below cmd that do something themselves.
func leaves(cmd *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	if !cmd.HasSubCommands() || hasOwnAction(cmd) {
		out = append(out, cmd)
	}
	for _, sub := range cmd.Commands() {
		out = append(out, leaves(sub)...)
	}
	return out
}

// call returns a command line with all required arguments and flags.
func call(cmd *cobra.Command) []string {
	out := strings.Fields(cmd.CommandPath())
	for _, argument := range strings.Fields(cmd.Use)[1:] {
		if argument == "<kind>/<name>" {
			out = append(out, "pod/paris")
		} else {
			out = append(out, "paris")
		}
	}
	for name, value := range needed {
		if cmd.Flag(name) != nil {
			out = append(out, "--"+name+"="+value)
		}
	}
	return append(out, "--skip-confirm")
}
