// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mover is the role that copies the data of a volume, for 'liqoctl move volume'. It knows
// files and connections and nothing of Kubernetes, where it has no rights.
//
//	volume ─ serve ── GET ──▶ pull ─ copy      beside the volume: serve, in the claim's namespace
//	copy ─ push ── PUT ──▶ serve ─ volume      beside the copy: pull and push, in the local cluster
//
// A copy is one file, a tar archive that depends on nothing but what is in the volume: two volumes
// with one digest hold the same. It has the names, content, owners, modes, times to the second,
// hard and symbolic links, and the extended attributes "user.*"; sockets and pipes hold no data.
//
// Start reading at server, then client; archive.go is the copy itself.
package mover
