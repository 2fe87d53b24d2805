// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import "syscall"

// dieWithParent ends a server whose test was killed before it could clean up.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
