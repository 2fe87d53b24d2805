// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bundle is the archive that 'liqoctl gather' writes for a bug report: its layout, what is redacted in it, and
// its reader. It is pure: it gets objects, texts and the time, and returns bytes. It sends no requests and opens no
// files; cli/gather.go does that.
//
// Data flows from objects and texts through a Part, which redacts all it takes, to Write; Read gives it back. Read
// trusts nothing: bug reports come from strangers.
//
// The archive is a tar file, compressed with gzip. All files lie in one folder:
//
//	liqo-gather/README.md                        what is in it, what is missing and why, what is redacted
//	liqo-gather/index.json                       the same for programs: Index
//	liqo-gather/local/conditions.txt             all conditions, those that are not true first
//	liqo-gather/local/events.txt                 all Events, by time
//	liqo-gather/local/objects/pods.json          objects of one kind, as a List of Kubernetes
//	liqo-gather/local/rules/liqo/fabric-x/diff.txt  what the process wants in the kernel and does not find, and so on
//	liqo-gather/local/metrics/liqo/fabric-x.txt  metrics of one pod
//	liqo-gather/local/logs/liqo/fabric-x/c.log   end of the log of one container; c.previous.log before its restart
//	liqo-gather/remote/…                         the same of the second cluster
//
// Start reading at Part in part.go, then Text and Object in redact.go, then Read in read.go.
package bundle
