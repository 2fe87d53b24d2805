// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Debian fetches Debian packages with all they depend on, as for an empty machine, and unpacks them below dir without
// installing any. It returns the files that the globs name, without a leading slash, and the libraries they need.
// Packages that every machine has, like bash, must be named. Archives that dir holds are not fetched again.
func Debian(ctx context.Context, dir string, packages, globs []string) ([]File, error) {
	if err := os.MkdirAll(filepath.Join(dir, "partial"), 0o755); err != nil {
		return nil, err
	}
	fetch := append([]string{"-o", "Dir::State::status=/dev/null", "-o", "Dir::Cache::archives=" + dir,
		"-o", "APT::Sandbox::User=root", "--download-only", "--yes", "--no-install-recommends", "install"}, packages...)
	if run(ctx, "apt-get", fetch...) != nil { // perhaps the lists of packages are missing or old
		if err := errors.Join(run(ctx, "apt-get", "update"), run(ctx, "apt-get", fetch...)); err != nil {
			return nil, err
		}
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return nil, err
	}
	root := filepath.Join(dir, "root")
	for _, archive := range archives {
		if err := run(ctx, "dpkg", "-x", archive, root); err != nil {
			return nil, err
		}
	}
	return withLibraries(ctx, root, globs)
}

// absolutePath matches paths in what ldd prints: of libraries, and with a colon of the programs.
var absolutePath = regexp.MustCompile(`/\S+`)

// withLibraries lists the files below root that the globs name, with what is below folders, and the libraries they
// need: those below root if it has them, else the machine's.
func withLibraries(ctx context.Context, root string, globs []string) ([]File, error) {
	paths := map[string]bool{}
	for _, glob := range globs {
		found, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s holds no %s", root, glob)
		}
		for _, f := range found {
			if err := filepath.WalkDir(f, func(p string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					paths[p] = true
				}
				return err
			}); err != nil {
				return nil, err
			}
		}
	}
	var libraries []string
	for _, dir := range []string{"lib", "usr/lib"} { // the name of the folder in it depends on the architecture
		found, err := filepath.Glob(filepath.Join(root, dir, "*-linux-gnu*"))
		if err != nil {
			return nil, err
		}
		libraries = append(libraries, found...)
	}
	ldd := exec.CommandContext(ctx, "ldd", slices.Collect(maps.Keys(paths))...)
	ldd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	needed, _ := ldd.Output() // its exit code is 1 for files that are no programs
	for _, path := range absolutePath.FindAllString(string(needed), -1) {
		if !strings.HasSuffix(path, ":") {
			paths[path] = true
		}
	}
	var files []File
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		files = append(files, File{Source: p, Path: strings.TrimPrefix(p, root)})
	}
	return files, nil
}

// run runs a command; its error has what it printed.
func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
