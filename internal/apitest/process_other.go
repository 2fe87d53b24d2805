// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package apitest

import "syscall"

// dieWithParent needs Linux; elsewhere a killed test leaves its servers running.
func dieWithParent() *syscall.SysProcAttr { return nil }
