// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// marker lies in a volume that holds a part of a copy only.
	marker = ".liqo-move"
	// lostAndFound is what file systems make in the root of a volume, for themselves.
	lostAndFound = "lost+found"
	// xattrs begins what tar says of extended attributes; the other names are the system's.
	xattrs     = "SCHILY.xattr."
	userXattrs = "user."
)

// writer writes the archive of a volume.
type writer struct {
	root *os.Root
	tar  *tar.Writer
	// linked are the names of files that have several, by their inodes.
	linked map[[2]uint64]string
}

// archive writes what is in a volume.
func archive(to io.Writer, volume string) error {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	defer func() { _ = root.Close() }() // only read
	w := &writer{root: root, tar: tar.NewWriter(to), linked: map[[2]uint64]string{}}
	if err := fs.WalkDir(root.FS(), ".", w.add); err != nil {
		return fmt.Errorf("read volume: %w", err)
	}
	return w.tar.Close()
}

// add writes one file; the order is that of the names.
func (w *writer) add(name string, _ fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	switch name {
	case marker:
		return nil
	case lostAndFound:
		return fs.SkipDir
	}
	info, err := w.root.Lstat(name)
	if err != nil {
		return err
	}
	switch kind := info.Mode().Type(); {
	case kind&(fs.ModeSocket|fs.ModeNamedPipe) != 0:
		return nil
	case kind&fs.ModeDevice != 0:
		return fmt.Errorf("%s is a device, which cannot be copied", name)
	}
	header, err := w.header(name, info)
	if err != nil {
		return err
	}
	if header.Typeflag == tar.TypeSymlink || header.Typeflag == tar.TypeLink {
		return w.tar.WriteHeader(header)
	}
	return w.content(header, name)
}

// header describes a file by what can be given to another one: no names of users, no further times.
func (w *writer) header(name string, info fs.FileInfo) (*tar.Header, error) {
	target := ""
	var err error
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = w.root.Readlink(name); err != nil {
			return nil, err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return nil, err
	}
	header.Name = name
	if info.IsDir() {
		header.Name += "/"
	}
	header.Format, header.Uname, header.Gname = tar.FormatPAX, "", ""
	header.AccessTime, header.ChangeTime, header.ModTime = time.Time{}, time.Time{}, info.ModTime().Truncate(time.Second)
	if name == "." || target != "" {
		header.ModTime = time.Unix(0, 0) // the root's own changes with the marker, a link's cannot be set
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || stat.Nlink == 1 {
		return header, nil
	}
	inode := [2]uint64{uint64(stat.Dev), stat.Ino}
	if first, again := w.linked[inode]; again {
		header.Typeflag, header.Linkname, header.Size = tar.TypeLink, first, 0
		return header, nil
	}
	w.linked[inode] = name
	return header, nil
}

// content writes a folder or a file. One whose size changes meanwhile is an error of the archive.
func (w *writer) content(header *tar.Header, name string) error {
	file, err := w.root.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	if header.PAXRecords, err = attributes(file); err != nil {
		return fmt.Errorf("read attributes of %s: %w", name, err)
	}
	if err := w.tar.WriteHeader(header); err != nil || header.Typeflag == tar.TypeDir {
		return err
	}
	_, err = io.Copy(w.tar, file)
	return err
}

// attributes are the extended attributes a user has given a file.
func attributes(file *os.File) (map[string]string, error) {
	fd := int(file.Fd())
	n, err := unix.Flistxattr(fd, nil)
	if err == nil && n == 0 || errors.Is(err, unix.ENOTSUP) {
		return nil, nil // as nearly always
	}
	names := make([]byte, 64<<10) // the kernel's limit, XATTR_LIST_MAX
	if n, err = unix.Flistxattr(fd, names); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !strings.HasPrefix(name, userXattrs) {
			continue
		}
		value := make([]byte, 64<<10) // the kernel's limit, XATTR_SIZE_MAX
		size, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return nil, err
		}
		out[xattrs+name] = string(value[:size])
	}
	return out, nil
}

