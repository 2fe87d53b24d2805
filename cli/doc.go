// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is liqoctl: one file per verb.
//
// A verb reads what it needs, builds objects with the pure functions of objects.go, applies them
// and waits until the clusters report that they are ready. It decides nothing that a controller
// decides; all of it can be done with kubectl, and -o yaml shows how.
//
// Start reading at Root in root.go, then peer.go. connect.go connects to the clusters of a verb.
// script.go runs its steps concurrently and prints their lines in order. cluster.go sends requests,
// await.go waits for objects, and explain.go returns why a wait timed out. kinds.go lists what
// create, generate, get and delete work on; peerobjects.go reads what info peer prints. gather.go
// fills the archive that package bundle describes. root.go gives all verbs what users of kubectl
// expect: arguments.go suggests words, flagnames.go completes flags, dryrun.go makes writes change
// nothing. habits_test.go lists the verbs that lack some of it, and why.
package cli
