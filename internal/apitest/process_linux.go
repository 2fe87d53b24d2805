// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// allIDs is the length of the ID map in the initial user namespace. User nobody may not exist in
// others.
const allIDs = "4294967295"

// confine makes the kernel kill the process when this one ends. A process of root runs as user
// nobody with CAP_DAC_OVERRIDE: an API server takes 3 of the 128 inotify instances of a user, and
// test clusters need root's. The caller calls release after the start.
func confine(cmd *exec.Cmd) (release func(), err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || os.Geteuid() != 0 || !strings.Contains(string(ids), allIDs) {
		return func() {}, err
	}
	// The capability takes effect after exec. User nobody cannot open a program in root's home, so
	// the child inherits an open file. The kernel names the process "3".
	program, err := os.Open(cmd.Path)
	if err != nil {
		return nil, err
	}
	const nobody, dacOverride = 65534, 1 // CAP_DAC_OVERRIDE
	cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{program}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	cmd.SysProcAttr.AmbientCaps = []uintptr{dacOverride}
	return func() { _ = program.Close() }, nil
}
