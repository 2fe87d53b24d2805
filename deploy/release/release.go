// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sigstore/sigstore/pkg/signature"
	"golang.org/x/mod/semver"
)

// release says what to make a folder from. All that decides its bytes is here, in the commit, in the Go toolchain and
// in the packages that Debian offers.
type release struct {
	version  string // with v, like v0.2.0
	registry string // host and folder
	url      string // of the files, without a slash at the end
	source   string // root of the repository, absolute
	dist     string // the folder
	commit   string // full hash
	time     time.Time
}

// imageName is the name of the image, without tag and digest.
func (r *release) imageName() string { return r.registry + "/liqo" }

// check completes the release from the environment and from git. It refuses what could not be made again.
func (r *release) check(ctx context.Context) error {
	if !semver.IsValid(r.version) || semver.Canonical(r.version) != r.version {
		return fmt.Errorf("version %q is not like v0.2.0", r.version)
	}
	address, err := url.Parse(r.url)
	if err != nil || address.Host == "" {
		return fmt.Errorf("url %q is not like https://example.com/releases/v0.2.0", r.url)
	}
	r.url = strings.TrimSuffix(r.url, "/")
	changed, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("a release is made from a commit; commit, stash or remove:\n%s", changed)
	}
	if r.commit, err = r.git(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		if epoch, err = r.git(ctx, "log", "-1", "--format=%ct"); err != nil {
			return err
		}
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return fmt.Errorf("parse SOURCE_DATE_EPOCH: %w", err)
	}
	r.time = time.Unix(seconds, 0).UTC()
	return nil
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	return output(ctx, "git", append([]string{"-C", r.source}, args...)...)
}

// build replaces the folder. The image comes first, because liqoctl and the chart name its digest.
func (r *release) build(ctx context.Context, signer signature.Signer) error {
	if err := os.RemoveAll(r.dist); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dist, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "release-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var c contents
	if c.image, err = r.makeImage(ctx, work); err != nil {
		return err
	}
	if c.programs, err = r.makePrograms(ctx, work, c.image.digest); err != nil {
		return err
	}
	if c.client, err = clientSoftware(r.version, c.programs); err != nil {
		return err
	}
	if c.chart, err = releaseChart(r.version, r.imageName(), c.image.digest); err != nil {
		return err
	}
	fmt.Printf("%s@%s\n", r.imageName(), c.image.digest)
	return r.describe(c, signer)
}

// contents holds what describe writes about.
type contents struct {
	image    *madeImage
	programs []program
	client   software          // of all programs
	chart    map[string][]byte // files of the chart
}

// describe writes what is left when image and programs are there: chart, packages, documents, sums and signatures.
func (r *release) describe(c contents, signer signature.Signer) error {
	for _, step := range []func() error{
		func() error { return r.writeChart(c.chart) },
		func() error { return r.writePackages(c.programs) },
		func() error { return r.writeSBOM("liqo-image.spdx.json", c.image.software(r)) },
		func() error { return r.writeSBOM("liqoctl.spdx.json", c.client) },
		func() error { return r.writeProvenance(c.image) },
		func() error { return writeSums(r.dist) },
		func() error { return signFolder(r.dist, signer) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// write writes a file of the folder.
func (r *release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.dist, name), content, 0o644)
}

const sumsFile = "SHA256SUMS"

// writeSums lists the SHA-256 of every file below dir, as sha256sum -c reads it. Signatures come later.
func writeSums(dir string) error {
	var lines strings.Builder
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == sumsFile {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		sum, err := sumOf(file)
		fmt.Fprintf(&lines, "%s  %s\n", sum, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, sumsFile), []byte(lines.String()), 0o644)
}

// sumOf returns the SHA-256 of a file, in hexadecimal.
func sumOf(file string) (string, error) {
	content, err := os.ReadFile(file)
	return sumOfBytes(content), err
}

func sumOfBytes(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// output runs a program and returns what it printed, without spaces at the ends. Its error has what the program said.
func output(ctx context.Context, name string, args ...string) (string, error) {
	return outputOf(exec.CommandContext(ctx, name, args...))
}

func outputOf(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		return "", fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}
