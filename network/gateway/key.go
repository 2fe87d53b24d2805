// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// readKey reads the private key of the tunnel from the mounted Secret: 32 raw bytes, or base64
// text as "wg genkey" writes it. The public key is derived from it.
func readKey(dir string) (wgtypes.Key, error) {
	path := filepath.Join(dir, "privateKey")
	raw, err := os.ReadFile(path)
	if err != nil {
		return wgtypes.Key{}, fmt.Errorf("read private key: %w", err)
	}
	if len(raw) == wgtypes.KeyLen {
		return wgtypes.NewKey(raw)
	}
	key, err := wgtypes.ParseKey(string(bytes.TrimSpace(raw)))
	if err != nil {
		// The error of the parser could quote the key.
		return wgtypes.Key{}, fmt.Errorf("read private key %s: neither %d raw bytes nor their base64 text; put one "+
			"of them into the Secret", path, wgtypes.KeyLen)
	}
	return key, nil
}
