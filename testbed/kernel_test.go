// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// What is read from the kernel, on the machines it can look like.

func TestHierarchies(t *testing.T) {
	for name, test := range map[string]struct{ mountinfo, want string }{
		"version 1": {`
22 27 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw`,
			`/sys/fs/cgroup/cpu cpu, /sys/fs/cgroup/memory memory, /sys/fs/cgroup/systemd none,name=systemd, /sys/fs/cgroup/unified v2`},
		"hybrid, controllers together, one mounted twice": {`
33 25 0:28 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw,nsdelegate
34 25 0:29 / /sys/fs/cgroup/systemd rw shared:11 - cgroup cgroup rw,xattr,name=systemd
37 25 0:32 / /sys/fs/cgroup/cpu,cpuacct rw shared:15 - cgroup cgroup rw,cpu,cpuacct
38 25 0:32 / /mnt/cpu rw shared:15 - cgroup cgroup rw,cpu,cpuacct`,
			`/sys/fs/cgroup/unified v2, /sys/fs/cgroup/systemd none,name=systemd, /sys/fs/cgroup/cpu,cpuacct cpu,cpuacct`},
		"version 2 only": {`
30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot`,
			`/sys/fs/cgroup v2 alone`},
	} {
		t.Run(name, func(t *testing.T) {
			all := hierarchies(test.mountinfo)
			var got []string
			for _, h := range all {
				s := h.path + " " + h.options
				if h.v2 {
					s = h.path + " v2"
				}
				if unified(all) {
					s += " alone"
				}
				got = append(got, s)
			}
			if s := strings.Join(got, ", "); s != test.want {
				t.Errorf("got  %s\nwant %s", s, test.want)
			}
		})
	}
}
