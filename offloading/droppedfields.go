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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	next    time.Time // when the version is read again
	version string    // that fields is for; empty = none
	fields  fields.Set
}

const (
	// fieldsTime limits how long the API server may take to return its version and its OpenAPI.
	fieldsTime = 10 * time.Second
	// fieldsRetry is the interval at which they are read again after an error.
	fieldsRetry = 10 * time.Second
)

// Register takes over the client of mgr.
func (d *droppedFields) Register(mgr manager.Manager) error {
	d.server = remote.Cluster{Client: mgr.GetClient(), RESTConfig: mgr.GetConfig(), HTTP: mgr.GetHTTPClient()}
	return nil
}

// of returns the fields of a pod's spec that the API server does not know. It fails until they have been
// read once: a pod that is created before that may get an emptyDir in place of its volume.
func (d *droppedFields) of(ctx context.Context, spec *corev1.PodSpec) ([]string, error) {
	unknown, err := d.unknown(ctx)
	if err != nil || len(unknown) == 0 {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Pod{Spec: *spec})
	if err != nil {
		return nil, fmt.Errorf("encode the spec of a pod: %w", err)
	}
	return unknown.Lost(content), nil
}

// unknown reads the fields when it is time to. After a later error, the former ones stay.
func (d *droppedFields) unknown(ctx context.Context) (fields.Set, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Now().Before(d.next) && d.version != "" {
		return d.fields, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fieldsTime)
	defer cancel()
	err := d.read(ctx)
	d.next = time.Now().Add(plan.Heartbeat)
	if err != nil {
		d.next = time.Now().Add(fieldsRetry)
	}
	if err != nil && d.version != "" {
		log.FromContext(ctx).Error(err, "compare fields of pods with those of the API server")
		err = nil
	}
	return d.fields, err
}

// read compares the OpenAPI of the API server with our type, if its version has changed.
func (d *droppedFields) read(ctx context.Context) error {
	version, err := d.server.Version(ctx)
	if err != nil || version == d.version {
		return err
	}
	document, err := d.server.Fields(ctx, corev1.SchemeGroupVersion)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) { // waiting is no help
		log.FromContext(ctx).Error(err, "fields of pods are not compared with those of the API server")
	} else if err != nil {
		return err
	}
	_, d.fields = document.Compare(corev1.SchemeGroupVersion.WithKind("Pod"), reflect.TypeFor[corev1.Pod]())
	d.version = version
	return nil
}
