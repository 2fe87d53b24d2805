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

// Packets that come later than they should. The kernels this runs on have no netem, so a fault with a delay routes
// packets to a TUN device of a process in the namespace "inet", which holds each for that time and gives it back.
const (
	relayName = "relay" // of the program's cgroup
	// relaySpawnVerb has the testbed's directory as an argument, and what each device is for; relayVerb only these.
	relaySpawnVerb = "relay-spawn"
	relayVerb      = "relay"
	// relayQueue is how many packets a relay holds; more are lost. It suffices for 100 ms at 5 Gbit/s.
	relayQueue = 1 << 16
)

// relayDevice is the device of the fault with this number.
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

// spawnRelay makes the devices and starts the relay in its own cgroup. Packets are held as soon as it returns.
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
		// Sources are elsewhere than where their packets come from.
		strict := fmt.Sprintf("net.ipv4.conf.%s.rp_filter=0", devices[i])
		for _, setUp := range []*exec.Cmd{exec.Command("sysctl", "-qw", strict), exec.Command("ip", "link", "set", devices[i], "up")} {
			if _, err := run(setUp); err != nil {
				return err
			}
		}
	}
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// openTUN makes a TUN device; it goes with the last process that has it open.
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

// runRelay holds the packets of inherited devices, of each for as many milliseconds as its argument says.
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

func relay(device *os.File, delay time.Duration) error {
	type packet struct {
		due  time.Time
		data []byte
	}
	held := make(chan packet, relayQueue)
	go func() {
		for p := range held {
			time.Sleep(time.Until(p.due))
			_, _ = device.Write(p.data) // one that the kernel does not want is lost, as anywhere
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
