// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command share runs a command and shares API servers between the tests of all packages that it
// runs:
//
//	go run ./internal/apitest/share go test ./...
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/liqo-go/liqo/internal/apitest"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: share command [argument ...]")
		os.Exit(2)
	}
	err := apitest.Share(os.Args[1:]...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "share API servers:", err)
		os.Exit(1)
	}
}
