// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// tunnelPort is UDP, where both ends of a tunnel listen.
const tunnelPort = "51820"

// tunnelEnd is one end of a tunnel of wireguard-go.
type tunnelEnd struct {
	in inside
	// device has a name of its own: wireguard-go has one directory of sockets for all namespaces.
	device string
	// endpoint of the other end; empty = it comes here.
	endpoint string
	// ready are commands once the device is up.
	ready []string
}

// tunnels are the processes of two ends.
type tunnels struct {
	stops []func()
	pids  []int
}

func (t *tunnels) stop() {
	for _, stop := range t.stops {
		stop()
	}
}

// connect starts wireguard-go at both ends, with keys made for it.
func (t *tunnels) connect(ctx context.Context, program string, a, b tunnelEnd) error {
	var keys, public [2]string
	for i := range keys {
		key, err := output(exec.CommandContext(ctx, "wg", "genkey"))
		if err != nil {
			return fmt.Errorf("%w; run 'go run ./testbed deps' first", err)
		}
		cmd := exec.CommandContext(ctx, "wg", "pubkey")
		cmd.Stdin = strings.NewReader(key)
		if public[i], err = output(cmd); err != nil {
			return err
		}
		keys[i] = key
	}
	return errors.Join(t.start(ctx, program, a, keys[0], public[1]), t.start(ctx, program, b, keys[1], public[0]))
}

func (t *tunnels) start(ctx context.Context, program string, e tunnelEnd, key, peer string) error {
	// In the foreground: otherwise it would leave a child that nobody ends.
	run := e.in(context.Background(), program, "--foreground", e.device)
	run.Env = append(os.Environ(), "LOG_LEVEL=error")
	stop, err := background(run)
	if err != nil {
		return err
	}
	t.stops, t.pids = append(t.stops, stop), append(t.pids, run.Process.Pid)
	err = eventually(ctx, "wireguard-go answers", 10*time.Second, func() (bool, error) {
		_, err := output(e.in(ctx, "wg", "show", e.device))
		return err == nil, err
	})
	if err != nil {
		return err
	}
	words := []string{"wg", "set", e.device, "listen-port", tunnelPort, "private-key", "/dev/stdin", "peer", strings.TrimSpace(peer), "allowed-ips", "0.0.0.0/0"}
	if e.endpoint != "" {
		words = append(words, "endpoint", e.endpoint)
	}
	configure := e.in(ctx, words...)
	configure.Stdin = strings.NewReader(key)
	if _, err := output(configure); err != nil {
		return err
	}
	for _, line := range append([]string{"ip link set " + e.device + " mtu " + tunnelMTU + " up"}, e.ready...) {
		if _, err := output(e.in(ctx, strings.Fields(line)...)); err != nil {
			return err
		}
	}
	return nil
}

// podTunnel is wireguard-go inside the two pods at the ends of the peering. It comes to milan by a node
// port, as the gateways' does, and is what WireGuard costs there without Liqo.
type podTunnel struct {
	program string
	like    peeringWay
	milan   api
	tunnels
}

// Of the Service in front of milan's end.
const (
	podTunnelName  = "bench-tunnel"
	podTunnelPort  = 31999
	services       = "/api/v1/namespaces/default/services"
	endpointSlices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
)

func (t *podTunnel) up(ctx context.Context) (ends, error) {
	node, err := t.expose(ctx)
	if err != nil {
		return ends{}, err
	}
	a, b := enter(t.like.processes[0]).beside(t.like.tunnels[0]), enter(t.like.processes[1]).beside(t.like.tunnels[1])
	err = t.connect(ctx, t.program,
		tunnelEnd{a, "podA", fmt.Sprintf("%s:%d", node, podTunnelPort), []string{"ip address add 192.0.2.1/30 dev podA"}},
		tunnelEnd{b, "podB", "", []string{"ip address add 192.0.2.2/30 dev podB"}})
	return ends{t.like.from, t.like.to, "192.0.2.2", t.pids}, err
}

// expose makes the Service, without a selector as the pod has no label, and returns the address of the
// node it leads to.
func (t *podTunnel) expose(ctx context.Context) (node string, err error) {
	var n struct {
		Status struct{ Addresses []struct{ Address string } }
	}
	if err := t.milan.get(ctx, "/api/v1/nodes/"+t.like.pods[1].Spec.NodeName, &n); err != nil {
		return "", err
	}
	if len(n.Status.Addresses) == 0 {
		return "", fmt.Errorf("node %s has no address", t.like.pods[1].Spec.NodeName)
	}
	type object = map[string]any
	port := object{"name": "wireguard", "protocol": "UDP", "port": 51820}
	slice := object{
		"metadata":    object{"name": podTunnelName, "labels": object{"kubernetes.io/service-name": podTunnelName}},
		"addressType": "IPv4", "ports": []any{port}, "endpoints": []any{object{"addresses": []string{t.like.pods[1].Status.PodIP}}},
	}
	service := object{"metadata": object{"name": podTunnelName}, "spec": object{"type": "NodePort", "ports": []any{
		object{"name": "wireguard", "protocol": "UDP", "port": 51820, "nodePort": podTunnelPort}}}}
	return n.Status.Addresses[0].Address, errors.Join(t.milan.ensure(ctx, services, service), t.milan.ensure(ctx, endpointSlices, slice))
}

func (t *podTunnel) down() {
	t.stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, path := range []string{services, endpointSlices} {
		if err := t.milan.remove(ctx, path+"/"+podTunnelName); err != nil {
			fmt.Fprintln(os.Stderr, "bench: the tunnel's Service stays:", err)
		}
	}
}
