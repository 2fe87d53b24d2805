// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	serviceRounds = 5
	serviceTarget = 0.15 // s, 100 endpoints
)

// slice is what is written and read of an EndpointSlice.
type slice struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	AddressType string      `json:"addressType"`
	Endpoints   []endpoint  `json:"endpoints"`
	Ports       []slicePort `json:"ports"`
}

type endpoint struct {
	Addresses []string `json:"addresses"`
}

type slicePort struct {
	Name string `json:"name"`
	Port int    `json:"port"`
}

func newSlice(service string, endpoints int) slice {
	s := slice{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice", AddressType: "IPv4", Ports: []slicePort{{"http", 80}}}
	s.Metadata.Name = service + "-1"
	s.Metadata.Labels = map[string]string{"kubernetes.io/service-name": service}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, endpoint{[]string{fmt.Sprintf("10.10.%d.%d", 200+i/250, 1+i%250)}})
	}
	return s
}

func slicesPath(namespace string) string {
	return "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices"
}

// measureServices makes Services with many endpoints at home and waits for these at the provider, and
// the same with a namespace that stays within its cluster.
func measureServices(ctx context.Context, b *bed) error {
	if err := b.ensureNamespaces(ctx); err != nil {
		return err
	}
	for _, n := range []int{100, 1000} {
		var offloaded, direct []float64
		for round := range serviceRounds {
			name := fmt.Sprintf("service-%d-%d", n, round)
			one, err := appears(ctx, name, n, b.direct()[0], b.direct()[0])
			if err != nil {
				return err
			}
			next, err := appears(ctx, name, n, b.offloaded(), place{b.milan, "bench-rome", "", nil})
			if err != nil {
				return err
			}
			direct, offloaded = append(direct, one), append(offloaded, next)
		}
		note := fmt.Sprintf("%.3f", offloaded)
		f := figure{Group: "services", Name: fmt.Sprintf("Service with %d endpoints to appear", n), Value: median(offloaded), Unit: "s", Note: note}.beside(median(direct))
		if n == 100 {
			f = f.below(serviceTarget)
		}
		b.report.add(f)
	}
	return nil
}

// appears is how many seconds pass from the creation of a Service, with its endpoints, in one place
// until all of these are seen in the other.
func appears(ctx context.Context, name string, n int, from, to place) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	there := newMoments(1)
	watched := make(chan error, 1)
	go func() {
		watched <- watch(ctx, to.cluster.api, slicesPath(to.namespace), func(s slice) {
			if s.Metadata.Labels["kubernetes.io/service-name"] == name && len(s.Endpoints) == n {
				there.saw(name)
			}
		})
	}()
	service := map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]string{"name": name},
		"spec": map[string]any{"ports": []slicePort{{"http", 80}}},
	}
	services := "/api/v1/namespaces/" + from.namespace + "/services"
	began := time.Now()
	err := errors.Join(
		from.cluster.api.create(ctx, services, service),
		from.cluster.api.create(ctx, slicesPath(from.namespace), newSlice(name, n)),
		there.wait(ctx, fmt.Sprintf("%d endpoints of %s in %s", n, name, to.cluster.name)),
	)
	if err != nil {
		return 0, err
	}
	took := there.at[name].Sub(began).Seconds()
	err = errors.Join(from.cluster.api.remove(ctx, services+"/"+name), from.cluster.api.remove(ctx, slicesPath(from.namespace)+"/"+name+"-1"))
	cancel()
	return took, errors.Join(err, <-watched)
}
