// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command registry serves images and charts over plain HTTP, and stores in a folder what is pushed. It serves the
// listening socket that it inherits as file 3. Distribution's own command needs the SDKs of three clouds.
//
//	registry FOLDER
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: registry FOLDER")
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "registry:", serve(os.Args[1]))
	os.Exit(1)
}

// serve serves the registry until an error.
func serve(folder string) error {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return fmt.Errorf("take over the listener: %w", err)
	}
	text := fmt.Sprintf("version: 0.1\nlog: {accesslog: {disabled: true}}\n"+
		"storage: {filesystem: {rootdirectory: %q}}\n", folder)
	config, err := configuration.Parse(strings.NewReader(text))
	if err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return http.Serve(listener, handlers.NewApp(context.Background(), config))
}
