// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
)

// IsControlPlane says whether a Secret holds the kubeconfig by which this cluster's control plane
// enters a provider.
func IsControlPlane(secret client.Object) bool {
	l := secret.GetLabels()
	return l[api.LabelIdentityType] == string(authv1beta1.IdentityControlPlane) && l[api.LabelRemoteClusterID] != ""
}
