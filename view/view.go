// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package view knows what the state of a cluster and of its peerings is. Its functions are pure: they turn objects,
// as read from an API server, a cache or a file, into what 'liqoctl info' prints and 'liqoctl dashboard' shows. It
// reads nothing itself and draws nothing. Peers may have written texts in its results: code that shows them escapes
// them.
//
// Start with InspectPeer for one peering and Snapshot.Map for a whole cluster.
package view

import (
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/liqo-go/liqo/api"
)

// Object is a typed object of Kubernetes or Liqo.
type Object interface {
	metav1.Object
	runtime.Object
}

// Name returns kind and name of an object as kubectl takes them.
func Name(kind string, object metav1.Object) string {
	name := strings.ToLower(kind) + " "
	if kind == "ResourceSlice" {
		name = "rslice " // Kubernetes has ResourceSlices of its own
	}
	if object.GetNamespace() != "" {
		name += object.GetNamespace() + "/"
	}
	return name + object.GetName()
}

// kindOf returns the kind of a typed object: the name of its Go type. Objects from lists do not say it.
func kindOf(object Object) string { return reflect.TypeOf(object).Elem().Name() }

// nameOf returns kind and name of a typed object as kubectl takes them.
func nameOf(object Object) string { return Name(kindOf(object), object) }

func metaOf(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// oneLine joins the lines of a text.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// isPeer reports whether the label of an object names a peer.
func isPeer(object metav1.Object, id string) bool {
	return object.GetLabels()[api.LabelRemoteClusterID] == id
}
