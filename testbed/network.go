// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// The network of a testbed lies wholly in namespaces:
//
//	inet        one bridge per cluster, routes between them, knows no pod subnets;
//	            load balancers (balancer.go), faults and NAT (internet.go) are made here
//	<cluster>-<node>   eth0 on the cluster's bridge, pods behind cni0
//
// Nodes reach all nodes; pods reach nodes of other clusters masqueraded, and never
// their pods.
const (
	netnsDir  = "/run/netns"
	inetSpace = "inet"
)

func (t Testbed) netnsPrefix() string           { return "ltb-" + t.id() + "-" }
func (t Testbed) netnsName(space string) string { return t.netnsPrefix() + space }
func (t Testbed) netns(space string) string {
	return filepath.Join(netnsDir, t.netnsName(space))
}

// netnsList are the spaces that exist, without the prefix.
func (t Testbed) netnsList() []string {
	entries, _ := os.ReadDir(netnsDir) // missing: none
	var spaces []string
	for _, e := range entries {
		if space, ok := strings.CutPrefix(e.Name(), t.netnsPrefix()); ok {
			spaces = append(spaces, space)
		}
	}
	return spaces
}

// createNetns makes a named network namespace as "ip netns add" does.
func (t Testbed) createNetns(space string) error {
	if err := shareNetnsDir(); err != nil {
		return err
	}
	path := t.netns(space)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return fmt.Errorf("create network namespace: %w", err)
	}
	f.Close()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
			failed <- err
			return
		}
		failed <- syscall.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", syscall.Gettid()), path, "none", syscall.MS_BIND, "")
	}()
	if err := <-failed; err != nil {
		return fmt.Errorf("create network namespace %s: %w", path, err)
	}
	return nil
}

// shareNetnsDir makes /run/netns a shared mount, as "ip netns add" would later: a bind
// over existing namespaces would hide their mounts from us.
func shareNetnsDir() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return err
	}
	if slices.Contains(mountPoints(), netnsDir) {
		return nil
	}
	if err := syscall.Mount(netnsDir, netnsDir, "none", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", netnsDir, err)
	}
	return syscall.Mount("", netnsDir, "none", syscall.MS_SHARED|syscall.MS_REC, "")
}

// deleteNetns removes a namespace's name; the namespace ends with its last process.
// The last name also takes the mount of /run/netns away when nobody else has one.
func (t Testbed) deleteNetns(space string) error {
	path := t.netns(space)
	if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if rest, err := os.ReadDir(netnsDir); err == nil && len(rest) == 0 {
		// Best effort: others may use it at this moment, then it is theirs.
		_ = syscall.Unmount(netnsDir, 0)
		_ = os.Remove(netnsDir)
	}
	return nil
}

// inNet runs a command in a namespace with the text as its input.
func (t Testbed) inNet(space, input string, command ...string) (string, error) {
	cmd := exec.Command("nsenter", append([]string{"--net=" + t.netns(space)}, command...)...)
	cmd.Stdin = strings.NewReader(input)
	return run(cmd)
}

