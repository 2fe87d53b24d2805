// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"debug/elf"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// nftPath is where Debian's package nftables has the program.
const nftPath = "/usr/sbin/nft"

// libraryDirs are where the dynamic loader of Debian searches libraries, for any architecture, as globs.
var libraryDirs = []string{"/lib/*-linux-gnu*", "/usr/lib/*-linux-gnu*", "/lib", "/usr/lib", "/lib64", "/usr/lib64"}

// NFT returns nft, its interpreter and the libraries it needs, found below roots: "/" for those of this machine, or
// folders with a package unpacked in each, of any architecture. A program or library that is not there is an error.
func NFT(roots ...string) (Files, error) {
	for _, root := range roots {
		if _, err := os.Stat(filepath.Join(root, nftPath)); err == nil {
			c := collector{roots: roots, files: Files{}, done: map[string]bool{}}
			return c.files, c.add(nftPath, filepath.Join(root, nftPath))
		}
	}
	return nil, fmt.Errorf("no %s below %s; install Debian's package nftables", nftPath, strings.Join(roots, ", "))
}

// collector follows what programs and libraries need.
type collector struct {
	roots   []string
	machine elf.Machine     // of the first file; libraries of others are passed over
	files   Files           // found so far
	done    map[string]bool // names of libraries that are in files
}

// add adds a file at target, and what it needs.
func (c *collector) add(target, file string) error {
	binary, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	defer binary.Close()
	c.files[target], c.machine = file, binary.Machine
	if section := binary.Section(".interp"); section != nil {
		text, err := section.Data()
		if err != nil {
			return fmt.Errorf("read the interpreter of %s: %w", file, err)
		}
		interpreter := strings.TrimRight(string(text), "\x00")
		c.done[path.Base(interpreter)] = true
		_, found, err := c.library(path.Base(interpreter))
		if err != nil {
			return err
		}
		c.files[interpreter] = found
	}
	needed, err := binary.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read the libraries of %s: %w", file, err)
	}
	for _, name := range needed {
		if c.done[name] {
			continue
		}
		c.done[name] = true
		at, found, err := c.library(name)
		if err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
		if err := c.add(at, found); err != nil {
			return err
		}
	}
	return nil
}

// library returns where a library is in the image, and the file with its content.
func (c *collector) library(name string) (target, file string, err error) {
	for _, dir := range libraryDirs {
		for _, root := range c.roots {
			found, err := filepath.Glob(filepath.Join(root, dir, name))
			if err != nil {
				return "", "", err
			}
			for _, f := range found {
				target := path.Join("/", strings.TrimPrefix(f, filepath.Clean(root)))
				file := resolve(root, target)
				if binary, err := elf.Open(file); err == nil {
					binary.Close()
					if binary.Machine == c.machine {
						return target, file, nil
					}
				}
			}
		}
	}
	return "", "", fmt.Errorf("library %s is missing", name)
}

// resolve follows the symbolic links of a file as a process sees them whose root directory is root.
func resolve(root, name string) string {
	for range 40 { // as many as Linux follows: path_resolution(7)
		link, err := os.Readlink(filepath.Join(root, name))
		if err != nil {
			break
		}
		if !path.IsAbs(link) {
			link = path.Join(path.Dir(name), link)
		}
		name = link
	}
	return filepath.Join(root, name)
}
