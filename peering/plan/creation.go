// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// CreationInput is the input for the creation of a peer's ForeignCluster.
type CreationInput struct {
	// Root has no UID if it does not exist.
	Root *corev1beta1.ForeignCluster
	// Uninstalling is set while Liqo is being uninstalled.
	Uninstalling bool
}

// Creation creates a ForeignCluster that does not exist, unless its name is no valid cluster ID.
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
