// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// How cost grows with the number of nodes, Services, namespaces, peers and pods. Pods run on fake nodes, added
// nodes are fake themselves, and nobody is at the other side of added peers. scalepage.go makes tables and pictures.

const (
	scaleName      = "scale"          // the names of what is added begin with it
	scaleEndpoints = 10               // of each Service
	scaleSettle    = 10 * time.Second // from the last step until memory is read
	scaleIdle      = 10 * time.Second // in which CPU counts as that of nothing happening
	// podsSettle is longer: the status of a ShadowPod is written 30 s after its pod runs.
	podsSettle = 35 * time.Second
)

// series holds what was measured of one dimension.
type series struct {
	Name, Date, Machine string
	Version             string  // the commit, shortened
	Points              []point // the first with nothing added
}

// point holds the measurements with N objects. A process is named by cluster and role, as "rome liqo gateway". Values
// of processes with the same cluster and role are summed.
type point struct {
	N       int
	Seconds float64            `json:",omitempty"` // until those since the last point were in place
	CPU     map[string]float64 `json:",omitempty"` // seconds, meanwhile; of Kubernetes too
	Memory  map[string]float64 // MB that are not of a file, of Liqo
	Idle    map[string]float64 // ms of CPU a second while nothing happens, of Liqo
}

// dimension is one kind of things that there may be more of.
type dimension struct {
	name   string // plural
	sizes  []int  // rising
	settle time.Duration
	// grow adds things from one number up to another, and returns when all are in place.
	grow func(ctx context.Context, from, to int) error
	// remove returns when nothing is left; also of an earlier run.
	remove func(ctx context.Context) error
}

// measureScale lets each dimension grow by itself. What was measured replaces the same of docs/scale.json.
func measureScale(ctx context.Context, b *bed) error {
	if err := b.ensureNamespaces(ctx); err != nil {
		return err
	}
	docs := filepath.Join(filepath.Dir(b.bin), "docs")
	machine, err := machineName()
	if err != nil {
		return err
	}
	commit := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD")
	commit.Dir = docs
	version, err := output(commit)
	if err != nil {
		return err
	}
	dimensions := []dimension{b.scaleNodes(), b.scaleServices(), b.scaleNamespaces(), b.scalePeers(), b.scalePods()}
	for _, d := range dimensions {
		if err := d.remove(ctx); err != nil {
			return fmt.Errorf("remove %s that an earlier run left: %w", d.name, err)
		}
	}
	for i, d := range dimensions {
		points, failed := b.measurePoints(ctx, d)
		if failed == nil {
			failed = keepSeries(docs, series{d.name, time.Now().UTC().Format(time.DateOnly), machine, strings.TrimSpace(version), points})
		}
		if i+1 < len(dimensions) { // the last one's go with the clusters
			failed = errors.Join(failed, d.remove(ctx))
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", d.name, failed))
		}
	}
	return errors.Join(err, drawScale(docs))
}

// measurePoints starts with nothing and goes through the sizes.
func (b *bed) measurePoints(ctx context.Context, d dimension) (points []point, err error) {
	former := 0
	for _, n := range append([]int{0}, d.sizes...) {
		p := point{N: n}
		if n > 0 {
			before, err := b.usage()
			if err != nil {
				return nil, err
			}
			began := time.Now()
			if err := d.grow(ctx, former, n); err != nil {
				return nil, fmt.Errorf("from %d to %d: %w", former, n, err)
			}
			p.Seconds = rounded(time.Since(began).Seconds(), 2)
			now, err := b.usage()
			if err != nil {
				return nil, err
			}
			p.CPU = now.since(before)
			b.report.add(figure{Group: "scale", Name: fmt.Sprintf("%d %s more, in place", n-former, d.name), Value: p.Seconds, Unit: "s"})
		}
		if err := b.standing(ctx, &p, d.settle); err != nil {
			return nil, err
		}
		points, former = append(points, p), n
	}
	return points, nil
}

