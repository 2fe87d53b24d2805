// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command intruder is a peer whose gateway is not Liqo's: it has the key of one, and sends into the tunnel
// whatever it is told, from and to any address, in ten rounds once there was a handshake.
//
//	intruder -key KEY -peer KEY -endpoint ADDRESS:PORT PACKET...
//
// Keys and packets, which begin with their IP header, are in base64.
package main

import (
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun/tuntest"
)

// The intruder sends its packets in rounds, with a pause after each.
const (
	pause  = 100 * time.Millisecond
	rounds = 10
)

func main() {
	key := flag.String("key", "", "the gateway's private key")
	peer := flag.String("peer", "", "the peer's public key")
	endpoint := flag.String("endpoint", "", "where the peer listens")
	flag.Parse()
	if err := intrude(*key, *peer, *endpoint, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "intruder:", err)
		os.Exit(1)
	}
}

func intrude(key, peer, endpoint string, encoded []string) error {
	tunnel := tuntest.NewChannelTUN()
	dev := device.NewDevice(tunnel.TUN(), conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, "intruder: "))
	defer dev.Close()
	settings := ""
	for _, s := range []struct{ name, key string }{{"private_key", key}, {"public_key", peer}} {
		raw, err := base64.StdEncoding.DecodeString(s.key)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		settings += s.name + "=" + hex.EncodeToString(raw) + "\n"
	}
	settings += "endpoint=" + endpoint + "\nallowed_ip=0.0.0.0/0\n"
	if err := dev.IpcSet(settings); err != nil {
		return err
	}
	if err := dev.Up(); err != nil {
		return err
	}
	for n := 0; n < rounds; time.Sleep(pause) {
		state, err := dev.IpcGet()
		if err != nil {
			return err
		}
		if !strings.Contains(state, "last_handshake_time_sec=0\n") {
			n++
		}
		for _, e := range encoded {
			packet, err := base64.StdEncoding.DecodeString(e)
			if err != nil {
				return fmt.Errorf("packet %s: %w", e, err)
			}
			tunnel.Outbound <- packet
		}
	}
	return nil
}
