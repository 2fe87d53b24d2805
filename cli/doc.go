// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cli is liqoctl: one file per verb.
//
// A verb reads what it needs, builds objects with the pure functions of objects.go, applies them
// and waits until the clusters say that they are done. It decides nothing that a controller
// decides; whatever it does can be done with kubectl, and -o yaml shows how.
//
// Start reading at Root in root.go, then peer.go. script.go runs work side by side and prints its
// lines in their order, cluster.go reaches a cluster, await.go waits for objects, explain.go says
// why a wait ended in vain.
package cli