// standing measures what there is when all has settled.
func (b *bed) standing(ctx context.Context, p *point, settle time.Duration) error {
	before, after, err := b.lookTwice(ctx, settle, scaleIdle)
	if err != nil {
		return err
	}
	p.Memory, p.Idle = map[string]float64{}, map[string]float64{}
	for _, c := range b.clusters() {
		for _, process := range since(before[c.name], after[c.name]) {
			name := c.name + " liqo " + process.role
			p.Memory[name] = rounded(p.Memory[name]+process.anon, 1)
			p.Idle[name] = rounded(p.Idle[name]+process.cpu*1000/scaleIdle.Seconds(), 1)
		}
	}
	for name, used := range p.CPU {
		if p.CPU[name] = rounded(used, 2); p.CPU[name] == 0 || name == "idle" {
			delete(p.CPU, name)
		}
	}
	return nil
}

func rounded(value float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(value*unit) / unit
}

// gone waits until no object of a list has a name of ours.
func gone(ctx context.Context, c cluster, path string) error {
	return eventually(ctx, "none of "+path+" of "+c.name+" begins with "+scaleName, patience, func() (bool, error) {
		var list struct {
			Items []struct{ Metadata struct{ Name string } }
		}
		err := c.api.get(ctx, path, &list)
		for _, item := range list.Items {
			if strings.HasPrefix(item.Metadata.Name, scaleName+"-") {
				return false, err
			}
		}
		return true, err
	})
}

// removeAll removes the objects of rome that a series may have added, below each of some paths.
func (b *bed) removeAll(ctx context.Context, sizes []int, paths ...string) error {
	names := podNames(scaleName, sizes[len(sizes)-1])
	return inParallel(len(names), func(i int) (err error) {
		for _, path := range paths {
			err = errors.Join(err, b.rome.api.remove(ctx, path+"/"+names[i]))
		}
		return err
	})
}

// scaleNodes adds nodes to rome, beside two real ones and those of ensureFakes. One is in place when the gateway
// to milan has it as a neighbour.
func (b *bed) scaleNodes() dimension {
	sizes := []int{10, 30, 100}
	var gateway kernel
	var without float64
	neighbours := func(ctx context.Context) (float64, error) {
		have, err := count(ctx, gateway.pid)
		return have["neighbours"], err
	}
	return dimension{"nodes", sizes, scaleSettle, func(ctx context.Context, from, to int) error {
		if from == 0 {
			kernels, err := b.kernels(ctx, "gateway")
			if err != nil {
				return err
			}
			gateway = kernels[0]
			if without, err = neighbours(ctx); err != nil {
				return err
			}
		}
		names := podNames(scaleName, to)[from:]
		err := inParallel(len(names), func(i int) error {
			address := fmt.Sprintf("172.31.201.%d", 10+from+i)
			return b.rome.api.create(ctx, "/api/v1/nodes", fakeNode(names[i], address))
		})
		if err != nil {
			return err
		}
		return eventually(ctx, fmt.Sprintf("the gateway knows %d nodes more", to), patience, func() (bool, error) {
			have, err := neighbours(ctx)
			return have == without+float64(to), err
		})
	}, func(ctx context.Context) error {
		return errors.Join(b.removeAll(ctx, sizes, "/api/v1/nodes"), gone(ctx, b.rome, networking+"/internalnodes"))
	}}
}

// kernels finds where rome's processes of a role program routes.
func (b *bed) kernels(ctx context.Context, roles ...string) (found []kernel, err error) {
	all, err := b.rome.processes(ctx)
	for _, role := range roles {
		for _, p := range all {
			if p.role == role {
				found = append(found, kernel{process: p})
			}
		}
	}
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("rome runs no %s", strings.Join(roles, " and no "))
	}
	return found, err
}

// scaleServices adds Services with endpoints to an offloaded namespace. One is in place when milan has its endpoints.
func (b *bed) scaleServices() dimension {
	sizes := []int{10, 100, 1000}
	from, to := b.offloaded(), place{b.milan, b.offloaded().remote, "", nil}
	path := "/api/v1/namespaces/" + from.namespace + "/services"
	return dimension{"Services", sizes, scaleSettle, func(ctx context.Context, former, n int) error {
		names := podNames(scaleName, n)[former:]
		return awaitSeen(ctx, to.cluster, slicesPath(to.namespace), names, func(s slice) string {
			return s.Metadata.Labels["kubernetes.io/service-name"]
		}, func(i int) error {
			service := map[string]any{
				"apiVersion": "v1", "kind": "Service", "metadata": map[string]string{"name": names[i]},
				"spec": map[string]any{"ports": []slicePort{{"http", 80}}},
			}
			s := newSlice(names[i], scaleEndpoints)
			s.Metadata.Name = names[i]
			return errors.Join(from.cluster.api.create(ctx, path, service), from.cluster.api.create(ctx, slicesPath(from.namespace), s))
		})
	}, func(ctx context.Context) error {
		return errors.Join(b.removeAll(ctx, sizes, path, slicesPath(from.namespace)), gone(ctx, to.cluster, slicesPath(to.namespace)))
	}}
}

