// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheme makes the scheme every client of this project uses: the five Liqo groups
// and the built-in kinds of Kubernetes.
package scheme

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// New returns a scheme of its own with the five Liqo groups and the built-in kinds.
// Registration fails only when two Go types claim one kind: a programming error, so it panics.
func New() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(AddToScheme(s))
	return s
}

// AddToScheme registers the five Liqo groups.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(corev1beta1.AddToScheme(s), netv1beta1.AddToScheme(s), authv1beta1.AddToScheme(s),
		offv1beta1.AddToScheme(s), ipamv1alpha1.AddToScheme(s))
}
