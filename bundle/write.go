// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/liqo-go/liqo/api"
)

const (
	// Readme is the page on top of an archive.
	Readme    = "README.md"
	folder    = "liqo-gather/"
	indexFile = "index.json"
	// format is the version of the layout. Read refuses any other.
	format = 1
)

// errFull is the error of a part for which the archive has no room.
var errFull = errors.New("the archive has no room for it; --max-size gives it more")

// Index describes an archive.
type Index struct {
	// Format is the version of the layout.
	Format int `json:"format"`
	// Time is when liqoctl began to gather.
	Time time.Time `json:"time"`
	// Client is the version of liqoctl.
	Client   string    `json:"client"`
	Clusters []Cluster `json:"clusters"`
	// Files lists all files, except README.md and index.json, in their order in the archive.
	Files []File `json:"files"`
}

// Cluster describes one of the clusters of an archive. Fields that could not be read are empty.
type Cluster struct {
	// Name is "local" or "remote".
	Name string `json:"name"`
	ID   string `json:"id,omitempty"`
	// Namespace is where Liqo is installed.
	Namespace string `json:"namespace,omitempty"`
	// Liqo and Kubernetes are versions.
	Liqo       string `json:"liqo,omitempty"`
	Kubernetes string `json:"kubernetes,omitempty"`
	// Missing lists what could not be gathered.
	Missing []Missing `json:"missing,omitempty"`
}

// Missing is something that is not in an archive, and why: it was forbidden, failed, or had no room.
type Missing struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// File is one file of an archive.
type File struct {
	// Path is relative to the archive's folder.
	Path string `json:"path"`
	// Size is the length of the content in bytes.
	Size int64 `json:"size"`
	// Cut reports that a log begins later, or a list ends earlier, than in the cluster.
	Cut bool `json:"cut,omitempty"`
}

// Write writes the archive of all parts and returns its index. Clusters, Files and Format of the given index are
// filled in. Equal input gives equal bytes.
func Write(w io.Writer, index Index, parts ...*Part) (Index, error) {
	index.Format, index.Clusters, index.Files = format, nil, nil
	var files []file
	for _, p := range parts {
		cluster := p.Cluster
		if p.unlisted > 0 {
			more := Missing{fmt.Sprintf("%d more", p.unlisted), "the index has no room for them"}
			cluster.Missing = append(slices.Clone(cluster.Missing), more)
		}
		index.Clusters = append(index.Clusters, cluster)
		sorted := slices.Clone(p.files)
		slices.SortFunc(sorted, func(a, b file) int { return cmp.Compare(a.path, b.path) })
		for _, f := range sorted {
			f.path = p.Name + "/" + f.path
			files = append(files, f)
			index.Files = append(index.Files, File{f.path, int64(len(f.content)), f.cut})
		}
	}
	text, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return index, fmt.Errorf("encode the index: %w", err)
	}
	files = append([]file{{path: Readme, content: []byte(readme(index))},
		{path: indexFile, content: append(text, '\n')}}, files...)
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		header := &tar.Header{Name: folder + f.path, Mode: 0o600, Size: int64(len(f.content)),
			ModTime: index.Time.Truncate(time.Second), Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return index, fmt.Errorf("write %s: %w", f.path, err)
		}
		if _, err := archive.Write(f.content); err != nil {
			return index, fmt.Errorf("write %s: %w", f.path, err)
		}
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		return index, fmt.Errorf("end the archive: %w", err)
	}
	return index, nil
}

const readmeHead = `# State of Liqo, for a bug report

Made by 'liqoctl gather' of version %s at %s.

For each cluster: conditions.txt and events.txt to be read first, objects/ as lists of Kubernetes, rules/ with what the
processes of gateways and nodes want in the kernel (desired), find there (observed), and what differs (diff), metrics/,
and logs/. index.json has the same as this page for programs.

Left out: values of Secrets and ConfigMaps (sizes are there instead), values of environment variables, commands of
users' pods, annotations of others than Liqo, Kubernetes and Helm, last applied configurations, and what looks like a
private key, token or password anywhere (*** is there instead). Keys of WireGuard in texts are replaced by key- and the
first 12 digits of 'printf %%s <key> | sha256sum', to be compared. What remains names nodes, addresses, namespaces, pods
and images: read it before you make it public.
`

// readme returns the page on top of the archive.
func readme(index Index) string {
	var out strings.Builder
	fmt.Fprintf(&out, readmeHead, api.Printable(index.Client), index.Time.UTC().Format(time.RFC3339))
	for _, c := range index.Clusters {
		files, bytes := 0, int64(0)
		for _, f := range index.Files {
			if strings.HasPrefix(f.Path, c.Name+"/") {
				files, bytes = files+1, bytes+f.Size
			}
		}
		fmt.Fprintf(&out, "\n## %s\n\n- cluster ID: %s\n- Liqo: %s, in namespace %s\n- Kubernetes: %s\n"+
			"- %d files, %d bytes\n",
			c.Name, known(c.ID), known(c.Liqo), known(c.Namespace), known(c.Kubernetes), files, bytes)
		for _, m := range c.Missing {
			fmt.Fprintf(&out, "- missing: %s: %s\n", api.Printable(m.What), api.Printable(m.Why))
		}
	}
	return out.String()
}

// known returns a text to be shown; "unknown" for an empty one.
func known(text string) string { return api.Printable(cmp.Or(text, "unknown")) }
