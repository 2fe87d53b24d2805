// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/liqo-go/liqo/api"
)

const (
	// fileOverhead is added to the size of each file's content, in bytes: the header of tar and padding, of
	// 512 bytes each, and a line in the index.
	fileOverhead = 1536
	// indexOverhead is added to the size of each entry of the index, in bytes: what indents it.
	indexOverhead = 64
	// maxPartIndex and maxPartFiles are the shares of one of two parts in what Read takes. What the index and
	// the archive hold besides needs the rest.
	maxPartIndex = maxIndex/2 - 16<<10
	maxPartFiles = maxFiles/2 - 1
	// minLog is the size of the shortest log that is kept, in bytes: a few lines.
	minLog = 1024
)

// Part collects what one cluster contributes to an archive. It redacts all it takes, and takes no more than its bound.
// It is not safe for concurrent use: equal calls in equal order give equal archives.
type Part struct {
	Cluster
	// own holds the namespaces whose pods are Liqo's.
	own []string
	// left is the number of bytes that the part can still take, and leftObjects those of objects.
	left        int64
	leftObjects int64
	// leftIndex is the number of bytes that the part can still take in the index, and unlisted counts what is missing
	// but has no room there.
	leftIndex int64
	unlisted  int
	files     []file
	objects   []map[string]any
}

// file is one file of an archive, with its path in the cluster's folder.
type file struct {
	path    string
	content []byte
	cut     bool
}

// NewPart returns an empty part of the cluster with the name, "local" or "remote". Pods in own are Liqo's. The part
// takes at most bound bytes, uncompressed, half of them as objects.
func NewPart(name string, own []string, bound int64) *Part {
	return &Part{Cluster: Cluster{Name: name}, own: own, left: bound, leftObjects: min(bound, maxObjects) / 2,
		leftIndex: maxPartIndex}
}

// Left returns the number of bytes that the part can still take.
func (p *Part) Left() int64 { return max(0, p.left) }

// Miss records what is not in the archive, and why. What the index has no room for is counted.
func (p *Part) Miss(what string, why error) {
	if m := (Missing{what, api.Printable(string(Text([]byte(why.Error()))))}); p.index(m) {
		p.Missing = append(p.Missing, m)
	} else {
		p.unlisted++
	}
}

// index reports whether the index had room for an entry.
func (p *Part) index(entry any) bool {
	text, err := json.Marshal(entry)
	need := int64(len(text)) + indexOverhead
	if err != nil || need > p.leftIndex {
		return false
	}
	p.leftIndex -= need
	return true
}

// AddObjects adds the objects of one resource, such as "pods" or "tenants.authentication.liqo.io", redacted and ordered
// by namespace and name. They take at most half of the room left for objects; what exceeds that is missing.
func (p *Part) AddObjects(resource string, objects []unstructured.Unstructured) {
	if len(objects) == 0 {
		return
	}
	objects = slices.Clone(objects)
	slices.SortFunc(objects, func(a, b unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	var list bytes.Buffer
	fmt.Fprintf(&list, "{\"apiVersion\": %q, \"kind\": %q, \"items\": [", objects[0].GetAPIVersion(),
		objects[0].GetKind()+"List")
	kept := 0
	for _, object := range objects {
		redacted := Object(object.Object, slices.Contains(p.own, object.GetNamespace()))
		text, err := json.MarshalIndent(redacted, "", " ")
		if err != nil || int64(list.Len()+len(text)) > p.leftObjects/2 || kept == maxItems {
			break
		}
		if kept > 0 {
			list.WriteByte(',')
		}
		list.WriteByte('\n')
		list.Write(text)
		p.objects = append(p.objects, redacted)
		kept++
	}
	list.WriteString("\n]}\n")
	p.leftObjects -= int64(list.Len())
	if kept < len(objects) {
		p.Miss(fmt.Sprintf("%d of %d %s", len(objects)-kept, len(objects), resource), errFull)
	}
	p.addOrMiss(file{"objects/" + resource + ".json", list.Bytes(), kept < len(objects)})
}

// AddSummary adds the conditions and Events of the objects that were added as texts to be read.
func (p *Part) AddSummary() {
	p.AddText("conditions.txt", []byte(conditions(p.objects)))
	p.AddText("events.txt", []byte(events(p.objects)))
}

// AddText adds a text, redacted, at a path made by Path. It is left out if the part can take no more.
func (p *Part) AddText(path string, text []byte) {
	if text = Text(text); len(text) > 0 {
		p.addOrMiss(file{path: path, content: text})
	}
}

// AddLog adds the end of a log, redacted: at most bound bytes of it, from the beginning of a line.
func (p *Part) AddLog(path string, text []byte, bound int64) {
	bound = min(bound, p.Left()-fileOverhead)
	// Redacted first: a credential that is cut in two has no known form.
	text = Text(text)
	cut := int64(len(text)) > bound
	switch {
	case cut && bound < minLog:
		p.Miss(path, errFull)
		return
	case cut:
		_, text, _ = bytes.Cut(text[int64(len(text))-bound:], []byte("\n"))
	}
	if len(text) > 0 {
		p.addOrMiss(file{path, text, cut})
	}
}

// addOrMiss adds the file, or records that there is no room for it.
func (p *Part) addOrMiss(f file) {
	need := int64(len(f.content)) + fileOverhead
	if need > p.left || len(p.files) == maxPartFiles || !p.index(File{f.path, need, f.cut}) {
		p.Miss(f.path, errFull)
		return
	}
	p.left -= need
	p.files = append(p.files, f)
}

// Path joins the parts of a path. Each part becomes a name that is safe on every file system.
func Path(parts ...string) string {
	for i, part := range parts {
		parts[i] = strings.Map(safe, part)
		if strings.Trim(parts[i], ".") == "" {
			parts[i] = "_"
		}
	}
	return strings.Join(parts, "/")
}

// safe returns a rune that names of files can have: names of Kubernetes need no others.
func safe(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._", r) {
		return r
	}
	return '_'
}