// restore brings an archive into an empty volume, or into one that holds a part of an archive, and
// has it on disk when it returns.
func restore(volume string, from io.Reader) error {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	defer func() { _ = root.Close() }() // what was written is synchronised below
	if err := empty(root); err != nil {
		return err
	}
	var folders []*tar.Header
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the copy: %w", err)
		}
		if header.Typeflag == tar.TypeDir {
			folders = append(folders, header)
		}
		if err := unpack(root, header, archive); err != nil {
			return fmt.Errorf("write %s: %w", header.Name, err)
		}
	}
	// What is made in a folder changes its time, and may not be allowed by its mode.
	for _, header := range slices.Backward(folders) {
		if err := finish(root, header); err != nil {
			return fmt.Errorf("write %s: %w", header.Name, err)
		}
	}
	if err := synchronise(root); err != nil {
		return err
	}
	if err := root.Remove(marker); err != nil {
		return fmt.Errorf("remove the mark of a part: %w", err)
	}
	return synchronise(root)
}

// errHolds: the volume is not ours to write to.
var errHolds = errors.New("the volume holds data already")

// empty leaves nothing but the marker in a volume. Only a part of a copy is removed for that.
func empty(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fmt.Errorf("read volume: %w", err)
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == lostAndFound })
	part := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == marker })
	if len(entries) > 0 && !part {
		return fmt.Errorf("%w: %s", errHolds, entries[0].Name())
	}
	if !part {
		if err := root.WriteFile(marker, nil, 0o600); err != nil {
			return fmt.Errorf("mark the volume: %w", err)
		}
	}
	for _, entry := range entries {
		if entry.Name() == marker {
			continue
		}
		if err := root.RemoveAll(entry.Name()); err != nil {
			return fmt.Errorf("remove a part of a copy: %w", err)
		}
	}
	return synchronise(root)
}

// unpack makes one file, and gives it what it has but for folders, which get that at the end.
func unpack(root *os.Root, header *tar.Header, content io.Reader) error {
	name := path.Clean(header.Name)
	switch header.Typeflag {
	case tar.TypeDir:
		if name == "." {
			return nil
		}
		return root.Mkdir(name, 0o700)
	case tar.TypeSymlink:
		if err := root.Symlink(header.Linkname, name); err != nil {
			return err
		}
		return root.Lchown(name, header.Uid, header.Gid)
	case tar.TypeLink:
		return root.Link(header.Linkname, name)
	case tar.TypeReg:
	default:
		return fmt.Errorf("unexpected type %q", header.Typeflag)
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return finish(root, header)
}

// finish gives a file or folder its owner, mode, attributes and time. A change of the owner takes
// rights from the mode, so it comes first.
func finish(root *os.Root, header *tar.Header) error {
	name := path.Clean(header.Name)
	file, err := root.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // synchronised with the volume
	for key, value := range header.PAXRecords {
		attribute, ours := strings.CutPrefix(key, xattrs)
		if !ours || !strings.HasPrefix(attribute, userXattrs) {
			continue
		}
		if err := unix.Fsetxattr(int(file.Fd()), attribute, []byte(value), 0); err != nil {
			return fmt.Errorf("set attribute %s: %w", attribute, err)
		}
	}
	if err := root.Lchown(name, header.Uid, header.Gid); err != nil {
		return err
	}
	if err := root.Chmod(name, header.FileInfo().Mode()); err != nil {
		return err
	}
	if name == "." {
		return nil
	}
	return root.Chtimes(name, header.ModTime, header.ModTime)
}

// synchronise has everything written to the volume's disk.
func synchronise(root *os.Root) error {
	folder, err := root.Open(".")
	if err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	defer func() { _ = folder.Close() }() // only read
	if err := unix.Syncfs(int(folder.Fd())); err != nil {
		return fmt.Errorf("synchronise volume: %w", err)
	}
	return nil
}
