// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"compress/flate"
	"compress/gzip"
	"io"
	"maps"
	"slices"
	"time"
)

// file is an entry of an archive.
type file struct {
	name       string
	content    []byte
	executable bool
}

func (f file) mode() int64 {
	if f.executable {
		return 0o755
	}
	return 0o644
}

// sortedFiles returns files below a folder, ordered by name. The folder ends with a slash, or is empty.
func sortedFiles(dir string, files map[string][]byte) (sorted []file) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sorted = append(sorted, file{name: dir + name, content: files[name]})
	}
	return sorted
}

// tarGzip packs files in their order, with one time and no owner.
func tarGzip(w io.Writer, files []file, at time.Time) error {
	compressor, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressor)
	for _, f := range files {
		size := int64(len(f.content))
		if err := archive.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode(), Size: size, ModTime: at}); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressor.Close()
}

// zipped packs files as tarGzip does, for Windows.
func zipped(w io.Writer, files []file, at time.Time) error {
	archive := zip.NewWriter(w)
	archive.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(out, flate.BestCompression)
	})
	for _, f := range files {
		entry, err := archive.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at})
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.content); err != nil {
			return err
		}
	}
	return archive.Close()
}
