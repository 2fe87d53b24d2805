// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/liqo-go/liqo/internal/fields"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/offloading/plan"
)

// droppedFields knows which fields of pods our types have and the local API server lacks, because its
// Kubernetes is older than this Liqo. The API server drops them without an error: pods are written as
// protobuf, which it does not validate. Consumers may have such fields.
type droppedFields struct {
	server remote.Cluster

	mu      sync.Mutex
	asked   time.Time // when the version was last read
	version string    // that fields is for; empty = none
	fields  fields.Set
}

// Register takes over the client of mgr.
func (d *droppedFields) Register(mgr manager.Manager) error {
	d.server = remote.Cluster{Client: mgr.GetClient(), RESTConfig: mgr.GetConfig(), HTTP: mgr.GetHTTPClient()}
	return nil
}

// of returns the fields of a pod's spec that the API server does not know.
func (d *droppedFields) of(ctx context.Context, spec *corev1.PodSpec) ([]string, error) {
	d.mu.Lock()
	if time.Since(d.asked) > plan.Heartbeat {
		d.asked = time.Now()
		if err := d.read(ctx); err != nil {
			log.FromContext(ctx).Error(err, "compare fields of pods, those that the API server does not know are lost")
		}
	}
	unknown := d.fields
	d.mu.Unlock()
	if len(unknown) == 0 {
		return nil, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Pod{Spec: *spec})
	if err != nil {
		return nil, fmt.Errorf("encode the spec of a pod: %w", err)
	}
	return unknown.Lost(content), nil
}

// read compares the OpenAPI of the API server with our type, if its version has changed.
func (d *droppedFields) read(ctx context.Context) error {
	version, err := d.server.Version()
	if err != nil || version == d.version {
		return err
	}
	document, err := d.server.Fields(ctx, corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	_, d.fields = document.Compare(corev1.SchemeGroupVersion.WithKind("Pod"), reflect.TypeFor[corev1.Pod]())
	d.version = version
	return nil
}
