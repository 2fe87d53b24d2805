// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// The relay delays packets between clusters, because the kernels this runs on have no netem. It is a process in the
// namespace "inet". A fault with a delay routes packets to one of its TUN devices; the relay writes each packet back
// after the delay.
const (
	relayName = "relay" // name of the relay's cgroup
	// relaySpawnVerb takes the testbed's directory, then the name and the delay in ms of each device; relayVerb takes
	// the delays.
	relaySpawnVerb = "relay-spawn"
	relayVerb      = "relay"
	// relayQueue is the largest number of packets that wait for a device; further ones are dropped. It suffices for
	// 100 ms at 7 Gbit/s, in packets of 1500 bytes.
	relayQueue = 1 << 16
)

// relayDevice returns the device name of the fault with this number.
func relayDevice(fault int) string { return fmt.Sprintf("delay%d", fault) }

// relayPaths ends the relay, with its devices, and starts one for the faults with a delay.
func (t Testbed) relayPaths(in internet) error {
	if err := t.endProcesses(relayName); err != nil {
		return err
	}
	command := []string{t.toolPath(), relaySpawnVerb, t.Dir}
	for i, f := range in.Faults {
		if f.Delay > 0 {
			command = append(command, relayDevice(i), strconv.Itoa(f.Delay))
		}
	}
	if len(command) == 3 {
		return t.removeCgroups(relayName)
	}
	_, err := t.inNet(inetSpace, "", command...)
	return err
}

// spawnRelay creates the devices and starts the relay in its own cgroup. The kernel queues packets until the relay
// reads them.
func spawnRelay(t Testbed, devices []string) error {
	if err := t.joinCgroups(relayName); err != nil {
		return err
	}
	cmd := exec.Command(t.toolPath(), relayVerb)
	for i := 0; i < len(devices); i += 2 {
		device, err := openTUN(devices[i])
		if err != nil {
			return fmt.Errorf("make device %s: %w", devices[i], err)
		}
		cmd.ExtraFiles, cmd.Args = append(cmd.ExtraFiles, device), append(cmd.Args, devices[i+1])
		// The reverse path filter would drop packets that return from the relay: routes to their sources use other devices.
		unfiltered := fmt.Sprintf("net.ipv4.conf.%s.rp_filter=0", devices[i])
		for _, setUp := range []*exec.Cmd{exec.Command("sysctl", "-qw", unfiltered), exec.Command("ip", "link", "set", devices[i], "up")} {
			if _, err := run(setUp); err != nil {
				return err
			}
		}
	}
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// openTUN creates a TUN device. The kernel removes the device when the last process closes it.
func openTUN(name string) (*os.File, error) {
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	request := struct {
		name  [syscall.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}{flags: syscall.IFF_TUN | syscall.IFF_NO_PI}
	copy(request.name[:], name)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request))); errno != 0 {
		_ = syscall.Close(fd)
		return nil, errno
	}
	return os.NewFile(uintptr(fd), name), nil
}

// runRelay relays the packets of the inherited devices. delays holds the delay of each device, in ms.
func runRelay(delays []string) error {
	failed := make(chan error)
	for i, text := range delays {
		ms, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("delay %q: %w", text, err)
		}
		device := os.NewFile(uintptr(3+i), text)
		go func() { failed <- relay(device, time.Duration(ms)*time.Millisecond) }()
	}
	return <-failed
}

// relay writes each packet that it reads from a device back to it after the delay. It returns the error of a read.
func relay(device *os.File, delay time.Duration) error {
	type packet struct {
		due  time.Time
		data []byte
	}
	held := make(chan packet, relayQueue)
	go func() {
		for p := range held {
			time.Sleep(time.Until(p.due))
			_, _ = device.Write(p.data) // a packet that the kernel refuses is dropped
		}
	}()
	buffer := make([]byte, 1<<16)
	for {
		n, err := device.Read(buffer)
		if err != nil {
			return err
		}
		select {
		case held <- packet{time.Now().Add(delay), bytes.Clone(buffer[:n])}:
		default:
		}
	}
}