// awaitSeen makes as many things as there are names, and returns when of each an object was seen in a cluster.
// nameOf says to which thing an object belongs; "" = to none.
func awaitSeen[T any](ctx context.Context, c cluster, path string, names []string, nameOf func(T) string, create func(i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	all := newMoments(len(names))
	watched := make(chan error, 1)
	go func() {
		watched <- watch(ctx, c.api, path, func(seen T) {
			if name := nameOf(seen); wanted[name] {
				all.saw(name)
			}
		})
	}()
	err := inParallel(len(names), create)
	if err == nil {
		err = all.wait(ctx, fmt.Sprintf("%d things are in %s", len(names), path))
	}
	cancel()
	return errors.Join(err, <-watched)
}

// scaleNamespaces offloads namespaces with one ConfigMap each. One is in place when milan has that.
func (b *bed) scaleNamespaces() dimension {
	sizes := []int{1, 10, 100}
	type object struct {
		Metadata struct{ Name, Namespace string }
	}
	const namespaces = "/api/v1/namespaces"
	return dimension{"namespaces", sizes, scaleSettle, func(ctx context.Context, from, to int) error {
		names := podNames(scaleName, to)[from:]
		return awaitSeen(ctx, b.milan, "/api/v1/configmaps", names, func(o object) string {
			if o.Metadata.Name != scaleName {
				return ""
			}
			return strings.TrimSuffix(o.Metadata.Namespace, "-"+b.rome.name)
		}, func(i int) error {
			type fields = map[string]any
			below := "/namespaces/" + names[i]
			for _, o := range []struct {
				path, version, kind, name string
				spec                      fields
			}{
				{namespaces, "v1", "Namespace", names[i], nil},
				{"/api/v1" + below + "/configmaps", "v1", "ConfigMap", scaleName, nil},
				{"/apis/offloading.liqo.io/v1beta1" + below + "/namespaceoffloadings", "offloading.liqo.io/v1beta1",
					"NamespaceOffloading", "offloading", fields{"podOffloadingStrategy": "Remote"}},
			} {
				object := fields{"apiVersion": o.version, "kind": o.kind, "metadata": fields{"name": o.name}, "spec": o.spec}
				if err := b.rome.api.create(ctx, o.path, object); err != nil {
					return err
				}
			}
			return nil
		})
	}, func(ctx context.Context) error {
		return errors.Join(b.removeAll(ctx, sizes, namespaces), gone(ctx, b.rome, namespaces), gone(ctx, b.milan, namespaces))
	}}
}

// scalePeers adds peers to rome. One is in place when both nodes and the gateway to milan route to its ranges.
func (b *bed) scalePeers() dimension {
	var kernels []kernel
	var without crowd
	return dimension{"peers", []int{1, 10, 100}, scaleSettle, func(ctx context.Context, from, to int) (err error) {
		if from == 0 {
			if err := b.ensureTemplate(ctx); err != nil {
				return err
			}
			if kernels, err = b.kernels(ctx, "fabric", "gateway"); err != nil {
				return err
			}
			if without.counts, err = countAll(ctx, kernels); err != nil {
				return err
			}
		}
		if err := b.addPeers(ctx, from, to); err != nil {
			return err
		}
		return awaitPeers(ctx, kernels, without, to)
	}, b.removePeers}
}

// scalePods adds pods to an offloaded namespace. One is in place when it is Running in rome.
func (b *bed) scalePods() dimension {
	return dimension{"pods", []int{100, 300, 1000, 3000}, podsSettle, func(ctx context.Context, from, to int) error {
		_, err := b.offloaded().run(ctx, pods, podNames(scaleName, to)[from:])
		return err
	}, func(ctx context.Context) error { return b.clear(ctx, b.offloaded(), pods) }}
}
