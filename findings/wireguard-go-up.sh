#!/bin/bash
# Guess: a device of WireGuard for Go has no sockets until Up is called or its interface is set up.
# Behaviour: it opens them by itself, within milliseconds, while the interface is down. An empty write to the TUN file
# stands for "is it up?": of a device with virtio headers Linux refuses it for its length before it looks at the state,
# and the wrong error means "up". Who starts it in a network namespace of one thread may find the sockets in another.
# Version: golang.zx2c4.com/wireguard v0.0.0-20260522210424-ecfc5a8d5446, Linux 6.18. Its function Up is
# then without effect; BindUpdate opens the sockets again where it is called.
set -euo pipefail
export GOTOOLCHAIN=go1.26.8 GOWORK=off CGO_ENABLED=0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export GOMODCACHE=$folder/modules GOFLAGS='-modcacherw -trimpath' # so a package that is gone is missed
mkdir "$folder/run" && cd "$folder/run"

cat > go.mod <<-'END'
	module example.com/up
	go 1.26
	require golang.zx2c4.com/wireguard v0.0.0-20260522210424-ecfc5a8d5446
END
cat > main.go <<-'END'
	package main

	import (
		"fmt"
		"net"
		"strings"
		"time"

		"golang.zx2c4.com/wireguard/conn"
		"golang.zx2c4.com/wireguard/device"
		"golang.zx2c4.com/wireguard/tun"
	)

	func main() {
		t, err := tun.CreateTUN("early", 1420)
		if err != nil {
			panic(err)
		}
		d := device.NewDevice(t, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
		listens := false
		for range 50 {
			state, err := d.IpcGet()
			if err != nil {
				panic(err)
			}
			if listens = strings.Contains(state, "listen_port="); listens {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		link, err := net.InterfaceByName("early")
		if err != nil {
			panic(err)
		}
		fmt.Printf("interface up: %t, listens: %t\n", link.Flags&net.FlagUp != 0, listens)
	}
END
go mod tidy
go build -o up .
uname -r
unshare --user --map-root-user --net ./up | tee seen
diff seen - <<<'interface up: false, listens: true'
