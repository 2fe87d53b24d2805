// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/liqo-go/liqo/api"
)

// MaxBound is the largest bound of all parts of an archive together, in bytes, with which Read reads the archive.
const MaxBound = maxContent - 16<<20 // the index and the page on top need the rest

// Bounds of what Read takes. They are far above what Write writes by default, and what a small file can decompress to
// stays far below the memory of a workstation.
const (
	maxContent = 256 << 20 // bytes, uncompressed
	maxObjects = 64 << 20  // bytes of objects, which need a multiple of that when they are decoded
	maxIndex   = 4 << 20   // bytes of index.json, which needs a multiple of that too
	maxFiles   = 20000
	maxItems   = 100000 // of one list of objects: one of 3 bytes takes up to 1 KiB when it is decoded
	// maxNested bounds the objects and lists in one file of objects: empty ones, of 3 bytes, take 500 bytes when they
	// are decoded.
	maxNested = 2_000_000
)

// Bundle is an archive that was read.
type Bundle struct {
	Index Index
	files map[string][]byte
}

// Read reads an archive. The archive may come from a stranger: Read touches no file system, refuses names outside the
// archive's folder, names that occur twice, anything that is no regular file, and what exceeds its bounds.
func Read(r io.Reader) (*Bundle, error) {
	compressed, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	out := &Bundle{files: map[string][]byte{}}
	sum, objects := int64(0), int64(0)
	for archive := tar.NewReader(io.LimitReader(compressed, maxContent)); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the archive: %w", err)
		}
		name, ok := strings.CutPrefix(header.Name, folder)
		if !ok || header.Typeflag != tar.TypeReg || path.Clean(header.Name) != header.Name || !isSafe(name) {
			return nil, fmt.Errorf("the archive holds %.100q, which 'liqoctl gather' does not write", header.Name)
		}
		if _, twice := out.files[name]; twice || len(out.files) == maxFiles {
			return nil, fmt.Errorf("the archive holds %.100q twice, or more than %d files", header.Name, maxFiles)
		}
		if isObjects(name) {
			objects += header.Size
		}
		// The sizes of headers count: files with holes take no room in the archive.
		if sum += header.Size; sum > maxContent || objects > maxObjects {
			return nil, fmt.Errorf("the archive holds more than %d bytes, or %d of objects", maxContent, maxObjects)
		}
		if out.files[name], err = io.ReadAll(archive); err != nil {
			return nil, fmt.Errorf("read %.100q of the archive: %w", header.Name, err)
		}
	}
	return out, out.readIndex()
}

// readIndex decodes and checks the index.
func (b *Bundle) readIndex() error {
	if len(b.files[indexFile]) > maxIndex {
		return fmt.Errorf("%s of the archive has more than %d bytes", indexFile, maxIndex)
	}
	if err := json.Unmarshal(b.files[indexFile], &b.Index); err != nil {
		return fmt.Errorf("read %s of the archive: %w", indexFile, err)
	}
	if b.Index.Format != format {
		return fmt.Errorf("the archive has format %d, and this liqoctl knows %d", b.Index.Format, format)
	}
	var names []string
	for _, c := range b.Index.Clusters {
		if !slices.Contains([]string{"local", "remote"}, c.Name) || slices.Contains(names, c.Name) {
			return fmt.Errorf("%s of the archive has a cluster %.100q, or has it twice", indexFile, c.Name)
		}
		names = append(names, c.Name)
	}
	return nil
}

// isSafe reports whether a name consists of names that Path returns.
func isSafe(name string) bool { return name == Path(strings.Split(name, "/")...) }

// isObjects reports whether a file is a list of objects.
func isObjects(name string) bool {
	ok, _ := path.Match("*/objects/*.json", name) // the pattern is valid
	return ok
}

// Files returns the paths of all files below a folder such as "local/logs", in order.
func (b *Bundle) Files(below string) []string {
	var out []string
	for name := range b.files {
		if strings.HasPrefix(name, below+"/") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Text returns the content of a file; nil if the archive has no such file.
func (b *Bundle) Text(name string) []byte { return b.files[name] }

// Objects decodes the objects of one resource of a cluster, such as "pods" of "local", into a list of their type, such
// as *corev1.PodList. Fields of the list stay as they are if the archive has no such objects. Values of Secrets are in
// StringData: their sizes. Quantities are bounded, because those of a stranger can take hours to be compared.
func (b *Bundle) Objects(cluster, resource string, into any) error {
	text, ok := b.files[cluster+"/objects/"+resource+".json"]
	if !ok {
		return nil
	}
	if err := decode(text, into); err != nil {
		return fmt.Errorf("decode %s of the %s cluster: %w", resource, cluster, err)
	}
	return nil
}

// decode decodes a list of objects within the bounds of the reader, with the names of fields as API servers know them.
func decode(text []byte, into any) error {
	if bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) > maxNested {
		return fmt.Errorf("more than %d braces and brackets", maxNested)
	}
	bounded, err := api.BoundQuantities(text)
	if err != nil {
		return err
	}
	if err := kjson.Unmarshal(bounded, &struct {
		Items items `json:"items"`
	}{}); err != nil {
		return err
	}
	return kjson.Unmarshal(bounded, into)
}

// items counts the items of a list without decoding them.
type items struct{}

// UnmarshalJSON fails if the list has more than maxItems.
func (items) UnmarshalJSON(text []byte) error {
	list := json.NewDecoder(bytes.NewReader(text))
	if _, err := list.Token(); err != nil {
		return err
	}
	for n := 1; list.More(); n++ {
		if n > maxItems {
			return fmt.Errorf("more than %d items", maxItems)
		}
		if err := list.Decode(&struct{}{}); err != nil {
			return err
		}
	}
	return nil
}