// ensureInternet makes the namespace between the clusters.
func (t Testbed) ensureInternet() error {
	_, err := t.inNet(inetSpace, "", "true")
	if err != nil {
		// Missing, or a name without its namespace: a crash between the two.
		if err := t.deleteNetns(inetSpace); err != nil {
			return err
		}
		if err := t.createNetns(inetSpace); err != nil {
			return err
		}
		if err := os.RemoveAll(t.inetDir()); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(t.inetDir(), 0o755); err != nil {
		return err
	}
	if _, err := t.inNet(inetSpace, "", "sysctl", "-qw", "net.ipv4.ip_forward=1"); err != nil {
		return err
	}
	_, err = t.inNet(inetSpace, "link set lo up\n", "ip", "-batch", "-")
	return err
}

// ensureBridge makes the cluster's bridge.
func (t Testbed) ensureBridge(c Cluster) error {
	links, err := t.internetLinks()
	if err != nil {
		return err
	}
	var batch strings.Builder
	if !slices.Contains(links, c.bridge()) {
		// A fixed address: else it would change with the nodes, and neighbours forget.
		fmt.Fprintf(&batch, "link add %s address %s type bridge\n", c.bridge(), macOf(c.router()))
	}
	fmt.Fprintf(&batch, "addr replace %s/%d dev %s\nlink set %s up\n", c.router(), c.nodeNet().Bits(), c.bridge(), c.bridge())
	_, err = t.inNet(inetSpace, batch.String(), "ip", "-batch", "-")
	return err
}

// internetLinks are the names of the links between the clusters.
func (t Testbed) internetLinks() ([]string, error) {
	out, err := t.inNet(inetSpace, "", "ip", "-j", "link")
	if err != nil {
		return nil, err
	}
	var links []struct {
		Name string `json:"ifname"`
	}
	if err := json.Unmarshal([]byte(out), &links); err != nil {
		return nil, fmt.Errorf("read links: %w", err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Name)
	}
	return names, nil
}

// attachNode gives a node a fresh namespace on its cluster's bridge.
func (t Testbed) attachNode(c Cluster, node string) error {
	name := c.nodeName(node)
	if err := t.detachNode(name); err != nil {
		return err
	}
	if err := t.createNetns(name); err != nil {
		return err
	}
	outside := fmt.Sprintf("link add %[1]s type veth peer name eth0 address %[2]s netns %[3]s\nlink set %[1]s master %[4]s up\n",
		name, macOf(c.nodeAddr(node)), t.netnsName(name), c.bridge())
	if _, err := t.inNet(inetSpace, outside, "ip", "-batch", "-"); err != nil {
		return err
	}
	inside := fmt.Sprintf("link set lo up\naddr add %s/%d dev eth0\nlink set eth0 up\nroute add default via %s\n",
		c.nodeAddr(node), c.nodeNet().Bits(), c.router())
	if _, err := t.inNet(name, inside+podRoutes(c, node), "ip", "-batch", "-"); err != nil {
		return err
	}
	if node == controlPlane || c.CNI == cniFlannel {
		return nil
	}
	_, err := t.inNet(name, masquerade(c), "nft", "-f", "-")
	return err
}

// podRoutes lead from a node to the pods of the others, also from the control plane,
// so that the API server reaches webhooks. Flannel makes those of its nodes.
func podRoutes(c Cluster, node string) string {
	var b strings.Builder
	if c.CNI == cniFlannel && node != controlPlane {
		return ""
	}
	for _, other := range c.workers() {
		if other == node {
			continue
		}
		for _, pods := range c.podBlocks(other) {
			fmt.Fprintf(&b, "route replace %s via %s\n", pods, c.nodeAddr(other))
		}
	}
	return b.String()
}

// detachNode removes a node's link and namespace; either may be missing.
func (t Testbed) detachNode(nodeName string) error {
	spaces := t.netnsList()
	if slices.Contains(spaces, inetSpace) {
		// Deleted by name: processes about to end may still hold the namespace.
		if links, err := t.internetLinks(); err == nil && slices.Contains(links, nodeName) {
			if _, err := t.inNet(inetSpace, "", "ip", "link", "del", nodeName); err != nil {
				return err
			}
		}
	}
	if !slices.Contains(spaces, nodeName) {
		return nil
	}
	return t.deleteNetns(nodeName)
}

// removeBridge removes a cluster's bridge.
func (t Testbed) removeBridge(cluster string) error {
	if !slices.Contains(t.netnsList(), inetSpace) {
		return nil
	}
	links, err := t.internetLinks()
	if err != nil {
		return nil // a name without a namespace: nothing is behind it
	}
	bridge := Cluster{Name: cluster}.bridge()
	if !slices.Contains(links, bridge) {
		return nil
	}
	_, err = t.inNet(inetSpace, "", "ip", "link", "del", bridge)
	return err
}

// macOf derives a link's address from its IPv4 address: a node that comes back is the
// same neighbour.
func macOf(a interface{ As4() [4]byte }) string {
	b := a.As4()
	return fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3])
}
