// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// binaries returns the directory of etcd and kube-apiserver: LIQO_TESTBED_BIN if set, else
// what 'make testbed-build' has built.
func binaries() (string, error) {
	dirs := []string{os.Getenv("LIQO_TESTBED_BIN")}
	if dirs[0] == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		testbed := filepath.Join(cache, "liqo-testbed")
		dirs = []string{filepath.Join(testbed, "kubernetes-"+KubernetesVersion), filepath.Join(testbed, "build")}
	}
	for _, dir := range dirs {
		if present(dir, "etcd") && present(dir, "kube-apiserver") {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no etcd and kube-apiserver in %v: run 'make testbed-build'", dirs)
}

func present(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return !errors.Is(err, fs.ErrNotExist)
}

// moduleRoot returns the directory of go.mod above the test's package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if present(dir, "go.mod") {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the test's package")
		}
		dir = parent
	}
}
