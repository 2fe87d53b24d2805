// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	fakeNodes = 20      // 3000 pods in ranges of 254
	fakeLabel = "bench" // label type=bench of fake nodes
)

// fakes are the two programs that play the kubelets of the fake nodes. A nil one has
// nothing to stop.
type fakes struct{ stops []func() }

func (f *fakes) stop() {
	if f == nil {
		return
	}
	for _, stop := range f.stops {
		stop()
	}
}

// ensureFakes gives both clusters fake nodes, and leaves no other place for pods that
// come to milan.
func (b *bed) ensureFakes(ctx context.Context) error {
	if b.fakes != nil {
		return nil
	}
	stages, err := b.writeStages(ctx)
	if err != nil {
		return err
	}
	b.fakes = &fakes{}
	for _, c := range b.clusters() {
		// Their pods get addresses of the pod CIDR, like any, that no real node has.
		stop, err := background(exec.Command(filepath.Join(b.cache, "kwok-v0.8.0", "kwok"), "--kubeconfig", c.kubeconfig, "--config", stages,
			"--manage-nodes-with-label-selector=type="+fakeLabel, "--node-lease-duration-seconds=40", "--node-ip=172.31.200.1", "--cidr=10.10.128.1/17"))
		if err != nil {
			return fmt.Errorf("start the fake nodes of %s: %w", c.name, err)
		}
		b.fakes.stops = append(b.fakes.stops, stop)
	}
	if err := b.both(func(c cluster) error { return addFakeNodes(ctx, c) }); err != nil {
		return err
	}
	return b.cordon(ctx, true)
}

// cordon keeps new pods off milan's real nodes, or lets them in again.
func (b *bed) cordon(ctx context.Context, cordoned bool) error {
	var all error
	for _, node := range []string{"milan-n1", "milan-n2"} {
		change := map[string]any{"spec": map[string]bool{"unschedulable": cordoned}}
		all = errors.Join(all, b.milan.api.patch(ctx, "/api/v1/nodes/"+node, change))
	}
	return all
}

// removeFakes leaves the clusters as they were before ensureFakes: without the programs
// behind them fake nodes would still take pods.
func (b *bed) removeFakes(ctx context.Context) error {
	if b.fakes == nil {
		return nil
	}
	all := b.cordon(ctx, false)
	for _, c := range b.clusters() {
		for i := range fakeNodes {
			all = errors.Join(all, c.api.remove(ctx, fmt.Sprintf("/api/v1/nodes/fake-%d", i)))
		}
	}
	b.fakes.stop()
	b.fakes = nil
	return all
}

// Pods of Jobs end. At a provider they have the label, and another owner.
const (
	ownedByJob = `'.metadata.ownerReferences.[].kind'
      operator: 'In'
      values:
      - 'Job'`
	labelledByJob = `'.metadata.labels["batch.kubernetes.io/job-name"]'
      operator: 'Exists'`
)

// writeStages collects what kwok's own module has for fast nodes and pods: the program
// has no default.
func (b *bed) writeStages(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	cmd.Dir = filepath.Join(filepath.Dir(b.bin), "testbed", "kwok")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	module, err := output(cmd)
	if err != nil {
		return "", err
	}
	var all []string
	for _, stage := range []string{"node/fast", "node/heartbeat-with-lease", "pod/fast"} {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(module), "kustomize", "stage", stage, "*-*.yaml"))
		if err != nil || len(files) == 0 {
			return "", fmt.Errorf("find stages %s in kwok's module: %w", stage, errors.Join(err, os.ErrNotExist))
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			all = append(all, strings.Replace(string(content), ownedByJob, labelledByJob, 1))
		}
	}
	name := filepath.Join(b.dir, "stages.yaml")
	return name, os.WriteFile(name, []byte(strings.Join(all, "\n---\n")), 0o644)
}

// fakeNode is one that kwok plays the kubelet of.
func fakeNode(name, address string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": name, "labels": map[string]string{"type": fakeLabel, "kubernetes.io/hostname": name}},
		"status": map[string]any{"addresses": []map[string]string{
			{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name},
		}},
	}
}

func addFakeNodes(ctx context.Context, c cluster) error {
	for i := range fakeNodes {
		node := fakeNode(fmt.Sprintf("fake-%d", i), fmt.Sprintf("172.31.200.%d", 10+i))
		if err := c.api.ensure(ctx, "/api/v1/nodes", node); err != nil {
			return err
		}
	}
	for i := range fakeNodes {
		err := eventually(ctx, fmt.Sprintf("fake node %d of %s is Ready", i, c.name), patience, func() (bool, error) {
			return c.ready(ctx, fmt.Sprintf("fake-%d", i))
		})
		if err != nil {
			return err
		}
	}
	return nil
}
