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
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// marker is a file in a volume with an incomplete copy.
	marker = ".liqo-move"
	// lostAndFound is a directory that file systems create in the root of a volume for themselves.
	lostAndFound = "lost+found"
	// xattrs is tar's prefix of extended attributes; the names after it are those of the system.
	xattrs     = "SCHILY.xattr."
	userXattrs = "user."
	// entryCost is the number of bytes that an entry counts beside its content, so that the size of
	// the claim also limits the number of inodes. It is the maximum that tar adds to a file (a header
	// and padding, 512 bytes each), and the smallest bytes-per-inode ratio of mke2fs, so that no full
	// volume is refused.
	entryCost = 1 << 10
)

// writer writes the archive of a volume.
type writer struct {
	root *os.Root
	tar  *tar.Writer
	// linked holds the first name of each file with several hard links, by device and inode.
	linked map[[2]uint64]string
}

// archive writes the archive of a volume.
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

// add writes one file. WalkDir calls it in the order of the names.
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

// header returns the header of a file, with those attributes only that unpack can restore: no names of
// users, and only the time of modification.
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
	if info.Mode().IsRegular() {
		header.Mode &^= setID
	}
	header.AccessTime, header.ChangeTime, header.ModTime = time.Time{}, time.Time{},
		info.ModTime().Truncate(time.Second)
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

// content writes a folder or a file. It fails if the size of the file changes meanwhile.
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

// attributes returns the extended attributes "user.*" of a file, as PAX records.
func attributes(file *os.File) (map[string]string, error) {
	fd := int(file.Fd())
	n, err := unix.Flistxattr(fd, nil)
	if err == nil && n == 0 || errors.Is(err, unix.ENOTSUP) {
		return nil, nil
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

// setID are the setuid and setgid bits. Files lose them, because the other cluster could send a
// program that runs as root on a node of this cluster.
const setID = 0o6000

// limit is a reader that fails once more than size bytes were read.
type limit struct {
	io.Reader
	size, left int64
}

func limited(from io.Reader, size int64) *limit { return &limit{from, size, size} }

func (l *limit) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, errLarger(l.size)
	}
	return n, err
}

func errLarger(size int64) error {
	return permanent{fmt.Errorf("the volume holds more than the %d bytes of its claim; let the claim grow or remove "+
		"files, then move it again", size)}
}

// entries reads the entries of an archive from another cluster, which may send anything. left is how
// many of size bytes further entries may take.
type entries struct {
	*tar.Reader
	size, left int64
}

func read(from io.Reader, size int64) *entries { return &entries{tar.NewReader(from), size, size} }

// next returns the next entry, or io.EOF. An entry that must not be created in a volume is a
// permanent error.
func (e *entries) next() (*tar.Header, error) {
	header, err := e.Next()
	if errors.Is(err, tar.ErrHeader) {
		err = permanent{err}
	}
	if err != nil {
		return nil, err
	}
	switch header.Typeflag {
	case tar.TypeReg:
		header.Mode &^= setID
	case tar.TypeDir, tar.TypeSymlink:
	case tar.TypeLink:
		if !filepath.IsLocal(header.Linkname) {
			return nil, permanent{fmt.Errorf("%.100q is a link out of the volume", header.Name)}
		}
	default:
		return nil, permanent{fmt.Errorf("unexpected type %q of an entry", header.Typeflag)}
	}
	e.left -= entryCost
	for key, value := range header.PAXRecords {
		e.left -= int64(len(key) + len(value))
	}
	switch {
	case e.left < header.Size: // the holes of a sparse file included, which are written
		return nil, errLarger(e.size)
	case len(header.Name) > unix.PathMax:
		return nil, permanent{fmt.Errorf("a name has %d bytes, more than %d", len(header.Name), unix.PathMax)}
	case !filepath.IsLocal(path.Clean(header.Name)):
		return nil, permanent{fmt.Errorf("%.100q is not in the volume", header.Name)}
	}
	e.left -= header.Size
	return header, nil
}

// inspect reads an archive and everything after it. It fails if restore would refuse an entry.
func inspect(from io.Reader, size int64) error {
	for e := read(from, size); ; {
		_, err := e.next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, from)
			return err
		}
		if err != nil {
			return err
		}
	}
}

// restore unpacks an archive of at most size bytes into a volume that is empty or holds an incomplete
// copy. When it returns, the files are on disk.
func restore(volume string, from io.Reader, size int64) error {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return fmt.Errorf("open volume: %w", err)
	}
	defer func() { _ = root.Close() }() // what was written is synchronised below
	if err := empty(root); err != nil {
		return err
	}
	var folders []*tar.Header
	for e := read(limited(from, size), size); ; {
		header, err := e.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the copy: %w", err)
		}
		if header.Typeflag == tar.TypeDir {
			folders = append(folders, header)
		}
		if err := unpack(root, header, e); err != nil {
			return fmt.Errorf("write %q: %w", header.Name, err)
		}
	}
	// Last, because files created in a folder change its time, and its mode may forbid to create them.
	for _, header := range slices.Backward(folders) {
		if err := finish(root, header); err != nil {
			return fmt.Errorf("write %q: %w", header.Name, err)
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

// errHolds reports that the volume has other data, which is not overwritten.
var errHolds = errors.New("the volume holds data already")

// empty removes an incomplete copy, and leaves only the marker in the volume.
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

// unpack creates one file with its attributes. Folders get theirs at the end, by finish.
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

// finish sets owner, mode, extended attributes and time of a file or folder. The owner comes first,
// because changing it clears bits of the mode.
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

// synchronise writes everything in the volume to its disk.
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
