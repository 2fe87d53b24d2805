// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// CreationInput is the ForeignCluster of a peer that something was heard of. It has no UID if it does not exist.
type CreationInput struct {
	Root *corev1beta1.ForeignCluster
	// Uninstalling says that Liqo is being uninstalled.
	Uninstalling bool
}

// Creation makes a ForeignCluster that does not exist, unless its name cannot be the ID of a cluster.
func Creation(in CreationInput) desired.Plan {
	id := in.Root.Name
	if in.Root.UID != "" || in.Uninstalling || api.ValidateClusterID(id) != nil {
		return desired.Plan{}
	}
	return desired.Plan{Actions: []desired.Action{{Verb: desired.Create, Object: &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id,
			Labels: map[string]string{api.LabelRemoteClusterID: id, api.LabelManaged: api.True}},
		Spec: corev1beta1.ForeignClusterSpec{ClusterID: id},
	}}}}
}
