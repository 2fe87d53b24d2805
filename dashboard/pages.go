// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"text/template/parse"
	"time"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/view"
)

//go:embed templates
var templates embed.FS

var pages = parsed()

// parsed returns the templates. It panics on one that is wrong: a programming error.
func parsed() *template.Template {
	t := template.New("").Funcs(template.FuncMap{
		"text":  func(value any) string { return api.Printable(fmt.Sprint(value)) },
		"path":  func(id string) string { return "/peers/" + url.PathEscape(id) },
		"join":  strings.Join,
		"bad":   func(s view.ModuleStatus) bool { return s == view.Unhealthy },
		"day":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"sides": sides,
		"rfc":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	})
	t = template.Must(t.ParseFS(templates, "templates/*.html"))
	for _, one := range t.Templates() {
		if one.Tree != nil {
			printable(one.Tree.Root)
		}
	}
	return t
}

// printable passes all values that a template shows through the function text, so that none can forge the direction
// of writing or be longer than a page bears.
func printable(node parse.Node) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, child := range n.Nodes {
				printable(child)
			}
		}
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 {
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos,
				Args: []parse.Node{parse.NewIdentifier("text").SetPos(n.Pos)}})
		}
	case *parse.IfNode:
		printable(n.List)
		printable(n.ElseList)
	case *parse.RangeNode:
		printable(n.List)
		printable(n.ElseList)
	case *parse.WithNode:
		printable(n.List)
		printable(n.ElseList)
	}
}

// shown holds the content of a page. Name is that of its template.
type shown struct {
	Name, Title, Path, ClusterID, Stale string
	Data                                any
	// Bundle reports that there is a page Bundle.
	Bundle bool
}

// find returns what a path shows; false if there is no such page.
func (s *Server) find(snapshot *view.Snapshot, path string) (*shown, bool) {
	out, ok := find(snapshot, path)
	if s.archive != nil && !ok {
		out = &shown{Path: path, ClusterID: snapshot.ClusterID}
		out.Name, out.Title, out.Data, ok = s.archive.find(path)
	}
	if ok {
		out.Bundle = s.archive != nil
	}
	return out, ok
}

// find returns what a path shows of a snapshot; false if there is no such page.
func find(s *view.Snapshot, path string) (*shown, bool) {
	out := &shown{Path: path, ClusterID: s.ClusterID, Stale: s.Stale}
	switch peer, isPeer := strings.CutPrefix(path, "/peers/"); {
	case path == "/":
		page := s.Map()
		explain(s, page.Workloads, view.MostCauses)
		out.Name, out.Title, out.Data = "map", "Map", page
	case path == "/workloads":
		page := s.Workloads()
		explain(s, page, mostExplained)
		out.Name, out.Title, out.Data = "workloads", "Workloads", page
	case path == "/events":
		out.Name, out.Title, out.Data = "events", "Events", s.EventPage()
	case isPeer:
		page := s.PeerPage(peer)
		out.Name, out.Title, out.Data = "peer", "Peer "+peer, page
		if why := s.Hidden["ForeignCluster"]; page == nil && why != "" {
			out.Name, out.Data = "unknown", why
		} else if page == nil {
			out.Name = "gone"
		}
	default:
		return nil, false
	}
	return out, true
}

// fragment draws the part of a page that changes.
func fragment(s *shown) (string, error) { return draw("fragment", s) }

func draw(name string, s *shown) (string, error) {
	var out bytes.Buffer
	if err := pages.ExecuteTemplate(&out, name, s); err != nil {
		return "", fmt.Errorf("draw page %s: %w", s.Name, err)
	}
	return out.String(), nil
}

// page answers with a whole page.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	snapshot, _ := s.snapshots.Get()
	what, ok := s.find(snapshot, r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	text, err := draw("page", what)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if what.Name == "gone" {
		w.WriteHeader(http.StatusNotFound)
	}
	_, _ = w.Write([]byte(text)) // the browser may have gone
}
