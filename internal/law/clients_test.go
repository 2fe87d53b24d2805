// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// makers match what makes a transport, client or cache: a package and a name in it.
var makers = regexp.MustCompile(`^(net/http\.(Transport|DefaultTransport|DefaultClient|Get|Post|Head|PostForm)|` +
	`k8s\.io/client-go/\S+\.(HTTPClientFor|TransportFor|\w*RESTClientFor\w*|New\w*ForConfig\w*)|` +
	`sigs\.k8s\.io/controller-runtime(/pkg/(cache|client|cluster|manager)\.New\w*|\.NewManager))$`)

// ownClients are the files outside internal/remote and cli that make one, with what it reaches: never a peer.
var ownClients = map[string]string{
	"cmd/liqo-control/await.go":      "the local API server, until it answers",
	"cmd/liqo-control/controller.go": "the local cluster: the controller's manager",
	"cmd/liqo-control/kubelet.go":    "the local cluster: the lease of replicas",
	"cmd/liqo-control/leader.go":     "the local cluster: the lease of the controller",
	"deploy/check/check.go":          "the local cluster, for helm test",
	"deploy/cleanup/cleanup.go":      "the local cluster, which is left",
	"deploy/kinds/kinds.go":          "the local cluster, before an upgrade",
	"internal/echo/echo.go":          "a server of liqoctl test network",
	"network/daemon/objects.go":      "the local cluster",
	"network/daemon/serve.go":        "the process itself: its probe",
	"offloading/kubelet/node.go":     "the local cluster",
	"offloading/namespacebounds.go":  "the local cluster: names of Secrets",
	"reflection/events.go":           "the local cluster: events",
	"reflection/run.go":              "the local cluster: leases",
	"storage/mover/client.go":        "the mover at the other cluster, through the network between pods",
}

// TestOneLinkForEachPeer: no client, cache or transport of a peer is made outside internal/remote.
func TestOneLinkForEachPeer(t *testing.T) {
	found := map[string]string{}
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		if layer := top(from); layer == "testbed" || layer == "cli" || layer == "demo" ||
			slices.Contains([]string{"internal/remote", "internal/apitest", "internal/space"}, from) {
			continue
		}
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if made := makes(file); made != "" {
				found[from+"/"+name] = made
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(found)) {
		if ownClients[file] == "" {
			t.Errorf("%s uses %s: internal/remote makes whatever reaches a peer", file, found[file])
		}
	}
	for file := range ownClients {
		if found[file] == "" {
			t.Errorf("%s is an exception for nothing", file)
		}
	}
}

// makes returns the first maker that a file uses, "" for none.
func makes(file *ast.File) (made string) {
	imported := map[string]string{}
	for _, i := range file.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		name := path[strings.LastIndex(path, "/")+1:]
		if i.Name != nil {
			name = i.Name.Name
		} else if path == "sigs.k8s.io/controller-runtime" {
			name = "ctrl"
		}
		imported[name] = path
	}
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok || made != "" {
			return made == ""
		}
		if x, ok := selector.X.(*ast.Ident); ok && makers.MatchString(imported[x.Name]+"."+selector.Sel.Name) {
			made = x.Name + "." + selector.Sel.Name
		}
		return made == ""
	})
	return made
}
